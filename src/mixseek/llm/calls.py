"""Whose call of a model it is, and where its record goes.

Whoever calls a model says for whom it is with :func:`calling`; the wrapper around every model finds it there, through
tasks and tools alike. A member that is called from within a leader's tool opens an inner scope of its own:

    scope = Scope(execution_id="e", team_id="a", round_number=1, role="leader", agent_name="leader")
    with calling(scope, meter):
        ...
            with calling(scope.model_copy(update={"role": "member", "agent_name": "researcher"})):  # the same meter
                ...

Each finished call reaches the :class:`Meter` of the run, which sums the bill, and its journal if it has one. So does
every use of a tool.
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import datetime
from typing import NoReturn, Protocol

from pydantic import JsonValue

from mixseek.llm.numbering import Numbering
from mixseek.llm.purse import NOTHING, Purses, Spend, known_and_lost
from mixseek.records import LostUsage, ModelRole, ModelUsage, Usage, utc_now
from mixseek.redaction import MadeJson
from mixseek.storage.journal_records import (
    CallScope,
    CallSpend,
    JournalEvent,
    ModelCall,
    Request,
    StartedCall,
    ToolResult,
)

__all__ = [
    "CallJournal",
    "FinishedCall",
    "FinishedToolUse",
    "Meter",
    "OnTheirWay",
    "Scope",
    "ToolUse",
    "answer_came",
    "calling",
    "current_meter",
    "current_scope",
    "on_its_way",
]


class Scope(CallScope):
    """For whom a model is called."""

    role: ModelRole
    attempt: int = 1
    """The how-many-eth try of the team this belongs to, from 1; calls of another try are never taken for this one's."""
    within: str = ""
    """The call of a member this belongs to, as the leader's model names it: one may be asked the same twice at once."""


@dataclass(frozen=True, slots=True)
class FinishedCall:
    """A call that was answered or failed, its tries together."""

    scope: Scope | None
    model: str
    usage: Usage
    """What all tries consumed; ``requests`` counts those that gave an answer, used or not."""
    cost_usd: float | None
    """None where the price is not known."""
    attempts: int
    seconds: float
    faults: tuple[str, ...] = ()
    """Why tries failed, one line each."""
    error: str | None = None
    """Why the call failed; None if it was answered."""
    lost: Spend = NOTHING
    """What tries may have cost that nobody knows of; ``requests`` counts these tries."""
    is_loss_bounded: bool = True
    """Whether it is known how many tokens were set aside for them, as under a budget."""
    is_loss_priced: bool = True
    """Whether the price of these is known."""


@dataclass(frozen=True, slots=True)
class ToolUse:
    """An agent begins to use a tool; its model asks for it by ``call_id``."""

    scope: Scope
    tool: str
    arguments: JsonValue
    occurrence: int
    """How often the agent asked the same of it before."""
    call_id: str = ""
    key: str = ""
    started_at: datetime = field(default_factory=utc_now)


@dataclass(frozen=True, slots=True)
class FinishedToolUse:
    """A use of a tool that came to an end; ``error`` says why it failed, None if it did not."""

    use: ToolUse
    result: JsonValue
    error: str | None = None
    ended_at: datetime = field(default_factory=utc_now)


class CallJournal(Protocol):
    """Where calls are kept as they happen; :class:`mixseek.storage.journal.Journal` is one."""

    def request(
        self,
        scope: CallScope,
        *,
        model: str,
        settings: JsonValue | MadeJson,
        tools: JsonValue | MadeJson,
        messages: JsonValue | MadeJson,
        attempt: int = 0,
        within: str = "",
    ) -> Request:
        """The request as it is kept; its key is the same for the same request, also in another run of the program."""
        ...

    async def find_call(self, key: str, occurrence: int) -> ModelCall | None:
        """The call with this key that was answered before."""
        ...

    async def call_starts_by(self, scope: CallScope, call: Callable[[], StartedCall], *, durable: bool = True) -> None:
        """Take note of a call that is about to leave; another thread makes the record."""
        ...

    async def record_call_by(
        self, scope: CallScope, call: Callable[[], ModelCall], told: Callable[[], JournalEvent] | None = None
    ) -> None:
        """Keep a call that came to an end, and what is ``told`` of it; returns when it cannot be lost any more.

        Another thread makes both meanwhile.
        """
        ...

    def tool_key(
        self,
        scope: CallScope,
        tool: str,
        arguments: JsonValue,
        *,
        attempt: int = 0,
        within: str = "",
        call_id: str = "",
    ) -> str:
        """The same for the same use of a tool, also in another run of the program."""
        ...

    async def find_tool_result(self, key: str, occurrence: int) -> ToolResult | None:
        """What a tool gave back when it was used like this before."""
        ...

    async def record_tool_result(self, result: ToolResult) -> None:
        """Keep what a tool gave back; returns when it cannot be lost any more."""
        ...


Listener = Callable[[FinishedCall], Callable[[], JournalEvent] | None]
"""Is told of a finished call, and gives the event by which the journal is to tell of it, if by any."""
Unanswered = Callable[[Scope, str, str, int], Awaitable[NoReturn]]
ToolListener = Callable[[ToolUse | FinishedToolUse], None]
_Round = tuple[str, str, int]
_Agent = tuple[str, str, str]


@dataclass
class Meter:
    """Counts what a run consumes, tells ``on_call`` of every finished call, and knows the journal.

    ``on_tool`` is told when a member begins to use a tool, and of the end.
    """

    on_call: Listener | None = None
    journal: CallJournal | None = None
    reuse_answers: bool = False
    """Whether a call the journal has an answer to is answered with it and not made again."""
    on_tool: ToolListener | None = None
    on_unanswered: Unanswered | None = None
    """Where nobody may be asked: what becomes of a call that the journal has no answer to, by its scope, its model, its
    key and its occurrence."""
    purses: Purses | None = None
    """What calls are paid from; None: they may cost what they cost."""
    requests: Numbering = field(default_factory=Numbering)
    _rounds: dict[_Round, dict[_Agent, ModelUsage]] = field(default_factory=dict)
    _lost: dict[tuple[str, str, int, str, str, str], LostUsage] = field(default_factory=dict)
    _usage: Usage = field(default_factory=Usage)
    _made: Counter[tuple[str, str]] = field(default_factory=Counter)
    _tool_calls: Counter[tuple[str, str]] = field(default_factory=Counter)
    _tallies: dict[Scope, list[Usage]] = field(default_factory=dict)

    def carry_over(self, bill: Sequence[ModelUsage], usage: Usage, tool_calls: Mapping[tuple[str, str], int]) -> None:
        """Begin with what was consumed before this process took the run up."""
        for line in bill:
            self._add_line(line)
        self._usage += usage
        self._tool_calls.update(tool_calls)

    def record(self, call: FinishedCall) -> Callable[[], JournalEvent] | None:
        """Add a finished call to the bill; what :attr:`on_call` gives."""
        self._usage += call.usage
        if call.scope is not None:
            self._made[call.scope.execution_id, call.scope.team_id] += 1
            self._add_line(_line(call.scope, call))
            if call.lost.requests:
                self._add_lost(_lost(call.scope, call))
            self._note(call.scope, call.usage)
        return None if self.on_call is None else self.on_call(call)

    @contextmanager
    def tally(self, scope: Scope) -> Iterator[list[Usage]]:
        """A list to which all is added that is consumed for ``scope`` meanwhile."""
        consumed = self._tallies[scope] = []
        try:
            yield consumed
        finally:
            self._tallies.pop(scope, None)

    def _note(self, scope: Scope, usage: Usage) -> None:
        if scope in self._tallies:
            self._tallies[scope].append(usage)

    def calls_made(self, execution_id: str, team_id: str) -> int:
        """How many calls went out for a team in this process."""
        return self._made[execution_id, team_id]

    def _add_line(self, line: ModelUsage) -> None:
        lines = self._rounds.setdefault((line.execution_id, line.team_id, line.round_number), {})
        agent = (line.role, line.agent_name, line.model)
        lines[agent] = lines[agent].plus(line) if agent in lines else line

    def _add_lost(self, line: LostUsage) -> None:
        if line.attempts:
            place = line.team_id, line.round_number, line.role, line.agent_name, line.model
            known = self._lost.get((line.execution_id, *place))
            self._lost[line.execution_id, *place] = line if known is None else known.plus(line)

    def begin_with(self, spends: Iterable[CallSpend]) -> None:
        """Take what other processes of this execution spent out of the purses, and know what they lost."""
        for spend in spends:
            scope, (known, lost) = spend.scope, known_and_lost(spend)
            if self.purses is not None:
                self.purses.count(scope.team_id, known, lost)
            names = scope.model_dump(include=set(CallScope.model_fields))
            costs = {"attempts": spend.lost_attempts, "tokens": spend.lost_tokens, "cost_usd": spend.lost_usd}
            self._add_lost(LostUsage(**names, model=spend.model, **costs))

    def use_of_tool(self, scope: Scope, tool: str, arguments: JsonValue, *, call_id: str = "") -> ToolUse:
        """A use of a tool that begins now, numbered among those that ask for the same."""
        if self.journal is None:
            return ToolUse(scope, tool, arguments, 0, call_id)
        key = self.journal.tool_key(scope, tool, arguments, attempt=scope.attempt, within=scope.within, call_id=call_id)
        return ToolUse(scope, tool, arguments, self.requests.next(key), call_id, key)

    async def known_result(self, use: ToolUse) -> JsonValue:
        """What the journal has of this use, when the run is to use what it has; None if it has nothing."""
        if self.journal is None or not self.reuse_answers:
            return None
        known = await self.journal.find_tool_result(use.key, use.occurrence)
        return None if known is None else known.result

    async def keep_tool_result(self, finished: FinishedToolUse) -> None:
        """Put what a tool gave into the journal, if there is one."""
        use = finished.use
        if self.journal is None:
            return
        await self.journal.record_tool_result(
            ToolResult(
                scope=CallScope(**use.scope.model_dump(include=set(CallScope.model_fields))),
                tool=use.tool,
                arguments=use.arguments,
                key=use.key,
                occurrence=use.occurrence,
                result=finished.result,
                started_at=use.started_at,
                ended_at=finished.ended_at,
            )
        )

    def tool_calls(self, execution_id: str, team_id: str) -> int:
        """How often members of a team used tools so far."""
        return self._tool_calls[execution_id, team_id]

    def tool_starts(self, use: ToolUse) -> None:
        """Tell that a member begins to use a tool, and count it."""
        self._usage += Usage(tool_calls=1)
        self._tool_calls[use.scope.execution_id, use.scope.team_id] += 1
        self._note(use.scope, Usage(tool_calls=1))
        if self.on_tool is not None:
            self.on_tool(use)

    async def tool_ends(self, finished: FinishedToolUse) -> None:
        """Tell what came of a member's use of a tool, and keep it."""
        if self.on_tool is not None:
            self.on_tool(finished)
        await self.keep_tool_result(finished)

    @property
    def usage(self) -> Usage:
        """What was consumed so far."""
        return self._usage

    @property
    def lost(self) -> list[LostUsage]:
        """What may have been paid beyond the bill, by agent and model."""
        return list(self._lost.values())

    def bill(
        self, *, execution_id: str | None = None, team_id: str | None = None, round_number: int | None = None
    ) -> list[ModelUsage]:
        """One line for every agent and model, by round and in the order of first calls; narrowed down if asked."""
        if execution_id is not None and team_id is not None and round_number is not None:
            return list(self._rounds.get((execution_id, team_id, round_number), {}).values())
        wanted = (execution_id, team_id, round_number)
        asked_for = [
            lines
            for place, lines in self._rounds.items()
            if all(want in (None, found) for want, found in zip(wanted, place, strict=True))
        ]
        return [line for lines in asked_for for line in lines.values()]


def _line(scope: Scope, call: FinishedCall) -> ModelUsage:
    return ModelUsage(
        execution_id=scope.execution_id,
        team_id=scope.team_id,
        round_number=scope.round_number,
        role=scope.role,
        agent_name=scope.agent_name,
        model=call.model,
        requests=call.usage.requests,
        input_tokens=call.usage.input_tokens,
        output_tokens=call.usage.output_tokens,
        cost_usd=call.cost_usd,
    )


def _lost(scope: Scope, call: FinishedCall) -> LostUsage:
    return LostUsage(
        **scope.model_dump(include=set(CallScope.model_fields)),
        model=call.model,
        attempts=call.lost.requests,
        tokens=call.lost.tokens if call.is_loss_bounded else None,
        cost_usd=call.lost.usd if call.is_loss_priced else None,
    )


_scope: ContextVar[Scope | None] = ContextVar("scope", default=None)
_meter: ContextVar[Meter | None] = ContextVar("meter", default=None)


@contextmanager
def calling(scope: Scope, meter: Meter | None = None) -> Iterator[None]:
    """Say for whom models are called inside; without a meter the one around it stays."""
    scope_before = _scope.set(scope)
    meter_before = _meter.set(meter if meter is not None else _meter.get())
    try:
        yield
    finally:
        _meter.reset(meter_before)
        _scope.reset(scope_before)


def current_scope() -> Scope | None:
    """For whom models are called here."""
    return _scope.get()


def current_meter() -> Meter | None:
    """The meter of the run this is part of."""
    return _meter.get()


class OnTheirWay:
    """The requests of some work that have left and are not answered: they are paid for, whoever waits for them."""

    def __init__(self) -> None:
        self.were_answered = False
        """Whether one of them had its answer, which is to be kept and used."""
        self._number = 0
        self._landed = asyncio.Event()
        self._landed.set()

    @contextmanager
    def followed(self) -> Iterator[None]:
        """Count the requests that are made inside."""
        before = _on_their_way.set(self)
        try:
            yield
        finally:
            _on_their_way.reset(before)

    @contextmanager
    def one_more(self) -> Iterator[None]:
        """Count a request that leaves until it is answered, or fails."""
        self._number += 1
        self._landed.clear()
        try:
            yield
        finally:
            self._number -= 1
            if not self._number:
                self._landed.set()

    def __len__(self) -> int:
        return self._number

    async def landed(self) -> None:
        """Wait until none is on its way."""
        await self._landed.wait()


_on_their_way: ContextVar[OnTheirWay | None] = ContextVar("on_their_way", default=None)


def answer_came() -> None:
    """Tell whoever wants to know of it that a request of this work has its answer."""
    if (requests := _on_their_way.get()) is not None:
        requests.were_answered = True


def on_its_way() -> AbstractContextManager[None]:
    """A request is made inside, for whoever wants to know of it."""
    requests = _on_their_way.get()
    return nullcontext() if requests is None else requests.one_more()
