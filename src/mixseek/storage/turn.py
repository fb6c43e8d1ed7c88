"""Whose turn it is: one lock file beside the database, and numbers drawn from it as at a counter.

DuckDB lets one process in and turns every other away at once, so processes that keep asking get in by luck; ``flock``
alone promises no order either. So everyone who comes draws the next number (under a short ``flock``), locks the byte of
that number, and waits until no lower byte is locked. Those who die, or give up, leave nothing behind: the kernel drops
their locks. The text of the file says who holds it, for the one who waited too long.
"""

import fcntl
import os
import struct
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from mixseek.records import utc_now
from mixseek.storage.this_process import named, this_command, this_pid

__all__ = ["Turn", "close_descriptor", "lock_bytes", "open_lock_file"]

# Looking costs microseconds and cannot cost the place in the line; a blocking lock would know no time-out.
_LOOK_AGAIN_SECONDS = 0.002
# The file begins with the last number drawn, in so many digits, and a line feed.
_DIGITS = 20


class Turn:
    """This process's turn at one file; used by one thread at a time."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._fd: int | None = None
        self._number = 0

    def take(self, deadline: float, stop: threading.Event, given_up: Callable[[], bool] = lambda: False) -> bool:
        """Wait for the turn until ``deadline`` (``time.monotonic``); False if it did not come or nobody wants it."""
        fd = open_lock_file(self.path)
        try:
            self._number = _draw(fd)
            if not _wait_in_line(fd, self._number, deadline, stop, given_up):
                close_descriptor(fd)
                return False
        except BaseException:
            close_descriptor(fd)
            raise
        self._fd = fd
        self.note("")
        return True

    def note(self, what: str) -> None:
        """Write into the lock file who holds it, and what that process is itself waiting for."""
        # Nobody loses the turn because there is no room for a name.
        with suppress(OSError):
            self._write_name(what)

    def _write_name(self, what: str) -> None:
        if self._fd is not None:
            text = f"process {this_pid()} ({this_command()}) since {utc_now():%Y-%m-%dT%H:%M:%SZ}{what}\n"
            data = text.encode("utf-8", "replace")
            os.pwrite(self._fd, data, _DIGITS + 1)
            os.ftruncate(self._fd, _DIGITS + 1 + len(data))

    def contended(self) -> bool:
        """Whether somebody has come after us."""
        return self._fd is not None and _last_number(self._fd) != self._number

    def release(self) -> None:
        """Let the next one in."""
        fd, self._fd = self._fd, None
        if fd is not None:
            # Unlocked by word, not only by closing: a child forked meanwhile still has the same open file.
            lock_bytes(fd, fcntl.LOCK_UN, self._number, 1)
            close_descriptor(fd)

    def forget_in_child(self) -> None:
        """After a fork the turn is the parent's alone."""
        self._fd = None

    def holder(self) -> str:
        """Who holds the turn, in the words of the lock file."""
        try:
            words = self.path.read_bytes()[_DIGITS + 1 :].decode("utf-8", "replace").strip()
        except OSError:
            words = ""
        return named(words) or "a process that left no name"


def _draw(fd: int) -> int:
    fcntl.flock(fd, fcntl.LOCK_EX)
    try:
        number = _last_number(fd) + 1
        lock_bytes(fd, fcntl.LOCK_EX | fcntl.LOCK_NB, number, 1)
        os.pwrite(fd, f"{number:0{_DIGITS}}\n".encode(), 0)
    finally:
        fcntl.flock(fd, fcntl.LOCK_UN)
    return number


def _last_number(fd: int) -> int:
    digits = os.pread(fd, _DIGITS, 0)
    # A file that somebody else has written to starts again; DuckDB's own lock stands behind this one.
    return int(digits) if digits.isdigit() and len(digits) == _DIGITS else 0


def _is_first(fd: int, number: int) -> bool:
    try:
        lock_bytes(fd, fcntl.LOCK_EX | fcntl.LOCK_NB, 0, number)
    except (BlockingIOError, PermissionError):
        return False
    lock_bytes(fd, fcntl.LOCK_UN, 0, number)
    return True


def lock_bytes(fd: int, how: int, start: int, length: int) -> None:
    """Lock or unlock some bytes, at once or not at all."""
    if sys.platform != "linux":
        fcntl.lockf(fd, how, length, start)
        return
    # Locks of the open file, not of the process: the process's would be gone with any descriptor it closes.
    kinds = {fcntl.LOCK_UN: fcntl.F_UNLCK, fcntl.LOCK_SH: fcntl.F_RDLCK, fcntl.LOCK_EX: fcntl.F_WRLCK}
    kind = kinds[how & ~fcntl.LOCK_NB]
    fcntl.fcntl(fd, fcntl.F_OFD_SETLK, struct.pack("hhqqi", kind, os.SEEK_SET, start, length, 0))


def _wait_in_line(fd: int, number: int, deadline: float, stop: threading.Event, given_up: Callable[[], bool]) -> bool:
    while not _is_first(fd, number):
        if time.monotonic() >= deadline or given_up() or stop.wait(_LOOK_AGAIN_SECONDS):
            return False
    return True


_open_here: set[int] = set()


def open_lock_file(path: Path) -> int:
    """A descriptor that a forked child does not keep."""
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    _open_here.add(fd)
    return fd


def close_descriptor(fd: int) -> None:
    """Close what :func:`open_lock_file` gave."""
    _open_here.discard(fd)
    os.close(fd)


def _close_in_child() -> None:
    # An inherited descriptor is the same lock: kept open here, it would outlive a parent that is killed.
    for fd in tuple(_open_here):
        close_descriptor(fd)


os.register_at_fork(after_in_child=_close_in_child)
