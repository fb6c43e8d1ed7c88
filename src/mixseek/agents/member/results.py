"""From what a member gives back to what is kept: custom members may hand over pydantic-ai's own objects."""

from collections.abc import Sequence
from math import isfinite
from typing import Any, Literal

from pydantic import JsonValue
from pydantic_ai import ModelRequest, ModelResponse
from pydantic_ai.usage import RequestUsage, RunUsage
from pydantic_core import PydanticSerializationError, to_json, to_jsonable_python

from mixseek.llm import messages_to_json, usage_record
from mixseek.records import MemberAgentResult, MemberSubmission, ResultStatus, Usage
from mixseek.surrogates import whole_text, whole_value

__all__ = ["as_submission"]

_STATUS: dict[ResultStatus, Literal["SUCCESS", "ERROR", "WARNING"]] = {
    ResultStatus.SUCCESS: "SUCCESS",
    ResultStatus.ERROR: "ERROR",
    ResultStatus.WARNING: "WARNING",
}
# The stores take 150 levels, and the record that the messages stand in has some of its own.
_DEEPEST = 100


def as_submission(result: MemberAgentResult, *, seconds: float) -> MemberSubmission:
    """The record of one call; ``seconds`` is how long it took where the member did not measure it.

    Raises whatever odd messages make of the way to JSON.
    """
    measured, words = result.execution_time_ms, result.error_message or result.warning_message
    return MemberSubmission(
        agent_name=whole_text(result.agent_name),
        agent_type=whole_text(result.agent_type),
        content=whole_text(result.content),
        status=_STATUS[result.status],
        error_message=None if words is None else whole_text(words),
        usage=_usage(result.usage_info),
        timestamp=result.timestamp,
        execution_time_ms=seconds * 1000 if measured is None or not isfinite(measured) else measured,
        all_messages=_messages(result.all_messages),
    )


def _usage(given: Any) -> Usage:
    if isinstance(given, Usage):
        return given
    if isinstance(given, RunUsage | RequestUsage):
        return usage_record(given)
    if isinstance(given, dict):
        known = {name: count for name, count in given.items() if name in Usage.model_fields and isinstance(count, int)}
        return Usage(**known)
    return Usage()


def _messages(given: Sequence[Any] | None) -> list[JsonValue] | None:
    if given is None:
        return None
    are_known = all(isinstance(message, ModelRequest | ModelResponse) for message in given)
    made = messages_to_json(given) if are_known else list(given)
    values: list[JsonValue] = to_jsonable_python(made, fallback=str, inf_nan_mode="null")
    try:
        text = to_json(values)
    except PydanticSerializationError:  # halves of surrogate pairs
        values = whole_value(values)
        text = to_json(values)
    # Counting is quick, and mostly enough.
    if text.count(b"[") + text.count(b"{") > _DEEPEST and _depth(values) > _DEEPEST:
        raise ValueError(f"all_messages is nested deeper than {_DEEPEST} levels")
    return values


def _depth(value: JsonValue) -> int:
    if isinstance(value, dict):
        return 1 + max(map(_depth, value.values()), default=0)
    return 1 + max(map(_depth, value), default=0) if isinstance(value, list) else 0
