"""The leader: one model with a tool for each member, and what it asked of them."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

from pydantic import JsonValue
from pydantic_ai import Agent, ModelMessage, ModelResponse, RunContext, Tool, UserContent

from mixseek.agents.in_vain import LIMITS, NO_ANSWER, why_in_vain
from mixseek.agents.leader.structured import UnfitAnswerError, ask_again, schema_words, structured
from mixseek.agents.member.asking import Given, ask_member
from mixseek.agents.member.base import BaseMemberAgent
from mixseek.config.schema import TeamSettings
from mixseek.errors import SubmissionError
from mixseek.events import Event
from mixseek.llm import ModelHub, Scope, ask_for_text, attached, message, messages_to_json, model_settings
from mixseek.prompt_builder.fence import fenced
from mixseek.prompt_builder.formatters import one_line
from mixseek.records import Attachment, MemberSubmission
from mixseek.templating import JAPANESE, Texts

if TYPE_CHECKING:
    from mixseek.json_schema import JsonSchema

__all__ = ["DEFAULT_LEADER_SYSTEM_INSTRUCTION", "LEADER", "Leader", "Turn"]

DEFAULT_LEADER_SYSTEM_INSTRUCTION = JAPANESE.leader_instruction

LEADER = "leader"


@dataclass(frozen=True)
class Turn:
    """What a leader made of one prompt."""

    submission: str
    members: list[MemberSubmission]
    messages: list[JsonValue]


@dataclass(frozen=True)
class _Answered:
    """One answer of the leader, and all that was said up to it."""

    text: str
    messages: Sequence[ModelMessage]


@dataclass
class _Round:
    """What the tools of one run share: where they are, and what they gave so far."""

    scope: Scope
    emit: Callable[[Event], None]
    places: asyncio.Semaphore
    submissions: list[MemberSubmission]
    absent: Mapping[str, str]


class Leader:
    """A team's leader; its agent is made once and serves all rounds."""

    def __init__(
        self,
        team: TeamSettings,
        members: Sequence[BaseMemberAgent],
        hub: ModelHub,
        *,
        answer_schema: "JsonSchema | None" = None,
        attachments: Sequence[Attachment] = (),
        texts: Texts = JAPANESE,
    ) -> None:
        self._team = team
        self._texts = texts
        self._schema = answer_schema
        self._attachments = attachments
        self.absent: dict[str, str] = {}
        """Members that cannot be asked, and why."""
        leader = team.leader
        instruction = leader.system_instruction
        self._instructions = texts.leader_instruction if instruction is None else instruction or None
        self._model = hub.model(leader.model, fallback_models=leader.fallback_models)
        self._tools = [_tool(member, texts) for member in members]

    @cached_property
    def _agent(self) -> Agent[_Round, str]:
        """Made when first needed: most leaders without members never do."""
        leader = self._team.leader
        return Agent(
            self._model,
            deps_type=_Round,
            instructions=self._instructions,
            system_prompt=leader.system_prompt or (),
            model_settings=model_settings(leader),
            tools=self._tools,
            name=LEADER,
            retries=leader.max_retries,
        )

    async def play(
        self, prompt: str, scope: Scope, emit: Callable[[Event], None], submissions: list[MemberSubmission]
    ) -> Turn:
        """One submission for one prompt; an answer that cannot be one is a :class:`SubmissionError`.

        What members gave is in ``submissions`` as soon as they gave it, so that it is known even if the leader fails.
        """
        places = asyncio.Semaphore(self._team.max_concurrent_members)
        current = _Round(scope, emit, places, submissions, self.absent)
        if self._schema is None:
            answered = await self._answer(prompt, current)
        else:
            answered = await self._answer_in_form(prompt, self._schema, current)
        return Turn(answered.text, submissions, messages_to_json(answered.messages))

    async def _answer_in_form(self, prompt: str, schema: "JsonSchema", current: _Round) -> "_Answered":
        """The bare JSON that meets the schema; an answer that does not is told why, and asked for once more."""
        first = await self._answer(f"{prompt}\n\n{schema_words(schema, self._texts)}", current)
        try:
            return replace(first, text=await structured(first.text, schema))
        except UnfitAnswerError as wrong:
            second = await self._answer(ask_again(wrong, self._texts), current, first.messages)
        try:
            return replace(second, text=await structured(second.text, schema))
        except UnfitAnswerError as wrong:
            told = f"the answer did not meet the answer schema, nor did the one after it was told so: {wrong}"
            raise SubmissionError(told) from wrong

    async def _answer(self, prompt: str, current: _Round, history: Sequence[ModelMessage] = ()) -> "_Answered":
        """One answer; attachments come with the first prompt of a round and stay in its history."""
        beside = [] if history else attached(self._attachments, self._model, self._texts)
        if not self._team.members and (answered := await self._answer_alone(prompt, beside, history)):
            return answered
        try:
            asked = message(prompt, beside)
            result = await self._agent.run(
                asked, message_history=list(history) or None, deps=current, usage_limits=LIMITS
            )
        except NO_ANSWER as error:
            raise SubmissionError(f"the leader gave no usable answer: {why_in_vain(error)}") from error
        if not result.output.strip():
            raise SubmissionError("the leader gave an empty answer")
        return _Answered(result.output, result.all_messages())

    async def _answer_alone(
        self, prompt: str, beside: Sequence[UserContent], history: Sequence[ModelMessage]
    ) -> "_Answered | None":
        """Without members one question is enough, at a third of what an agent costs.

        None if the answer is no text and may be asked for again: the agent can tell a model what was wrong with it.
        """
        leader = self._team.leader
        messages = await ask_for_text(
            self._model,
            prompt=prompt,
            beside=beside,
            history=history,
            instructions=self._instructions,
            system_prompt=leader.system_prompt,
            settings=model_settings(leader),
        )
        text = messages[-1].text if isinstance(messages[-1], ModelResponse) else None
        if text and text.strip():
            return _Answered(text, messages)
        if leader.max_retries == 0:
            raise SubmissionError("the leader gave an empty answer")
        return None


def _tool(member: BaseMemberAgent, texts: Texts) -> Tool[_Round]:
    config = member.config

    async def delegate(ctx: RunContext[_Round], task: str) -> str:
        async with ctx.deps.places:
            absent = ctx.deps.absent.get(config.name)
            asked = ask_member(
                member, task, ctx.deps.scope, ctx.deps.emit, absent=absent, call_id=ctx.tool_call_id or ""
            )
            given = await asked
        ctx.deps.submissions.append(given.submission)
        return _told(given, texts)

    return Tool(
        delegate,
        name=config.tool_name,
        description=config.tool_description or f"Hand a task to {config.name}.",
        takes_ctx=True,
    )


def _told(given: Given, texts: Texts) -> str:
    """What the leader reads of a member: its words and warnings as data, or why there are none.

    Reasons and warnings may quote a stranger.
    """
    submission = given.submission
    if submission.status == "ERROR":
        reason = fenced(submission.error_message or "no reason was given", given.nonce, texts)
        return f"Member {one_line(submission.agent_name)!r} failed:\n{reason}"
    content = fenced(submission.content, given.nonce, texts)
    if submission.status != "WARNING" or not submission.error_message:
        return content
    # Without a name: that of a result is whatever a member of one's own, or a page it read, put there.
    return f"The member warns:\n{fenced(submission.error_message, given.nonce, texts)}\n\nIt gave:\n{content}"
