"""Whose turn it is: one lock file beside the database, taken with ``flock`` before the database is opened.

DuckDB lets one process in and turns every other away at once; processes that keep asking get in by luck, with waits of
seconds. The kernel keeps those that block in ``flock`` in a queue instead. The lock dies with its process, and the
file's text says who holds it, for the one who waited too long.
"""

import fcntl
import os
import sys
import threading
import time
from pathlib import Path

from mixseek.records import utc_now

__all__ = ["Turn"]

# How often a waiting thread looks whether the interpreter is about to end.
_LOOK_UP_SECONDS = 0.2


class Turn:
    """This process's turn at one file; used by one thread at a time."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._fd: int | None = None
        self._had_to_wait = False
        self._noted_at = 0

    def take(self, deadline: float, stop: threading.Event) -> bool:
        """Wait for the turn until ``deadline`` (``time.monotonic``); False if it did not come."""
        fd = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        _open_here.add(fd)
        try:
            self._had_to_wait = not _try_lock(fd)
            if self._had_to_wait and not _wait_in_line(fd, deadline, stop):
                return False
        except BaseException:
            _close(fd)
            raise
        self._fd = fd
        self.note("")
        return True

    def note(self, what: str) -> None:
        """Write into the lock file who holds it, and what that process is itself waiting for."""
        if self._fd is not None:
            program = Path(sys.argv[0] or "python").name
            text = f"pid {os.getpid()} ({program}) since {utc_now():%Y-%m-%dT%H:%M:%SZ}{what}\n"
            data = text.encode("utf-8", "replace")
            os.pwrite(self._fd, data, 0)
            os.ftruncate(self._fd, len(data))
            self._noted_at = os.fstat(self._fd).st_mtime_ns

    def contended(self) -> bool:
        """Whether others want the file too: we had to wait for it, or somebody has rung since."""
        return self._had_to_wait or (self._fd is not None and os.fstat(self._fd).st_mtime_ns != self._noted_at)

    def release(self) -> None:
        """Let the next one in."""
        fd, self._fd = self._fd, None
        if fd is not None:
            # Unlocked by word, not only by closing: a child forked meanwhile still has the same open file.
            fcntl.flock(fd, fcntl.LOCK_UN)
            _close(fd)

    def forget_in_child(self) -> None:
        """After a fork the turn is the parent's alone."""
        self._fd = None

    def holder(self) -> str:
        """Who holds the turn, in the words of the lock file."""
        try:
            return self.path.read_text(encoding="utf-8", errors="replace").strip() or "a process that left no name"
        except OSError:
            return "a process that left no name"


def _try_lock(fd: int) -> bool:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _wait_in_line(fd: int, deadline: float, stop: threading.Event) -> bool:
    _ring(fd)
    waiter = _Waiter(fd)
    while not waiter.arrived.wait(min(_LOOK_UP_SECONDS, max(0.0, deadline - time.monotonic()))):
        if stop.is_set() or time.monotonic() >= deadline:
            return waiter.give_up()
    return waiter.succeeded()


def _ring(fd: int) -> None:
    """Tell the holder that somebody waits, by the lock file's time, which it looks at between two jobs."""
    os.utime(fd, ns=(time.time_ns(), time.time_ns()))


class _Waiter:
    """One blocking ``flock`` in a thread of its own, since ``flock`` knows no time-out and polling knows no queue."""

    def __init__(self, fd: int) -> None:
        self.arrived = threading.Event()
        self._fd = fd
        self._error: OSError | None = None
        self._wanted = True
        self._lock = threading.Lock()
        threading.Thread(target=self._wait, name="mixseek-turn", daemon=True).start()

    def _wait(self) -> None:
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX)
        except OSError as error:
            self._error = error
        with self._lock:
            self.arrived.set()
            if not self._wanted:
                _close(self._fd)

    def succeeded(self) -> bool:
        if self._error is not None:
            raise self._error
        return True

    def give_up(self) -> bool:
        """Stop waiting, unless the turn has just come; the thread closes the file when it comes to nobody."""
        with self._lock:
            if self.arrived.is_set():
                return self.succeeded()
            self._wanted = False
        return False


_open_here: set[int] = set()


def _close(fd: int) -> None:
    _open_here.discard(fd)
    os.close(fd)


def _close_in_child() -> None:
    # An inherited descriptor is the same lock: kept open here, it would outlive a parent that is killed.
    for fd in tuple(_open_here):
        _close(fd)


os.register_at_fork(after_in_child=_close_in_child)
