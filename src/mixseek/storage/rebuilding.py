"""Making ``mixseek.db`` from the journal beside it: whole when it is gone or broken, in place when rows are missing.

Whoever calls holds the turn at the file (:mod:`mixseek.storage.turn`), so that several processes that find it missing
make it once. The rows of executions that the journal does not have are left as they are.
"""

import logging
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

import duckdb

from mixseek.storage.journal_records import DERIVED
from mixseek.storage.places import claim
from mixseek.storage.playing import is_playing
from mixseek.storage.retelling import executions_kept, retold, takeovers
from mixseek.storage.tables import TABLES, Row, Table, put_back
from mixseek.workspace import Workspace

__all__ = ["Rebuilt", "journal_beside", "rebuild_rows", "salvage"]

logger = logging.getLogger(__name__)

_AT_ONCE = 200
"""Rows in one statement."""


@dataclass(frozen=True)
class Rebuilt:
    """What was made from the journal."""

    executions: tuple[str, ...] = ()
    unreadable: tuple[str, ...] = ()
    """Those of which the journal has a damaged row, so that not all of theirs could be made."""
    added: int = 0
    """Rows that were missing."""
    changed: int = 0
    """Rows that said something else."""
    anew: int = 0
    """Rows that were made before, when the file was opened, because it was missing or broken."""
    others: int = 0
    """Executions in the file that the journal does not have; their rows stay as they are."""


def journal_beside(database: Path) -> Path | None:
    """The journal that tells what this database came from, if it has anything to tell."""
    workspace = Workspace(database.parent)
    # A file of another name is somebody's own; nobody says that it belongs to the journal beside it.
    if database.name != workspace.database.name or not workspace.journal.exists():
        return None
    return workspace.journal if executions_kept(workspace.journal) else None


def rebuild_rows(connection: duckdb.DuckDBPyConnection, database: Path, journal: Path) -> Rebuilt:
    """Let the tables hold the rows of every execution of the journal.

    Rows of an execution that is being played are only added: the run may write a round before it tells of it, so what
    the table has may be newer.
    """
    executions, added, changed = dict[str, bool](), 0, 0
    unreadable: dict[str, None] = {}
    for part in retold(journal):
        if part.execution_id not in executions:
            executions[part.execution_id] = is_playing(database, part.execution_id)
        if part.fault is not None:
            unreadable[part.execution_id] = None
            logger.warning(
                "%s has a damaged row of %s; rows that %s has of it stay as they are, and others cannot be made",
                journal,
                part.fault,
                database.name,
            )
        for start in range(0, len(part.rows), _AT_ONCE):
            some = part.rows[start : start + _AT_ONCE]
            new, other = put_back(connection, some, only_missing=executions[part.execution_id])
            added, changed = added + new, changed + other
    for place in takeovers(journal):
        # Whoever judges an execution again writes nothing here, so nobody has to be kept from it, and nothing that is
        # deleted with the execution would take the row away.
        if DERIVED not in place.execution_id:
            claim(connection, place)
    whole = tuple(one for one in executions if one not in unreadable)
    return Rebuilt(whole, tuple(unreadable), added, changed, others=_others(connection, executions))


def _others(connection: duckdb.DuckDBPyConnection, known: Collection[str]) -> int:
    ids = " UNION ".join(f"SELECT execution_id FROM {table.name}" for table in TABLES)  # noqa: S608 our own names
    sql = f"SELECT count(*) FROM ({ids}) WHERE NOT list_contains(?, execution_id)"  # noqa: S608 our own names
    found = connection.execute(sql, [list(known)]).fetchone()
    return int(found[0]) if found else 0


# --- what a broken file still gives -----------------------------------------------------------------------------------


def salvage(connection: duckdb.DuckDBPyConnection, broken: Path, known: Collection[str]) -> dict[str, int]:
    """Take over the rows of executions the journal does not know, as far as the broken file can be read.

    Gives how many rows came from each table that could be read, or that is known to have held none of these; one that
    is not named may have held some.
    """
    try:
        old = duckdb.connect(str(broken), read_only=True)
    except (duckdb.Error, OSError):
        return {}
    taken: dict[str, int] = {}
    with old:
        for table in TABLES:
            try:
                rows = _rows_of_others(old, table, known)
            except (duckdb.Error, OSError):
                if _has_none_of_others(old, table, known):
                    taken[table.name] = 0
                continue
            for start in range(0, len(rows), _AT_ONCE):
                put_back(connection, rows[start : start + _AT_ONCE], only_missing=True)
            taken[table.name] = len(rows)
    return taken


def _has_none_of_others(old: duckdb.DuckDBPyConnection, table: Table, known: Collection[str]) -> bool:
    """Whether a table that cannot be read is known to have no row to take over."""
    try:
        # Columns lie in blocks of their own: mostly it is a large one that is damaged, and not that of the ids.
        sql = f"SELECT count(*) FROM {table.name} WHERE NOT list_contains(?, execution_id)"  # noqa: S608 our own names
        return old.execute(sql, [list(known)]).fetchone() == (0,)
    except duckdb.CatalogException:
        return True  # a file of an older version, which did not have the table yet
    except (duckdb.Error, OSError):
        return False


def _rows_of_others(old: duckdb.DuckDBPyConnection, table: Table, known: Collection[str]) -> list[Row]:
    found = old.execute(
        f"SELECT {', '.join(table.columns)} FROM {table.name} WHERE NOT list_contains(?, execution_id)",  # noqa: S608 our own names
        [list(known)],
    )
    return [Row(table, values) for values in found.fetchall()]
