"""What a scripted model says: text, tool calls or a structured value, in the short forms people like to write."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

__all__ = ["Answer", "AnswerLike", "FinishReason", "ToolCall", "as_answer"]

FinishReason: TypeAlias = Literal["stop", "length", "content_filter", "tool_calls"]


@dataclass(frozen=True, slots=True)
class ToolCall:
    """One call of a tool; arguments given as a string are sent as they are, even when they are not JSON."""

    name: str
    arguments: Mapping[str, Any] | str = field(default_factory=dict)
    id: str | None = None

    @property
    def arguments_json(self) -> str:
        """The arguments as they travel."""
        return self.arguments if isinstance(self.arguments, str) else json.dumps(self.arguments, ensure_ascii=False)


@dataclass(frozen=True, slots=True)
class Answer:
    """One answer of a model.

    ``value`` is a structured value; it is sent the way the request asked for it, as a call of the output tool or as
    JSON text. ``finish_reason`` and the token counts are worked out unless given.
    """

    text: str | None = None
    tool_calls: tuple[ToolCall, ...] = ()
    value: Any = None
    finish_reason: FinishReason | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None


AnswerLike: TypeAlias = Answer | ToolCall | Sequence[ToolCall] | Mapping[str, Any] | str | None
"""An answer in short: a string is text, a mapping a structured value, tool calls are calls, None the default answer."""


def as_answer(like: AnswerLike) -> Answer | None:
    """The answer that ``like`` is short for.

    >>> as_answer("Tokyo").text
    'Tokyo'
    >>> as_answer({"score": 80}).value
    {'score': 80}
    """
    if like is None or isinstance(like, Answer):
        return like
    if isinstance(like, str):
        return Answer(text=like)
    if isinstance(like, Mapping):
        return Answer(value=dict(like))
    calls = (like,) if isinstance(like, ToolCall) else tuple(like)
    if not calls or not all(isinstance(call, ToolCall) for call in calls):
        raise TypeError(f"{like!r} is no answer: give text, a mapping, an Answer, or one or more ToolCall")
    return Answer(tool_calls=calls)
