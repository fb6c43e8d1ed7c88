"""The journal's file: how it is opened, which tables it has, and what SQLite's errors mean for whoever sees them.

Large JSON bodies are compressed BLOBs in columns of TEXT; the type of the value tells them apart
(:mod:`mixseek.storage.bodies`).
"""

import fcntl
import logging
import os
import sqlite3
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Protocol, TypeVar
from uuid import uuid4

from mixseek.crash_points import reach
from mixseek.errors import (
    DatabaseLockedError,
    DatabaseReadError,
    DatabaseVersionError,
    DatabaseWriteError,
    StorageError,
)
from mixseek.storage.bodies import UnreadableBodyError, register, text_or_bytes
from mixseek.storage.journal_log import keep_torn_log, set_orphan_aside
from mixseek.storage.journal_records import DERIVED
from mixseek.storage.remedies import refused_writing, remedied, remedied_journal
from mixseek.storage.this_process import LONG_WAIT_SECONDS, named, process_named

__all__ = [
    "JournalConnection",
    "abandon",
    "begin",
    "damage",
    "delete_rows",
    "file_identity",
    "forget_after_fork",
    "give_back_room",
    "journal_version",
    "may_pass",
    "open_for_reading",
    "open_for_writing",
    "read_error",
    "roll_back",
    "write_error",
]

logger = logging.getLogger(__name__)

_APPLICATION_ID = 0x4D69784A  # "MixJ": tells a journal from any other SQLite file that has its name
_BUSY = frozenset({sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED})
_DAMAGED = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB})
_PASSING = frozenset({sqlite3.SQLITE_IOERR, sqlite3.SQLITE_FULL})
_NO_BODY = frozenset({"malformed JSON", "user-defined function raised exception"})
"""What SQLite says where a statement of ours looks into a body that is not as it was stored."""
_LEFTOVER_SECONDS = 60
_WRITE_LOCK_BYTE = "120"
_T = TypeVar("_T")


# --- opening ----------------------------------------------------------------------------------------------------------


class JournalConnection(sqlite3.Connection):
    """A connection that remembers how many seconds it waits for others, so as not to be told at each transaction."""

    _patience: float | None = None

    def be_patient(self, seconds: float) -> None:
        """Wait for others so long from now on."""
        if seconds != self._patience:
            self.execute(f"PRAGMA busy_timeout={round(seconds * 1000)}")
            self._patience = seconds


def open_for_writing(path: Path, wait_seconds: float) -> JournalConnection:
    """A connection that writes durably to a journal brought up to date; the file is made if there is none."""
    _refuse_directory(path, DatabaseWriteError)
    try:
        if not path.exists():
            _make(path, wait_seconds)
        _refuse_read_only(path)
        return _open_existing(path, wait_seconds)
    except OSError as error:
        raise DatabaseWriteError(f"journal {str(path)!r} could not be opened: {remedied(error)}") from error


def _refuse_directory(path: Path, kind: type[StorageError]) -> None:
    """SQLite would tell of a disk that is broken or read-only."""
    if path.is_dir():
        raise kind(f"{str(path)!r} is a directory, and no journal file: move it away")


def _refuse_read_only(path: Path) -> None:
    """SQLite would open it for reading instead, and then try for ten seconds to make sense of its log.

    One that could not be given its name is not there yet, and is no such file.
    """
    if refusal := refused_writing(path):
        raise refusal


def _make(path: Path, wait_seconds: float) -> None:
    """Make a journal aside and give it its name when it is whole: nobody meets, or is left with, half of one."""
    _clear_leftovers(path)
    aside = path.with_name(f".{path.name}.{uuid4().hex}.new")
    try:
        with closing(_open_existing(aside, wait_seconds, is_durable=False)) as connection:
            # Nobody knows the file yet, so it is synced once, as a whole.
            connection.execute("PRAGMA synchronous=FULL")
            # By word: closing would leave what it cannot write in a log that is not of the name the file gets.
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        reach("journal.before_name")
        # Unlike renaming, this fails if another process was quicker; its file is as good as ours. It also fails where
        # the file system knows no links; the journal is then made in its place after all.
        with _alone_in(path.parent):
            if not path.exists():
                set_orphan_aside(path)
            with suppress(OSError):
                path.hardlink_to(aside)
        _sync_directory(path.parent)
    finally:
        with suppress(OSError):
            aside.unlink(missing_ok=True)


@contextmanager
def _alone_in(directory: Path) -> Iterator[None]:
    """Let nobody else give a journal in this directory its name meanwhile."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        # Where a file system has no such locks, two that begin at the same moment are not kept apart.
        with suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _clear_leftovers(path: Path) -> None:
    """Take away what a process left that was killed while it made a journal."""
    for leftover in path.parent.glob(f".{path.name}.*.new*"):
        with suppress(OSError):
            if time.time() - leftover.stat().st_mtime > _LEFTOVER_SECONDS:
                leftover.unlink()


def _sync_directory(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _open_existing(path: Path, wait_seconds: float, *, is_durable: bool = True) -> JournalConnection:
    connection = sqlite3.connect(
        path,
        factory=JournalConnection,
        timeout=wait_seconds,
        isolation_level=None,
        check_same_thread=False,
        # A statement kept for later use keeps the texts that were bound to it: 30 MB with 200 teams.
        cached_statements=0,
    )
    try:
        # Refused before anything is changed: switching to WAL would already write into the file.
        if journal_version(connection, path) == 0:
            # Only a file without tables can still choose: one that can give back room without being written anew.
            connection.execute("PRAGMA auto_vacuum=INCREMENTAL")
        # SQLite may answer this one "busy" without waiting, as when two processes make the file together.
        _patiently(lambda: connection.execute("PRAGMA journal_mode=WAL").fetchone(), wait_seconds)
        connection.execute(f"PRAGMA synchronous={'FULL' if is_durable else 'OFF'}")
        # Otherwise the file of the log keeps the size of the largest burst for ever.
        connection.execute("PRAGMA journal_size_limit=67108864")
        keep_torn_log(connection, path)
        _bring_up_to_date(connection, path)
    except BaseException:
        connection.close()
        raise
    return connection


def open_for_reading(path: Path, wait_seconds: float, *, leaves_no_trace: bool = False) -> sqlite3.Connection | None:
    """A connection that cannot write, or None while there is nothing to read.

    With ``leaves_no_trace`` a journal of an older version stays one, and no file is made beside one that is whole.
    """
    _refuse_directory(path, DatabaseReadError)
    # Opening an empty file would take a lock that the process needs which turns it into a journal.
    if not path.exists() or path.stat().st_size == 0:
        return None
    connection = sqlite3.connect(
        f"{path.absolute().as_uri()}?{_mode_for_reading(path, leaves_no_trace=leaves_no_trace)}",
        uri=True,
        timeout=wait_seconds,
        check_same_thread=False,
    )
    connection.row_factory = sqlite3.Row
    connection.text_factory = text_or_bytes
    register(connection)
    try:
        version = journal_version(connection, path)
        if 0 < version < len(_MIGRATIONS) and not leaves_no_trace:
            open_for_writing(path, wait_seconds).close()
    except BaseException:
        connection.close()
        raise
    if version:
        return connection
    connection.close()
    return None


def _mode_for_reading(path: Path, *, leaves_no_trace: bool) -> str:
    """Readers share a file beside the journal, which they make; where they cannot, the journal has to be whole."""
    log, shared = (path.with_name(f"{path.name}-{ending}") for ending in ("wal", "shm"))
    has_log = log.exists() and log.stat().st_size > 0
    if shared.exists() or (os.access(path.parent, os.W_OK) and (has_log or not leaves_no_trace)):
        return "mode=ro"
    if has_log:
        raise DatabaseReadError(
            f"journal {str(path)!r} has a log, {log.name!r}, that can be read only where files can be made beside it: "
            "make the directory writable, or copy the workspace"
        )
    return "mode=ro&immutable=1"


def file_identity(path: Path) -> tuple[int, int] | None:
    """What tells this file from another of its name; None if there is none."""
    try:
        status = path.stat()
    except FileNotFoundError:
        return None
    return status.st_dev, status.st_ino


def delete_rows(path: Path, execution_id: str, wait_seconds: float) -> int:
    """Remove the rows of an execution from every table at once, and their content from the file."""
    if not path.exists() or path.stat().st_size == 0:
        return 0
    try:
        connection = open_for_writing(path, wait_seconds)
        try:
            # What is deleted is not wanted any more: it must not stay readable in pages that are free.
            connection.execute("PRAGMA secure_delete=ON")
            deleted = _delete(connection, path, execution_id, wait_seconds)
            give_back_room(connection, path, wait_seconds)
            return deleted
        finally:
            connection.close()
    except sqlite3.Error as error:
        raise write_error(path, error) from error


def _delete(connection: JournalConnection, path: Path, execution_id: str, wait_seconds: float) -> int:
    deleted, derived = 0, f"{execution_id}{DERIVED}"
    begin(connection, path, wait_seconds)
    try:
        # One of such a name that was played itself is no part of this one.
        played = connection.execute(
            "SELECT execution_id FROM events WHERE kind = 'RunStarted' AND execution_id >= ? AND execution_id < ?",
            (derived, f"{derived}\U0010ffff"),
        ).fetchall()
        others = [named for (named,) in played]
        kept = ", ".join("?" * len(others))
        for table in _tables_of_executions(connection):
            deleted += connection.execute(
                f"DELETE FROM {table} WHERE execution_id = ? OR "  # noqa: S608 our own names
                f"(execution_id >= ? AND execution_id < ? AND execution_id NOT IN ({kept}))",
                (execution_id, derived, f"{derived}\U0010ffff", *others),
            ).rowcount
        connection.execute("COMMIT")
    except BaseException:
        roll_back(connection)
        raise
    return deleted


def begin(connection: JournalConnection, path: Path, wait_seconds: float) -> None:
    """Begin a transaction that writes; a wait for another process that takes long is told."""
    told_after = min(LONG_WAIT_SECONDS, wait_seconds)
    try:
        _begin(connection, told_after)
    except sqlite3.OperationalError as error:
        if _primary_code(error) not in _BUSY or wait_seconds <= told_after:
            raise
        logger.warning("waiting for %s, which writes %s", named(_holder(path)), path.name)
        _begin(connection, wait_seconds - told_after)


def _begin(connection: JournalConnection, wait_seconds: float) -> None:
    connection.be_patient(wait_seconds)
    # Each step of a statement gives up the interpreter lock, which a busy event loop gives back after 5 ms. A script
    # is one step.
    connection.executescript("BEGIN IMMEDIATE")


def give_back_room(connection: JournalConnection, path: Path, wait_seconds: float) -> None:
    """Make the file as small as what it holds, in short steps between which others write."""
    (mode,) = connection.execute("PRAGMA auto_vacuum").fetchone()
    if mode != _INCREMENTAL:
        # A file of an older version: written anew once, in one piece.
        connection.execute(f"PRAGMA auto_vacuum={_INCREMENTAL}")
        connection.execute("VACUUM")
    (free,) = connection.execute("PRAGMA freelist_count").fetchone()
    for start in range(0, free, _PAGES_AT_ONCE):
        begin(connection, path, wait_seconds)
        # One by one: of a statement that gives no columns Python's module takes the first step only, which is one page.
        for _ in range(start, min(start + _PAGES_AT_ONCE, free)):
            connection.execute("PRAGMA incremental_vacuum(1)")
        connection.execute("COMMIT")
    # Whoever reads or writes just now is not waited for: the next to write makes the log short.
    connection.be_patient(_TIDYING_SECONDS)
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()


_INCREMENTAL = 2
_TIDYING_SECONDS = 1
_PAGES_AT_ONCE = 1000


def _tables_of_executions(connection: sqlite3.Connection) -> list[str]:
    """Every table with rows of executions, whichever migration made it."""
    return [name for (name,) in connection.execute(_TABLES_OF_EXECUTIONS).fetchall()]


_TABLES_OF_EXECUTIONS = """
    SELECT name FROM sqlite_master AS t WHERE type = 'table'
    AND EXISTS (SELECT 1 FROM pragma_table_info(t.name) AS c WHERE c.name = 'execution_id') ORDER BY name"""


def _patiently(action: Callable[[], _T], seconds: float) -> _T:
    deadline = time.monotonic() + seconds
    while True:
        try:
            return action()
        except sqlite3.OperationalError as error:
            if _primary_code(error) not in _BUSY or time.monotonic() > deadline:
                raise
            time.sleep(0.01)


# --- the schema -------------------------------------------------------------------------------------------------------


def _m001_create_tables(db: sqlite3.Connection) -> None:
    """Rows are only ever added: a call that failed and is made again stays on the bill."""
    scope = "execution_id TEXT NOT NULL, team_id TEXT NOT NULL, round_number INTEGER NOT NULL, role TEXT NOT NULL"
    for statement in (
        # Apart from the calls, so that the mark a call leaves before it goes out is one small row.
        f"CREATE TABLE started_calls (call_id TEXT PRIMARY KEY, {scope}, agent_name TEXT NOT NULL, key TEXT NOT NULL,"
        " occurrence INTEGER NOT NULL, model TEXT NOT NULL, started_at TEXT NOT NULL, reserved_tokens INTEGER,"
        " reserved_usd REAL)",
        f"CREATE TABLE calls (id INTEGER PRIMARY KEY, call_id TEXT NOT NULL UNIQUE, {scope}, agent_name TEXT NOT NULL,"
        " key TEXT NOT NULL, occurrence INTEGER NOT NULL, model TEXT NOT NULL, request TEXT, answer TEXT, failure TEXT,"
        " usage TEXT NOT NULL, cost_usd REAL, attempts TEXT NOT NULL, started_at TEXT NOT NULL,"
        " ended_at TEXT NOT NULL)",
        f"CREATE TABLE tool_results (id INTEGER PRIMARY KEY, {scope}, agent_name TEXT NOT NULL, tool TEXT NOT NULL,"
        " key TEXT NOT NULL, occurrence INTEGER NOT NULL, arguments TEXT NOT NULL, result TEXT,"
        " started_at TEXT NOT NULL, ended_at TEXT NOT NULL)",
        f"CREATE TABLE prompts (id INTEGER PRIMARY KEY, {scope}, text TEXT NOT NULL, clock TEXT NOT NULL, ranking TEXT,"
        " nonce TEXT, made_at TEXT NOT NULL)",
        # A position is never given twice, even after rows were deleted: whoever reads on from one misses nothing.
        "CREATE TABLE events (position INTEGER PRIMARY KEY AUTOINCREMENT, execution_id TEXT NOT NULL, team_id TEXT,"
        " sequence INTEGER NOT NULL, kind TEXT NOT NULL, at TEXT NOT NULL, payload TEXT NOT NULL)",
        "CREATE INDEX started_calls_by_execution ON started_calls (execution_id)",
        "CREATE INDEX calls_by_key ON calls (key, occurrence)",
        "CREATE INDEX calls_by_scope ON calls (execution_id, team_id, round_number)",
        "CREATE INDEX tool_results_by_key ON tool_results (key, occurrence)",
        "CREATE INDEX tool_results_by_scope ON tool_results (execution_id, team_id, round_number)",
        "CREATE INDEX prompts_by_scope ON prompts (execution_id, team_id, round_number, role)",
        "CREATE UNIQUE INDEX events_by_sequence"
        " ON events (execution_id, team_id IS NULL, ifnull(team_id, ''), sequence)",
    ):
        db.execute(statement)


def _m002_places(db: sqlite3.Connection) -> None:
    """Who plays an execution; the epoch rises whenever another process takes it over."""
    db.execute(
        "CREATE TABLE places (execution_id TEXT PRIMARY KEY, epoch INTEGER NOT NULL, holder TEXT NOT NULL,"
        " pid INTEGER NOT NULL, host TEXT NOT NULL, command TEXT NOT NULL, taken_at TEXT NOT NULL,"
        " beat INTEGER NOT NULL)"
    )


def _m003_compressed_bodies_and_pruned_executions(db: sqlite3.Connection) -> None:
    """From here on bodies may be compressed, which an older version could not read, and be dropped by ``prune``."""
    db.execute("CREATE TABLE pruned (execution_id TEXT PRIMARY KEY, pruned_at TEXT NOT NULL)")


# Appended to, never edited: a file remembers how many of these it has seen.
_MIGRATIONS: tuple[Callable[[sqlite3.Connection], None], ...] = (
    _m001_create_tables,
    _m002_places,
    _m003_compressed_bodies_and_pruned_executions,
)


def _bring_up_to_date(connection: sqlite3.Connection, path: Path) -> None:
    if journal_version(connection, path) == len(_MIGRATIONS):
        return
    # The lock comes first and the version is read again under it: another process may have been quicker.
    connection.execute("BEGIN IMMEDIATE")
    try:
        connection.execute(
            "CREATE TABLE IF NOT EXISTS schema_version (version INTEGER PRIMARY KEY, name TEXT, applied_at TEXT)"
        )
        connection.execute(f"PRAGMA application_id={_APPLICATION_ID}")
        for number in range(journal_version(connection, path) + 1, len(_MIGRATIONS) + 1):
            _apply(connection, number)
            reach("journal.in_migration")
        connection.execute("COMMIT")
        reach("journal.after_migration")
    except BaseException:
        roll_back(connection)
        raise


def _apply(connection: sqlite3.Connection, number: int) -> None:
    migration = _MIGRATIONS[number - 1]
    migration(connection)
    now = datetime.now(UTC).isoformat(timespec="microseconds")
    connection.execute("INSERT INTO schema_version VALUES (?, ?, ?)", (number, migration.__name__.lstrip("_"), now))


def journal_version(connection: sqlite3.Connection, path: Path) -> int:
    """The file's version, 0 for one without tables; a newer one and one that is no journal are refused."""
    tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    if not tables:
        return 0
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    if "schema_version" not in tables or application not in (0, _APPLICATION_ID):
        raise StorageError(f"{str(path)!r} is an SQLite file but not a MixSeek journal: move it aside")
    (version,) = connection.execute("SELECT ifnull(max(version), 0) FROM schema_version").fetchone()
    if version > len(_MIGRATIONS):
        raise DatabaseVersionError(
            f"journal {str(path)!r} has version {version}, written by a newer MixSeek; this one knows versions up to "
            f"{len(_MIGRATIONS)}: update MixSeek or use another workspace"
        )
    return int(version)


def roll_back(connection: sqlite3.Connection) -> None:
    """Undo what was begun."""
    # After some errors SQLite has rolled back by itself.
    with suppress(sqlite3.Error):
        if connection.in_transaction:
            connection.execute("ROLLBACK")


# --- what errors mean -------------------------------------------------------------------------------------------------


def write_error(path: Path, error: sqlite3.Error) -> StorageError:
    """``error`` in our words, for something that could not be written."""
    return _translated(path, error, DatabaseWriteError, "written")


def read_error(path: Path, error: sqlite3.Error) -> StorageError:
    """``error`` in our words, for something that could not be read."""
    return _translated(path, error, DatabaseReadError, "read")


def may_pass(error: sqlite3.Error) -> bool:
    """Whether the same write may succeed a little later."""
    return _primary_code(error) in _PASSING


def _translated(path: Path, error: sqlite3.Error, kind: type[StorageError], verb: str) -> StorageError:
    code = _primary_code(error)
    if code in _BUSY:
        return DatabaseLockedError(f"journal {str(path)!r} could not be {verb}: {_holder(path)} kept it too long")
    if isinstance(error, UnreadableBodyError) or str(error) in _NO_BODY:
        return kind(
            f"journal {str(path)!r} has a damaged row: {error}; mixseek journal verify names it, and "
            "mixseek delete takes its execution out"
        )
    if code in _DAMAGED:
        return damage(path, str(error), kind)
    return kind(f"journal {str(path)!r} could not be {verb}: {remedied_journal(error, code)}")


def damage(path: Path, words: str, kind: type[StorageError] = DatabaseReadError) -> StorageError:
    """What to say of a file whose pages make no sense."""
    return kind(
        f"journal {str(path)!r} is damaged ({words}); nothing was deleted: move it aside together with "
        f"'{path.name}-wal' and '{path.name}-shm'"
    )


def _primary_code(error: sqlite3.Error) -> int:
    # Errors the Python module raises by itself carry no code.
    return (getattr(error, "sqlite_errorcode", None) or 0) & 0xFF


def _holder(path: Path) -> str:
    """Who holds SQLite's write lock, where the system tells."""
    try:
        inode = Path(f"{path}-shm").stat().st_ino
        locks = [line.split() for line in Path("/proc/locks").read_text().splitlines()]
    except OSError:
        return "another process"
    # As in "1: POSIX  ADVISORY  WRITE 1234 fe:00:5678 120 120".
    pids = [
        lock[4]
        for lock in locks
        if len(lock) == 8 and lock[3] == "WRITE" and lock[5].endswith(f":{inode}") and lock[6] == _WRITE_LOCK_BYTE
    ]
    return process_named(int(pids[0])) if pids else "another process"


# --- after a fork -----------------------------------------------------------------------------------------------------


class _Forgetful(Protocol):
    def forget(self) -> None: ...


_forgetful: "weakref.WeakSet[_Forgetful]" = weakref.WeakSet()
_abandoned: list[sqlite3.Connection] = []


def forget_after_fork(holder: _Forgetful) -> None:
    """In a forked child ``holder.forget()`` is called: threads are gone there, and connections belong to the parent."""
    _forgetful.add(holder)


def abandon(connection: sqlite3.Connection | None) -> None:
    """Keep ``connection`` from ever being closed: closing it here could delete the log under whoever uses the file."""
    if connection is not None:
        _abandoned.append(connection)


def _forget_all() -> None:
    for holder in list(_forgetful):
        holder.forget()


os.register_at_fork(after_in_child=_forget_all)
