"""A conversation as a chat template of a small model takes it: system first, then user and assistant in turn."""

import json
import re
from collections.abc import Iterator, Sequence
from typing import Any

from pydantic_ai import (
    ModelMessage,
    ModelRequest,
    ModelRequestPart,
    ModelResponse,
    RetryPromptPart,
    SystemPromptPart,
    TextContent,
    TextPart,
    ToolCallPart,
    ToolDefinition,
    ToolReturnPart,
    UserContent,
    UserPromptPart,
)

__all__ = ["ChatMessage", "chat_messages", "tool_words"]

ChatMessage = dict[str, str]

_LONGEST_EXAMPLE = 160

# A text that others wrote must not open or close a turn.
_MARK_OF_A_TURN = re.compile(r"<\|(\w+)\|>")


def chat_messages(messages: Sequence[ModelMessage], instructions: str, *, calls: bool) -> list[ChatMessage]:
    """All that was said, under one system message; templates of many models know no other order.

    Without ``calls`` only what tools gave is told, not how they were asked: what looks like JSON is answered in JSON.
    """
    system = [instructions] if instructions else []
    said: list[ChatMessage] = []
    for role, text in _said(messages, calls=calls):
        if role == "system":
            system.append(text)
        elif said and said[-1]["role"] == role:
            said[-1]["content"] += f"\n\n{text}"
        else:
            said.append({"role": role, "content": text})
    if system:
        said.insert(0, {"role": "system", "content": _harmless("\n\n".join(system))})
    return said


def tool_words(tools: Sequence[ToolDefinition], messages: Sequence[ModelMessage], *, may_answer: bool) -> str:
    """What a model is told of its tools; short, since it reads no faster than it writes.

    It ends with an example, in the user's own words: without one, the smallest models write names and not sentences.
    """
    lines = [f"- {tool.name}: {tool.description or 'no description'} Arguments: {_arguments(tool)}" for tool in tools]
    forms = ['{"tool": name, "arguments": {...}} to use a tool']
    forms += ['{"answer": text} to answer'] if may_answer else []
    example = json.dumps(_example(tools[0], messages), ensure_ascii=False)
    return "\n".join(["Tools:", *lines, f"Write JSON: {', or '.join(forms)}.", f"For example: {example}"])


def _example(tool: ToolDefinition, messages: Sequence[ModelMessage]) -> dict[str, Any]:
    words = _first_words(messages)
    properties = tool.parameters_json_schema.get("properties", {})
    arguments = {name: words for name, schema in properties.items() if _kind(schema) == "string"}
    return {"tool": tool.name, "arguments": arguments}


def _first_words(messages: Sequence[ModelMessage]) -> str:
    """The first line of what the user said that is no heading."""
    said = (text for role, text in _said(messages, calls=False) if role == "user")
    lines = (line.strip() for text in said for line in text.splitlines())
    return next((line for line in lines if line and not line.startswith("#")), "")[:_LONGEST_EXAMPLE]


def _arguments(tool: ToolDefinition) -> str:
    properties = tool.parameters_json_schema.get("properties", {})
    return ", ".join(f"{name} ({_kind(schema)})" for name, schema in properties.items()) or "none"


def _kind(schema: Any) -> str:
    kind = schema.get("type") if isinstance(schema, dict) else None
    return kind if isinstance(kind, str) else "any"


def _said(messages: Sequence[ModelMessage], *, calls: bool) -> Iterator[tuple[str, str]]:
    for message in messages:
        if isinstance(message, ModelRequest):
            yield from (asked for part in message.parts if (asked := _asked(part)) is not None)
        elif isinstance(message, ModelResponse):
            text = _answered(message, calls=calls)
            if text:
                yield "assistant", _harmless(text)


def _asked(part: ModelRequestPart) -> tuple[str, str] | None:
    match part:
        case SystemPromptPart(content=text):
            return "system", text
        case UserPromptPart(content=content):
            return "user", _harmless(content if isinstance(content, str) else "\n\n".join(map(_text, content)))
        case ToolReturnPart():
            return "user", _harmless(f"{part.tool_name} gave:\n{part.model_response_str()}")
        case RetryPromptPart():
            return "user", _harmless(part.model_response())
    return None


def _text(content: UserContent) -> str:
    match content:
        case str():
            return content
        case TextContent(content=text):
            return text
    return f"({type(content).__name__}: cannot be shown to this model)"


def _answered(response: ModelResponse, *, calls: bool) -> str:
    lines = []
    for part in response.parts:
        if isinstance(part, TextPart):
            lines.append(part.content)
        elif isinstance(part, ToolCallPart) and calls:
            lines.append(json.dumps({"tool": part.tool_name, "arguments": _arguments_of(part)}, ensure_ascii=False))
    return "\n".join(lines)


def _arguments_of(call: ToolCallPart) -> Any:
    try:
        return call.args_as_dict()
    except ValueError:
        return call.args


def _harmless(text: str) -> str:
    return _MARK_OF_A_TURN.sub(r"< \1 >", text)
