"""What a person can do about a file that cannot be written or read: the last words of an error."""

import errno
import os
import sqlite3
from pathlib import Path

__all__ = ["is_read_only", "refused_writing", "remedied", "remedied_journal"]

_NO_ROOM = "make room on the disk, or name another workspace"
_NOT_WRITABLE = "make the directory and its files writable for this user, or name another workspace"
_READ_ONLY = "the disk is read-only: make it writable, or name another workspace"
_BROKEN = "look whether the disk is full, read-only or broken, or name another workspace"

_BY_ERROR = {
    errno.ENOSPC: _NO_ROOM,
    errno.EDQUOT: _NO_ROOM,
    errno.EFBIG: _NO_ROOM,
    errno.EROFS: _READ_ONLY,
    errno.EACCES: _NOT_WRITABLE,
    errno.EPERM: _NOT_WRITABLE,
    errno.EIO: _BROKEN,
}
_FAILED_SYNC = "fsync failed"
"""All that DuckDB says of it."""
_BY_CODE = {
    sqlite3.SQLITE_FULL: _NO_ROOM,
    sqlite3.SQLITE_READONLY: _NOT_WRITABLE,
    sqlite3.SQLITE_CANTOPEN: _NOT_WRITABLE,
    sqlite3.SQLITE_PERM: _NOT_WRITABLE,
    # SQLite does not say what the system told it.
    sqlite3.SQLITE_IOERR: _BROKEN,
    sqlite3.SQLITE_PROTOCOL: _BROKEN,
}


def is_read_only(error: Exception) -> bool:
    """Whether the disk takes no writes at all, which no waiting changes."""
    return getattr(error, "errno", None) == errno.EROFS or os.strerror(errno.EROFS) in str(error)


def refused_writing(path: Path) -> OSError | None:
    """What writing this file or directory would be refused with; None if it may be written, or is not there."""
    if not path.exists() or os.access(path, os.W_OK):
        return None
    code = errno.EROFS if os.statvfs(path).f_flag & os.ST_RDONLY else errno.EACCES
    return OSError(code, os.strerror(code))


def remedied(error: Exception) -> str:
    """What the error of a file says, and what to do about it; DuckDB has the system's words in its own."""
    words = str(error)
    known = _BY_ERROR.get(getattr(error, "errno", None) or 0)
    remedy = known or next((what for code, what in _BY_ERROR.items() if os.strerror(code) in words), None)
    if remedy is None and _FAILED_SYNC in words:
        remedy = _BROKEN
    return f"{words}; {remedy}" if remedy and remedy not in words else words


def remedied_journal(error: sqlite3.Error, code: int) -> str:
    """:func:`remedied` for SQLite, whose words say less than its code."""
    remedy = _BY_CODE.get(code)
    return f"{error}; {remedy}" if remedy else str(error)
