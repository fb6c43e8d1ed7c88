"""One call of a member, watched and bounded while it works.

A leader asks its members this way, and so does whoever asks one member alone.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pydantic import JsonValue

from mixseek.agents.member.base import BaseMemberAgent
from mixseek.agents.member.results import as_submission
from mixseek.config.schema import MemberAgentConfig
from mixseek.errors import BudgetExhaustedError, MixSeekError
from mixseek.events import Event, MemberCalled, MemberFinished
from mixseek.llm import FinishedToolUse, Meter, PatientTimeout, Scope, calling, current_meter
from mixseek.prompt_builder.fence import new_nonce
from mixseek.records import MemberAgentResult, MemberSubmission, Usage, seconds_between, utc_now
from mixseek.strangers import alone, in_words, is_for_us, place_in

__all__ = ["Given", "ask_member"]

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Given:
    """What a member gave for a task, and the nonce of the fence in which its leader reads it."""

    submission: MemberSubmission
    nonce: str

    def as_json(self) -> JsonValue:
        """As the journal keeps it: whoever plays the round again has to give the leader the very same text."""
        return {**self.submission.model_dump(mode="json"), "nonce": self.nonce}

    @classmethod
    def from_json(cls, kept: JsonValue) -> "Given | None":
        """What :meth:`as_json` made; None if it is nothing of the kind."""
        if not isinstance(kept, dict) or not isinstance(kept.get("nonce"), str):
            return None
        submission = {name: value for name, value in kept.items() if name != "nonce"}
        return cls(MemberSubmission.model_validate(submission), str(kept["nonce"]))


async def ask_member(
    member: BaseMemberAgent,
    task: str,
    scope: Scope,
    emit: Callable[[Event], None],
    *,
    absent: str | None = None,
    call_id: str = "",
) -> Given:
    """What a member gives for a task, told and kept; ``absent`` says why it cannot be asked at all.

    ``scope`` is the one of whoever asks: what the member uses is on its own bill there. ``call_id`` is what the model
    that asks calls this request. What the journal has of it is not asked for again when a run is resumed.
    """
    config = member.config
    where = {"execution_id": scope.execution_id, "team_id": scope.team_id, "round_number": scope.round_number}
    emit(MemberCalled(**where, agent_name=config.name, task=task))
    meter = current_meter() or Meter()
    use = meter.use_of_tool(scope, config.tool_name, {"task": task}, call_id=call_id)
    given = Given.from_json(await meter.known_result(use))
    if given is None:
        # Some servers name all their calls alike, and what the journal has of an earlier one is not counted again.
        within = f"{call_id} {use.occurrence}" if use.occurrence else call_id
        asked = scope.model_copy(update={"role": "member", "agent_name": config.name, "within": within})
        with calling(asked), meter.tally(asked) as consumed:
            result = _failure(config, absent, "NOT_READY") if absent else await _result_of(member, task, where)
        if result.usage_info is None:
            # Of a member that failed, or does not count itself, all that is known is what was counted for it.
            result = result.model_copy(update={"usage_info": sum(consumed, start=Usage())})
        given = Given(_submission(config, result, seconds_between(use.started_at, utc_now())), new_nonce())
        await meter.keep_tool_result(FinishedToolUse(use, given.as_json()))
    emit(MemberFinished(**where, submission=given.submission))
    return given


async def _result_of(member: BaseMemberAgent, task: str, context: dict[str, Any]) -> MemberAgentResult:
    """What the member gives, or its failure in words: a member never takes its leader down."""
    config, limit = member.config, PatientTimeout(member.config.timeout_seconds)
    try:
        async with limit:
            result = await alone(lambda: member.execute(task, context=dict(context)), f"member {config.name!r}")
    except BudgetExhaustedError:
        # The round cannot be finished as it was begun; whoever goes on would pay for a part of it.
        raise
    except MixSeekError as error:
        return _failure(config, str(error), type(error).__name__)
    except BaseException as error:  # the edge where one member must not take down the others
        if is_for_us(error):
            raise
        if limit.expired():
            return _failure(config, f"no answer within {config.timeout_seconds} s", "TIMEOUT")
        place = _place_in(member, error)
        # The event tells it to whoever watches. The reason is in the traceback, which holds no word of an answer.
        told = "member %r of team %r failed%s"
        logger.warning(told, config.name, context["team_id"], place, exc_info=True, extra={"is_told": True})
        return _failure(config, f"{in_words(error)}{place}", type(error).__name__)
    if not isinstance(result, MemberAgentResult):
        return _failure(config, f"it gave no MemberAgentResult but {type(result).__name__}", "TypeError")
    return result


def _place_in(member: BaseMemberAgent, error: BaseException) -> str:
    """Where its own code raised. The leader's model reads it too, and need not know the directories of this machine."""
    place = place_in(type(member), error, None if member.workspace is None else member.workspace.root)
    if place is None:
        return ""
    return f" ({place.file.name if place.file.is_absolute() else place.file}, line {place.line})"


def _submission(config: MemberAgentConfig, result: MemberAgentResult, seconds: float) -> MemberSubmission:
    """The record of what a member gave; what cannot be kept is its failure."""
    try:
        return as_submission(result, seconds=seconds)
    except Exception as error:  # a stranger's result may hold anything
        logger.warning("what member %r gave cannot be kept", config.name, exc_info=True, extra={"is_told": True})
        failure = _failure(config, f"it gave what cannot be kept: {in_words(error)}", type(error).__name__)
        return as_submission(failure, seconds=seconds)


def _failure(config: MemberAgentConfig, words: str, code: str) -> MemberAgentResult:
    return MemberAgentResult.error(words, config.name, config.type, error_code=code)
