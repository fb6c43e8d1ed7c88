"""Who plays an execution: one process has its place, and whoever takes it over raises the place's epoch.

A process that was frozen may wake up in the middle of a write, long after another has gone on with its execution. No
lock helps there, so a place is a number that is compared where something is written: every transaction of the journal
looks into ``places`` first, and so does every lease of ``mixseek.db``, which nobody else can open meanwhile. Whoever
finds a higher epoch than its own writes nothing and ends.

The holder beats: it counts up a number in its row. Whoever wants its place watches that number by a clock of its own,
so that neither set clocks nor two machines with different ones matter. A holder whose process is gone is known by the
kernel at once (:mod:`mixseek.storage.playing`).
"""

import asyncio
import logging
import socket
import sqlite3
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from mixseek.crash_points import reach
from mixseek.errors import PlaceLostError, PlaceTakenError
from mixseek.records import utc_now
from mixseek.storage.journal_file import JournalConnection, begin, open_for_writing, roll_back, write_error
from mixseek.storage.playing import Playing, is_playing
from mixseek.storage.this_process import this_command, this_pid

if TYPE_CHECKING:
    import duckdb

__all__ = [
    "BEAT_SECONDS",
    "FROZEN_SECONDS",
    "HeldPlace",
    "Place",
    "beat",
    "check",
    "check_results",
    "claim",
    "is_held",
    "leave",
    "place_in",
    "take",
]

BEAT_SECONDS = 1.0
FROZEN_SECONDS = 5.0
"""How long a living holder's beat has to stand still before its place is taken."""
_LOOK_AGAIN_SECONDS = 0.2
# Whoever waits longer than this for the file saw nobody write, the holder neither: its beat says nothing then.
_LONG_LOCK_SECONDS = 0.5

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Place:
    """One process's right to play one execution, and who it is."""

    execution_id: str
    epoch: int
    holder: str
    """A name no other place has; empty when the holder has left."""
    pid: int
    host: str
    command: str
    taken_at: str

    def __str__(self) -> str:
        return f"process {self.pid} ({self.command}) on {self.host} since {self.taken_at}"

    @property
    def is_left(self) -> bool:
        """Whether its holder has ended in order."""
        return not self.holder


_COLUMNS = tuple(field.name for field in fields(Place))
_NAMES = ", ".join(_COLUMNS)
_MARKS = ", ".join("?" * len(_COLUMNS))


class HeldPlace:
    """A place of this process, until it is left or lost."""

    def __init__(self, place: Place, mark: Playing | None = None) -> None:
        self.place = place
        self.lost: PlaceLostError | None = None
        self._mark = mark
        self._lock = threading.Lock()
        self._when_lost: list[Callable[[], object]] = []

    def when_lost(self, call: Callable[[], object]) -> None:
        """Call once, from any thread, when the place is found to be lost."""
        with self._lock:
            if self.lost is None:
                self._when_lost.append(call)
                return
        call()

    def check(self) -> None:
        """Raise an error of the caller's own if it is known who has the place now."""
        if self.lost is not None:
            raise PlaceLostError(str(self.lost))

    def lose(self, now: Place) -> PlaceLostError:
        """Note who has the place now, and tell those who asked to hear of it."""
        error = PlaceLostError(
            f"execution {self.place.execution_id!r} was taken over by {now}, because this process had stood still; "
            "it ends here and has written nothing since"
        )
        with self._lock:
            first, self.lost = self.lost is None, self.lost or error
            calls, self._when_lost = self._when_lost, []
        if first:
            for call in calls:
                call()
        return error

    def end(self) -> None:
        """Drop the mark by which others know that this process is alive."""
        if self._mark is not None:
            self._mark.end()


# --- taking one -------------------------------------------------------------------------------------------------------


async def take(
    journal: Path,
    database: Path,
    execution_id: str,
    *,
    adopt: Callable[[JournalConnection], None],
    wait_seconds: float = 60.0,
    frozen_seconds: float | None = None,
) -> HeldPlace:
    """The place of an execution, when nobody has it, or whoever has it is gone or frozen; else PlaceTakenError.

    The connection by which it was taken is for ``adopt``, in another thread: to close it and open the next one takes
    longer than all the rest.
    """
    place = _our_place(execution_id)
    # Marked before it is written down: who is in the table without a mark counts as gone.
    mark = Playing(database, place.holder)
    try:
        taken = await _take(_Table(journal, database, wait_seconds, adopt), place, frozen_seconds or FROZEN_SECONDS)
    except BaseException:
        mark.end()
        raise
    return HeldPlace(taken, mark)


def _our_place(execution_id: str) -> Place:
    return Place(
        execution_id=execution_id,
        epoch=1,
        holder=uuid4().hex,
        pid=this_pid(),
        host=socket.gethostname(),
        command=this_command(),
        taken_at=f"{utc_now():%Y-%m-%dT%H:%M:%SZ}",
    )


async def _take(table: "_Table", place: Place, frozen_seconds: float) -> Place:
    seen: _Seen | None = None
    standing_since = time.monotonic()
    while True:
        stands = seen is not None and time.monotonic() - standing_since >= frozen_seconds
        found = await asyncio.to_thread(table.take, place, seen if stands else None)
        if isinstance(found, Place):
            return found
        if seen is None or found.was_long_locked:
            seen, standing_since = found, time.monotonic()
        elif found.beat != seen.beat or found.place.epoch != seen.place.epoch:
            raise PlaceTakenError(
                f"execution {place.execution_id!r} is being played by {found.place}: "
                "wait until it is over, or end that process first",
                holder=str(found.place),
            )
        await asyncio.sleep(_LOOK_AGAIN_SECONDS)


@dataclass(frozen=True)
class _Seen:
    """Somebody's place as it was found, and what its beat was."""

    place: Place
    beat: int
    was_long_locked: bool


@dataclass(frozen=True)
class _Table:
    """The places of one journal, looked at by somebody who wants one."""

    journal: Path
    database: Path
    wait_seconds: float
    adopt: Callable[[JournalConnection], None]

    def take(self, place: Place, frozen: _Seen | None) -> Place | _Seen:
        """Take the place unless a living process has it that is not the ``frozen`` one; then that is what was found."""
        try:
            connection = open_for_writing(self.journal, self.wait_seconds)
            found = None
            try:
                found = self._take(connection, place, frozen)
            finally:
                (self.adopt if isinstance(found, Place) else JournalConnection.close)(connection)
            return found
        except sqlite3.Error as error:
            raise write_error(self.journal, error) from error

    def _take(self, connection: JournalConnection, place: Place, frozen: _Seen | None) -> Place | _Seen:
        asked = time.monotonic()
        begin(connection, self.journal, self.wait_seconds)
        try:
            locked = time.monotonic() - asked > _LONG_LOCK_SECONDS
            found = _found(connection, place.execution_id)
            if found is None or self._is_free(*found, frozen=None if locked else frozen):
                place = replace(place, epoch=found[0].epoch + 1 if found else 1)
                _write_down(connection, place)
                reach("place.before_commit")
                connection.execute("COMMIT")
                reach("place.after_commit")
                return place
            connection.execute("COMMIT")
        except BaseException:
            roll_back(connection)
            raise
        return _Seen(*found, was_long_locked=locked)

    def _is_free(self, place: Place, beat: int, *, frozen: _Seen | None) -> bool:
        if place.is_left or self._is_gone(place):
            return True
        if frozen is None or (frozen.place, frozen.beat) != (place, beat):
            return False
        logger.warning("execution %r is taken over from %s, which stands still", place.execution_id, place)
        return True

    def _is_gone(self, place: Place) -> bool:
        # Of other machines, and where locks are forgotten with any file that is closed, only the beat can be known.
        is_known = sys.platform == "linux" and place.host == socket.gethostname()
        return is_known and not is_playing(self.database, place.holder)


def place_in(row: sqlite3.Row) -> Place:
    """The place that a row of the journal tells of."""
    return Place(*(row[name] for name in _COLUMNS))


def is_held(place: Place, database: Path) -> bool:
    """Whether the process that took a place is known to live and has not left it."""
    return not place.is_left and is_playing(database, place.holder)


# --- in the journal ---------------------------------------------------------------------------------------------------


def _found(connection: sqlite3.Connection, execution_id: str) -> tuple[Place, int] | None:
    statement = f"SELECT {_NAMES}, beat FROM places WHERE execution_id = ?"  # noqa: S608 our own names
    row = connection.execute(statement, (execution_id,)).fetchone()
    return None if row is None else (Place(*row[:-1]), row[-1])


def _write_down(connection: sqlite3.Connection, place: Place) -> None:
    statement = f"INSERT OR REPLACE INTO places ({_NAMES}, beat) VALUES ({_MARKS}, 0)"  # noqa: S608 our own names
    connection.execute(statement, _values(place))


def _values(place: Place) -> list[Any]:
    return [getattr(place, name) for name in _COLUMNS]


def check(connection: sqlite3.Connection, held: HeldPlace) -> PlaceLostError | None:
    """Inside a transaction: None if the place is still held, else why nothing may be written."""
    found = _found(connection, held.place.execution_id)
    if found is None:
        # The journal was removed while it was in use, and a new one has begun.
        _write_down(connection, held.place)
        return None
    return None if found[0] == held.place else held.lose(found[0])


def beat(connection: sqlite3.Connection, held: HeldPlace) -> PlaceLostError | None:
    """Inside a transaction: show that the holder lives, if it still is the holder."""
    lost = check(connection, held)
    if lost is None:
        connection.execute("UPDATE places SET beat = beat + 1 WHERE execution_id = ?", (held.place.execution_id,))
    return lost


def leave(connection: sqlite3.Connection, held: HeldPlace) -> None:
    """Inside a transaction in which the place was checked: nobody has it any more; its epoch stays known."""
    connection.execute("UPDATE places SET holder = '' WHERE execution_id = ?", (held.place.execution_id,))


# --- in mixseek.db ----------------------------------------------------------------------------------------------------


def check_results(connection: "duckdb.DuckDBPyConnection", held: HeldPlace) -> None:
    """Raise PlaceLostError if somebody has claimed the results of the execution since the place was taken."""
    statement = f"SELECT {_NAMES} FROM places WHERE execution_id = ?"  # noqa: S608 our own names
    row = connection.execute(statement, [held.place.execution_id]).fetchone()
    found = None if row is None else Place(*row)
    if found is not None and found.epoch > held.place.epoch:
        raise held.lose(found)
    # A file that was made anew since does not know who was here first, and the first of all needs no row.
    if found is None and held.place.epoch > 1:
        claim(connection, held.place)


def claim(connection: "duckdb.DuckDBPyConnection", place: Place) -> None:
    """Let nobody with a lower epoch write results of the execution any more."""
    settings = ", ".join(f"{name} = ?" for name in _COLUMNS)
    known = connection.execute("SELECT epoch FROM places WHERE execution_id = ?", [place.execution_id]).fetchone()
    if known is None:
        connection.execute(f"INSERT INTO places ({_NAMES}) VALUES ({_MARKS})", _values(place))  # noqa: S608 our names
    elif known[0] < place.epoch:
        connection.execute(
            f"UPDATE places SET {settings} WHERE execution_id = ?",  # noqa: S608 our own names
            [*_values(place), place.execution_id],
        )
