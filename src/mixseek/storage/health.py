"""Whether the two files of a workspace can be used, found out without changing or making anything."""

import sqlite3
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import duckdb

from mixseek.errors import DatabaseLockedError, MixSeekError
from mixseek.storage.database import CannotOpenError, HeldElsewhereError, open_as_it_is
from mixseek.storage.executions import execution_ids
from mixseek.storage.journal_checks import first_fault
from mixseek.storage.journal_file import journal_version
from mixseek.storage.lease import Connection, Look, worker_for
from mixseek.storage.migrations import MIGRATIONS, file_version

__all__ = ["FileHealth", "database_health", "journal_health"]

_WAIT_SECONDS = 2.0


@dataclass(frozen=True)
class FileHealth:
    """What was found of one file."""

    state: Literal["absent", "good", "old", "held", "broken"]
    words: str = ""
    executions: frozenset[str] = frozenset()
    """The ids of those it knows of."""


async def database_health(path: Path) -> FileHealth:
    """The results: who holds the file, whether it opens, and how old its form is."""
    if not path.exists():  # noqa: ASYNC240  # nothing else runs on this loop
        return FileHealth("absent")
    try:
        version, executions = await _in_turn(path)
    except (DatabaseLockedError, HeldElsewhereError) as error:
        return FileHealth("held", str(error))
    except (MixSeekError, CannotOpenError, duckdb.Error, OSError) as error:
        return FileHealth("broken", str(error).splitlines()[0])
    if version < len(MIGRATIONS):
        return FileHealth("old", f"schema version {version} of {len(MIGRATIONS)}")
    return FileHealth("good", executions=executions)


async def _in_turn(path: Path) -> tuple[int, frozenset[str]]:
    """What the file holds. Where there is no lock beside it nobody takes turns, and none is made for a look."""
    if path.with_name(f"{path.name}.lock").exists():
        found: tuple[int, frozenset[str]] = await worker_for(path).do(Look(_look, _WAIT_SECONDS))
        return found
    with open_as_it_is(path) as connection:
        return _look(connection)


def _look(connection: Connection) -> tuple[int, frozenset[str]]:
    version = file_version(connection)
    return version, execution_ids(connection) if version == len(MIGRATIONS) else frozenset()


def journal_health(path: Path) -> FileHealth:
    """The journal: whether it opens and its pages make sense."""
    if not path.exists() or not path.stat().st_size:
        return FileHealth("absent")
    if path.is_dir():
        return FileHealth("broken", "is a directory, and no journal file")
    # Without a log beside it the file is whole, and can be read without the files that readers and writers share.
    alone = not path.with_name(f"{path.name}-wal").exists()
    address = f"{path.absolute().as_uri()}?mode=ro{'&immutable=1' if alone else ''}"
    try:
        connection = sqlite3.connect(address, uri=True, timeout=_WAIT_SECONDS)
    except sqlite3.Error as error:
        return FileHealth("broken", str(error))
    try:
        version = journal_version(connection, path)
        begun = connection.execute("SELECT DISTINCT execution_id FROM events WHERE kind = 'RunStarted'").fetchall()
        wrong = first_fault(connection, path)
    except (MixSeekError, sqlite3.Error) as error:
        return FileHealth("broken", str(error))
    finally:
        connection.close()
    if wrong:
        return FileHealth("broken", wrong)
    return FileHealth("good", f"version {version}", frozenset(execution_id for (execution_id,) in begun))
