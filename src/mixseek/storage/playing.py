"""Which executions are being played: each run holds a mark of its own that the kernel drops with its process.

The mark is a lock on one byte of the file that also keeps the turns at the database (:mod:`mixseek.storage.turn`), far
behind all numbers that are drawn there; so nothing is left behind by a process that was killed. It can be known on
Linux alone: elsewhere such a lock is gone as soon as the process closes the file for another reason.
"""

import fcntl
import os
import sys
from hashlib import sha256
from pathlib import Path

from mixseek.errors import DatabaseWriteError
from mixseek.storage.remedies import remedied
from mixseek.storage.turn import close_descriptor, lock_bytes, open_lock_file

__all__ = ["Playing", "is_playing"]

_FIRST_BYTE = 1 << 40


class Playing:
    """The mark of one execution, from its making until :meth:`end`."""

    def __init__(self, database: Path, execution_id: str) -> None:
        self._byte, self._pid = _byte_of(execution_id), os.getpid()
        try:
            self._fd: int | None = open_lock_file(_lock_file(database))
        except OSError as error:
            raise DatabaseWriteError(f"cannot write {str(database)!r}: {remedied(error)}") from error
        try:
            lock_bytes(self._fd, fcntl.LOCK_SH | fcntl.LOCK_NB, self._byte, 1)
        except BaseException:
            self.end()
            raise

    def end(self) -> None:
        """Take the mark away; a second call does nothing."""
        fd, self._fd = self._fd, None
        # In a forked child the descriptor is closed already, and its number may be another's.
        if fd is not None and self._pid == os.getpid():
            # By word, not only by closing: a child that is being forked still has the same open file.
            lock_bytes(fd, fcntl.LOCK_UN, self._byte, 1)
            close_descriptor(fd)


def is_playing(database: Path, execution_id: str) -> bool:
    """Whether a process is known to play this execution."""
    if sys.platform != "linux" or not _lock_file(database).exists():
        return False
    try:
        fd = open_lock_file(_lock_file(database))
    except OSError:
        return False
    try:
        lock_bytes(fd, fcntl.LOCK_EX | fcntl.LOCK_NB, _byte_of(execution_id), 1)
    except (BlockingIOError, PermissionError):
        return True
    finally:
        close_descriptor(fd)
    return False


def _lock_file(database: Path) -> Path:
    real = Path(os.path.realpath(database))
    return real.with_name(real.name + ".lock")


def _byte_of(execution_id: str) -> int:
    digest = sha256(execution_id.encode("utf-8", "surrogatepass")).digest()
    return _FIRST_BYTE + int.from_bytes(digest[:5], "big")
