"""Between pydantic-ai's values and ours: settings, usage, and messages as JSON."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Final, cast

from pydantic import JsonValue, TypeAdapter
from pydantic_ai import (
    ModelMessage,
    ModelMessagesTypeAdapter,
    ModelRequest,
    ModelRequestPart,
    ModelResponse,
    ModelResponsePart,
    ModelSettings,
    RunUsage,
    TextPart,
    ToolCallPart,
    UserPromptPart,
)
from pydantic_ai.messages import BaseToolCallPart
from pydantic_ai.models import ModelRequestParameters
from pydantic_ai.usage import RequestUsage
from pydantic_core import PydanticSerializationError, to_json, to_jsonable_python

from mixseek.config.schema import ModelParams
from mixseek.llm.attached import kept_content
from mixseek.records import Usage
from mixseek.redaction import MadeJson, sorted_json
from mixseek.surrogates import is_unicode, whole_json, whole_value

__all__ = [
    "PlainRequest",
    "answer_from_json",
    "answer_to_json",
    "messages_from_json",
    "messages_to_json",
    "model_settings",
    "parameters_text",
    "parameters_to_json",
    "plain_request",
    "settings_text",
    "settings_to_json",
    "truly_counted",
    "usage_record",
    "whole_answer",
]

_PARAMETERS: TypeAdapter[ModelRequestParameters] = TypeAdapter(ModelRequestParameters)
_MOST_KNOWN = 128
_known_parameters: dict[int, tuple[ModelRequestParameters, MadeJson]] = {}
_PLAIN_PARTS: Final = frozenset({TextPart, ToolCallPart})
_MOST_TOKENS: Final = 10**12
"""More than any answer takes; the sums of a run are then still numbers that both stores can hold."""
_COUNTS = tuple(name for name in Usage.model_fields if name not in ("requests", "tool_calls", "details"))


def model_settings(params: ModelParams) -> ModelSettings:
    """How a model is asked, as pydantic-ai names it; what is not set is left out.

    >>> model_settings(ModelParams(temperature=0.5, timeout_seconds=60))
    {'temperature': 0.5, 'timeout': 60}
    """
    named: dict[str, Any] = {
        "temperature": params.temperature,
        "max_tokens": params.max_tokens,
        "timeout": params.timeout_seconds,
        "max_retries": params.max_retries,
        "stop_sequences": params.stop_sequences,
        "top_p": params.top_p,
        "seed": params.seed,
    }
    return cast("ModelSettings", {name: value for name, value in named.items() if value is not None})


def usage_record(usage: RunUsage | RequestUsage) -> Usage:
    """Usage as a record; a single request counts as one."""
    counts: dict[str, Any] = {name: getattr(usage, name) or 0 for name in _COUNTS}
    if isinstance(usage, RunUsage):
        counts |= {"requests": usage.requests, "tool_calls": usage.tool_calls}
    else:
        counts["requests"] = 1
    return Usage(**counts, details=dict(usage.details))


def truly_counted(answer: ModelResponse) -> ModelResponse:
    """The answer itself, or, where it tells a number of tokens that cannot be, one that tells none."""
    usage = answer.usage
    counts = [getattr(usage, name) or 0 for name in _COUNTS]
    if all(0 <= count <= _MOST_TOKENS for count in (*counts, *usage.details.values())):
        return answer
    return replace(answer, usage=RequestUsage())


def messages_to_json(messages: Sequence[ModelMessage]) -> list[JsonValue]:
    """Messages as JSON values, for stores and records; files in them are told by their hashes."""
    kept = [_kept(message) if isinstance(message, ModelRequest) else message for message in messages]
    values: list[JsonValue] = ModelMessagesTypeAdapter.dump_python(kept, mode="json")
    return values


@dataclass(frozen=True, slots=True)
class PlainRequest:
    """A request that is one message of texts, as most are, and of such that UTF-8 can hold."""

    instructions: str | None
    said: tuple[str, ...]

    def text(self) -> MadeJson:
        """:func:`messages_to_json` as text, its names in order and without what differs each time."""
        parts = [f'{{"content":{_quoted(one)},"part_kind":"user-prompt"}}' for one in self.said]
        instructions = "null" if self.instructions is None else _quoted(self.instructions)
        return MadeJson((_ONE_REQUEST % (instructions, ",".join(parts))).encode())


def plain_request(messages: Sequence[ModelMessage]) -> PlainRequest | None:
    """The texts of a request that consists of nothing else: a walk through all that a message might be takes long."""
    if len(messages) != 1 or not _IS_AS_KNOWN:
        return None
    message = messages[0]
    if not isinstance(message, ModelRequest) or message.metadata is not None or message.state != "complete":
        return None
    said = []
    for part in message.parts:
        if type(part) is not UserPromptPart or not isinstance(part.content, str):
            return None
        said.append(part.content)
    texts = said if message.instructions is None else [message.instructions, *said]
    return PlainRequest(message.instructions, tuple(said)) if all(map(is_unicode, texts)) else None


# A later version of pydantic-ai may know more of a message than is written here; then the long way is taken.
_IS_AS_KNOWN: Final = [[one.name for one in fields(kind)] for kind in (ModelRequest, UserPromptPart)] == [
    ["parts", "timestamp", "instructions", "kind", "run_id", "conversation_id", "metadata", "state"],
    ["content", "timestamp", "part_kind"],
]
_ONE_REQUEST: Final = '[{"instructions":%s,"kind":"request","metadata":null,"parts":[%s],"state":"complete"}]'
_quoted: Final = json.JSONEncoder(ensure_ascii=False).encode


def _kept(request: ModelRequest) -> ModelRequest:
    if not any(isinstance(part, UserPromptPart) and not isinstance(part.content, str) for part in request.parts):
        return request
    return replace(request, parts=[_kept_part(part) for part in request.parts])


def _kept_part(part: ModelRequestPart) -> ModelRequestPart:
    if not isinstance(part, UserPromptPart) or isinstance(part.content, str):
        return part
    return replace(part, content=[kept_content(item) for item in part.content])


def messages_from_json(values: Sequence[JsonValue]) -> list[ModelMessage]:
    """The messages that were made JSON by :func:`messages_to_json`."""
    # By way of text: only there bytes are read as they were written.
    return ModelMessagesTypeAdapter.validate_json(to_json(list(values)))


def answer_to_json(answer: ModelResponse) -> JsonValue | MadeJson:
    """One answer as JSON text, or, where UTF-8 cannot hold it, as a JSON value."""
    try:
        if type(answer) is ModelResponse and _PLAIN_PARTS.issuperset(map(type, answer.parts)):
            # Written as they are, without a look at what else they might be, which takes as long again.
            return MadeJson(to_json(answer, bytes_mode="base64", inf_nan_mode="null"))
        # The brackets of a list of one: only that type is known to write files as base64.
        return MadeJson(ModelMessagesTypeAdapter.dump_json([answer])[1:-1])
    except PydanticSerializationError:
        return messages_to_json([answer])[0]


def answer_from_json(value: JsonValue | MadeJson) -> ModelResponse:
    """The answer that was made JSON by :func:`answer_to_json`."""
    text = value if isinstance(value, MadeJson) else to_json(value)
    return cast("ModelResponse", ModelMessagesTypeAdapter.validate_json(b"[%b]" % text)[0])


def whole_answer(answer: ModelResponse) -> ModelResponse:
    """The answer itself, or where halves of surrogate pairs stand in it, one that can be kept and sent again."""
    changed = {number: part for number, one in enumerate(answer.parts) if (part := _whole_part(one)) is not one}
    if not changed:
        return answer
    return replace(answer, parts=[changed.get(number, part) for number, part in enumerate(answer.parts)])


def _whole_part(part: ModelResponsePart) -> ModelResponsePart:
    changed = {name: new for name, old in vars(part).items() if (new := whole_value(old)) is not old}
    if (
        isinstance(part, BaseToolCallPart)
        and isinstance(part.args, str)
        and (args := whole_json(part.args)) != part.args
    ):
        changed["args"] = args
    return replace(part, **changed) if changed else part


def settings_to_json(settings: ModelSettings | None) -> JsonValue:
    """Settings as a JSON value; what has no JSON form is told by its repr, so that a record is never lost to it."""
    return cast("JsonValue", to_jsonable_python(settings or {}, fallback=repr))


def settings_text(settings: ModelSettings | None) -> JsonValue | MadeJson:
    """:func:`settings_to_json` as text, or a value UTF-8 cannot hold; ValueError for what is no number."""
    return _text_or_value(settings_to_json(settings))


def _text_or_value(value: JsonValue) -> JsonValue | MadeJson:
    try:
        return sorted_json(value)
    except UnicodeEncodeError:
        return value


def parameters_to_json(parameters: ModelRequestParameters) -> JsonValue:
    """The tools on offer and the output that is wanted, as a JSON value, the same in every process."""
    value = _PARAMETERS.dump_python(parameters, mode="json", exclude_defaults=True)
    for tool in (*value.get("function_tools", ()), *value.get("output_tools", ())):
        # What a provider or this machine can do is named by chance, anew in each process.
        tool.pop("capability_id", None)
    return cast("JsonValue", value)


def parameters_text(parameters: ModelRequestParameters) -> JsonValue | MadeJson:
    """:func:`parameters_to_json` as text, made once for those that are used again, or a value UTF-8 cannot hold."""
    known = _known_parameters.get(id(parameters))
    if known is not None:
        return known[1]
    text = _text_or_value(parameters_to_json(parameters))
    if not isinstance(text, MadeJson):
        return text
    if len(_known_parameters) >= _MOST_KNOWN:
        _known_parameters.clear()
    # They are held themselves, so that no others get the same id.
    _known_parameters[id(parameters)] = parameters, text
    return text
