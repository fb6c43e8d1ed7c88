"""The tables of ``mixseek.db`` as data, and the one way a row gets into them: by upsert, many rows in few statements.

DuckDB's ``ON CONFLICT DO UPDATE`` costs twice as much as a plain INSERT or UPDATE, and nearly every row is new. So rows
are inserted at first sight; only if one is already there is the transaction undone and done again with a look at the
keys, updating what is there and inserting the rest. A whole batch takes one statement a table. Its rows are given as
lists, one a column: a statement with a mark for every value would cost DuckDB six times as much to plan as to run.
Which round counts for its team is one more statement for all teams of a batch.
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import astuple, dataclass, replace
from datetime import datetime
from typing import Any

import duckdb

from mixseek.crash_points import reach
from mixseek.errors import DatabaseWriteError
from mixseek.redaction import Redactor

__all__ = [
    "ATTACHMENTS",
    "EXECUTION_SUMMARY",
    "LEADER_BOARD",
    "MODEL_USAGE",
    "ROUND_HISTORY",
    "ROUND_STATUS",
    "TABLES",
    "FinalMark",
    "Row",
    "Table",
    "put_back",
    "transaction",
    "upsert",
]

_ROUND = ("execution_id", "team_id", "round_number")


@dataclass(frozen=True)
class Table:
    """A table: the columns that are written, and the key an upsert goes by; the types stand in the migrations."""

    name: str
    columns: tuple[str, ...]
    key: tuple[str, ...]
    growing: str | None = None
    """A column that tells which of two versions of a row is the newer one: it has the larger value."""

    @property
    def changing(self) -> tuple[str, ...]:
        """The columns an update sets; ``created_at`` stays what it was."""
        return tuple(name for name in self.columns if name not in self.key and name != "created_at")


ROUND_HISTORY = Table(
    "round_history",
    (
        "execution_id",
        "team_id",
        "team_name",
        "round_number",
        "message_history",
        "member_submissions_record",
        "created_at",
    ),
    _ROUND,
)
LEADER_BOARD = Table(
    "leader_board",
    (
        "execution_id",
        "team_id",
        "team_name",
        "round_number",
        "submission_content",
        "submission_format",
        "score",
        "score_details",
        "final_submission",
        "exit_reason",
        "created_at",
        "updated_at",
    ),
    _ROUND,
    growing="updated_at",
)
ROUND_STATUS = Table(
    "round_status",
    (
        "execution_id",
        "team_id",
        "team_name",
        "round_number",
        "should_continue",
        "reasoning",
        "confidence_score",
        "round_started_at",
        "round_ended_at",
        "created_at",
        "updated_at",
    ),
    _ROUND,
    growing="updated_at",
)
EXECUTION_SUMMARY = Table(
    "execution_summary",
    (
        "execution_id",
        "user_prompt",
        "status",
        "team_results",
        "total_teams",
        "best_team_id",
        "best_score",
        "total_execution_time_seconds",
        "completed_at",
        "created_at",
    ),
    ("execution_id",),
    growing="completed_at",
)
ATTACHMENTS = Table(
    "attachments", ("execution_id", "position", "name", "media_type", "size", "sha256"), ("execution_id", "position")
)
MODEL_USAGE = Table(
    "model_usage",
    (
        "execution_id",
        "team_id",
        "round_number",
        "role",
        "agent_name",
        "model",
        "requests",
        "input_tokens",
        "output_tokens",
        "cost_usd",
    ),
    (*_ROUND, "role", "agent_name", "model"),
    growing="requests",
)
TABLES = (LEADER_BOARD, ROUND_STATUS, ROUND_HISTORY, MODEL_USAGE, ATTACHMENTS, EXECUTION_SUMMARY)
"""Every table with rows of executions."""


@dataclass(frozen=True)
class Row:
    """A whole row, in the order of the table's columns."""

    table: Table
    values: tuple[Any, ...]
    likely_there: bool = False
    """Whether this is usually a second write of the row; a hint about speed, nothing else."""

    @property
    def key(self) -> tuple[Any, ...]:
        """What the upsert goes by."""
        return tuple(self[name] for name in self.table.key)

    def __getitem__(self, column: str) -> Any:
        return self.values[self.table.columns.index(column)]

    def changed(self, **values: Any) -> "Row":
        """The same row with other values in these columns."""
        columns = zip(self.table.columns, self.values, strict=True)
        return replace(self, values=tuple(values.get(name, value) for name, value in columns))

    def redacted(self, redactor: Redactor) -> "Row":
        """The same row without secrets; what identifies it stays as it is."""
        columns = zip(self.table.columns, self.values, strict=True)
        harmless = (
            value if column in self.table.key or not isinstance(value, str) else _redacted(column, value, redactor)
            for column, value in columns
        )
        return replace(self, values=tuple(harmless))

    def over(self, before: "Row") -> "Row":
        """This row where it replaces another that was to be written with it: made when that one was."""
        made = {"created_at": before["created_at"]} if "created_at" in self.table.columns else {}
        return replace(self.changed(**made), likely_there=before.likely_there)


@dataclass(frozen=True)
class FinalMark:
    """Which round counts for its team, and why the team stopped; any other round of the team is unmarked."""

    execution_id: str
    team_id: str
    round_number: int
    exit_reason: str | None
    at: datetime


def _redacted(column: str, value: str, redactor: Redactor) -> str:
    cleaned = redactor.text(value)
    # A mark put into the text of a JSON document could swallow its quotes.
    return redactor.json_text(json.loads(value)) if cleaned != value and column in _JSON_COLUMNS else cleaned


_JSON_COLUMNS = frozenset({"message_history", "member_submissions_record", "score_details", "team_results"})


def upsert(connection: duckdb.DuckDBPyConnection, rows: Sequence[Row], marks: Sequence[FinalMark] = ()) -> None:
    """Write all rows and then all marks in one transaction, or none; of two with one key the later one stays."""
    groups = _by_table(rows)
    try:
        if len(rows) == 1 and not marks and not rows[0].likely_there:
            _insert(connection, rows)
        else:
            _in_transaction(connection, groups, _write_as_likely, marks)
    except duckdb.ConstraintException:
        _in_transaction(connection, groups, _update_or_insert, marks)


def _write_as_likely(connection: duckdb.DuckDBPyConnection, rows: Sequence[Row]) -> None:
    (_update_or_insert if any(row.likely_there for row in rows) else _insert)(connection, rows)


def put_back(connection: duckdb.DuckDBPyConnection, rows: Sequence[Row], *, only_missing: bool) -> tuple[int, int]:
    """Let the tables hold exactly these rows for their keys, times included; how many were added, how many changed.

    A row that is there in a newer version stays: where a log was lost, it is the journal that is behind.
    """
    added = changed = 0
    with transaction(connection):
        for group in _by_table(rows):
            there = _rows_there(connection, group)
            if fresh := [row for row in group if row.key not in there]:
                _insert(connection, fresh)
            other = [row for row in group if not only_missing and _is_outdated(there.get(row.key), row)]
            if other:
                table = group[0].table
                _set(connection, other, [name for name in table.columns if name not in table.key])
            added, changed = added + len(fresh), changed + len(other)
    return added, changed


def _is_outdated(there: Row | None, row: Row) -> bool:
    """Whether a row that is there says something else, and is not the newer of the two."""
    if there is None or there.values == row.values:
        return False
    growing = row.table.growing
    return growing is None or there[growing] is None or row[growing] is None or there[growing] <= row[growing]


def _rows_there(connection: duckdb.DuckDBPyConnection, rows: Sequence[Row]) -> dict[tuple[Any, ...], Row]:
    table = rows[0].table
    found = _select(connection, table.columns, rows).fetchall()
    return {row.key: row for row in (Row(table, values) for values in found)}


_MOST_ROWS_AT_ONCE = 256
"""In one statement, since their texts are in memory twice meanwhile."""


def _by_table(rows: Iterable[Row]) -> list[list[Row]]:
    """Groups of rows that go into one table, the last of each key, no more than one statement should hold."""
    tables: dict[Table, dict[tuple[Any, ...], Row]] = {}
    for row in rows:
        known = tables.setdefault(row.table, {})
        before = known.get(row.key)
        known[row.key] = row if before is None else row.over(before)
    groups = [list(group.values()) for group in tables.values()]
    starts = [(group, start) for group in groups for start in range(0, len(group), _MOST_ROWS_AT_ONCE)]
    return [group[start : start + _MOST_ROWS_AT_ONCE] for group, start in starts]


def _in_transaction(
    connection: duckdb.DuckDBPyConnection, groups: list[list[Row]], write: Any, marks: Sequence[FinalMark]
) -> None:
    with transaction(connection):
        for group in groups:
            write(connection, group)
        if marks:
            _mark_finals(connection, marks)


def _mark_finals(connection: duckdb.DuckDBPyConnection, marks: Sequence[FinalMark]) -> None:
    """Set and clear the marks of all teams at once; of two marks for one team the later one stays."""
    keys = [(mark.execution_id, mark.team_id, mark.round_number) for mark in marks]
    there = set(connection.execute(_ROUNDS_ON_BOARD, _lists(keys)).fetchall())
    for key in keys:
        if key not in there:
            execution_id, team_id, round_number = key
            raise DatabaseWriteError(
                f"team {team_id!r} has no round {round_number} on the leader board of {execution_id!r}"
            )
    last = {(mark.execution_id, mark.team_id): mark for mark in marks}
    connection.execute(_MARK_FINALS, _lists(astuple(mark) for mark in last.values()))


@contextmanager
def transaction(connection: duckdb.DuckDBPyConnection) -> Iterator[None]:
    """All that is done inside, or none of it."""
    connection.begin()
    try:
        yield
        reach("results.before_commit")
        connection.commit()
        reach("results.after_commit")
    except BaseException:
        _undo(connection)
        raise


def _undo(connection: duckdb.DuckDBPyConnection) -> None:
    try:
        connection.rollback()
    except duckdb.Error:
        # A commit that failed has already ended the transaction; the error on its way up is the one that tells.
        return


def _update_or_insert(connection: duckdb.DuckDBPyConnection, rows: Sequence[Row]) -> None:
    if _set(connection, rows, rows[0].table.changing) == len(rows):
        return
    there = set(_select(connection, rows[0].table.key, rows).fetchall())
    if fresh := [row for row in rows if row.key not in there]:
        _insert(connection, fresh)


def _select(
    connection: duckdb.DuckDBPyConnection, columns: Sequence[str], rows: Sequence[Row]
) -> duckdb.DuckDBPyConnection:
    """Columns of those rows that are there already."""
    table = rows[0].table
    sql = f"SELECT {', '.join(columns)} FROM {table.name} WHERE ({', '.join(table.key)}) IN ({_given(table.key)})"  # noqa: S608 our own names
    return connection.execute(sql, _lists(row.key for row in rows))


def _insert(connection: duckdb.DuckDBPyConnection, rows: Sequence[Row]) -> None:
    table = rows[0].table
    sql = f"INSERT INTO {table.name} ({', '.join(table.columns)}) {_given(table.columns)}"
    connection.execute(sql, _lists(row.values for row in rows))


def _set(connection: duckdb.DuckDBPyConnection, rows: Sequence[Row], columns: Sequence[str]) -> int:
    """Let those rows that are there have these values, and say how many there are."""
    table = rows[0].table
    if len(rows) == 1:  # without a join it takes half the time
        return _set_one(connection, rows[0], columns)
    settings = ", ".join(f"{name} = given.{name}" for name in columns)
    where = " AND ".join(f"{table.name}.{name} = given.{name}" for name in table.key)
    given = _given((*columns, *table.key))
    sql = f"UPDATE {table.name} SET {settings} FROM ({given}) AS given WHERE {where}"  # noqa: S608 our own names
    connection.execute(sql, _lists((*(row[name] for name in columns), *row.key) for row in rows))
    return _counted(connection)


def _set_one(connection: duckdb.DuckDBPyConnection, row: Row, columns: Sequence[str]) -> int:
    settings, where = (
        ", ".join(f"{name} = ?" for name in columns),
        " AND ".join(f"{name} = ?" for name in row.table.key),
    )
    sql = f"UPDATE {row.table.name} SET {settings} WHERE {where}"  # noqa: S608 our own names
    connection.execute(sql, [*(row[name] for name in columns), *row.key])
    return _counted(connection)


def _counted(connection: duckdb.DuckDBPyConnection) -> int:
    counted = connection.fetchone()
    return int(counted[0]) if counted else 0


def _given(columns: Sequence[str]) -> str:
    """Rows that are given as :func:`_lists`, in SQL."""
    return f"SELECT {', '.join(f'unnest(?) AS {name}' for name in columns)}"


def _lists(rows: Iterable[Sequence[Any]]) -> list[list[Any]]:
    return [list(column) for column in zip(*rows, strict=True)]


_ROUNDS_ON_BOARD = f"SELECT {', '.join(_ROUND)} FROM leader_board WHERE ({', '.join(_ROUND)}) IN ({_given(_ROUND)})"  # noqa: S608 our own names
_MARK_FINALS = f"""
    UPDATE leader_board SET final_submission = (leader_board.round_number = given.round_number),
        exit_reason = CASE WHEN leader_board.round_number = given.round_number THEN given.reason END,
        updated_at = given.at
    FROM ({_given((*_ROUND, "reason", "at"))}) AS given
    WHERE leader_board.execution_id = given.execution_id AND leader_board.team_id = given.team_id
        AND (leader_board.final_submission OR leader_board.round_number = given.round_number)"""  # noqa: S608 our own names
