"""How a file came to have its tables: functions appended one by one and never edited, and a table that remembers them.

Each migration is one transaction together with its line in ``mixseek_schema``, so a crash leaves the state before it.
A migration carries the schema it makes as literal text: what the program writes today may change, what version 1 was
may not.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

import duckdb

from mixseek.crash_points import reach
from mixseek.errors import DatabaseVersionError

__all__ = ["MIGRATIONS", "Migration", "check_version", "file_version", "has_results", "migrate"]

Migration = Callable[[duckdb.DuckDBPyConnection], None]


def m001_results(db: duckdb.DuckDBPyConnection) -> None:
    """The tables of the results, new or taken over from a file of mixseek-core 0.1.

    Tables of 0.1 are built anew, because DuckDB changes no type while an index depends on the table: scores become
    DOUBLE by way of their text (a FLOAT 85.57 cast directly is 85.56999969482422), NaN becomes NULL, ids stay, and
    columns that are not ours stay as they are. A second row for one key, which the older file did not always prevent,
    is kept in ``<table>_before_v1``.
    """
    for table in _V1:
        if _exists(db, table):
            _take_over(db, table)
        else:
            _create(db, table, first_id=1)
    db.execute(
        "CREATE OR REPLACE VIEW leader_board_scored AS SELECT *, score / 100 AS score_normalized FROM leader_board"
    )


def m002_attachments(db: duckdb.DuckDBPyConnection) -> None:
    """What came with the task of an execution; the content is a file of the workspace, named by its hash."""
    db.execute(
        "CREATE TABLE IF NOT EXISTS attachments (execution_id VARCHAR NOT NULL, position INTEGER NOT NULL, "
        "name VARCHAR NOT NULL, media_type VARCHAR NOT NULL, size BIGINT NOT NULL, sha256 VARCHAR NOT NULL, "
        "UNIQUE (execution_id, position))"
    )


def m003_places(db: duckdb.DuckDBPyConnection) -> None:
    """Which process took an execution over last; whoever had it before writes no more of its results."""
    db.execute(
        "CREATE TABLE IF NOT EXISTS places (execution_id VARCHAR PRIMARY KEY, epoch BIGINT NOT NULL, "
        "holder VARCHAR NOT NULL, pid BIGINT NOT NULL, host VARCHAR NOT NULL, command VARCHAR NOT NULL, "
        "taken_at VARCHAR NOT NULL)"
    )


MIGRATIONS: tuple[Migration, ...] = (m001_results, m002_attachments, m003_places)


def file_version(db: duckdb.DuckDBPyConnection) -> int:
    """How many migrations the file has seen; 0 for a file without the table that remembers them."""
    try:
        found = db.execute("SELECT max(version) FROM mixseek_schema").fetchone()
    except duckdb.CatalogException:
        return 0
    return int(found[0] or 0) if found else 0


def has_results(db: duckdb.DuckDBPyConnection) -> bool:
    """Whether the file holds any table that a migration could change."""
    return any(_exists(db, table) for table in _V1)


def migrate(
    db: duckdb.DuckDBPyConnection, migrations: Sequence[Migration] = MIGRATIONS, *, is_new: bool = False
) -> None:
    """Bring the file up to date, one transaction a migration; a new one need not be asked, which takes DuckDB 7 ms."""
    version = 0 if is_new else check_version(db, migrations)
    for number, migration in enumerate(migrations[version:], version + 1):
        _apply(db, number, migration)


def check_version(db: duckdb.DuckDBPyConnection, migrations: Sequence[Migration] = MIGRATIONS) -> int:
    """The file's version; one that only a newer MixSeek knows is refused."""
    version = file_version(db)
    if version > len(migrations):
        raise DatabaseVersionError(
            f"the file has schema version {version}, this MixSeek knows versions up to {len(migrations)}: "
            "update MixSeek, or name another workspace"
        )
    return version


def _apply(db: duckdb.DuckDBPyConnection, number: int, migration: Migration) -> None:
    db.begin()
    try:
        db.execute(
            "CREATE TABLE IF NOT EXISTS mixseek_schema (version INTEGER NOT NULL, name VARCHAR, applied_at TIMESTAMP)"
        )
        migration(db)
        now = datetime.now(UTC).replace(tzinfo=None)
        db.execute("INSERT INTO mixseek_schema VALUES (?, ?, ?)", [number, migration.__name__, now])
        reach("results.in_migration")
        db.commit()
        reach("results.after_migration")
    except BaseException:
        # A commit that failed has already ended the transaction.
        with suppress(duckdb.Error):
            db.rollback()
        raise


# --- what m001 is made of ---------------------------------------------------------------------------------------------

_V1 = {
    "round_history": """
        id BIGINT PRIMARY KEY DEFAULT nextval('round_history_id_seq'),
        execution_id VARCHAR NOT NULL, team_id VARCHAR NOT NULL, team_name VARCHAR NOT NULL,
        round_number INTEGER NOT NULL,
        message_history JSON, member_submissions_record JSON, created_at TIMESTAMP,
        UNIQUE (execution_id, team_id, round_number)""",
    "leader_board": """
        id BIGINT PRIMARY KEY DEFAULT nextval('leader_board_id_seq'),
        execution_id VARCHAR NOT NULL, team_id VARCHAR NOT NULL, team_name VARCHAR NOT NULL,
        round_number INTEGER NOT NULL,
        submission_content VARCHAR, submission_format VARCHAR DEFAULT 'md', score DOUBLE, score_details JSON,
        final_submission BOOLEAN DEFAULT FALSE, exit_reason VARCHAR, created_at TIMESTAMP, updated_at TIMESTAMP,
        UNIQUE (execution_id, team_id, round_number)""",
    "round_status": """
        id BIGINT PRIMARY KEY DEFAULT nextval('round_status_id_seq'),
        execution_id VARCHAR NOT NULL, team_id VARCHAR NOT NULL, team_name VARCHAR NOT NULL,
        round_number INTEGER NOT NULL,
        should_continue BOOLEAN, reasoning VARCHAR, confidence_score DOUBLE,
        round_started_at TIMESTAMP, round_ended_at TIMESTAMP, created_at TIMESTAMP, updated_at TIMESTAMP,
        UNIQUE (execution_id, team_id, round_number)""",
    "execution_summary": """
        execution_id VARCHAR PRIMARY KEY, user_prompt VARCHAR, status VARCHAR, team_results JSON, total_teams INTEGER,
        best_team_id VARCHAR, best_score DOUBLE, total_execution_time_seconds DOUBLE,
        completed_at TIMESTAMP, created_at TIMESTAMP""",
    "model_usage": """
        execution_id VARCHAR NOT NULL, team_id VARCHAR NOT NULL, round_number INTEGER NOT NULL,
        role VARCHAR NOT NULL, agent_name VARCHAR NOT NULL, model VARCHAR NOT NULL,
        requests BIGINT, input_tokens BIGINT, output_tokens BIGINT, cost_usd DOUBLE,
        UNIQUE (execution_id, team_id, round_number, role, agent_name, model)""",
}
_V1_KEYS = {
    "execution_summary": "execution_id",
    "model_usage": "execution_id, team_id, round_number, role, agent_name, model",
}
_ROUND_KEY = "execution_id, team_id, round_number"
_SCORES = frozenset({"score", "confidence_score", "best_score"})
# Those of 0.1 are not made again: they cost a write more than they save a read.
_INDEXES_OF_0_1 = frozenset(
    {
        "idx_round_history_execution",
        "idx_leader_board_score",
        "idx_leader_board_execution",
        "idx_leader_board_execution_score",
        "idx_round_status_execution_team_round",
        "idx_execution_summary_status",
    }
)


def _exists(db: duckdb.DuckDBPyConnection, table: str) -> bool:
    return bool(_rows(db, "SELECT 1 FROM duckdb_tables() WHERE table_name = ? AND schema_name = 'main'", [table]))


def _create(db: duckdb.DuckDBPyConnection, table: str, *, first_id: int) -> None:
    if f"{table}_id_seq" in _V1[table]:
        db.execute(f"CREATE OR REPLACE SEQUENCE {table}_id_seq START {first_id}")
    db.execute(f"CREATE TABLE {table} ({_V1[table]})")


def _take_over(db: duckdb.DuckDBPyConnection, table: str) -> None:
    columns = _columns(db, table)
    first_id = _next_id(db, table, columns)
    indexes = _drop_indexes(db, table)
    old = f"{table}_of_0_1"
    # A copy, not a renaming: the sequence can be set anew only when no table depends on it.
    db.execute(f"CREATE TABLE {old} AS FROM {table}")
    db.execute(f"DROP TABLE {table}")
    _create(db, table, first_id=first_id)
    _add_foreign_columns(db, table, columns)
    _set_doubles_aside(db, table, old, columns)
    _copy_rows(db, table, old, columns)
    db.execute(f"DROP TABLE {old}")
    for sql in indexes:
        db.execute(sql)


def _columns(db: duckdb.DuckDBPyConnection, table: str) -> dict[str, str]:
    sql = (
        "SELECT column_name, data_type FROM duckdb_columns() "
        "WHERE table_name = ? AND schema_name = 'main' ORDER BY column_index"
    )
    return {str(name): str(kind) for name, kind in _rows(db, sql, [table])}


def _drop_indexes(db: duckdb.DuckDBPyConnection, table: str) -> list[str]:
    """Drop what depends on the table, and give back the text of those indexes that are the user's own."""
    found = _rows(db, "SELECT index_name, sql FROM duckdb_indexes() WHERE table_name = ? AND sql IS NOT NULL", [table])
    for name, _ in found:
        db.execute(f"DROP INDEX {_quoted(name)}")
    return [str(sql) for name, sql in found if name not in _INDEXES_OF_0_1]


def _next_id(db: duckdb.DuckDBPyConnection, table: str, columns: dict[str, str]) -> int:
    used = _rows(db, "SELECT last_value FROM duckdb_sequences() WHERE sequence_name = ?", [f"{table}_id_seq"])
    if "id" in columns:
        used += _rows(db, f"SELECT max(id) FROM {table}")  # noqa: S608 our own names
    return max([0, *(int(value) for (value,) in used if value is not None)]) + 1


def _add_foreign_columns(db: duckdb.DuckDBPyConnection, table: str, columns: dict[str, str]) -> None:
    ours = _columns(db, table)
    for name, kind in columns.items():
        if name not in ours:
            db.execute(f"ALTER TABLE {table} ADD COLUMN {_quoted(name)} {kind}")


def _set_doubles_aside(db: duckdb.DuckDBPyConnection, table: str, old: str, columns: dict[str, str]) -> None:
    doubles = f"SELECT * FROM {old} QUALIFY {_place_among_doubles(table, columns)} > 1"  # noqa: S608 our own names
    if _rows(db, f"SELECT 1 FROM ({doubles}) LIMIT 1"):  # noqa: S608 our own names
        db.execute(f"CREATE TABLE {table}_before_v1 AS {doubles}")


def _copy_rows(db: duckdb.DuckDBPyConnection, table: str, old: str, columns: dict[str, str]) -> None:
    into = ", ".join(_quoted(name) for name in columns)
    values = ", ".join(_converted(name, kind) for name, kind in columns.items())
    newest = f"SELECT * FROM {old} QUALIFY {_place_among_doubles(table, columns)} = 1"  # noqa: S608 our own names
    order = " ORDER BY id" if "id" in columns else ""
    db.execute(f"INSERT INTO {table} ({into}) SELECT {values} FROM ({newest}){order}")  # noqa: S608 quoted names


def _place_among_doubles(table: str, columns: dict[str, str]) -> str:
    newest_first = "id DESC" if "id" in columns else "rowid DESC"
    return f"row_number() OVER (PARTITION BY {_V1_KEYS.get(table, _ROUND_KEY)} ORDER BY {newest_first})"


def _converted(name: str, kind: str) -> str:
    column = _quoted(name)
    if name not in _SCORES:
        return column
    exact = f"CAST(CAST({column} AS VARCHAR) AS DOUBLE)" if kind == "FLOAT" else column
    return f"CASE WHEN isfinite({column}) THEN {exact} END"


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _rows(db: duckdb.DuckDBPyConnection, sql: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
    return db.execute(sql, list(parameters)).fetchall()
