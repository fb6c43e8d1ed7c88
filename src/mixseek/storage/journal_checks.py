"""Whether a journal is whole: the file by SQLite's own check, and what it holds by what has to be true of it."""

import re
import sqlite3
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from datetime import datetime
from math import isclose
from pathlib import Path
from typing import Any

from mixseek.records import ModelUsage
from mixseek.storage.bodies import UnreadableBodyError, value_of
from mixseek.storage.journal_file import damage, open_for_reading, read_error

__all__ = ["JournalCheck", "check_journal", "first_fault", "refuse_damaged"]

_WAIT_SECONDS = 60.0
_READ_WHOLE_BELOW = 64 * 1024 * 1024
_OF_THE_FILE = "file: "
_MOST_OF_THE_FILE = 20
"""Asked for more, SQLite's check may itself fail at a page that makes no sense, and then tells nothing at all."""
_KEY = re.compile(r"[0-9a-f]{64}")
_Line = tuple[str, str, int, str, str, str]


@dataclass(frozen=True)
class JournalCheck:
    """What was looked at, and what is wrong."""

    executions: int
    calls: int
    events: int
    faults: tuple[str, ...]
    not_in_journal: int = 0
    """Executions in ``mixseek.db`` that the journal has nothing of: no fault, for some are played without a journal."""

    @property
    def is_broken(self) -> bool:
        """Whether the file itself makes no sense, so that nothing else was looked at."""
        return any(fault.startswith(_OF_THE_FILE) for fault in self.faults)


def check_journal(path: Path, bills: Iterable[ModelUsage] = (), stored: Collection[str] = ()) -> JournalCheck:
    """Look at every row; ``bills`` are the lines of ``mixseek.db``, which the calls have to add up to.

    ``stored`` are the executions there, read before the journal, which is the first to have them.
    """
    try:
        connection = open_for_reading(path, _WAIT_SECONDS)
        if connection is None:
            return JournalCheck(0, 0, 0, (), len(set(stored)))
        with closing(connection):
            return _checked(connection, list(bills), set(stored))
    except sqlite3.Error as error:
        raise read_error(path, error) from error


def refuse_damaged(path: Path, *, leaves_no_trace: bool = False) -> None:
    """Raise if the file's pages make no sense: what is written into it might not be found again."""
    try:
        connection = open_for_reading(path, _WAIT_SECONDS, leaves_no_trace=leaves_no_trace)
        if connection is None:
            return
        with closing(connection):
            fault = first_fault(connection, path)
    except sqlite3.Error as error:
        raise read_error(path, error) from error
    if fault:
        raise damage(path, fault)


def first_fault(connection: sqlite3.Connection, path: Path) -> str | None:
    """What is wrong with the pages of a file that is small enough to be read whole at a start, 3 ms for each MB."""
    if path.stat().st_size >= _READ_WHOLE_BELOW:
        return None
    return next(_told_by(connection, "quick_check(1)"), None)


def _checked(connection: sqlite3.Connection, bills: list[ModelUsage], stored: set[str]) -> JournalCheck:
    broken = [f"{_OF_THE_FILE}{told}" for told in _told_by(connection, f"integrity_check({_MOST_OF_THE_FILE})")]
    # Rows of a file whose pages make no sense say nothing more.
    faults = broken or [fault for check in _CHECKS for fault in check(connection)]
    if not broken:
        faults += _wrong_totals(connection, bills)
    calls, events = (connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0] for table in ("calls", "events"))  # noqa: S608
    known = {execution_id for (execution_id,) in connection.execute("SELECT DISTINCT execution_id FROM events")}
    return JournalCheck(len(known), calls, events, tuple(faults), 0 if broken else len(stored - known))


def _told_by(connection: sqlite3.Connection, check: str) -> Iterator[str]:
    """What one of SQLite's own checks says; it gives many faults in one text, with a line above that says nothing."""
    for (told,) in connection.execute(f"PRAGMA {check}"):
        yield from (line for line in told.splitlines() if line != "ok" and not line.startswith("*** in database "))


# --- bodies -----------------------------------------------------------------------------------------------------------

_BODIES = {
    "calls": ("request", "answer", "failure", "usage", "attempts"),
    "tool_results": ("arguments", "result"),
    "prompts": ("text", "ranking"),
    "events": ("payload",),
}


_KINDS: Mapping[str, type] = {"failure": dict, "usage": dict, "attempts": list, "text": str, "payload": dict}
"""What kind of value a body is, where it is always the same."""


def _unreadable_bodies(connection: sqlite3.Connection) -> Iterator[str]:
    for table, columns in _BODIES.items():
        for row in connection.execute(f"SELECT rowid AS number, execution_id, {', '.join(columns)} FROM {table}"):  # noqa: S608
            for column in columns:
                if fault := _fault_in(row[column], _KINDS.get(column, object)):
                    yield f"{table} {row['number']} of {row['execution_id']}: {column} {fault}"


def _fault_in(body: Any, kind: type) -> str | None:
    try:
        value = value_of(body)
    except UnreadableBodyError as error:
        return f"is no readable JSON ({error.__cause__})"
    return None if value is None or isinstance(value, kind) else "is not what is kept there"


def _missing_bodies(connection: sqlite3.Connection) -> Iterator[str]:
    """A call has its request, and an answer or a failure, unless it was pruned."""
    for row in connection.execute(_WITHOUT_BODIES):
        yield f"call {row['call_id']} of {row['execution_id']} has lost what was asked or answered, and was not pruned"


_WITHOUT_BODIES = """
    SELECT call_id, execution_id FROM calls
    WHERE (request IS NULL OR (answer IS NULL) = (failure IS NULL))
        AND execution_id NOT IN (SELECT execution_id FROM pruned)"""


# --- names and times --------------------------------------------------------------------------------------------------


def _unreadable_texts(connection: sqlite3.Connection) -> Iterator[str]:
    """What is no body is a number, a text of UTF-8, or a time."""
    for table in ("calls", "started_calls", "tool_results", "prompts", "events"):
        for row in connection.execute(f"SELECT rowid AS number, * FROM {table}"):  # noqa: S608 our own names
            for column in row.keys():  # noqa: SIM118 a row gives its values
                if column not in _BODIES.get(table, ()) and (fault := _fault_in_text(column, row[column])):
                    yield f"{table} {row['number']} of {row['execution_id']}: {column} {fault}"


def _fault_in_text(column: str, value: Any) -> str | None:
    if isinstance(value, bytes):
        return "is no text"
    if value is None or not (column == "at" or column.endswith("_at")):
        return None
    try:
        datetime.fromisoformat(value)
    except (TypeError, ValueError):
        return f"is no time: {value!r}"
    return None


# --- keys, starts and sequences ---------------------------------------------------------------------------------------


def _odd_keys(connection: sqlite3.Connection) -> Iterator[str]:
    for table in ("calls", "started_calls", "tool_results"):
        for row in connection.execute(f"SELECT rowid AS number, execution_id, key FROM {table}"):  # noqa: S608 our names
            if not isinstance(row["key"], str) or not _KEY.fullmatch(row["key"]):
                yield f"{table} {row['number']} of {row['execution_id']}: {row['key']!r} is no key"


def _calls_without_start(connection: sqlite3.Connection) -> Iterator[str]:
    for row in connection.execute(_STARTS):
        what = "was never started" if row["started"] is None else "was started as another call"
        yield f"call {row['call_id']} of {row['execution_id']} {what}"


# A call that was given up, or refused, before it had its turn never left.
_STARTS = """
    SELECT c.call_id, c.execution_id, s.call_id AS started FROM calls AS c LEFT JOIN started_calls AS s USING (call_id)
    WHERE (s.call_id IS NULL AND c.attempts <> '[]')
        OR (s.execution_id, s.team_id, s.round_number, s.role, s.agent_name, s.key, s.occurrence)
        <> (c.execution_id, c.team_id, c.round_number, c.role, c.agent_name, c.key, c.occurrence)"""


def _gaps(connection: sqlite3.Connection) -> Iterator[str]:
    """Events are numbered from 0 for each team, and for the execution itself, and none is ever taken away alone."""
    for row in connection.execute(_SEQUENCES):
        whose = "the execution itself" if row["team_id"] is None else f"team {row['team_id']!r}"
        yield (
            f"events of {whose} in {row['execution_id']}: {row['last'] + 1 - row['known']} "
            f"of {row['last'] + 1} are missing"
        )


_SEQUENCES = """
    SELECT execution_id, team_id, count(*) AS known, max(sequence) AS last FROM events
    GROUP BY execution_id, team_id HAVING count(*) <> max(sequence) + 1"""

_CHECKS: tuple[Callable[[sqlite3.Connection], Iterator[str]], ...] = (
    _unreadable_bodies,
    _unreadable_texts,
    _missing_bodies,
    _odd_keys,
    _calls_without_start,
    _gaps,
)


# --- totals -----------------------------------------------------------------------------------------------------------


def _wrong_totals(connection: sqlite3.Connection, bills: list[ModelUsage]) -> Iterator[str]:
    """The calls of an execution that came to its end add up to its bill, line for line."""
    ended = {row["execution_id"] for row in connection.execute(_ENDED)}
    billed = {_line(line): line for line in bills if line.execution_id in ended and _counts(line)}
    called = {_line(line): line for line in _sums(connection, ended) if _counts(line)}
    for line in sorted({*billed, *called} if billed else ()):
        told, summed = _shown(billed.get(line)), _shown(called.get(line))
        if not _agree(billed.get(line), called.get(line)):
            execution, team, number, role, agent, model = line
            whose = f"{role} {agent!r} ({model}) of team {team!r} in round {number} of {execution}"
            yield f"bill of {whose}: {told}; its calls: {summed}"


def _line(line: ModelUsage) -> _Line:
    return line.execution_id, line.team_id, line.round_number, line.role, line.agent_name, line.model


def _counts(line: ModelUsage) -> bool:
    return bool(line.requests or line.input_tokens or line.output_tokens)


def _sums(connection: sqlite3.Connection, ended: set[str]) -> Iterator[ModelUsage]:
    sums: dict[_Line, ModelUsage] = {}
    for row in connection.execute(_PAID):
        if row["execution_id"] in ended:
            try:
                usage = value_of(row["usage"])
                line = ModelUsage(
                    **{name: row[name] for name in ("execution_id", "team_id", "round_number", "role", "agent_name")},
                    **{name: row[name] for name in ("model", "cost_usd")},
                    **{name: usage[name] for name in ("requests", "input_tokens", "output_tokens")},
                )
            except (UnreadableBodyError, ValueError, TypeError, LookupError):
                continue  # a fault that is told by itself
            sums[_line(line)] = sums[_line(line)].plus(line) if _line(line) in sums else line
    yield from sums.values()


def _agree(one: ModelUsage | None, other: ModelUsage | None) -> bool:
    if one is None or other is None:
        return False
    same = (one.requests, one.input_tokens, one.output_tokens) == (
        other.requests,
        other.input_tokens,
        other.output_tokens,
    )
    if one.cost_usd is None or other.cost_usd is None:
        return same and one.cost_usd is other.cost_usd
    # Calls that ended at the same moment may have been added up in another order.
    return same and isclose(one.cost_usd, other.cost_usd, rel_tol=1e-9, abs_tol=1e-12)


def _shown(line: ModelUsage | None) -> str:
    if line is None:
        return "nothing"
    cost = "" if line.cost_usd is None else f", {line.cost_usd:.6g} USD"
    return f"{line.requests} requests, {line.input_tokens} + {line.output_tokens} tokens{cost}"


# Of one that was gone on with since, more calls may be paid than its bill has.
_ENDED = """
    SELECT execution_id FROM events WHERE kind IN ('RunFinished', 'RunResumed')
    GROUP BY execution_id HAVING max(position) = max(iif(kind = 'RunFinished', position, 0))"""
_PAID = """
    SELECT execution_id, team_id, round_number, role, agent_name, model, cost_usd, usage FROM calls ORDER BY id"""
