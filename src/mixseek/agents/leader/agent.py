"""The leader: one model with a tool for each member, and what it asked of them."""

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import JsonValue
from pydantic_ai import Agent, RunContext, Tool
from pydantic_ai.exceptions import UnexpectedModelBehavior, UsageLimitExceeded

from mixseek.agents.member.base import BaseMemberAgent
from mixseek.agents.member.results import as_submission
from mixseek.config.schema import MemberAgentConfig, TeamSettings
from mixseek.errors import MixSeekError, SubmissionError
from mixseek.events import Event, MemberCalled, MemberFinished
from mixseek.llm import ModelHub, Scope, calling, messages_to_json, model_settings
from mixseek.prompt_builder.fence import fenced, new_nonce
from mixseek.records import MemberAgentResult, MemberSubmission

__all__ = ["DEFAULT_LEADER_SYSTEM_INSTRUCTION", "LEADER", "Leader", "Turn"]

DEFAULT_LEADER_SYSTEM_INSTRUCTION = """
あなたは研究チームのリーダーエージェントです。
タスクを分析し、利用可能なMember Agentから適切なものを選択して実行してください。
"""

LEADER = "leader"


@dataclass(frozen=True)
class Turn:
    """What a leader made of one prompt."""

    submission: str
    members: list[MemberSubmission]
    messages: list[JsonValue]


@dataclass
class _Round:
    """What the tools of one run share: where they are, and what they gave so far."""

    scope: Scope
    emit: Callable[[Event], None]
    places: asyncio.Semaphore
    submissions: list[MemberSubmission]


class Leader:
    """A team's leader; its agent is built once and serves all rounds."""

    def __init__(self, team: TeamSettings, members: Sequence[BaseMemberAgent], hub: ModelHub) -> None:
        self._team = team
        leader = team.leader
        instruction = leader.system_instruction
        self._agent: Agent[_Round, str] = Agent(
            hub.model(leader.model, fallback_models=leader.fallback_models),
            deps_type=_Round,
            instructions=DEFAULT_LEADER_SYSTEM_INSTRUCTION if instruction is None else instruction or None,
            system_prompt=leader.system_prompt or (),
            model_settings=model_settings(leader),
            tools=[_tool(member) for member in members],
            name=LEADER,
            retries=leader.max_retries,
        )

    async def play(
        self, prompt: str, scope: Scope, emit: Callable[[Event], None], submissions: list[MemberSubmission]
    ) -> Turn:
        """One submission for one prompt; an answer that cannot be one is a :class:`SubmissionError`.

        What members gave is in ``submissions`` as soon as they gave it, so that it is known even if the leader fails.
        """
        current = _Round(scope, emit, asyncio.Semaphore(self._team.max_concurrent_members), submissions)
        try:
            result = await self._agent.run(prompt, deps=current)
        except (UnexpectedModelBehavior, UsageLimitExceeded) as error:
            raise SubmissionError(f"the leader gave no usable answer: {error}") from error
        if not result.output.strip():
            raise SubmissionError("the leader gave an empty answer")
        return Turn(result.output, submissions, messages_to_json(result.all_messages()))


def _tool(member: BaseMemberAgent) -> Tool[_Round]:
    config = member.config

    async def delegate(ctx: RunContext[_Round], task: str) -> str:
        async with ctx.deps.places:
            submission = await _call_member(member, task, ctx.deps)
        return _told(submission)

    return Tool(
        delegate,
        name=config.tool_name,
        description=config.tool_description or f"Hand a task to {config.name}.",
        takes_ctx=True,
    )


async def _call_member(member: BaseMemberAgent, task: str, current: _Round) -> MemberSubmission:
    scope, config = current.scope, member.config
    where = {"execution_id": scope.execution_id, "team_id": scope.team_id, "round_number": scope.round_number}
    current.emit(MemberCalled(**where, agent_name=config.name, task=task))
    started = time.monotonic()
    with calling(scope.model_copy(update={"role": "member", "agent_name": config.name})):
        result = await _result_of(member, task, where)
    submission = as_submission(result, seconds=time.monotonic() - started)
    current.submissions.append(submission)
    current.emit(MemberFinished(**where, submission=submission))
    return submission


async def _result_of(member: BaseMemberAgent, task: str, context: dict[str, Any]) -> MemberAgentResult:
    """What the member gives, or its failure in words: a member never takes its leader down."""
    config = member.config
    try:
        async with asyncio.timeout(config.timeout_seconds):
            return await member.execute(task, context=dict(context))
    except TimeoutError:
        return _failure(config, f"no answer within {config.timeout_seconds} s", "TIMEOUT")
    except MixSeekError as error:
        return _failure(config, str(error), type(error).__name__)
    except Exception as error:  # noqa: BLE001  # the edge where one member must not take down the others
        return _failure(config, f"{type(error).__name__}: {error}", type(error).__name__)


def _failure(config: MemberAgentConfig, words: str, code: str) -> MemberAgentResult:
    return MemberAgentResult.error(words, config.name, config.type, error_code=code)


def _told(submission: MemberSubmission) -> str:
    """What the leader reads of a member: its words as data, or why there are none."""
    if submission.status == "ERROR":
        return f"Member {submission.agent_name!r} failed: {submission.error_message}"
    return fenced(submission.content, new_nonce())
