"""How many tokens a request can have at most, told before it leaves.

No tokenizer is asked: every tokenizer in use makes at least one byte of each token, so the bytes of a text bound its
tokens, whoever counts them. What providers add of their own (the words around a message, the text that explains tools)
is allowed for by constants. Files are not texts: an image costs by its size in pixels, a document by its pages, so
each has a least allowance. What a provider's own tools read for the model has none, and counts apart
(:mod:`mixseek.llm.providers_tools`).
"""

from collections.abc import Iterable, Sequence
from typing import Final

from pydantic_ai import BinaryContent, ModelMessage, ModelRequest, TextContent
from pydantic_ai.messages import (
    CachePoint,
    ModelRequestPart,
    ModelResponsePart,
    SystemPromptPart,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models import ModelRequestParameters
from pydantic_core import to_json

from mixseek.llm.convert import parameters_to_json

__all__ = ["most_input_tokens"]

_AROUND_A_REQUEST: Final = 64
_AROUND_A_PART: Final = 24
_AROUND_TOOLS: Final = 1_024
_AROUND_A_TOOL: Final = 64
_A_FILE: Final = 50_000
"""An image of the largest size at the dearest provider."""
_A_DOCUMENT: Final = 200_000
"""Pages are shown to a model as pictures and as text, and how many there are is not told by the bytes."""


def most_input_tokens(messages: Sequence[ModelMessage], parameters: ModelRequestParameters) -> int:
    """An upper bound of what a model reads of this request."""
    parts = [part for message in messages for part in message.parts]
    return (
        _AROUND_A_REQUEST
        + sum(_AROUND_A_PART + _tokens_of(part) for part in parts)
        + _instructions(messages)
        + _offered(parameters)
    )


def _instructions(messages: Iterable[ModelMessage]) -> int:
    """The longest: those of the latest request are sent, or those that come with the parameters, which count apart."""
    return max((_bytes(one.instructions or "") for one in messages if isinstance(one, ModelRequest)), default=0)


def _offered(parameters: ModelRequestParameters) -> int:
    """Tools, the form of the output and instructions, as they are described to the model."""
    tools = len(parameters.function_tools) + len(parameters.output_tools)
    around = _AROUND_TOOLS + _AROUND_A_TOOL * tools if tools else 0
    return len(to_json(parameters_to_json(parameters))) + around


def _tokens_of(part: ModelRequestPart | ModelResponsePart) -> int:
    match part:
        case SystemPromptPart() | TextPart() | UserPromptPart():
            return _of_content(part.content)
        case ToolCallPart():
            return _bytes(part.tool_name) + _bytes(part.args_as_json_str())
        case ToolReturnPart():
            return _bytes(part.tool_name) + _of_content(part.content)
    # A part of a rarer kind: all that its JSON holds, and what its content may have of files.
    return _of_content(getattr(part, "content", None)) + _as_json(part)


def _of_content(content: object) -> int:
    match content:
        case str():
            return _bytes(content)
        case TextContent():
            return _bytes(content.content)
        case BinaryContent():
            return _of_file(content.media_type, len(content.data))
        case CachePoint() | None:
            return 0
        case list() | tuple():
            return sum(_AROUND_A_PART + _of_content(one) for one in content)
    media_type = getattr(content, "media_type", None)
    return _of_file(str(media_type), 0) if media_type else _as_json(content)


def _of_file(media_type: str, size: int) -> int:
    return max(size, _A_DOCUMENT if media_type == "application/pdf" or media_type.startswith("video/") else _A_FILE)


def _bytes(text: str) -> int:
    return len(text.encode("utf-8", "surrogatepass"))


def _as_json(value: object) -> int:
    return len(to_json(value, fallback=repr, serialize_unknown=True, inf_nan_mode="strings"))
