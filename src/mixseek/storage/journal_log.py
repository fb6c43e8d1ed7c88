"""What SQLite drops of a journal's write-ahead log without a word: it is kept as a copy, and told.

SQLite reads the log up to the first frame that does not fit and forgets the rest. After a kill the rest is half a
commit that nobody was told of; after damage it may be more. Nothing here opens the database file or its shared memory:
closing such a descriptor would drop SQLite's own locks.
"""

import logging
import shutil
import sqlite3
import struct
import time
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

__all__ = ["keep_torn_log", "set_orphan_aside"]

logger = logging.getLogger(__name__)

_MAGIC = {0x377F0682: "<", 0x377F0683: ">"}
"""The first number of a log, and the order of bytes its checksums go by."""
_HEADER_BYTES = 32
_FRAME_HEADER_BYTES = 24
_GENERATIONS = 1 << 16
"""A log that begins anew counts its first salt up by one; frames of earlier logs stand behind the new ones."""
_COPYING_SECONDS = 5.0
_LOOK_AGAIN_SECONDS = 0.005


def keep_torn_log(connection: sqlite3.Connection, path: Path) -> None:
    """Copy the log if it holds more than SQLite takes from it; to be called before anything is written."""
    log = path.with_name(f"{path.name}-wal")
    if not _is_torn(connection, log) or not _is_torn_while_nobody_writes(connection, path, log):
        return
    kept = _name_for(log)
    shutil.copyfile(log, kept)
    logger.warning(
        "the write-ahead log of %s ends in something that is no whole commit; what came before it is there, and a copy "
        "of the log is kept as %s",
        path,
        kept.name,
    )


def set_orphan_aside(path: Path) -> None:
    """Keep a log whose journal is gone from being taken for that of the next one, which it would make unreadable."""
    log = path.with_name(f"{path.name}-wal")
    if log.exists() and log.stat().st_size:
        kept = _name_for(log)
        log.rename(kept)
        logger.warning("%s is gone and a new one begins; its write-ahead log is kept as %s", path, kept.name)
    for name in (log, path.with_name(f"{path.name}-shm")):
        name.unlink(missing_ok=True)


def _name_for(log: Path) -> Path:
    return log.with_name(f"{log.name}.damaged-{datetime.now(UTC):%Y%m%dT%H%M%S.%fZ}")


def _is_torn_while_nobody_writes(connection: sqlite3.Connection, path: Path, log: Path) -> bool:
    """Look again when no other process can be in the middle of a commit."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        # Of its log SQLite tells only outside of a transaction.
        with closing(sqlite3.connect(path, isolation_level=None)) as beside:
            return _is_torn(beside, log)
    finally:
        connection.rollback()


def _is_torn(connection: sqlite3.Connection, log: Path) -> bool:
    data = log.read_bytes() if log.exists() else b""
    if len(data) <= _HEADER_BYTES:
        return False
    if not _has_header(data):
        return True
    taken = _taken(connection)
    return taken is not None and _frames(data) > taken


def _taken(connection: sqlite3.Connection) -> int | None:
    """How many frames SQLite takes from the log; None where another process copies them for longer than one waits."""
    deadline = time.monotonic() + _COPYING_SECONDS
    while True:
        is_busy, taken, _ = connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
        if not is_busy:
            return max(int(taken), 0)
        if time.monotonic() > deadline:
            return None
        time.sleep(_LOOK_AGAIN_SECONDS)


def _has_header(data: bytes) -> bool:
    """Whether the header's own checksum fits; SQLite takes nothing of a log where it does not."""
    (magic,) = struct.unpack_from(">I", data)
    if magic not in _MAGIC:
        return False
    first = second = 0
    words = struct.unpack_from(f"{_MAGIC[magic]}6I", data)
    for one, other in zip(words[::2], words[1::2], strict=True):
        first = (first + one + second) & 0xFFFFFFFF
        second = (second + other + first) & 0xFFFFFFFF
    return (first, second) == struct.unpack_from(">2I", data, 24)


def _frames(data: bytes) -> int:
    """How many frames there are up to the last one that is not left from an earlier log; half of one counts."""
    page_bytes, _, salt = struct.unpack_from(">3I", data, 8)
    step = _FRAME_HEADER_BYTES + page_bytes
    starts = range(_HEADER_BYTES, len(data), step)
    ours = [number for number, start in enumerate(starts, 1) if not _is_left_over(data, start, salt)]
    return ours[-1] if ours else 0


def _is_left_over(data: bytes, start: int, salt: int) -> bool:
    if start + _FRAME_HEADER_BYTES > len(data):
        return False
    own = int.from_bytes(data[start + 8 : start + 12], "big")
    return 0 < (salt - own) & 0xFFFFFFFF < _GENERATIONS
