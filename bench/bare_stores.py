"""What DuckDB and SQLite themselves take for the stores of one team's competition, with nothing of ours around them.

The files of a competition that was played are written once more, row by row, with the fewest statements and in the
order in which a run has to wait for them: per round the messages, then score, status and bill in one transaction, then
the verdict; of the journal one row a wait, committed as durably as there. Nothing is made aside first, nobody else is
asked whether it may be written, and nothing is redacted.
"""

import sqlite3
import tempfile
import time
from pathlib import Path
from typing import Any

import duckdb

from bench.harness import Timing, timing

__all__ = ["bare_stores"]

REPEATS = 15
WAITS_A_ROUND = 8
"""For the journal: the prompt and the answers of leader, judges and judgment, the finished round and its verdict."""
DUCKDB_TABLES = ("round_history", "leader_board", "round_status", "model_usage", "execution_summary")


def bare_stores(workspace: Path) -> Timing:
    """Seconds for what was kept of the one team that played in ``workspace``."""
    schema, rows = _results(workspace / "mixseek.db")
    record = _record(workspace / "journal.db")
    waits = WAITS_A_ROUND * len(rows["round_history"])
    return timing([_results_again(schema, rows) + _records_again(*record, waits) for _ in range(REPEATS)])


# --- DuckDB -----------------------------------------------------------------------------------------------------------

Rows = dict[str, list[dict[str, Any]]]


def _results(path: Path) -> tuple[str, Rows]:
    with duckdb.connect(str(path), read_only=True) as db:
        sequences = [sql for (sql,) in db.execute("SELECT sql FROM duckdb_sequences()").fetchall()]
        tables = [sql for (sql,) in db.execute("SELECT sql FROM duckdb_tables()").fetchall()]
        rows: Rows = {}
        for table in DUCKDB_TABLES:
            found = db.execute(f"SELECT * FROM {table}")
            names = [column[0] for column in found.description or ()]
            rows[table] = [dict(zip(names, row, strict=True)) for row in found.fetchall()]
        return "\n".join([*sequences, *tables]), rows


def _results_again(schema: str, rows: Rows) -> float:
    with tempfile.TemporaryDirectory() as directory:
        began = time.perf_counter()
        with duckdb.connect(str(Path(directory) / "bare.db"), config={"threads": 1}) as db:
            db.execute(schema)
            for played in rows["round_history"]:
                _insert(db, "round_history", [played])
                _write_round(db, rows, played["round_number"])
            db.execute("UPDATE leader_board SET exit_reason = 'max_rounds_reached' WHERE final_submission")
            _insert(db, "execution_summary", rows["execution_summary"])
        return time.perf_counter() - began


def _write_round(db: duckdb.DuckDBPyConnection, rows: Rows, number: int) -> None:
    def of_round(table: str) -> list[dict[str, Any]]:
        return [row for row in rows[table] if row["round_number"] == number]

    judged, status = [row for row in of_round("model_usage") if row["role"] == "judgment"], of_round("round_status")
    db.begin()
    _insert(db, "leader_board", of_round("leader_board"))
    _insert(db, "round_status", status)
    _insert(db, "model_usage", [row for row in of_round("model_usage") if row not in judged])
    db.commit()
    db.begin()
    db.execute("UPDATE round_status SET reasoning = ? WHERE round_number = ?", [status[0]["reasoning"], number])
    _insert(db, "model_usage", judged)
    db.commit()


def _insert(db: duckdb.DuckDBPyConnection, table: str, rows: list[dict[str, Any]]) -> None:
    marks = ", ".join(f"({', '.join('?' * len(row))})" for row in rows)
    db.execute(f"INSERT INTO {table} VALUES {marks}", [value for row in rows for value in row.values()])


# --- SQLite -----------------------------------------------------------------------------------------------------------


def _record(path: Path) -> tuple[str, str, tuple[Any, ...]]:
    with sqlite3.connect(path) as journal:
        (schema,) = journal.execute("SELECT sql FROM sqlite_master WHERE name = 'calls'").fetchone()
        row = journal.execute("SELECT * FROM calls ORDER BY length(request) DESC LIMIT 1").fetchone()
    journal.close()
    return schema, f"INSERT INTO calls VALUES ({', '.join('?' * len(row))})", row


def _records_again(schema: str, statement: str, row: tuple[Any, ...], waits: int) -> float:
    with tempfile.TemporaryDirectory() as directory:
        began = time.perf_counter()
        journal = sqlite3.connect(Path(directory) / "bare.db", isolation_level=None)
        journal.execute("PRAGMA journal_mode=WAL")
        journal.execute("PRAGMA synchronous=FULL")
        journal.execute(schema)
        for number in range(waits):
            journal.execute(statement, (None, f"call-{number}", *row[2:]))
        journal.close()
        return time.perf_counter() - began
