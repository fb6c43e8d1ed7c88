"""One thread for each journal file writes it, with shared commits.

Whoever records something puts it in a queue and waits. The thread takes all that waits at that moment, writes it in
one transaction, and wakes each caller after the commit that holds its record: 200 teams cost a few commits, not 200.
What nobody waits for does not wake the thread by itself, and where many wait, the thread lets more come together: a
commit costs as much as many rows. Records become rows in the thread as well, so that a large one does not hold up the
event loop. A record that cannot be stored fails alone; a commit that fails, fails for all that shared it, after its
retries.

Records are written in the order they came, so whoever waits for one knows that those before it are there as well. A
record of a line, as that of one team is, need not be waited for where somebody waits for a later one of the same line
before anything follows from it. If it is lost, that one is told.

The thread also beats for the places its process holds (:mod:`mixseek.storage.places`), and inside each transaction it
looks whether they are still held: what belongs to a run that was taken over by another process is not written.
"""

import asyncio
import logging
import os
import sqlite3
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from mixseek.crash_points import reach
from mixseek.errors import DatabaseWriteError, PlaceLostError, StorageError, UnstorableValueError
from mixseek.storage.journal_file import (
    JournalConnection,
    abandon,
    begin,
    file_identity,
    forget_after_fork,
    may_pass,
    open_for_writing,
    write_error,
)
from mixseek.storage.places import BEAT_SECONDS, HeldPlace, beat, check, leave

__all__ = ["Column", "JournalWriter", "Line", "Row", "lease_writer"]

_log = logging.getLogger(__name__)

Column = str | bytes | int | float | None
Line = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Row:
    """One row to add: a table and its columns, and about how large they are."""

    table: str
    columns: Mapping[str, Column]
    size: int = 0
    event: "Row | None" = None
    """What is told of it, in another table: one record in the queue costs less than two."""


@dataclass(eq=False, slots=True)
class _Waiting:
    """One record in the queue, and who waits for it; ``future`` is None where nobody does."""

    make_row: Callable[[], Row | None]
    future: asyncio.Future[None] | None
    place: HeldPlace | None = None
    """What has to be held still when the record is written."""
    is_leaving: bool = False
    """Whether the place is given up with this commit."""
    line: Line | None = None
    row: Row | None = None
    error: StorageError | PlaceLostError | None = None


_Part = tuple[_Waiting, Row]
"""A row, and the record it belongs to."""


@dataclass(eq=False)
class JournalWriter:
    """The writer of one file, shared by all journals of this process that are open on it."""

    path: Path
    wait_seconds: float
    retry_delays: Sequence[float]
    _leases: int = 0
    _closing: bool = False
    _queue: list[_Waiting] = field(default_factory=list)
    _is_urgent: bool = False
    """Whether somebody waits for a record in the queue."""
    _is_busy: bool = False
    """Whether several waited for the last commit."""
    _places: list[HeldPlace] = field(default_factory=list)
    _next_beat: float = 0.0
    _thread: threading.Thread | None = None
    _connection: JournalConnection | None = None
    _identity: tuple[int, int] | None = None
    _is_told: bool = False
    """Whether it was said that writing fails, since it last went well."""
    _lost: dict[Line, StorageError | PlaceLostError] = field(default_factory=dict)
    """Why a record of a line could not be kept that nobody waited for, until somebody is told."""

    def __post_init__(self) -> None:
        # Reentrant, because the garbage collector may close a journal in the middle of anything.
        self._changed = threading.Condition(threading.RLock())
        forget_after_fork(self)

    async def write(
        self, make_row: Callable[[], Row], place: HeldPlace | None = None, *, line: Line | None = None
    ) -> None:
        """Return once the row is committed, and all before it in its line; it is written even if nobody waits."""
        future = asyncio.get_running_loop().create_future()
        self._put(_Waiting(make_row, future, place, line=line))
        try:
            await future
        finally:
            lost = None if line is None else self._lost.pop(line, None)
        if lost is not None:
            raise lost

    def write_later(
        self, make_row: Callable[[], Row], place: HeldPlace | None = None, *, line: Line | None = None
    ) -> None:
        """Return at once; the row goes with the next commit. Its failure goes to the next who waits for its line.

        Without a line it goes to the log.
        """
        self._put(_Waiting(make_row, None, place, line=line))

    def adopt(self, connection: JournalConnection) -> None:
        """Write by a connection that another thread has opened and needs no more, if there is none yet."""
        with self._changed:
            if self._thread is None and self._connection is None and not self._closing:
                self._connection, self._identity = connection, file_identity(self.path)
                return
        connection.close()

    def hold(self, place: HeldPlace) -> None:
        """Beat for a place from now on."""
        with self._changed:
            self._places.append(place)
            self._start()

    async def leave(self, place: HeldPlace) -> None:
        """Give a place up when all that was handed in before is written; one that was lost is another's already."""
        future = asyncio.get_running_loop().create_future()
        self._put(_Waiting(partial(self.drop, place), future, place, is_leaving=True))
        with suppress(PlaceLostError):
            await future

    def drop(self, place: HeldPlace) -> None:
        """Beat for a place no more."""
        with self._changed:
            self._places = [each for each in self._places if each is not place]

    def release(self) -> None:
        """Give up one lease; with the last one the queue is written out and the file closed."""
        with _registry.lock:
            self._leases -= 1
            if self._leases:
                return
            _registry.writers.pop(self.path, None)
        self._stop()

    def forget(self) -> None:
        """Start afresh in a forked child; the queue is the parent's to write."""
        abandon(self._connection)
        self._changed = threading.Condition(threading.RLock())
        self._queue, self._places, self._thread, self._connection = [], [], None, None
        self._lost = {}

    def _put(self, waiting: _Waiting) -> None:
        with self._changed:
            if self._closing:
                raise DatabaseWriteError(f"journal {str(self.path)!r} is closed")
            self._queue.append(waiting)
            is_news = len(self._queue) == 1 or (waiting.future is not None and not self._is_urgent)
            self._is_urgent = self._is_urgent or waiting.future is not None
            if is_news:
                self._start()

    def _start(self) -> None:
        if self._thread is None:
            # A daemon, since Python waits for other threads before it lets anyone ask this one to stop.
            self._thread = threading.Thread(target=self._run, name="mixseek-journal", daemon=True)
            self._thread.start()
        self._changed.notify_all()

    def _stop(self) -> None:
        with self._changed:
            self._closing = True
            self._changed.notify_all()
            thread = self._thread
        if thread is None:
            self._close_file()
        elif thread is not threading.current_thread():
            thread.join()
        for error in self._lost.values():
            if not isinstance(error, PlaceLostError):
                _log_loss(error)

    # --- in the thread ---

    def _run(self) -> None:
        while self._work():
            pass
        self._close_file()

    def _work(self) -> bool:
        """Write what waits; its texts are let go of before the next wait, which may be long."""
        batch = self._take()
        if batch is None:
            return False
        while batch:
            some = _rows_to_share_a_commit(batch)
            self._commit(some)
            self._note_losses(some)
            _wake(some)
            del batch[: len(some)]
        self._beat()
        return True

    def _note_losses(self, batch: Sequence[_Waiting]) -> None:
        for waiting in batch:
            if waiting.error is None or waiting.future is not None:
                continue
            if waiting.line is not None:
                self._lost.setdefault(waiting.line, waiting.error)
            elif not isinstance(waiting.error, PlaceLostError):
                _log_loss(waiting.error)

    def _take(self) -> list[_Waiting] | None:
        """All that waits; nothing when it is time to beat, None once the writer is closing."""
        with self._changed:
            patience = max(0.0, self._next_beat - time.monotonic()) if self._places else None
            self._changed.wait_for(lambda: self._queue or self._closing, patience)
            if self._queue:
                self._changed.wait_for(lambda: self._is_urgent or self._closing, _UNHURRIED_SECONDS)
        if self._is_busy:
            self._let_more_come()
        with self._changed:
            batch, self._queue, self._is_urgent = self._queue, [], False
            self._is_busy = sum(waiting.future is not None for waiting in batch) >= _MANY
            return batch if batch or not self._closing else None

    def _let_more_come(self) -> None:
        """Wait a little for as long as records keep coming."""
        deadline = time.monotonic() + _LONGEST_GATHERING_SECONDS
        known = 0
        while known < len(self._queue) and time.monotonic() < deadline and not self._closing:
            known = len(self._queue)
            time.sleep(_GATHERING_SECONDS)

    def _beat(self) -> None:
        """Show those who might want our places that we live; a beat that cannot be written is made up for later."""
        if not self._places or time.monotonic() < self._next_beat:
            return
        self._next_beat = time.monotonic() + BEAT_SECONDS
        try:
            self._in_transaction(self._beat_for_all, is_durable=False)
        except (sqlite3.Error, StorageError, OSError) as error:
            self._close_file()
            _log.debug("journal %s: no beat: %s", self.path, error)

    def _beat_for_all(self, connection: sqlite3.Connection) -> None:
        for place in self._places:
            if beat(connection, place) is not None:
                self.drop(place)

    def _commit(self, batch: list[_Waiting]) -> None:
        ready = [waiting for waiting in batch if waiting.error is None]
        try:
            self._write_patiently(ready)
        except Exception as error:  # noqa: BLE001 - whatever it is, those who wait must hear of it
            for waiting in ready:
                waiting.error = self._failure(error)
        for waiting in ready:
            waiting.row = None

    def _failure(self, error: Exception) -> StorageError:
        """An error of its own for each caller, since each adds its own traceback to it."""
        kind = type(error) if isinstance(error, StorageError) else DatabaseWriteError
        failure = kind(str(error) or repr(error))
        failure.__cause__ = error.__cause__ or error
        return failure

    def _write_patiently(self, ready: list[_Waiting]) -> None:
        delays = iter(self.retry_delays)
        while ready:
            try:
                self._write(ready)
                self._is_told = False
                return
            except sqlite3.Error as error:
                self._close_file()
                delay = next(delays, None) if may_pass(error) else None
                if delay is None:
                    raise write_error(self.path, error) from error
                _log.log(self._level_of_news(), "journal %s: %s; trying again in %s s", self.path, error, delay)
                time.sleep(delay)

    def _level_of_news(self) -> int:
        """That writing fails is news once: every team would say so again and again."""
        is_told, self._is_told = self._is_told, True
        return logging.DEBUG if is_told else logging.WARNING

    def _write(self, ready: list[_Waiting]) -> None:
        for waiting in ready:
            waiting.error = None
        self._in_transaction(partial(_write_rows, ready))
        reach("journal.after_commit")

    def _in_transaction(self, work: Callable[[sqlite3.Connection], None], *, is_durable: bool = True) -> None:
        connection = self._open_file()
        if not is_durable:
            connection.execute("PRAGMA synchronous=NORMAL")
        begin(connection, self.path, self.wait_seconds)
        try:
            work(connection)
            connection.commit()
        except BaseException:
            with suppress(sqlite3.Error):
                connection.rollback()
            raise
        if not is_durable:
            connection.execute("PRAGMA synchronous=FULL")

    def _open_file(self) -> JournalConnection:
        if self._connection is not None and file_identity(self.path) != self._identity:
            self._let_go_of_removed_file()
        if self._connection is None:
            self._connection = open_for_writing(self.path, self.wait_seconds)
            self._identity = file_identity(self.path)
        return self._connection

    def _let_go_of_removed_file(self) -> None:
        """Rows written to a file without a name would be lost in silence."""
        _log.warning("journal %s was removed while it was in use; what it held is gone, a new one begins", self.path)
        if file_identity(self.path) is None:
            self._close_file()
        else:
            abandon(self._connection)
            self._connection = None

    def _close_file(self) -> None:
        if self._connection is not None:
            with suppress(sqlite3.Error):
                self._connection.close()
            self._connection = None


def _rows_to_share_a_commit(batch: Sequence[_Waiting]) -> list[_Waiting]:
    """Make rows of as many of the first records as may be in memory twice."""
    some, size = [], 0
    for waiting in batch:
        _make_row(waiting)
        some.append(waiting)
        size += 0 if waiting.row is None else waiting.row.size
        if size > _MOST_BYTES_AT_ONCE:
            break
    return some


def _make_row(waiting: _Waiting) -> None:
    try:
        waiting.row = waiting.make_row()
    except UnstorableValueError as error:
        waiting.error = error
    except Exception as error:  # noqa: BLE001 - one record must not take down those it shares a commit with
        waiting.error = UnstorableValueError(f"the journal cannot hold this record: {type(error).__name__}: {error}")


def _write_rows(ready: Sequence[_Waiting], connection: sqlite3.Connection) -> None:
    """Add the rows of all whose place is still held; the others are told who has it."""
    for place in {waiting.place for waiting in ready if waiting.place is not None}:
        lost = check(connection, place)
        for waiting in ready if lost else ():
            if waiting.place is place:
                waiting.error = PlaceLostError(str(lost))
    writing = [waiting for waiting in ready if waiting.error is None]
    for group in _by_table(writing):
        _insert(connection, group)
    for waiting in writing:
        if waiting.is_leaving and waiting.place is not None:
            leave(connection, waiting.place)
    reach("journal.before_commit")


def _by_table(ready: Iterable[_Waiting]) -> Iterator[list[_Part]]:
    """Rows of one table together, in the order they came."""
    groups: dict[str, list[_Part]] = {}
    for waiting in ready:
        for row in () if waiting.row is None else (waiting.row, waiting.row.event):
            if row is not None:
                groups.setdefault(row.table, []).append((waiting, row))
    yield from groups.values()


def _insert(connection: sqlite3.Connection, group: list[_Part]) -> None:
    """Add the group's rows with few statements: each one gives up the interpreter lock and waits to have it back."""
    at_once = max(1, connection.getlimit(sqlite3.SQLITE_LIMIT_VARIABLE_NUMBER) // len(group[0][1].columns))
    at_once = min(at_once, _MOST_ROWS_AT_ONCE)
    for start in range(0, len(group), at_once):
        some = group[start : start + at_once]
        try:
            _insert_rows(connection, [row for _, row in some])
        except _ROW_ERRORS:
            # The statement is undone, the transaction stands: find out which row it was.
            for waiting, row in some:
                _insert_alone(connection, waiting, row)


_MOST_BYTES_AT_ONCE = 1_000_000
_UNHURRIED_SECONDS = 0.01
"""How long records that nobody waits for wait for one that somebody does."""
_MANY = 4
_GATHERING_SECONDS = 0.001
_LONGEST_GATHERING_SECONDS = 0.02
_MOST_ROWS_AT_ONCE = 100
_ROW_ERRORS = (sqlite3.IntegrityError, sqlite3.DataError, sqlite3.ProgrammingError, OverflowError, UnicodeError)


def _insert_alone(connection: sqlite3.Connection, waiting: _Waiting, row: Row) -> None:
    try:
        _insert_rows(connection, [row])
    except _ROW_ERRORS as error:
        waiting.error = UnstorableValueError(f"the journal's table {row.table!r} refuses this row: {error}")


def _insert_rows(connection: sqlite3.Connection, rows: list[Row]) -> None:
    names = list(rows[0].columns)
    marks = f"({', '.join('?' * len(names))})"
    # Table and column names come from this package alone.
    statement = f"INSERT INTO {rows[0].table} ({', '.join(names)}) VALUES {', '.join([marks] * len(rows))}"  # noqa: S608
    connection.execute(statement, [row.columns[name] for row in rows for name in names])


def _log_loss(error: Exception) -> None:
    _log.error("the journal lost a record nobody waited for: %s", error)


def _wake(batch: list[_Waiting]) -> None:
    """Tell each caller how its record fared, with one call for each event loop."""
    loops: dict[asyncio.AbstractEventLoop, list[_Waiting]] = {}
    for waiting in batch:
        if waiting.future is not None:
            loops.setdefault(waiting.future.get_loop(), []).append(waiting)
    for loop, those in loops.items():
        # A loop that was closed in the meantime has nobody left to tell.
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(_settle, those)


def _settle(those: list[_Waiting]) -> None:
    for waiting in those:
        if waiting.future is None or waiting.future.done():
            continue
        if waiting.error is None:
            waiting.future.set_result(None)
        else:
            waiting.future.set_exception(waiting.error)


class _Registry:
    """The writers of this process, one for each file."""

    def __init__(self) -> None:
        self.writers: dict[Path, JournalWriter] = {}
        self.lock = threading.RLock()
        forget_after_fork(self)

    def forget(self) -> None:
        """A thread of the parent may have held the lock."""
        self.lock = threading.RLock()


_registry = _Registry()


def lease_writer(path: Path, wait_seconds: float, retry_delays: Sequence[float]) -> JournalWriter:
    """The writer of ``path``; the first to ask says how patient it is. Give it back with ``release``."""
    real = Path(os.path.realpath(path))
    with _registry.lock:
        writer = _registry.writers.get(real)
        if writer is None:
            writer = _registry.writers[real] = JournalWriter(real, wait_seconds, retry_delays)
        writer._leases += 1
        return writer
