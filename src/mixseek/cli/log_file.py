"""A log file that several processes write and rotate at once, without losing or tearing a line.

Each record is one write to a file opened for appending, which the system does not mix with another's. Whoever writes
holds a shared lock, whoever rotates an exclusive one, on a file that is never renamed: so nobody writes to a file that
is being moved, and a process whose file was moved by another opens the new one first. Nobody waits long for a lock: a
line that may land in yesterday's file is better than a run that stands still.
"""

import fcntl
import logging
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

__all__ = ["SharedLogFile"]

_MAX_BYTES = 10 * 1024 * 1024
_KEPT_FILES = 5
_TRIES = 20
_SECONDS_BETWEEN = 0.005


class SharedLogFile(logging.Handler):
    """Appends to ``path`` and moves it to ``path.1`` when it is full; ``on_failure`` hears once that it cannot.

    The file and its directory are made for the first record: a command that is refused at once leaves nothing behind.
    """

    def __init__(
        self,
        path: Path,
        on_failure: Callable[[str], None],
        *,
        max_bytes: int = _MAX_BYTES,
        kept_files: int = _KEPT_FILES,
    ) -> None:
        super().__init__()
        self.path, self._max_bytes, self._kept_files = path, max_bytes, kept_files
        self._on_failure: Callable[[str], None] | None = on_failure
        self._file = self._lock_file = -1

    @property
    def is_open(self) -> bool:
        """Whether there is a file that records go to."""
        return self._file >= 0

    def emit(self, record: logging.LogRecord) -> None:
        """Write one record whole."""
        try:
            line = f"{self.format(record)}\n".encode("utf-8", "backslashreplace")
            self._open()
            self._rotate_before(len(line))
            with self._locked(fcntl.LOCK_SH):
                self._follow()
                _write_all(self._file, line)
        except OSError as error:
            self._tell(error)
        except Exception:  # noqa: BLE001  # as every handler of Python does: a log line stops nothing
            self.handleError(record)

    def _open(self) -> None:
        if self._lock_file < 0:
            self.path.parent.mkdir(exist_ok=True)
            beside = self.path.with_name(f".{self.path.name}.lock")
            self._lock_file = os.open(beside, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        if self._file < 0:
            self._file = _open(self.path)

    def close(self) -> None:
        """Give the files back."""
        with self.lock or _Nothing():
            for descriptor in (self._file, self._lock_file):
                if descriptor >= 0:
                    os.close(descriptor)
            self._file = self._lock_file = -1
        super().close()

    def _follow(self) -> None:
        """Open the file anew if its name means another one by now, or none."""
        try:
            named = self.path.stat()
        except FileNotFoundError:
            named = None
        ours = os.fstat(self._file)
        if named is None or (named.st_dev, named.st_ino) != (ours.st_dev, ours.st_ino):
            fresh = _open(self.path)
            os.close(self._file)
            self._file = fresh

    def _rotate_before(self, size: int) -> None:
        if os.fstat(self._file).st_size + size <= self._max_bytes:
            return
        with self._locked(fcntl.LOCK_EX) as alone:
            # Whoever cannot have the file alone now writes on; the next line tries again.
            if not alone:
                return
            self._follow()
            if os.fstat(self._file).st_size + size > self._max_bytes:
                self._move()
                self._follow()

    def _move(self) -> None:
        for number in range(self._kept_files, 0, -1):
            older = self.path if number == 1 else self._numbered(number - 1)
            if older.exists():
                older.replace(self._numbered(number))

    def _numbered(self, number: int) -> Path:
        return self.path.with_name(f"{self.path.name}.{number}")

    @contextmanager
    def _locked(self, kind: int) -> Iterator[bool]:
        has_it = _take(self._lock_file, kind)
        try:
            yield has_it
        finally:
            if has_it:
                fcntl.flock(self._lock_file, fcntl.LOCK_UN)

    def _tell(self, error: OSError) -> None:
        tell, self._on_failure = self._on_failure, None
        if tell is not None:
            tell(f"the log file {self.path} cannot be written: {error.strerror}")


class _Nothing:
    """Stands for the lock of a handler that has none."""

    def __enter__(self) -> None: ...

    def __exit__(self, *details: object) -> None: ...


def _open(path: Path) -> int:
    return os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)


def _write_all(file: int, line: bytes) -> None:
    """One write; more only where the system takes less than all, as on a disk that fills up."""
    written = os.write(file, line)
    while written < len(line):
        written += os.write(file, line[written:])


def _take(file: int, kind: int) -> bool:
    for _ in range(_TRIES):
        try:
            fcntl.flock(file, kind | fcntl.LOCK_NB)
        except BlockingIOError:
            time.sleep(_SECONDS_BETWEEN)
        except OSError:
            return False  # a file system without locks
        else:
            return True
    return False
