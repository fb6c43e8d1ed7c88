"""The lease: one thread for each database file does all work on it, and holds the file only for a burst of work.

Callers on any event loop hand in jobs and await their outcome; nothing on their side blocks. The thread takes the turn
(:mod:`mixseek.storage.turn`), opens the file, works off what is waiting, lingers a moment for more, and lets go.
Opening and closing cost some 20 ms, so a lease is worth keeping while work comes; others wait for it, so it ends after
a while in any case, and sooner when somebody had to be waited for. Writes that wait together share a transaction; each
caller hears of success only after the commit that holds its rows, and when a shared one fails, each is tried alone.
"""

import asyncio
import atexit
import contextlib
import logging
import os
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any
from weakref import WeakSet, WeakValueDictionary

import duckdb

from mixseek.errors import DatabaseLockedError, PlaceLostError
from mixseek.storage.database import (
    HeldElsewhereError,
    check_place,
    condemn_if_damaged,
    open_as_it_is,
    open_database,
)
from mixseek.storage.places import HeldPlace, check_results
from mixseek.storage.rebuilding import Rebuilt
from mixseek.storage.tables import FinalMark, Row, upsert
from mixseek.storage.this_process import LONG_WAIT_SECONDS, named
from mixseek.storage.turn import Turn

__all__ = ["Call", "Claim", "Job", "Look", "Worker", "Write", "worker_for"]

logger = logging.getLogger(__name__)

Connection = duckdb.DuckDBPyConnection

# Alone with the file: linger for the next step of a run as long as nobody comes, and let go now and then for those who
# take no turns.
_LINGER_SECONDS = 0.15
_LOOK_UP_SECONDS = 0.01
_HOLD_SECONDS = 2.0
# In company: a burst each, so that twelve processes come round within about a second.
_CONTENDED_LINGER_SECONDS = 0.002
_CONTENDED_HOLD_SECONDS = 0.06
_ASK_AGAIN_SECONDS = 0.02
_TELL_AGAIN_SECONDS = 10.0
_IDLE_THREAD_SECONDS = 5.0
_MAX_BATCH = 32
# After these the connection is as good as before; after any other error it is not trusted with more work.
_HARMLESS = (
    duckdb.ConstraintException,
    duckdb.DataError,
    duckdb.InvalidInputException,
    duckdb.ProgrammingError,
    duckdb.NotSupportedError,
)


class Job:
    """Work that somebody awaits on some event loop."""

    def __init__(self, lock_wait_seconds: float, place: HeldPlace | None = None) -> None:
        self.place = place
        """What has to be held still when the work is done."""
        self.handed_in = time.monotonic()
        self.deadline = self.handed_in + lock_wait_seconds
        self.waited_for = lock_wait_seconds
        self.abandoned = False
        """Set when the caller was cancelled: work that has not begun is then not done, nor waited for."""
        self._loop = asyncio.get_running_loop()
        self._future: asyncio.Future[Any] = self._loop.create_future()

    async def outcome(self) -> Any:
        """What came of it."""
        try:
            return await self._future
        except asyncio.CancelledError:
            self.abandoned = True
            raise

    def succeed(self, value: Any) -> None:
        """Tell the caller, from the worker's thread."""
        self._tell(self._future.set_result, value)

    def fail(self, error: BaseException) -> None:
        """Tell the caller, from the worker's thread."""
        self._tell(self._future.set_exception, error)

    def _tell(self, settle: Callable[[Any], None], outcome: Any) -> None:
        # A loop that is closed has nobody left who awaits.
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._settle, settle, outcome)

    def _settle(self, settle: Callable[[Any], None], outcome: Any) -> None:
        if not self._future.done():
            settle(outcome)

    @staticmethod
    def succeed_together(jobs: Sequence["Job"]) -> None:
        """Tell all callers with one call a loop: with each the thread gives up the interpreter, and waits for it."""
        loops: dict[asyncio.AbstractEventLoop, list[Job]] = {}
        for job in jobs:
            loops.setdefault(job._loop, []).append(job)
        for loop, those in loops.items():
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(_settle_all, those)


def _settle_all(jobs: Sequence[Job]) -> None:
    for job in jobs:
        job._settle(job._future.set_result, None)


class Call(Job):
    """A function of the connection: a read, or a change that is more than rows and sees to its own transaction."""

    def __init__(
        self, work: Callable[[Connection], Any], lock_wait_seconds: float, place: HeldPlace | None = None
    ) -> None:
        super().__init__(lock_wait_seconds, place)
        self.work = work


class Look(Call):
    """A read of the file as it is: it makes none, brings none up to date, and needs no right to write it."""


class Claim(Call):
    """Makes the results of an execution those of one process: it is looked anew who may write them."""


class LetGo(Job):
    """Nothing to do but to end the lease; the caller hears when the file is free."""

    def __init__(self) -> None:
        super().__init__(0)


class Write(Job):
    """Rows, or a mark on them, that are written together or not at all; making them may refuse a value."""

    def __init__(
        self,
        make_rows: Callable[[], Sequence[Row]],
        lock_wait_seconds: float,
        place: HeldPlace | None = None,
        *,
        marks: Sequence[FinalMark] = (),
    ) -> None:
        super().__init__(lock_wait_seconds, place)
        self._make_rows = make_rows
        self.rows: Sequence[Row] = ()
        self.marks = marks

    def prepare(self) -> bool:
        """Make the rows; False if a value was refused, and the caller knows."""
        try:
            self.rows = self._make_rows()
        except Exception as error:  # noqa: BLE001 whatever is wrong with one caller's values is told to that caller
            self.fail(error)
            return False
        return True


class Worker:
    """The one thread that works on one file; it starts with the first job and ends after some seconds without one."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._turn = Turn(path.with_name(path.name + ".lock"))
        self.is_first = False
        """Whether a file that is not there now has never been: then it is not made from a journal."""
        self._start_afresh()

    def _start_afresh(self) -> None:
        self._jobs: SimpleQueue[Job | None] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._starting = threading.Lock()
        # Held while the database is open: a fork waits for it, since a child must not own half of a connection.
        self._open = threading.Lock()
        self._stop = threading.Event()
        self._sound = True
        self._leaving: list[LetGo] = []
        self._checked: set[HeldPlace] = set()
        self._told_at = -_TELL_AGAIN_SECONDS
        self._made = Rebuilt()

    async def do(self, job: Job) -> Any:
        """Hand in a job and await its outcome."""
        self._hand_in(job)
        return await job.outcome()

    async def release(self) -> None:
        """Come back when what was handed in before is done and the file is let go."""
        if self._thread is not None:
            await self.do(LetGo())

    def _hand_in(self, job: Job) -> None:
        with self._starting:
            if self._stop.is_set():
                raise RuntimeError("the interpreter is ending; the store takes no more work")
            self._jobs.put(job)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name=f"mixseek-store {self.path.name}", daemon=True)
                _running.add(self)
                self._thread.start()

    # --- the thread ---------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        while not self._stop.is_set() and (job := self._next_job()) is not None:
            self._serve(job)

    def _next_job(self) -> Job | None:
        try:
            return self._jobs.get(timeout=_IDLE_THREAD_SECONDS)
        except Empty:
            return self._last_look()

    def _last_look(self) -> Job | None:
        with self._starting:
            if self._jobs.empty():
                self._thread = None
                return None
        return self._jobs.get()

    def _serve(self, job: Job) -> None:
        """One lease, from taking the turn to letting go; an error on the way in is the first job's alone."""
        if job.abandoned:
            return
        if isinstance(job, LetGo):
            job.succeed(None)
            return
        try:
            self._take_turn(job)
        except Exception as error:  # noqa: BLE001 the caller decides what it means
            job.fail(error)
            return
        try:
            while not self._had_lease(job):
                self._stop.wait(_ASK_AGAIN_SECONDS)
        finally:
            self._turn.release()
            self._say_goodbye()

    def _say_goodbye(self) -> None:
        for job in self._leaving:
            job.succeed(None)
        self._leaving.clear()

    def _take_turn(self, job: Job) -> None:
        check_place(self.path)
        try:
            came = self._turn.take(job.deadline, self._stop, lambda: self._gives_up(job, self._turn.holder))
        except OSError:
            # Where nothing can be written nobody takes turns; whoever only reads can do without.
            if not isinstance(job, Look):
                raise
            return
        if not came:
            raise self._locked(self._turn.holder(), job)

    def _gives_up(self, job: Job, holder: Callable[[], str]) -> bool:
        """Whether nobody wants the work any more; a wait that takes long is told now and then, with whom it is for."""
        now = time.monotonic()
        if now >= max(job.handed_in + LONG_WAIT_SECONDS, self._told_at + _TELL_AGAIN_SECONDS):
            self._told_at = now
            logger.warning("waiting for %s, which holds %s", holder(), self.path.name)
        return job.abandoned

    def _locked(self, holder: str, job: Job) -> DatabaseLockedError:
        return DatabaseLockedError(
            f"{str(self.path)!r} is held by {holder}; waited {job.waited_for:g} s. "
            "End that program, or raise lock_wait_seconds ([storage] in the orchestrator file)"
        )

    def _had_lease(self, job: Job) -> bool:
        """Open the file, work, close it; False if a program that takes no turns has it and there is time to wait."""
        try:
            with self._open:
                self._lease(job)
        except HeldElsewhereError as held:
            holder = held.holder
            gives_up = self._gives_up(job, lambda: named(holder))
            if time.monotonic() < job.deadline and not self._stop.is_set() and not gives_up:
                self._turn.note(f", itself waiting for {holder}")
                return False
            job.fail(self._locked(named(holder), job))
        except Exception as error:  # noqa: BLE001 the caller decides what it means
            job.fail(error)
        return True

    def _lease(self, job: Job) -> None:
        if isinstance(job, Look):
            self._look(job)
            return
        self._made = Rebuilt()
        connection = open_database(self.path, is_first=self.is_first, made=self._keep_made)
        self.is_first = False
        try:
            self._sound = True
            self._checked.clear()
            self._work(connection, job)
        finally:
            _let_go(connection, self.path)

    def _keep_made(self, made: Rebuilt) -> None:
        self._made = made

    def made_at_opening(self) -> Rebuilt:
        """What was made from the journal when the file was opened for the job that is at its work."""
        return self._made

    def _look(self, job: Look) -> None:
        """One read on a connection of its own, on which nobody could write; the file is free when the caller hears."""
        connection = open_as_it_is(self.path)
        try:
            value = job.work(connection)
        finally:
            _let_go(connection, self.path)
        job.succeed(value)

    def _work(self, connection: Connection, first: Job) -> None:
        began = time.monotonic()
        job: Job | None = first
        while job is not None:
            self._work_off(connection, [job, *self._waiting()])
            self._made = Rebuilt()  # those who come later did not have the file opened
            hold = _CONTENDED_HOLD_SECONDS if self._turn.contended() else _HOLD_SECONDS
            if not self._sound or self._leaving or self._stop.is_set() or time.monotonic() >= began + hold:
                return
            job = self._linger()

    def _linger(self) -> Job | None:
        """The next job, if it comes soon; when others wait for the file, very soon."""
        if self._turn.contended():
            return self._job_within(_CONTENDED_LINGER_SECONDS)
        until = time.monotonic() + _LINGER_SECONDS
        while time.monotonic() < until and not self._turn.contended():
            job = self._job_within(_LOOK_UP_SECONDS)
            if job is not None:
                return job
        return None

    def _waiting(self) -> list[Job]:
        jobs: list[Job] = []
        with contextlib.suppress(Empty):
            while len(jobs) < _MAX_BATCH - 1:
                job = self._jobs.get_nowait()
                if job is None:
                    break
                jobs.append(job)
        return jobs

    def _job_within(self, seconds: float) -> Job | None:
        try:
            return self._jobs.get(timeout=seconds)
        except Empty:
            return None

    def _work_off(self, connection: Connection, jobs: Sequence[Job]) -> None:
        """Jobs in their order, neighbouring writes together."""
        batch: list[Write] = []
        for job in jobs:
            if job.abandoned:
                continue
            if not self._may_write(connection, job):
                continue
            if isinstance(job, Write):
                if job.prepare():
                    batch.append(job)
                continue
            self._write_together(connection, batch)
            batch = []
            if isinstance(job, LetGo):
                self._leaving.append(job)
            elif isinstance(job, Call):
                self._attempt(job, partial(job.work, connection))
            if isinstance(job, Claim):
                self._checked.clear()
        self._write_together(connection, batch)

    def _may_write(self, connection: Connection, job: Job) -> bool:
        """Whether the job's place is still held."""
        if job.place is None:
            return True
        try:
            self._check_place(connection, job.place)
        except Exception as error:  # noqa: BLE001 as when the work itself fails
            self._sound = self._sound and isinstance(error, PlaceLostError)
            condemn_if_damaged(self.path, error)
            job.fail(error)
            return False
        return True

    def _check_place(self, connection: Connection, place: HeldPlace) -> None:
        place.check()
        # Once a lease: nobody else can open the file meanwhile.
        if place not in self._checked:
            check_results(connection, place)
            self._checked.add(place)

    def _write_together(self, connection: Connection, batch: Sequence[Write]) -> None:
        if len(batch) > 1 and self._written(connection, batch):
            Job.succeed_together(batch)
            return
        for job in batch:
            self._attempt(job, partial(upsert, connection, job.rows, job.marks))

    def _written(self, connection: Connection, batch: Sequence[Write]) -> bool:
        try:
            upsert(
                connection,
                [row for job in batch for row in job.rows],
                [mark for job in batch for mark in job.marks],
            )
        except Exception:
            logger.debug("a shared commit failed; each of its %d writes is tried alone", len(batch), exc_info=True)
            return False
        return True

    def _attempt(self, job: Job, work: Callable[[], Any]) -> None:
        try:
            value = work()
        except BaseException as error:  # noqa: BLE001 the edge between callers: one's failure is told to that one
            self._sound = self._sound and isinstance(error, (*_HARMLESS, ValueError))
            condemn_if_damaged(self.path, error)
            job.fail(error)
        else:
            job.succeed(value)

    # --- the end of the process, and forks ----------------------------------------------------------------------------

    def stop(self) -> None:
        """End the thread after the work in hand; called when the interpreter ends."""
        self._stop.set()
        with self._starting:
            thread = self._thread
            self._jobs.put(None)
        if thread is not None:
            thread.join()

    def pause_for_fork(self) -> None:
        """Wait until the file is closed, and keep it closed."""
        self._starting.acquire()
        self._open.acquire()

    def resume_after_fork(self) -> None:
        """The parent goes on."""
        self._open.release()
        self._starting.release()

    def begin_in_child(self) -> None:
        """The child has no thread and no turn; jobs that waited are the parent's."""
        self._turn.forget_in_child()
        self._start_afresh()


def _let_go(connection: Connection, path: Path) -> None:
    try:
        connection.close()
    except duckdb.Error as error:
        # What was committed is in the write-ahead log and is replayed at the next opening.
        logger.warning("%s could not be closed in order: %s", path, error)


_workers: WeakValueDictionary[str, Worker] = WeakValueDictionary()
_running: WeakSet[Worker] = WeakSet()
_registry = threading.Lock()


def worker_for(path: Path) -> Worker:
    """The worker of a file, the same one by whatever name the file is reached."""
    real = os.path.realpath(path)
    with _registry:
        worker = _workers.get(real)
        if worker is None:
            worker = _workers[real] = Worker(Path(real))
        return worker


_paused: list[Worker] = []


def _before_fork() -> None:
    _registry.acquire()
    _paused[:] = _workers.values()
    for worker in _paused:
        worker.pause_for_fork()


def _after_fork_in_parent() -> None:
    for worker in _paused:
        worker.resume_after_fork()
    _paused.clear()
    _registry.release()


def _after_fork_in_child() -> None:
    for worker in _paused:
        worker.begin_in_child()
    _paused.clear()
    _registry.release()


@atexit.register
def _stop_all() -> None:
    # A daemon thread that is inside DuckDB when the interpreter is torn down can abort the process.
    for worker in tuple(_running):
        worker.stop()


os.register_at_fork(before=_before_fork, after_in_parent=_after_fork_in_parent, after_in_child=_after_fork_in_child)
