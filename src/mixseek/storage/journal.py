"""The journal: what happened in a run, kept as it happens, so that nothing that was paid for is lost or paid twice.

Every model call, tool result, prompt and event is a row of an SQLite file in WAL mode with ``synchronous=FULL``. A
method that records and is awaited returns after the commit that holds its record, and many records share one commit
(:mod:`mixseek.storage.journal_writer`). Any number of processes may read during a run. Everything is JSON and passes
the redactor on its way in.

    async with Journal(workspace.root / JOURNAL_NAME, redactor=Redactor.from_environment()) as journal:
        request = journal.request(scope, model=model, settings=settings, tools=tools, messages=messages)
        known = await journal.find_call(request.key, occurrence=0)
"""

import asyncio
import json
import logging
import re
import sqlite3
import threading
import weakref
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

from pydantic import BaseModel, JsonValue, RootModel

from mixseek.errors import DatabaseReadError, DatabaseWriteError, UnstorableValueError
from mixseek.records import ModelUsage, Usage
from mixseek.redaction import MadeJson, RedactedJson, Redactor
from mixseek.storage.bodies import UnreadableBodyError, packed, value_of, what_is_wrong
from mixseek.storage.journal_file import (
    abandon,
    delete_rows,
    file_identity,
    forget_after_fork,
    open_for_reading,
    read_error,
)
from mixseek.storage.journal_records import (
    DERIVED,
    Attempt,
    CallFailure,
    CallLine,
    CallScope,
    CallSpend,
    JournalEvent,
    ModelCall,
    Request,
    RoundPrompt,
    StartedCall,
    StartedRun,
    ToolResult,
    derived_id,
    keyed_request,
    new_call_id,
    tool_key,
)
from mixseek.storage.journal_writer import Column, Line, Row, lease_writer
from mixseek.storage.places import HeldPlace, Place, is_held, place_in, take
from mixseek.surrogates import is_unicode

__all__ = [
    "DERIVED",
    "JOURNAL_NAME",
    "Attempt",
    "CallFailure",
    "CallLine",
    "CallScope",
    "CallSpend",
    "Journal",
    "JournalEvent",
    "ModelCall",
    "Request",
    "RoundPrompt",
    "StartedCall",
    "StartedRun",
    "ToolResult",
    "derived_id",
    "keyed_request",
    "new_call_id",
    "tool_key",
]

logger = logging.getLogger(__name__)

JOURNAL_NAME = "journal.db"
_T = TypeVar("_T")
_Value = str | int | None
_SURROGATE_PAIR = re.compile("[\ud800-\udbff][\udc00-\udfff]")


class Journal:
    """The journal in one file, made at the first write; reading a file that does not exist finds nothing."""

    def __init__(
        self,
        path: Path | str,
        *,
        redactor: Redactor | None = None,
        wait_seconds: float = 60,
        retry_delays: Sequence[float] = (1, 2, 4),
    ) -> None:
        self.path = Path(path)
        self._wait_seconds = wait_seconds
        self._redactor = redactor or Redactor()
        self._retry_delays = tuple(retry_delays)
        self._rows = _RowMaker(self._redactor)
        self._place: HeldPlace | None = None
        self._open()

    def _open(self) -> None:
        self._reader = _Reader(self.path, self._wait_seconds)
        self._writer = lease_writer(self.path, self._wait_seconds, self._retry_delays)
        # Runs once: by close(), when the journal is garbage, or before the interpreter exits.
        self._release = weakref.finalize(self, self._writer.release)

    # --- writing ---

    async def call_starts(self, call: StartedCall, *, durable: bool = True) -> None:
        """Mark that ``call`` is about to leave; a budget needs the mark to be durable, a trace does not."""
        await self.call_starts_by(call.scope, lambda: call, durable=durable)

    async def call_starts_by(self, scope: CallScope, call: Callable[[], StartedCall], *, durable: bool = True) -> None:
        """:meth:`call_starts` for a mark that is made in the writer's thread."""

        def make_row() -> Row:
            return self._rows.started_call(call())

        if durable:
            await self._write(make_row, _line_of(scope))
        else:
            self._write_later(make_row)

    async def record_call(self, call: ModelCall) -> None:
        """Keep a call that came to an end."""
        await self.record_call_by(call.scope, lambda: call)

    async def record_call_by(
        self, scope: CallScope, call: Callable[[], ModelCall], told: Callable[[], JournalEvent] | None = None
    ) -> None:
        """Keep a call that came to an end, and the event that tells of it, if any.

        Both are made in the writer's thread: there the next one finds its code in the processor's caches, and a long
        answer does not hold up the event loop.
        """
        await self._write(lambda: self._rows.call(call(), None if told is None else told()), _line_of(scope))

    async def record_tool_result(self, result: ToolResult) -> None:
        """Keep what a tool or a member gave back."""
        await self._write(partial(self._rows.tool_result, result), _line_of(result.scope))

    async def record_prompt(self, prompt: RoundPrompt) -> None:
        """Keep a prompt; of several for one round and role the last one holds."""
        await self._write(partial(self._rows.prompt, prompt), _line_of(prompt))

    async def record_event(self, event: JournalEvent) -> None:
        """Keep an event; a sequence number that was used before is refused."""
        await self._write(partial(self._rows.event, event), _line_of(event))

    def record_event_soon(self, event: JournalEvent) -> None:
        """:meth:`record_event` for whoever waits for a later record of the team before anything follows from this one.

        Whoever does so is told if it could not be kept.
        """
        self._write_later(partial(self._rows.event, event), _line_of(event))

    def record_event_later(self, event: JournalEvent) -> None:
        """Keep an event with the next commit, in its order, without waiting for it."""
        self._write_later(partial(self._rows.event, event))

    # --- who plays ---

    async def take_place(self, execution_id: str, database: Path, *, frozen_seconds: float | None = None) -> HeldPlace:
        """Become the one process that plays an execution; all that this journal records from now on goes by it.

        A process that plays it already is named by PlaceTakenError, unless it is gone or stands still for
        ``frozen_seconds``; beside ``database`` lie the marks of processes that live.
        """
        named = self._redactor.text(execution_id)
        held = await take(
            self.path,
            database,
            named,
            adopt=self._writer.adopt,
            wait_seconds=self._wait_seconds,
            frozen_seconds=frozen_seconds,
        )
        self._place = held
        self._writer.hold(held)
        return held

    async def leave_place(self) -> None:
        """Let others play; nothing may be recorded afterwards."""
        place, self._place = self._place, None
        if place is None:
            return
        try:
            await self._writer.leave(place)
        finally:
            place.end()

    async def players(self, execution_id: str, database: Path) -> list[Place]:
        """Processes that play an execution, or work on what belongs to it, as far as they are known to live."""
        named = self._redactor.text(execution_id)
        derived = f"{named}{DERIVED}"
        taken = await self._many(place_in, _PLACES, named, derived, f"{derived}\U0010ffff")
        return await asyncio.to_thread(lambda: [place for place in taken if is_held(place, database)])

    # --- finding what is already there ---

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
        """A request as this journal keeps it, with its key."""
        return keyed_request(
            scope,
            model=model,
            settings=settings,
            tools=tools,
            messages=messages,
            attempt=attempt,
            within=within,
            redactor=self._redactor,
        )

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
        """The key of one use of a tool, made with this journal's redactor."""
        return tool_key(
            scope, tool, arguments, attempt=attempt, within=within, call_id=call_id, redactor=self._redactor
        )

    async def find_call(self, key: str, occurrence: int) -> ModelCall | None:
        """The first call of this key that was answered."""
        return await self._first_readable(
            _call,
            "SELECT * FROM calls WHERE key = ? AND occurrence = ? AND answer IS NOT NULL ORDER BY id",
            self._redactor.text(key),
            occurrence,
        )

    async def find_failed_call(self, key: str, occurrence: int) -> ModelCall | None:
        """The last call of this key that failed, for whoever plays a run again without a provider."""
        return await self._first_readable(
            _call,
            "SELECT * FROM calls WHERE key = ? AND occurrence = ? AND failure IS NOT NULL ORDER BY id DESC",
            self._redactor.text(key),
            occurrence,
        )

    async def find_tool_result(self, key: str, occurrence: int) -> ToolResult | None:
        """What a tool gave back the last time it was asked this: the time before may have been cancelled."""
        return await self._first_readable(
            _tool_result,
            "SELECT * FROM tool_results WHERE key = ? AND occurrence = ? ORDER BY id DESC",
            self._redactor.text(key),
            occurrence,
        )

    async def find_prompt(self, execution_id: str, team_id: str, round_number: int, role: str) -> RoundPrompt | None:
        """The prompt that holds for this round and role."""
        names = [self._redactor.text(name) for name in (execution_id, team_id, role)]
        return await self._first_readable(
            _prompt,
            "SELECT * FROM prompts WHERE execution_id = ? AND team_id = ? AND role = ? AND round_number = ?"
            " ORDER BY id DESC",
            *names,
            round_number,
        )

    # --- reading ---

    async def calls(self, execution_id: str, team_id: str | None = None) -> list[ModelCall]:
        """The calls of an execution in the order they ended."""
        return await self._of_execution(_call, "calls", execution_id, team_id)

    async def call_lines(
        self, execution_id: str, *, team_id: str | None = None, round_number: int | None = None, role: str | None = None
    ) -> list[CallLine]:
        """The calls of an execution in the order they ended, without their bodies; narrowed down if asked."""
        texts = [None if name is None else self._redactor.text(name) for name in (execution_id, team_id, role)]
        return await self._many(_call_line, _CALL_LINES, *texts, round_number)

    async def derived_ids(self, execution_id: str) -> list[str]:
        """The ids of calls that were made about an execution later, in the order of their first calls."""
        named = self._redactor.text(execution_id)
        derived = f"{named}{DERIVED}"
        found = await self._many(tuple, _DERIVED_IDS, derived, f"{derived}\U0010ffff")
        return [f"{execution_id}{each.removeprefix(named)}" for (each,) in found]

    async def calls_in_flight(self, execution_id: str) -> list[StartedCall]:
        """Calls that left and did not come to an end, at this moment or for ever."""
        return await self._many(
            _started_call,
            f"{_CALLS_IN_FLIGHT} ORDER BY rowid",
            self._redactor.text(execution_id),
        )

    async def calls_never_ended(self, execution_id: str) -> list[StartedCall]:
        """:meth:`calls_in_flight`, each once however many of its attempts left a mark."""
        calls: dict[str, StartedCall] = {}
        for mark in await self.calls_in_flight(execution_id):
            call_id = mark.call_id.partition("#")[0]
            calls.setdefault(call_id, mark.model_copy(update={"call_id": call_id}))
        return list(calls.values())

    async def spending(self, execution_id: str, *, playing_since: datetime | None = None) -> list[CallSpend]:
        """What every call of an execution cost, and what those that never ended may have cost by what they reserved.

        Those that a process made that plays since a moment have not ended yet, and cost nothing so far.
        """
        killed = [
            _reserved(mark)
            for mark in await self.calls_in_flight(execution_id)
            if mark.reserved_tokens != 0 and (playing_since is None or mark.started_at < playing_since)
        ]
        return [*await self._many(_spent, _SPENT, self._redactor.text(execution_id)), *killed]

    async def largest_reservations(self, execution_id: str) -> dict[str, tuple[float, int]]:
        """The most US dollars and the most tokens that a call of each team has reserved."""
        rows = await self._many(dict, _LARGEST_RESERVATIONS, self._redactor.text(execution_id))
        return {row["team_id"]: (row["usd"] or 0.0, row["tokens"] or 0) for row in rows}

    async def played_seconds(self, execution_id: str) -> dict[str | None, float]:
        """How long each team, and, under None, the execution itself was played so far, in all processes together.

        It is told by the moments of events: a process that was killed may have played a little longer.
        """
        return _seconds(await self._many(tuple, _MOMENTS, self._redactor.text(execution_id)))

    async def tool_results(self, execution_id: str, team_id: str | None = None) -> list[ToolResult]:
        """The tool results of an execution in the order they came."""
        return await self._of_execution(_tool_result, "tool_results", execution_id, team_id)

    async def prompts(self, execution_id: str, team_id: str | None = None) -> list[RoundPrompt]:
        """The prompts of an execution in the order they were made, replaced ones included."""
        return await self._of_execution(_prompt, "prompts", execution_id, team_id)

    async def events(
        self,
        execution_id: str | None = None,
        *,
        kinds: Collection[str] = (),
        after: int = 0,
        limit: int | None = None,
    ) -> list[JournalEvent]:
        """Events in the order they were kept, of one execution or of all, of some kinds, those after a position."""
        named = None if execution_id is None else self._redactor.text(execution_id)
        # Only where it stands by itself the index finds the events of one execution.
        of_execution = "" if named is None else "AND execution_id = ?"
        of_kinds = f"AND kind IN ({', '.join('?' * len(kinds))})" if kinds else ""
        return await self._many(
            _event,
            f"SELECT * FROM events WHERE position > ? {of_execution} {of_kinds} ORDER BY position LIMIT ?",  # noqa: S608 marks
            after,
            *(() if named is None else (named,)),
            *kinds,
            -1 if limit is None else limit,
        )

    async def whole_events(
        self, execution_id: str, *, kinds: Collection[str]
    ) -> tuple[list[JournalEvent], frozenset[str]]:
        """Events of an execution, and the teams with a damaged one, of which only those before it are given.

        What such a team did next is found call by call. An event of the execution itself has to be readable.
        """
        named = self._redactor.text(execution_id)
        statement = (
            f"SELECT * FROM events WHERE execution_id = ? AND kind IN ({', '.join('?' * len(kinds))}) ORDER BY position"  # noqa: S608 marks
        )

        def work() -> tuple[list[JournalEvent], frozenset[str]]:
            events, cut = list[JournalEvent](), set[str]()
            for row in self._reader.rows(statement, (named, *kinds)):
                if row["team_id"] in cut:
                    continue
                try:
                    events.append(_as_written(_event, row))
                except UnreadableBodyError as error:
                    if row["team_id"] is None:
                        raise read_error(self.path, error) from error
                    cut.add(row["team_id"])
                    logger.warning(
                        "%s; team %r goes on from before it, and what its models answered since is used",
                        read_error(self.path, error),
                        row["team_id"],
                    )
            return events, frozenset(cut)

        return await asyncio.to_thread(work)

    async def latest_events(self, execution_id: str, kind: str) -> list[JournalEvent]:
        """The last event of this kind of each team, where it can be read."""
        return await self._readable_ones(_event, _LATEST, self._redactor.text(execution_id), kind)

    async def last_events(self, execution_id: str | None = None, *, count: int) -> list[JournalEvent]:
        """The newest events, of one execution or of all, in the order they were kept."""
        named = None if execution_id is None else self._redactor.text(execution_id)
        newest = await self._many(
            _event,
            "SELECT * FROM events WHERE execution_id IS ifnull(?, execution_id) ORDER BY position DESC LIMIT ?",
            named,
            count,
        )
        return newest[::-1]

    async def pruned_at(self, execution_id: str) -> datetime | None:
        """When the bodies of an execution's calls were dropped; None if they are there."""
        statement = "SELECT pruned_at FROM pruned WHERE execution_id = ?"
        return await self._one(_pruned_at, statement, self._redactor.text(execution_id))

    async def started_runs(self) -> list[StartedRun]:
        """The executions whose beginning was kept and can be read, in no order."""
        return await self._readable_ones(_started_run, _STARTED_RUNS)

    async def member_calls(self, execution_id: str) -> list[ToolResult]:
        """What members gave their leaders in an execution, in the order it came, without the members' messages."""
        return await self._many(_member_call, _MEMBER_CALLS, self._redactor.text(execution_id))

    # --- what a run goes on from ---

    async def bill(self, execution_id: str) -> list[ModelUsage]:
        """What all calls of an execution came to, a line for each agent and model, in the order of first calls."""
        return await self._many(_bill_line, _BILL, self._redactor.text(execution_id))

    async def usage(self, execution_id: str) -> Usage:
        """What all calls of an execution consumed, with the uses of tools by members."""
        return sum((await self.usage_by_team(execution_id)).values(), start=Usage())

    async def usage_by_team(self, execution_id: str) -> dict[str, Usage]:
        """What the calls of each team consumed, with the uses of tools by its members."""
        named = self._redactor.text(execution_id)
        details: defaultdict[str, dict[str, int]] = defaultdict(dict)
        for row in await self._many(dict, _USAGE_DETAILS, named):
            details[row["team_id"]][row["name"]] = row["count"]
        tool_calls = await self.tool_calls(execution_id)
        usages: dict[str, Usage] = {}
        for row in await self._many(dict, _USAGE_SUMS, named):
            team_id = row.pop("team_id")
            counts = {name: count or 0 for name, count in row.items()}
            usages[team_id] = Usage(**counts, tool_calls=tool_calls.get(team_id, 0), details=details[team_id])
        return usages

    async def tool_calls(self, execution_id: str) -> dict[str, int]:
        """How often the members of each team used tools."""
        rows = await self._many(dict, _TOOL_CALLS, self._redactor.text(execution_id))
        return {row["team_id"]: row["count"] for row in rows}

    async def last_sequences(self, execution_id: str) -> dict[str | None, int]:
        """The highest sequence number of each team, and, under None, of the execution itself."""
        rows = await self._many(dict, _LAST_SEQUENCES, self._redactor.text(execution_id))
        return {row["team_id"]: row["last"] for row in rows}

    # --- taking away ---

    async def delete(self, execution_id: str) -> int:
        """Remove all that is kept of an execution, and say how many rows that was."""
        return await asyncio.to_thread(delete_rows, self.path, self._redactor.text(execution_id), self._wait_seconds)

    async def last_sequence(self, execution_id: str, team_id: str | None = None) -> int | None:
        """The highest sequence number among the events of a team, or of an execution itself."""
        names = [None if name is None else self._redactor.text(name) for name in (execution_id, team_id)]
        statement = "SELECT max(sequence) AS last FROM events WHERE execution_id = ? AND team_id IS ?"
        return await self._one(_last, statement, *names)

    # --- the end ---

    def close(self) -> None:
        """Write out what waits and close the file, until it is entered anew; a second call does nothing."""
        if self._place is not None:
            self._writer.drop(self._place)
            self._place.end()
        self._release()
        self._reader.close()

    async def aclose(self) -> None:
        """Close without holding up the event loop."""
        await asyncio.to_thread(self.close)

    async def __aenter__(self) -> Self:
        if not self._release.alive:
            self._open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.aclose()

    # --- inside: all that is recorded goes by these two ---

    async def _write(self, make_row: Callable[[], Row], line: Line | None) -> None:
        self._refuse_if_closed()
        await self._writer.write(make_row, self._place, line=line)

    def _write_later(self, make_row: Callable[[], Row], line: Line | None = None) -> None:
        self._refuse_if_closed()
        self._writer.write_later(make_row, self._place, line=line)

    def _refuse_if_closed(self) -> None:
        # The writer may live on for another journal of the same file.
        if not self._release.alive:
            raise DatabaseWriteError(f"journal {str(self.path)!r} is closed")

    async def _of_execution(
        self, read: Callable[[sqlite3.Row], _T], table: str, execution_id: str, team_id: str | None
    ) -> list[_T]:
        names = [None if name is None else self._redactor.text(name) for name in (execution_id, team_id)]
        # The table's name is a literal of this module.
        statement = f"SELECT * FROM {table} WHERE execution_id = ? AND team_id IS ifnull(?, team_id) ORDER BY id"  # noqa: S608
        return await self._many(read, statement, *names)

    async def _one(self, read: Callable[[sqlite3.Row], _T], statement: str, *values: _Value) -> _T | None:
        found = await self._many(read, f"{statement} LIMIT 1", *values)
        return found[0] if found else None

    async def _first_readable(self, read: Callable[[sqlite3.Row], _T], statement: str, *values: _Value) -> _T | None:
        """The first of these rows; whoever looks for one that cannot be read goes on as if it had never been kept."""

        def work() -> _T | None:
            return next(self._readable(read, statement, values), None)

        return await asyncio.to_thread(work)

    async def _readable_ones(self, read: Callable[[sqlite3.Row], _T], statement: str, *values: _Value) -> list[_T]:
        return await asyncio.to_thread(lambda: [*self._readable(read, statement, values)])

    def _readable(self, read: Callable[[sqlite3.Row], _T], statement: str, values: Sequence[_Value]) -> Iterator[_T]:
        """The records of all rows but those that are damaged, which are told."""
        for row in self._reader.rows(statement, values):
            try:
                yield _as_written(read, row)
            except UnreadableBodyError as error:
                logger.warning("%s; what it held counts as never kept", read_error(self.path, error))

    async def _many(self, read: Callable[[sqlite3.Row], _T], statement: str, *values: _Value) -> list[_T]:
        def work() -> list[_T]:
            rows = self._reader.rows(statement, values)
            try:
                return [_as_written(read, row) for row in rows]
            except UnreadableBodyError as error:
                raise read_error(self.path, error) from error

        return await asyncio.to_thread(work)


class _Reader:
    """One read-only connection, opened when there is something to read and used by one thread at a time."""

    def __init__(self, path: Path, wait_seconds: float) -> None:
        self._path = path
        self._wait_seconds = wait_seconds
        self._lock = threading.Lock()
        self._connection: sqlite3.Connection | None = None
        self._identity: tuple[int, int] | None = None
        self._closed = False
        forget_after_fork(self)

    def rows(self, statement: str, values: Sequence[_Value]) -> list[sqlite3.Row]:
        with self._lock:
            if self._closed:
                raise DatabaseReadError(f"journal {str(self._path)!r} is closed")
            try:
                connection = self._open()
                return connection.execute(statement, values).fetchall() if connection else []
            except sqlite3.Error as error:
                self._let_go()
                raise read_error(self._path, error) from error

    def close(self) -> None:
        with self._lock:
            self._closed = True
            self._let_go()

    def forget(self) -> None:
        abandon(self._connection)
        self._lock = threading.Lock()
        self._connection = None

    def _open(self) -> sqlite3.Connection | None:
        identity = file_identity(self._path)
        if identity != self._identity:
            self._let_go()
        if self._connection is None:
            self._connection, self._identity = open_for_reading(self._path, self._wait_seconds), identity
        return self._connection

    def _let_go(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


# --- records as rows --------------------------------------------------------------------------------------------------


class _RowMaker:
    """Makes rows of records, without their secrets; a value that cannot be kept bit by bit is refused by name."""

    def __init__(self, redactor: Redactor) -> None:
        self._redactor = redactor

    def started_call(self, call: StartedCall) -> Row:
        columns: dict[str, Column] = {
            **self._names(call_id=call.call_id, **_scope_names(call.scope), key=call.key, model=call.model),
            "round_number": call.scope.round_number,
            "occurrence": call.occurrence,
            "started_at": _moment(call.started_at),
            "reserved_tokens": call.reserved_tokens,
            "reserved_usd": call.reserved_usd,
        }
        return Row("started_calls", columns)

    def call(self, call: ModelCall, told: JournalEvent | None) -> Row:
        columns: dict[str, Column] = {
            **self._names(call_id=call.call_id, **_scope_names(call.scope), key=call.key, model=call.model),
            "round_number": call.scope.round_number,
            "occurrence": call.occurrence,
            "request": self._body("request", call.request),
            "answer": self._body_or_null("answer", call.answer),
            "failure": None if call.failure is None else packed(self._record("failure", call.failure)),
            # Added up by SQL, so it stays text.
            "usage": self._record("usage", call.usage).decode(),
            "cost_usd": call.cost_usd,
            "attempts": packed(self._record("attempts", _Attempts(call.attempts))),
            "started_at": _moment(call.started_at),
            "ended_at": _moment(call.ended_at),
        }
        event = None if told is None else self.event(told)
        return _sized_row("calls", columns, "request", "answer", event=event)

    def tool_result(self, result: ToolResult) -> Row:
        columns: dict[str, Column] = {
            **self._names(**_scope_names(result.scope), tool=result.tool, key=result.key),
            "round_number": result.scope.round_number,
            "occurrence": result.occurrence,
            "arguments": self._body("arguments", result.arguments),
            "result": self._body("result", result.result),
            "started_at": _moment(result.started_at),
            "ended_at": _moment(result.ended_at),
        }
        return _sized_row("tool_results", columns, "arguments", "result")

    def prompt(self, prompt: RoundPrompt) -> Row:
        names = {"execution_id": prompt.execution_id, "team_id": prompt.team_id, "role": prompt.role}
        nonce = {} if prompt.nonce is None else {"nonce": prompt.nonce}
        columns: dict[str, Column] = {
            "nonce": None,
            **self._names(**names, clock=prompt.clock, **nonce),
            "round_number": prompt.round_number,
            "text": self._body("text", prompt.text),
            "ranking": self._body_or_null("ranking", prompt.ranking),
            "made_at": _moment(prompt.made_at),
        }
        return _sized_row("prompts", columns, "text", "ranking")

    def event(self, event: JournalEvent) -> Row:
        team = {} if event.team_id is None else {"team_id": event.team_id}
        columns: dict[str, Column] = {
            "team_id": None,
            **self._names(execution_id=event.execution_id, kind=event.kind, **team),
            "sequence": event.sequence,
            "at": _moment(event.at),
            "payload": self._body("payload", event.payload),
        }
        return _sized_row("events", columns, "payload")

    def _names(self, **names: str) -> dict[str, str]:
        """Columns of plain text, which SQLite keeps as UTF-8; one look at all of them is mostly enough."""
        if not self._redactor.may_change("\n".join(names.values())):
            return names
        return {column: self._name(column, text) for column, text in names.items()}

    def _name(self, column: str, text: str) -> str:
        redacted = self._redactor.text(text)
        if not is_unicode(redacted):
            raise UnstorableValueError(f"{column} holds half a surrogate pair, which the journal cannot keep as a name")
        return redacted

    def _body_or_null(self, name: str, value: JsonValue | MadeJson) -> str | bytes | None:
        return None if value is None else self._body(name, value)

    def _body(self, name: str, value: JsonValue | MadeJson) -> str | bytes:
        return packed(self._json(name, value))

    def _record(self, name: str, record: BaseModel) -> bytes:
        """A record of ours, by its quickest way to JSON."""
        text = record.model_dump_json(exclude_none=True)
        return self._json(name, json.loads(text)) if self._redactor.may_change(text) else text.encode()

    def _json(self, name: str, value: JsonValue | MadeJson) -> bytes:
        try:
            kept = self._redactor.json(value)
        except (TypeError, ValueError, RecursionError) as error:
            raise UnstorableValueError(f"{name} is no JSON value the journal can keep: {error}") from error
        return _with_escaped_surrogates(name, kept) if kept.has_surrogates else kept


def _line_of(record: CallScope | RoundPrompt | JournalEvent) -> Line | None:
    """What happens to one team follows from what happened to it before."""
    return None if record.team_id is None else (record.execution_id, record.team_id)


class _Attempts(RootModel[tuple[Attempt, ...]]):
    """The attempts of one call as one JSON array."""


def _sized_row(table: str, columns: dict[str, Column], *bodies: str, event: Row | None = None) -> Row:
    """A row that is as large as its bodies: the other columns are short."""
    size = sum([len(body) for name in bodies if isinstance(body := columns[name], str | bytes)])
    return Row(table, columns, size, event)


def _scope_names(scope: CallScope) -> dict[str, str]:
    return {
        "execution_id": scope.execution_id,
        "team_id": scope.team_id,
        "role": scope.role,
        "agent_name": scope.agent_name,
    }


def _with_escaped_surrogates(name: str, kept: RedactedJson) -> bytes:
    text = kept.decode("utf-8", "surrogatepass")
    # Two halves written one after the other are read as one character.
    if _SURROGATE_PAIR.search(text):
        raise UnstorableValueError(f"{name} holds two surrogates in a row, which JSON cannot tell from one character")
    return text.encode("utf-8", "backslashreplace")


def _moment(moment: datetime) -> str:
    in_utc = moment if moment.tzinfo is UTC else moment.astimezone(UTC)
    return in_utc.isoformat(timespec="microseconds")


# --- rows as records --------------------------------------------------------------------------------------------------


def _as_written(read: Callable[[sqlite3.Row], _T], row: sqlite3.Row) -> _T:
    """The record of a row; one that MixSeek cannot have written so is damaged."""
    try:
        return read(row)
    except (UnreadableBodyError, ValueError, TypeError, LookupError) as error:
        named = ("execution_id", "team_id", "round_number", "role", "kind")
        whose = " ".join(str(row[name]) for name in named if name in row.keys() and row[name] is not None)  # noqa: SIM118
        raise UnreadableBodyError(f"{what_is_wrong(error)} ({whose})") from error


def _scope(row: sqlite3.Row) -> dict[str, Any]:
    return {name: row[name] for name in CallScope.model_fields}


def _started_call(row: sqlite3.Row) -> StartedCall:
    own = {name: row[name] for name in StartedCall.model_fields if name != "scope"}
    return StartedCall.model_validate({**own, "scope": _scope(row)})


def _spent(row: sqlite3.Row) -> CallSpend:
    attempts = [Attempt.model_validate(one) for one in value_of(row["attempts"])]
    lost = [one for one in attempts if one.is_lost]
    return CallSpend.model_validate(
        {
            **_plain(row, ("model", "cost_usd")),
            "scope": _scope(row),
            "usage": value_of(row["usage"]),
            "lost_attempts": len(lost),
            "lost_requests": sum(1 if one.lost_requests is None else one.lost_requests for one in lost),
            "lost_tokens": _all_or_none([one.lost_tokens for one in lost]),
            "lost_usd": _all_or_none([one.lost_usd for one in lost]),
        }
    )


def _reserved(mark: StartedCall) -> CallSpend:
    return CallSpend(
        scope=mark.scope,
        model=mark.model,
        cost_usd=0.0,
        lost_attempts=1,
        lost_requests=1,
        lost_tokens=mark.reserved_tokens,
        lost_usd=mark.reserved_usd,
    )


def _all_or_none(costs: Sequence[float | None]) -> float | None:
    known = [cost for cost in costs if cost is not None]
    return sum(known) if len(known) == len(costs) else None


def _seconds(moments: Iterable[tuple[str | None, str, str]]) -> dict[str | None, float]:
    """From the first to the last moment of each process by the clock it had; one set back gives nothing."""
    sums: Counter[str | None] = Counter()
    spans: dict[str | None, tuple[str, str]] = {}
    for team_id, kind, at in moments:
        if kind in _BEGINNINGS:
            sums.update(_lengths(spans))
            spans = {}
        for whose in {team_id, None}:
            spans[whose] = spans.get(whose, (at, at))[0], at
    sums.update(_lengths(spans))
    return dict(sums)


def _lengths(spans: Mapping[str | None, tuple[str, str]]) -> dict[str | None, float]:
    ends = {whose: map(datetime.fromisoformat, span) for whose, span in spans.items()}
    return {whose: max(0.0, (ended - begun).total_seconds()) for whose, (begun, ended) in ends.items()}


def _call(row: sqlite3.Row) -> ModelCall:
    plain = ("call_id", "key", "occurrence", "model", "cost_usd", "started_at", "ended_at")
    bodies = ("request", "answer", "failure", "usage", "attempts")
    pruned = row["request"] is None
    return ModelCall.model_validate(
        {**_plain(row, plain), **_bodies(row, bodies), "scope": _scope(row), "pruned": pruned}
    )


def _call_line(row: sqlite3.Row) -> CallLine:
    failure, usage = value_of(row["failure"]), value_of(row["usage"])
    attempts = [Attempt.model_validate(one) for one in value_of(row["attempts"])]
    return CallLine(
        scope=CallScope(**_scope(row)),
        outcome="answered" if failure is None else failure["error"],
        message=None if failure is None else failure["message"],
        usage=usage,
        attempts=len(attempts),
        lost_attempts=sum(one.is_lost for one in attempts),
        **_plain(row, ("call_id", "model", "cost_usd", "started_at", "ended_at")),
    )


def _pruned_at(row: sqlite3.Row) -> datetime:
    return datetime.fromisoformat(row["pruned_at"])


def _tool_result(row: sqlite3.Row) -> ToolResult:
    plain = _plain(row, ("tool", "key", "occurrence", "started_at", "ended_at"))
    return ToolResult.model_validate({**plain, **_bodies(row, ("arguments", "result")), "scope": _scope(row)})


def _prompt(row: sqlite3.Row) -> RoundPrompt:
    plain = ("execution_id", "team_id", "round_number", "role", "clock", "nonce", "made_at")
    return RoundPrompt.model_validate({**_plain(row, plain), **_bodies(row, ("text", "ranking"))})


def _event(row: sqlite3.Row) -> JournalEvent:
    plain = ("execution_id", "team_id", "sequence", "kind", "at", "position")
    return JournalEvent.model_validate({**_plain(row, plain), **_bodies(row, ("payload",))})


def _member_call(row: sqlite3.Row) -> ToolResult:
    _object(row["result"])
    return _tool_result(row)


def _object(body: str | bytes | None) -> dict[str, JsonValue]:
    value = value_of(body)
    if not isinstance(value, dict):
        raise TypeError("no JSON object")
    return value


def _started_run(row: sqlite3.Row) -> StartedRun:
    return StartedRun.model_validate(dict(row))


def _last(row: sqlite3.Row) -> int | None:
    last: int | None = row["last"]
    return last


def _bill_line(row: sqlite3.Row) -> ModelUsage:
    return ModelUsage.model_validate(dict(row))


def _plain(row: sqlite3.Row, names: Sequence[str]) -> dict[str, Any]:
    return {name: row[name] for name in names}


def _bodies(row: sqlite3.Row, names: Sequence[str]) -> dict[str, Any]:
    return {name: value_of(row[name]) for name in names}


# --- SQL --------------------------------------------------------------------------------------------------------------

# The mark of a further attempt has the id of its call with its number after it.
_CALLS_IN_FLIGHT = """
    SELECT * FROM started_calls AS s WHERE execution_id = ? AND NOT EXISTS (
        SELECT 1 FROM calls WHERE calls.call_id = s.call_id
        OR (instr(s.call_id, '#') AND calls.call_id = substr(s.call_id, 1, instr(s.call_id, '#') - 1)))"""
_SPENT = """
    SELECT execution_id, team_id, round_number, role, agent_name, model, usage, cost_usd, attempts
    FROM calls WHERE execution_id = ? ORDER BY id"""
_LARGEST_RESERVATIONS = """
    SELECT team_id, max(reserved_usd) AS usd, max(reserved_tokens) AS tokens
    FROM started_calls WHERE execution_id = ? GROUP BY team_id"""
_BEGINNINGS = ("RunStarted", "RunResumed")
_MOMENTS = "SELECT team_id, kind, at FROM events WHERE execution_id = ? ORDER BY position"
# The ids are found one after the other by the index, and of each only the events without a team are looked at: whoever
# asks what was played does not wait until all that happened was read.
_STARTED_RUNS = """
    WITH RECURSIVE ids (id) AS (
        SELECT min(execution_id) FROM events
        UNION ALL SELECT (SELECT min(execution_id) FROM events WHERE execution_id > id) FROM ids WHERE id IS NOT NULL)
    SELECT execution_id, position, at AS started_at,
        json_extract(unpacked(CAST(payload AS BLOB)), '$.user_prompt') AS user_prompt,
        (SELECT count(*) FROM json_each(unpacked(CAST(payload AS BLOB)), '$.team_names')) AS total_teams,
        json_extract(unpacked(CAST(payload AS BLOB)), '$.config_file') AS config_file,
        EXISTS (SELECT 1 FROM events later WHERE later.execution_id = id AND (later.team_id IS NULL) = 1
            AND ifnull(later.team_id, '') = '' AND later.kind = 'RunResumed') AS was_resumed,
        EXISTS (SELECT 1 FROM events later WHERE later.execution_id = id AND (later.team_id IS NULL) = 1
            AND ifnull(later.team_id, '') = '' AND later.kind = 'RunFinished') AS has_ended
    FROM ids JOIN events ON execution_id = id AND (team_id IS NULL) = 1 AND ifnull(team_id, '') = ''
    WHERE kind = 'RunStarted'"""
_PLACES = "SELECT * FROM places WHERE execution_id = ? OR (execution_id >= ? AND execution_id < ?)"
_DERIVED_IDS = """
    SELECT execution_id FROM calls WHERE execution_id >= ? AND execution_id < ?
    GROUP BY execution_id ORDER BY min(id)"""
_CALL_LINES = """
    SELECT call_id, execution_id, team_id, round_number, role, agent_name, model, failure, usage, cost_usd, attempts,
        started_at, ended_at
    FROM calls WHERE execution_id = ? AND team_id IS ifnull(?, team_id) AND role IS ifnull(?, role)
        AND round_number IS ifnull(?, round_number) ORDER BY id"""
_LATEST = """
    SELECT * FROM events WHERE position IN (
        SELECT max(position) FROM events WHERE execution_id = ? AND kind = ? GROUP BY team_id)"""
# Rounds count from 1 in a bill; what is asked outside of them is asked outside of competitions.
_BILL = """
    SELECT execution_id, team_id, round_number, role, agent_name, model,
        sum(json_extract(usage, '$.requests')) AS requests,
        sum(json_extract(usage, '$.input_tokens')) AS input_tokens,
        sum(json_extract(usage, '$.output_tokens')) AS output_tokens,
        CASE WHEN count(*) = count(cost_usd) THEN sum(cost_usd) END AS cost_usd,
        CASE WHEN count(*) = count(cost_usd) THEN 0 ELSE total(cost_usd) END AS known_usd
    FROM calls WHERE execution_id = ? AND round_number > 0
    GROUP BY team_id, round_number, role, agent_name, model ORDER BY min(id)"""
_SUMMED = [name for name in Usage.model_fields if name not in ("tool_calls", "details")]
_USAGE_SUMS = f"""
    SELECT team_id, {", ".join(f"sum(json_extract(usage, '$.{name}')) AS {name}" for name in _SUMMED)}
    FROM calls WHERE execution_id = ? GROUP BY team_id"""  # noqa: S608 our own names
_USAGE_DETAILS = """
    SELECT team_id, json_each.key AS name, sum(json_each.value) AS count
    FROM calls, json_each(calls.usage, '$.details') WHERE execution_id = ? GROUP BY team_id, json_each.key"""
_TOOL_CALLS = """
    SELECT team_id, count(*) AS count FROM tool_results WHERE execution_id = ? AND role = 'member' GROUP BY team_id"""
_LAST_SEQUENCES = """
    SELECT team_id, max(sequence) AS last FROM events WHERE execution_id = ? GROUP BY team_id"""
_MEMBER_CALLS = """
    SELECT execution_id, team_id, round_number, role, agent_name, tool, key, occurrence, arguments,
        json_remove(unpacked(CAST(result AS BLOB)), '$.all_messages') AS result, started_at, ended_at
    FROM tool_results WHERE execution_id = ? AND role = 'leader' ORDER BY id"""
