"""Opening the file: a new one, an older one, one whose owner was killed, one that is damaged, or none of DuckDB's.

Two traps shape this module. A POSIX lock, which is what DuckDB holds on its file, is gone as soon as the process
closes *any* descriptor of that file; so a descriptor opened here to look at the file stays open. And DuckDB drops a
write-ahead log it cannot make sense of without a word; so the log is looked at first, and set aside by name.
"""

import contextlib
import errno
import fcntl
import logging
import os
import re
import shutil
import struct
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from itertools import chain, count
from pathlib import Path

import duckdb

from mixseek.amounts import counted
from mixseek.crash_points import reach
from mixseek.errors import DatabaseVersionError, StorageError
from mixseek.storage.migrations import MIGRATIONS, Migration, check_version, file_version, has_results, migrate
from mixseek.storage.rebuilding import Rebuilt, journal_beside, rebuild_rows, salvage
from mixseek.storage.remedies import is_read_only, remedied
from mixseek.storage.tables import TABLES

__all__ = [
    "CannotOpenError",
    "DamagedError",
    "HeldElsewhereError",
    "check_place",
    "condemn_if_damaged",
    "explained",
    "first_line",
    "is_damage",
    "open_as_it_is",
    "open_database",
]

logger = logging.getLogger(__name__)

_MAGIC = b"DUCK"
_MAGIC_OFFSET = 8
# One thread: a lease is short, and threads are started with every opening of the file. Small blocks for a new file:
# every column and index of every table has one of its own, which is written and synced at the end of each lease.
_CONFIG: dict[str, str | bool | int | float | list[str]] = {"threads": 1, "default_block_size": 32768}


_ABOUT_STATEMENTS = (duckdb.DataError, duckdb.IntegrityError, duckdb.ProgrammingError)


class CannotOpenError(Exception):
    """The file cannot be opened, and trying again will not help; the message is for the user."""


class DamagedError(CannotOpenError):
    """The file is no database, or not any more; ``reason`` says it without what to do."""

    def __init__(self, told: str, reason: str) -> None:
        super().__init__(told)
        self.reason = reason


class HeldElsewhereError(Exception):
    """A program that does not take turns has the file open."""

    def __init__(self, holder: str) -> None:
        super().__init__(holder)
        self.holder = holder


def open_database(
    path: Path,
    migrations: Sequence[Migration] = MIGRATIONS,
    *,
    is_first: bool = False,
    made: Callable[[Rebuilt], None] = lambda _: None,
) -> duckdb.DuckDBPyConnection:
    """A connection to an up-to-date file; the caller has the turn.

    A file that is missing or broken is made from the journal beside it, if that has anything to make it from; a broken
    one is kept under another name. For whoever ``is_first`` in a workspace there was nothing to be missed. ``made`` is
    told what came from the journal.
    """
    if not _holds_anything(path):
        made(_create(path, migrations, None if is_first else journal_beside(path)))
    if _condemned(path).exists():
        _remade(path, migrations, made)
    try:
        return _open_existing(path, migrations, made)
    except DamagedError as error:
        if not _remade(path, migrations, made):
            raise
        logger.warning("why it was made anew: %s", error.reason)
    return _open_existing(path, migrations, made)


def condemn_if_damaged(path: Path, error: BaseException) -> None:
    """Have a file that opens, but whose tables cannot be read, made anew at its next opening; the caller has the turn.

    Whoever met the damage may then try again. Where no journal tells what was in it, the file stays as it is.
    """
    if not is_damage(error):
        return
    try:
        if journal_beside(path) is not None:
            _condemned(path).touch()
            logger.warning("%s is damaged: %s", path, first_line(error))
    except (StorageError, OSError) as fault:
        logger.warning("%s is damaged and could not be made anew: %s", path, remedied(fault))


def _remade(path: Path, migrations: Sequence[Migration], made: Callable[[Rebuilt], None]) -> bool:
    """Make the file anew from the journal, and keep the broken one under another name; False without a journal."""
    _condemned(path).unlink(missing_ok=True)
    journal = journal_beside(path)
    if journal is None:
        return False
    made(_create(path, migrations, journal, broken=_aside(path)))
    return True


def _open_existing(
    path: Path, migrations: Sequence[Migration], made: Callable[[Rebuilt], None]
) -> duckdb.DuckDBPyConnection:
    _check_kind(path)
    connection = _connect_without_damage(path, _keep_torn_log(path))
    try:
        _bring_up_to_date(connection, path, migrations)
        if _incomplete(path).exists():
            made(_complete(connection, path))
    except BaseException as error:
        connection.close()
        if is_damage(error):
            raise _damaged(path, error) from error
        raise
    return connection


def open_as_it_is(path: Path) -> duckdb.DuckDBPyConnection:
    """A connection that can only read, to a file of this version or an older one; the file stays as it is."""
    _check_kind(path)
    try:
        connection = _connect(path, read_only=True)
    except duckdb.Error as error:
        if is_damage(error) or "replaying" in str(error):
            raise _damaged(path, error) from error
        raise
    try:
        check_version(connection)
    except DatabaseVersionError as error:
        connection.close()
        raise DatabaseVersionError(f"{str(path)!r}: {error}") from None
    return connection


# --- the place and the kind of the file -------------------------------------------------------------------------------


def check_place(path: Path) -> None:
    """Refuse a path at which no database file can be."""
    if fault := _fault_in_name(path):
        raise CannotOpenError(f"DuckDB cannot keep {str(path)!r}: the path {fault}; give the workspace another name")
    if path.is_dir():
        raise CannotOpenError(f"{str(path)!r} is a directory, and no database file: move it away")
    if not path.parent.is_dir():
        raise CannotOpenError(
            f"cannot open {str(path)!r}: the directory {str(path.parent)!r} does not exist; create it or name another"
        )


def _fault_in_name(path: Path) -> str | None:
    """What DuckDB would take for something else, or not take at all."""
    for letter in ("?", "\\"):
        if letter in str(path):
            return f"holds {letter!r}"
    try:
        str(path).encode()
    except UnicodeEncodeError:
        return "is not UTF-8"
    return None


def _holds_anything(path: Path) -> bool:
    return path.exists() and path.stat().st_size > 0


_kept_open: dict[tuple[int, int], int] = {}


def _descriptor(path: Path) -> int:
    """A descriptor for looking at the file, never closed (see above); so no other file can take its inode either."""
    status = path.stat()
    known = _kept_open.get((status.st_dev, status.st_ino))
    if known is None:
        known = _open_descriptor(path)
        _kept_open[status.st_dev, status.st_ino] = known
    return known


def _open_descriptor(path: Path) -> int:
    try:
        return os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except OSError as error:
        if not isinstance(error, PermissionError) and not is_read_only(error):
            raise
        # Enough for whoever only reads; whoever writes hears of it from DuckDB.
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC)


def _check_kind(path: Path) -> None:
    # Asked here, because DuckDB would load an extension from the network for a file of another database.
    if os.pread(_descriptor(path), len(_MAGIC), _MAGIC_OFFSET) != _MAGIC:
        raise DamagedError(
            f"{str(path)!r} is not a DuckDB database file; nothing was changed: move it away or name another file",
            "it was not a DuckDB database file",
        )


def _create(
    path: Path, migrations: Sequence[Migration], journal: Path | None, *, broken: Path | None = None
) -> Rebuilt:
    """Make the file under another name first, so that a kill in the middle leaves no half of a database.

    It holds all that the journal tells, and what can be read of the one that is there, which gets the name
    ``broken``.
    """
    draft = path.with_name(path.name + ".new")
    for leftover in (draft, draft.with_name(draft.name + ".wal")):
        leftover.unlink(missing_ok=True)
    with duckdb.connect(str(draft), config=_CONFIG) as connection:
        migrate(connection, migrations, is_new=True)
        rebuilt = Rebuilt() if journal is None else rebuild_rows(connection, path, journal)
        others = {} if broken is None else salvage(connection, path, rebuilt.executions)
        # By word: closing would leave what it cannot write in a log that is not of the name the file gets.
        connection.execute("CHECKPOINT")
    if broken is not None:
        _give_other_name(path, broken)
    else:
        _keep_orphaned_logs(path)
    reach("results.before_name")
    draft.replace(path)
    _sync_directory(path.parent)
    _incomplete(path).unlink(missing_ok=True)
    if journal is not None:
        _tell_of_rebuilding(path, journal, rebuilt, broken, others)
    return rebuilt


def _give_other_name(path: Path, name: Path) -> None:
    """Keep the broken file, with its logs, which must not be taken for those of the new one."""
    with contextlib.suppress(OSError):
        name.hardlink_to(path)
    if not name.exists():
        path.rename(name)
    for log in _logs(path):
        log.rename(name.with_name(log.name.replace(path.name, name.name, 1)))


def _keep_orphaned_logs(path: Path) -> None:
    """Keep what is left of a file that is gone from being taken for the log of the new one."""
    for log in _logs(path):
        moved = _set_aside(log)
        logger.warning("%s belongs to a %s that is gone, and is set aside as %s", log, path.name, moved.name)


def _tell_of_rebuilding(
    path: Path, journal: Path, rebuilt: Rebuilt, broken: Path | None, others: Mapping[str, int]
) -> None:
    count = len(rebuilt.executions)
    made = f"made from {journal.name}: {counted(rebuilt.added, 'row')} of {counted(count, 'execution')}"
    if broken is None:
        # Where a run has just begun in a new workspace there is nothing yet that could be missing.
        if rebuilt.added:
            logger.warning("%s was missing and is %s", path, made)
        return
    found = _told_of_others([table.name for table in TABLES if table.name not in others], sum(others.values()))
    logger.warning("%s was broken and is %s; %s; the broken file is kept as %s", path, made, found, broken.name)


def _told_of_others(unread: Sequence[str], taken: int) -> str:
    """What became of rows that the journal cannot tell, as far as it is known whether there were any."""
    other = "of executions that the journal does not have"
    rows = f"{counted(taken, 'row')} {other} {'was' if taken == 1 else 'were'} taken over"
    if not unread:
        return rows if taken else f"it had no rows {other}"
    could = "no table could" if len(unread) == len(TABLES) else f"{', '.join(unread)} could not"
    left = "more of them" if taken else f"rows {other}"
    lost = f"{could} be read: {left}, if there were any, are only in the broken file"
    return f"{rows}, but {lost}" if taken else lost


# --- what a log did not give ------------------------------------------------------------------------------------------


def _incomplete(path: Path) -> Path:
    """A file that stands beside the database from the loss of a log until its rows were made from the journal."""
    return path.with_name(path.name + ".incomplete")


def _condemned(path: Path) -> Path:
    """A file that stands beside a database whose tables cannot be read."""
    return path.with_name(path.name + ".unreadable")


def _complete(connection: duckdb.DuckDBPyConnection, path: Path) -> Rebuilt:
    rebuilt = Rebuilt()
    if (journal := journal_beside(path)) is not None:
        rebuilt = rebuild_rows(connection, path, journal)
        count = rebuilt.added + rebuilt.changed
        logger.warning("%s was completed from %s: %d rows were missing", path, journal.name, count)
    _incomplete(path).unlink(missing_ok=True)
    return rebuilt


def _sync_directory(directory: Path) -> None:
    fd = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


# --- connecting -------------------------------------------------------------------------------------------------------


def _connect(path: Path, *, read_only: bool = False) -> duckdb.DuckDBPyConnection:
    try:
        return duckdb.connect(str(path), read_only=read_only, config=_CONFIG)
    except duckdb.ConnectionException:
        # This very process has the file open with other settings; DuckDB then shares it with the settings it has.
        return duckdb.connect(str(path))
    except duckdb.IOException as error:
        if "Could not set lock on file" in str(error):
            raise HeldElsewhereError(_holder_in(str(error))) from error
        raise


def _holder_in(message: str) -> str:
    found = re.search(r"Conflicting lock is held in (.*?) ?\(PID (\d+)\)", message)
    return f"process {found[2]} ({found[1]})" if found else "another program"


def _connect_without_damage(path: Path, torn: Path | None) -> duckdb.DuckDBPyConnection:
    try:
        connection = _connect(path)
    except duckdb.Error as error:
        _forget(torn)
        if "replaying" in str(error) and _logs(path):
            return _connect_without_log(path, error)
        if is_damage(error):
            raise _damaged(path, error) from error
        raise
    except BaseException:
        _forget(torn)
        raise
    if torn is not None:
        logger.warning(
            "the write-ahead log of %s ended in the middle of an entry; "
            "what came before it was replayed, and a copy of the log is kept as %s",
            path,
            torn.name,
        )
    return connection


def _forget(torn: Path | None) -> None:
    # The log itself is still there when the opening fails.
    if torn is not None:
        torn.unlink()


def _connect_without_log(path: Path, error: duckdb.Error) -> duckdb.DuckDBPyConnection:
    _incomplete(path).touch()
    aside = [(log, _set_aside(log)) for log in _logs(path)]
    try:
        connection = _connect(path)
    except duckdb.Error as second:
        for log, moved in aside:
            moved.rename(log)
        raise _damaged(path, second) from second
    for log, moved in aside:
        logger.warning(
            "the write-ahead log %s could not be replayed into %s and is set aside as %s; "
            "what was written after the last checkpoint is only there (%s)",
            log,
            path,
            moved.name,
            first_line(error),
        )
    return connection


def is_damage(error: BaseException | None) -> bool:
    """Whether the file itself is at fault."""
    # DuckDB has no class for it: a checksum that does not fit is a bare Error, a short file an IOException. What is
    # wrong with a statement or a value quotes them, and they may say anything.
    if not isinstance(error, duckdb.Error) or isinstance(error, _ABOUT_STATEMENTS):
        return False
    return bool(re.search(r"[Cc]orrupt|not a valid DuckDB|Could not read enough bytes|[Ss]erializ", str(error)))


def _damaged(path: Path, error: BaseException) -> DamagedError:
    reason = first_line(error)
    return DamagedError(
        f"{str(path)!r} is damaged and was left as it is: restore a copy, or move it away so that a new one is made "
        f"({reason})",
        reason,
    )


def explained(error: Exception) -> str:
    """What an error says of a file that could be opened, and what to do about it."""
    if is_damage(error):
        return f"{first_line(error)}; the file is damaged: bring back a copy of it, or move it away for a new one"
    return remedied(error)


def first_line(error: BaseException) -> str:
    """What an error says, without what DuckDB adds in further lines."""
    return str(error).strip().partition("\n")[0]


# --- the write-ahead log ----------------------------------------------------------------------------------------------


def _logs(path: Path) -> list[Path]:
    names = (path.with_name(path.name + ending) for ending in (".wal", ".wal.checkpoint", ".wal.recovery"))
    return [log for log in names if log.exists()]


def _keep_torn_log(path: Path) -> Path | None:
    """Keep a log of a killed process from being dropped where DuckDB would stop reading it without an error.

    A log without its header is ignored and overwritten by DuckDB: it is moved. One whose entries do not end with the
    file is replayed up to there and removed: a copy is made, for it may be half a commit that nobody was told of, or
    damage.
    """
    log = path.with_name(path.name + ".wal")
    if not log.exists() or _is_whole(log) or _held_by_another(path):
        return None
    _incomplete(path).touch()
    if _end_of_header(log.read_bytes()) is not None:
        return _copy_aside(log)
    moved = _set_aside(log)
    logger.warning("%s is not a write-ahead log of %s and is set aside as %s", log, path, moved.name)
    return None


def _held_by_another(path: Path) -> bool:
    try:
        fcntl.lockf(_descriptor(path), fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in {errno.EACCES, errno.EAGAIN}:
            return True
        raise
    fcntl.lockf(_descriptor(path), fcntl.LOCK_UN)
    return False


def _is_whole(log: Path) -> bool:
    """Whether the log is empty, or a header and entries (size, checksum, content) that end where the file ends."""
    data = log.read_bytes()
    position = _end_of_header(data)
    if position is None:
        return not data
    while position + 16 <= len(data):
        (size,) = struct.unpack_from("<Q", data, position)
        position += 16 + size
    return position == len(data)


def _end_of_header(data: bytes) -> int | None:
    """The header is fields {100: kind 98, 101: version, 102: list of bytes, 103: iteration}, closed by FFFF."""
    if not data.startswith(b"\x64\x00\x62"):
        return None
    try:
        position = 3
        while (name := struct.unpack_from("<H", data, position)[0]) != 0xFFFF:
            length, position = _varint(data, position + 2)
            for _ in range(length if name == 102 else 0):
                _, position = _varint(data, position)
    except (IndexError, struct.error):
        return None
    return position + 2


def _varint(data: bytes, position: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[position]
        value |= (byte & 0x7F) << shift
        position, shift = position + 1, shift + 7
        if byte < 0x80:
            return value, position


def _aside(log: Path) -> Path:
    stem = f"{log.name}.damaged-{datetime.now(UTC):%Y%m%dT%H%M%S.%fZ}"
    return log.with_name(stem)


def _set_aside(log: Path) -> Path:
    moved = _aside(log)
    log.rename(moved)
    return moved


def _copy_aside(log: Path) -> Path:
    kept = _aside(log)
    shutil.copyfile(log, kept)
    return kept


# --- versions ---------------------------------------------------------------------------------------------------------


def _bring_up_to_date(connection: duckdb.DuckDBPyConnection, path: Path, migrations: Sequence[Migration]) -> None:
    version = file_version(connection)
    if version == len(migrations):
        return
    if version < len(migrations) and has_results(connection):
        copy = _keep_copy(connection, path, f"before-v{version + 1}")
        logger.warning("%s is brought from schema version %d to %d; %s is a copy", path, version, len(migrations), copy)
    try:
        migrate(connection, migrations)
    except DatabaseVersionError as error:
        raise DatabaseVersionError(f"{str(path)!r}: {error}") from None
    except duckdb.Error as error:
        raise CannotOpenError(
            f"{str(path)!r} could not be brought to schema version {len(migrations)} and was left as it is: "
            f"{first_line(error)}"
        ) from error


def _keep_copy(connection: duckdb.DuckDBPyConnection, path: Path, ending: str) -> str:
    """Copy the whole file under a name that is free; the connection keeps everybody else out meanwhile."""
    connection.execute("CHECKPOINT")
    draft = path.with_name(f"{path.name}.{ending}.partial")
    _copy_descriptor(_descriptor(path), draft)
    target = _free_name(path.with_name(f"{path.name}.{ending}"))
    draft.rename(target)
    _sync_directory(path.parent)
    return target.name


def _free_name(wanted: Path) -> Path:
    numbered = (wanted.with_name(f"{wanted.name}.{number}") for number in count(2))
    return next(name for name in chain([wanted], numbered) if not name.exists())


def _copy_descriptor(source: int, target: Path) -> None:
    with target.open("wb") as copy:
        position = 0
        while chunk := os.pread(source, 1 << 20, position):
            copy.write(chunk)
            position += len(chunk)
        copy.flush()
        os.fsync(copy.fileno())
