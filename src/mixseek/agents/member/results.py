"""From what a member gives back to what is kept: custom members may hand over pydantic-ai's own objects."""

import asyncio
from collections.abc import Sequence
from typing import Any, Literal

from pydantic import JsonValue
from pydantic_ai import ModelRequest, ModelResponse
from pydantic_ai.usage import RequestUsage, RunUsage
from pydantic_core import to_jsonable_python

from mixseek.llm import messages_to_json, usage_record
from mixseek.records import MemberAgentResult, MemberSubmission, ResultStatus, Usage

__all__ = ["as_submission", "being_cancelled"]

_STATUS: dict[ResultStatus, Literal["SUCCESS", "ERROR", "WARNING"]] = {
    ResultStatus.SUCCESS: "SUCCESS",
    ResultStatus.ERROR: "ERROR",
    ResultStatus.WARNING: "WARNING",
}


def as_submission(result: MemberAgentResult, *, seconds: float) -> MemberSubmission:
    """The record of one call; ``seconds`` is how long it took where the member did not measure it."""
    return MemberSubmission(
        agent_name=result.agent_name,
        agent_type=result.agent_type,
        content=result.content,
        status=_STATUS[result.status],
        error_message=result.error_message or result.warning_message,
        usage=_usage(result.usage_info),
        timestamp=result.timestamp,
        execution_time_ms=seconds * 1000 if result.execution_time_ms is None else result.execution_time_ms,
        all_messages=_messages(result.all_messages),
    )


def being_cancelled() -> bool:
    """Whether the task that runs is being cancelled, and does not only hear of what something cancelled by itself."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


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
    if all(isinstance(message, ModelRequest | ModelResponse) for message in given):
        return messages_to_json(given)
    values: list[JsonValue] = to_jsonable_python(list(given), fallback=str)
    return values
