"""What the teams of one execution share: models, the meter, the stores, the leader board, and whoever listens."""

import asyncio
import logging
import os
from bisect import insort
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from operator import itemgetter
from types import TracebackType
from typing import Any, Self

from mixseek.config.manager import ConfigurationManager, redactor_of
from mixseek.config.schema import BudgetSettings, OrchestratorSettings, ProvidersSettings, StorageSettings
from mixseek.errors import PlaceTakenError, StorageError
from mixseek.events import BudgetLow, Event, EventBus, Listener, ModelCalled, ToolCalled, ToolFinished
from mixseek.llm import Backoff, FinishedCall, FinishedToolUse, Meter, ModelHub, ToolUse
from mixseek.llm.purse import NOTHING, LowPurse, Purses, Spend, spent_by_round
from mixseek.records import (
    Attachment,
    ExitReason,
    LeaderBoardEntry,
    RankingSource,
    RoundState,
    Standing,
    seconds_between,
    standing_key,
    utc_now,
)
from mixseek.round_controller.restored import RestoredRun
from mixseek.round_controller.uncut import beside
from mixseek.storage.aggregation_store import AggregationStore
from mixseek.storage.attachments import keep_attachments
from mixseek.storage.journal import Journal, JournalEvent
from mixseek.storage.places import HeldPlace
from mixseek.storage.playing import Playing, is_playing
from mixseek.workspace import Workspace

__all__ = ["MemoryBoard", "Run", "best_entry", "open_run", "standing_of"]

logger = logging.getLogger(__name__)


class MemoryBoard:
    """The leader board of a run that keeps no database."""

    def __init__(self) -> None:
        self._teams: dict[tuple[str, str], dict[int, LeaderBoardEntry]] = {}
        self._ranked: dict[str, list[tuple[tuple[float, int, str], dict[str, Any]]]] = {}
        """The rows of each execution's board with what they are sorted by, in order: read far oftener than changed."""

    def put(self, entry: LeaderBoardEntry) -> None:
        """Add a round, or replace what was known of it."""
        rounds = self._teams.setdefault((entry.execution_id, entry.team_id), {})
        rounds[entry.round_number] = entry
        ranked = self._ranked.get(entry.execution_id, [])
        ranked = [(key, row) for key, row in ranked if row["team_id"] != entry.team_id]
        standing = standing_of(list(rounds.values()))
        if standing is not None:
            key = standing_key(standing.best_score, standing.latest_round, standing.team_id)
            insort(ranked, (key, _board_row(standing)), key=itemgetter(0))
        self._ranked[entry.execution_id] = ranked

    async def get_leader_board_ranking(self, execution_id: str) -> Sequence[dict[str, Any]]:
        """The teams of an execution in order."""
        return [row for _, row in self._ranked.get(execution_id, ())]


def _board_row(standing: Standing) -> dict[str, Any]:
    return {
        "team_id": standing.team_id,
        "team_name": standing.team_name,
        "max_score": standing.best_score,
        "total_rounds": standing.total_rounds,
    }


def _as_kept(event: Event, sequence: int) -> JournalEvent:
    return JournalEvent(
        execution_id=event.execution_id,
        team_id=event.team_id,
        sequence=sequence,
        kind=event.kind,
        at=event.at,
        payload=event.kept_payload(),
    )


def best_entry(entries: Sequence[LeaderBoardEntry]) -> LeaderBoardEntry | None:
    """A team's best round: the highest score, the later one on a tie; None if none was scored."""
    scored = [(entry.score, entry.round_number, entry) for entry in entries if entry.score is not None]
    return max(scored, key=lambda each: each[:2])[2] if scored else None


def as_final(entry: LeaderBoardEntry, reason: ExitReason) -> LeaderBoardEntry:
    """A round as its team's final submission, with the reason the team stopped."""
    return entry.model_copy(update={"final_submission": True, "exit_reason": reason, "updated_at": utc_now()})


def standing_of(entries: Sequence[LeaderBoardEntry]) -> Standing | None:
    """Where a team stands by all of its rounds; None if none was scored."""
    best = best_entry(entries)
    if best is None or best.score is None:
        return None
    latest = max(entries, key=lambda entry: entry.round_number)
    return Standing(
        team_id=latest.team_id,
        team_name=latest.team_name,
        best_score=best.score,
        latest_round=latest.round_number,
        total_rounds=len(entries),
    )


@dataclass
class Run:
    """One execution as its teams see it."""

    execution_id: str
    hub: ModelHub
    store: AggregationStore | None = None
    journal: Journal | None = None
    workspace: Workspace | None = None
    events: EventBus = field(default_factory=EventBus)
    memory: MemoryBoard = field(default_factory=MemoryBoard)
    owns_store: bool = True
    """Whether the store is closed with the run."""
    is_new: bool = False
    """Whether the store can hold no row of this execution but the run's own, so that memory knows the whole board."""
    takes_place: bool = False
    """Whether the run is the only one that may play its execution, as long as it keeps a journal."""
    place: HeldPlace | None = None
    restored: RestoredRun | None = None
    """How far another process came with it; None for a run that begins."""
    replays: bool = False
    """Whether all that models, members and tools say is in the journal, so that nobody has to be made ready."""
    _sequences: Counter[str | None] = field(default_factory=Counter)
    _playing: list[Playing] = field(default_factory=list)

    budget: BudgetSettings | None = None
    """What all teams together may spend."""

    def __post_init__(self) -> None:
        self.purses = Purses(self.budget, self._tell_low)
        self.meter = Meter(on_call=self._tell_call, on_tool=self._tell_tool, journal=self.journal, purses=self.purses)

    def take_up(self, restored: RestoredRun) -> None:
        """Go on from where another process left the execution: nothing is counted twice or asked for again."""
        self.restored = restored
        self._sequences.update({team_id: last + 1 for team_id, last in restored.sequences.items()})
        tool_calls = {(self.execution_id, team_id): count for team_id, count in restored.tool_calls.items()}
        self.meter.carry_over(restored.bill, restored.usage, tool_calls)
        self.meter.reuse_answers = True

    async def catch_up(self) -> None:
        """Write what another process told of its last rounds and may not have written any more."""
        if self.store is None or self.restored is None:
            return
        teams = self.restored.teams.values()
        # While a round is played the one before it is written, so that two may be missing.
        last = [one for team in teams for one in team.rounds[-2:]]
        # Of a round that did not end too: with fewer rounds, or without its team, nobody plays it any more.
        unfinished = [team.unfinished for team in teams if team.unfinished is not None]
        await self.store.catch_up([(one.entry, one.state, one.usage) for one in last], unfinished)

    @property
    def board(self) -> RankingSource:
        """Where the ranking is read from."""
        return self.memory if self.store is None or self.is_new else self.store

    @property
    def results_may_follow(self) -> bool:
        """Whether teams can go on from a round that the journal has before the store has it: the board is in memory."""
        return self.journal is not None and self.board is self.memory

    def tell(self, event: Event) -> None:
        """Hand an event to whoever listens, and to the journal, which keeps it in its own time but in order."""
        self.events.emit(event)
        if self.journal is not None:
            self.journal.record_event_later(self._kept(event))

    def tell_soon(self, event: Event) -> None:
        """:meth:`tell`; if the journal cannot keep it, the team hears of it when it waits for the journal next."""
        self.events.emit(event)
        if self.journal is not None:
            self.journal.record_event_soon(self._kept(event))

    async def tell_for_good(self, event: Event) -> None:
        """:meth:`tell`, and come back when the journal has it."""
        self.events.emit(event)
        if self.journal is not None:
            await self.journal.record_event(self._kept(event))

    def _kept(self, event: Event) -> JournalEvent:
        return _as_kept(event, self._next_sequence(event))

    def _next_sequence(self, event: Event) -> int:
        sequence = self._sequences[event.team_id]
        self._sequences[event.team_id] += 1
        return sequence

    def _tell_call(self, call: FinishedCall) -> Callable[[], JournalEvent] | None:
        """Hand the event to whoever listens; the journal has it with the call, and makes a record of it there."""
        if call.scope is None:
            return None
        event = ModelCalled(
            execution_id=self.execution_id,
            team_id=call.scope.team_id,
            round_number=call.scope.round_number,
            role=call.scope.role,
            agent_name=call.scope.agent_name,
            model=call.model,
            seconds=call.seconds,
            attempts=call.attempts,
            input_tokens=call.usage.input_tokens,
            output_tokens=call.usage.output_tokens,
            cost_usd=call.cost_usd,
            error=call.error,
        )
        self.events.emit(event)
        return None if self.journal is None else partial(_as_kept, event, self._next_sequence(event))

    def _tell_low(self, low: LowPurse) -> None:
        self.tell(
            BudgetLow(
                execution_id=self.execution_id,
                team_id=low.team_id,
                limit=low.limit,
                used=low.used,
                allowed=low.allowed,
            )
        )

    def _tell_tool(self, told: ToolUse | FinishedToolUse) -> None:
        use = told if isinstance(told, ToolUse) else told.use
        about = {
            "execution_id": self.execution_id,
            "team_id": use.scope.team_id,
            "round_number": use.scope.round_number,
            "agent_name": use.scope.agent_name,
            "tool": use.tool,
            "call_id": use.call_id,
        }
        if isinstance(told, ToolUse):
            self.tell(ToolCalled(**about, arguments=use.arguments))
        else:
            seconds = seconds_between(use.started_at, told.ended_at)
            self.tell(ToolFinished(**about, seconds=seconds, error=told.error))

    async def mark_final(self, final: LeaderBoardEntry) -> None:
        """Mark in the store which round counts for its team."""
        if self.store is not None:
            await self.store.mark_final_submission(
                final.execution_id, final.team_id, final.round_number, final.exit_reason, at=final.updated_at
            )

    async def count_what_was_spent(self) -> None:
        """Count what other processes of this execution spent, and take it and their time out of the purses."""
        if self.journal is None or (self.is_new and self.restored is None):
            return
        spending = await self.journal.spending(self.execution_id)
        self.meter.begin_with(spending)
        if not self.purses:
            return
        self.purses.played.update(await self.journal.played_seconds(self.execution_id))
        for team_id, (usd, tokens) in (await self.journal.largest_reservations(self.execution_id)).items():
            self.purses.learn_bound(team_id, Spend(usd, tokens))
        used = spent_by_round(spending)
        for event in await self.journal.events(self.execution_id, kinds=("RoundFinished", "RoundFailed")):
            state = RoundState.model_validate(event.payload["state"]) if isinstance(event.payload, dict) else None
            if event.team_id is not None and state is not None:
                seconds = seconds_between(state.round_started_at, state.round_ended_at)
                # A round that one process began and another ended lasted no longer than its team was played.
                seconds = min(seconds, self.purses.played.get(event.team_id, seconds))
                self.purses.learn(event.team_id, used.pop((event.team_id, state.round_number), NOTHING), seconds)
        for (team_id, _), begun in used.items():
            self.purses.learn_of_beginning(team_id, begun)

    @asynccontextmanager
    async def before_time_is_up(self, team_id: str) -> AsyncGenerator[None]:
        """Calls inside are ended when the time of a budget is over; what is being written outside never is."""
        purse = self.purses.soonest_end(team_id)
        limit = asyncio.timeout(None if purse is None else purse.seconds_left())
        try:
            async with limit:
                yield
        except TimeoutError as error:
            if purse is None or not limit.expired():
                raise
            raise purse.out_of_time() from error

    async def keep(self, attachments: Sequence[Attachment]) -> None:
        """Store what comes with the task: the content once by its hash, the rest with the execution."""
        if self.store is None or not attachments:
            return
        # The rows come first: whoever deletes an execution keeps the files that rows of others name.
        await self.store.save_attachments(self.execution_id, [attachment.info for attachment in attachments])
        if self.workspace is not None:
            await asyncio.to_thread(keep_attachments, self.workspace.attachments, attachments)

    async def __aenter__(self) -> Self:
        is_first = self._is_first
        # A run that was left can be entered anew, for a team that is to go on after a failure.
        if self.store is not None and self.owns_store:
            await self.store.__aenter__()
        if self.journal is not None:
            await self.journal.__aenter__()
        if self.store is not None and is_first:
            # With one that is not there nothing is wrong where the journal can be made, so nobody waits for DuckDB,
            # which takes 50 ms to make it.
            self.store.begin()
        elif self.store is not None:
            # What cannot be opened, or written, is found out before a call is paid for whose result could not be kept.
            self.store.refuse_unwritable()
            await self.store.get_leader_board(limit=0)
        try:
            if self.store is not None:
                await self._take_place(self.store)
            await self.hub.__aenter__()
        except BaseException:
            await self._let_others_play()
            raise
        return self

    @property
    def _is_first(self) -> bool:
        """Whether neither store is there yet, and taking the place makes the journal."""
        if self.store is None or self.journal is None or not self.takes_place:
            return False
        return not any(os.path.lexists(path) for path in (self.store.db_path, self.journal.path))

    async def _take_place(self, store: AggregationStore) -> None:
        has_place = self.takes_place and self.journal is not None
        placeless = f"{self.execution_id} without a place"
        if self.takes_place and is_playing(store.db_path, placeless if has_place else self.execution_id):
            raise PlaceTakenError(
                f"execution {self.execution_id!r} is being played by another run: wait until it is over"
            )
        if has_place and self.journal is not None:
            self.place = await self.journal.take_place(self.execution_id, store.db_path)
            await store.go_by(self.place)
        else:
            # Nobody finds these in the journal: teams on their own, which may share an execution, and runs without one.
            self._playing.append(Playing(store.db_path, placeless))
        self._playing.append(Playing(store.db_path, self.execution_id))

    async def _let_others_play(self) -> None:
        if self.journal is not None:
            try:
                await self.journal.leave_place()
            except StorageError:
                logger.exception("that nobody plays execution %s any more could not be written", self.execution_id)
        for mark in self._playing:
            mark.end()

    def check_place(self) -> None:
        """Raise PlaceLostError if another process plays the execution by now."""
        if self.place is not None:
            self.place.check()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.purses.stop()
        async with beside(self._close_store, head_start_seconds=0.0), AsyncExitStack() as stack:
            if self.journal is not None:
                stack.push_async_callback(self.journal.aclose)
            stack.push_async_callback(self._let_others_play)
            await self.hub.__aexit__(kind, error, traceback)

    async def _close_store(self) -> None:
        if self.store is not None and self.owns_store:
            await self.store.close()


def open_run(
    execution_id: str,
    workspace: Workspace,
    *,
    store: AggregationStore | None = None,
    save_db: bool = True,
    journal: bool = True,
    providers: ProvidersSettings | None = None,
    orchestrator: OrchestratorSettings | None = None,
    is_new: bool = False,
    takes_place: bool = False,
    listeners: Sequence[Listener] = (),
    backoff: Backoff | None = None,
) -> Run:
    """A run in this workspace; without ``save_db`` it writes neither store. ``backoff`` paces the retries of calls.

    With ``takes_place`` it is refused when another process plays the execution, and ends when one takes it over.
    Keys come from the environment and the workspace's ``.env``; without ``providers`` the workspace's own are used.
    """
    manager = ConfigurationManager(workspace)
    environ, providers = manager.environ, providers or manager.get_providers_settings()
    redactor = redactor_of(environ, providers)
    owns_store = store is None
    if save_db and store is None:
        storage = StorageSettings() if orchestrator is None else orchestrator.storage
        store = AggregationStore(workspace.root, lock_wait_seconds=storage.lock_wait_seconds, redactor=redactor)
    return Run(
        execution_id,
        ModelHub(
            providers,
            None if orchestrator is None else orchestrator.prices,
            environ=environ,
            root=workspace.root,
            backoff=backoff,
        ),
        store=store if save_db else None,
        journal=Journal(workspace.journal, redactor=redactor) if save_db and journal else None,
        workspace=workspace,
        events=EventBus(*listeners),
        owns_store=owns_store,
        is_new=is_new,
        takes_place=takes_place,
        budget=None if orchestrator is None else orchestrator.budget,
    )
