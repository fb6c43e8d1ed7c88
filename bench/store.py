"""The store beside bare DuckDB: rankings and writes within a held lease, with a cold one, and with 50 writing threads.

The bare statements run on a copy of the same file. A ranking's limit is the one SELECT that aggregates and orders. A
write's limit is the one statement that does the same job, ``INSERT … ON CONFLICT DO UPDATE``; a plain INSERT, which
cannot replace a row, is shown beside it. The limit of 50 writing threads is 50 threads that each run the same
statements on a cursor of one open connection, which is how DuckDB wants to be shared.
"""

import asyncio
import itertools
import shutil
import tempfile
import threading
from collections.abc import Callable, Coroutine
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import duckdb
from pydantic import JsonValue

from bench.harness import Row, compare, interleave, table
from mixseek.storage.aggregation_store import AggregationStore

__all__ = ["rows", "run"]

SIZES = (10, 1_000, 100_000)
EXECUTION = "execution-0"
THREADS = 50
WRITES_A_THREAD = 4
CONTENT = "提出 submission " * 64
DETAILS: dict[str, JsonValue] = {
    "overall_score": 80.0,
    "metrics": [{"metric_name": "Coverage", "score": 80.0, "evaluator_comment": "good"}],
}

RANKING = """
    SELECT team_id, arg_max(team_name, round_number), max(score) AS best, max(round_number) AS latest, count(*)
    FROM leader_board WHERE execution_id = ? GROUP BY team_id HAVING best IS NOT NULL
    ORDER BY best DESC, latest DESC, team_id"""
INSERT = """
    INSERT INTO leader_board (execution_id, team_id, team_name, round_number, submission_content, submission_format,
        score, score_details, final_submission, exit_reason, created_at, updated_at)
    VALUES (?, ?, ?, ?, ?, 'md', 80.0, '{"overall_score": 80.0, "metrics": []}', FALSE, NULL, ?, ?)"""
UPSERT = f"""{INSERT}
    ON CONFLICT (execution_id, team_id, round_number) DO UPDATE SET team_name = excluded.team_name,
        submission_content = excluded.submission_content, score = excluded.score,
        score_details = excluded.score_details, updated_at = excluded.updated_at"""
FILL = """
    INSERT INTO leader_board (execution_id, team_id, team_name, round_number, submission_content, submission_format,
        score, score_details, final_submission, created_at, updated_at)
    SELECT 'execution-' || (i // 100), 'team-' || (i // 10) % 10, 'Team', 1 + i % 10, repeat('text ', 200), 'md',
        (i * 37) % 101, '{}', FALSE, TIMESTAMP '2026-01-01', TIMESTAMP '2026-01-01' FROM range(?) r(i)"""

numbers = itertools.count(1)


async def _filled(directory: Path, size: int) -> tuple[Path, Path]:
    """A file of ``size`` rows, executions of 10 teams x 10 rounds, and its copy for the bare statements."""
    ours, bare = directory / f"ours-{size}.db", directory / f"bare-{size}.db"
    async with AggregationStore(db_path=ours) as store:
        await store.get_leader_board(1)
    with duckdb.connect(str(ours)) as connection:
        connection.execute(FILL, [size])
    shutil.copyfile(ours, bare)
    return ours, bare


def _values() -> list[Any]:
    now = datetime.now(UTC).replace(tzinfo=None)
    return ["written", "team", "Team", next(numbers), CONTENT, now, now]


async def _save(store: AggregationStore) -> None:
    await store.save_to_leader_board("written", "team", "Team", next(numbers), CONTENT, "md", 80.0, DETAILS)


# --- rankings ---------------------------------------------------------------------------------------------------------


async def _held_ranking(directory: Path, size: int) -> list[Row]:
    ours, bare = await _filled(directory, size)
    with duckdb.connect(str(bare)) as connection:
        async with AggregationStore(db_path=ours) as store:
            row = await compare(
                f"ranking, {size:,} rows, held lease",
                lambda: store.get_leader_board_ranking(EXECUTION),
                "bare SQL, open",
                lambda: connection.execute(RANKING, [EXECUTION]).fetchall(),
                aim="<= 2x",
                runs=200,
                warm_up=10,
            )
    return [row, _against_contract(f"ranking, {size:,} rows, p95", row.p95, "contract", 0.020, "p95 < 20 ms")]


async def _cold_ranking(directory: Path, size: int) -> Row:
    ours, bare = directory / f"ours-{size}.db", directory / f"bare-{size}.db"

    async def subject() -> None:
        async with AggregationStore(db_path=ours) as store:
            await store.get_leader_board_ranking(EXECUTION)

    def limit() -> None:
        with duckdb.connect(str(bare)) as connection:
            connection.execute(RANKING, [EXECUTION]).fetchall()

    return await compare(
        f"ranking, {size:,} rows, cold lease", subject, "bare open + SQL + close", limit, aim="<= 1.3x"
    )


# --- writes -----------------------------------------------------------------------------------------------------------


async def _held_write(directory: Path) -> list[Row]:
    ours, bare = await _filled(directory, 1_001)
    with duckdb.connect(str(bare)) as connection:
        async with AggregationStore(db_path=ours) as store:
            own, upsert, insert = await interleave(
                [
                    lambda: _save(store),
                    lambda: connection.execute(UPSERT, _values()),
                    lambda: connection.execute(INSERT, _values()),
                ],
                runs=200,
            )
    name = "write, held lease"
    return [
        Row(name, own.median, own.p95, "bare upsert, open", upsert.median, own.median / upsert.median, "<= 2x"),
        Row(name, own.median, own.p95, "bare INSERT, open", insert.median, own.median / insert.median, "<= 2x"),
        _against_contract("write, held lease, p95", own.p95, "contract", 1.0, "< 1 s"),
    ]


async def _cold_write(directory: Path) -> list[Row]:
    ours, bare = await _filled(directory, 1_002)

    async def subject() -> None:
        async with AggregationStore(db_path=ours) as store:
            await _save(store)

    def limit() -> None:
        with duckdb.connect(str(bare)) as connection:
            connection.execute(UPSERT, _values())

    row = await compare("write, cold lease", subject, "bare open + upsert + close", limit, aim="<= 1.3x")
    return [row, _against_contract("write, cold lease, p95", row.p95, "contract", 1.0, "< 1 s")]


async def _write_from_threads(directory: Path) -> Row:
    ours, bare = await _filled(directory, 1_003)
    store = AggregationStore(db_path=ours)

    async def save_some() -> None:
        for _ in range(WRITES_A_THREAD):
            await _save(store)

    with duckdb.connect(str(bare)) as connection:

        def upsert_some() -> None:
            with connection.cursor() as cursor:
                for _ in range(WRITES_A_THREAD):
                    cursor.execute(UPSERT, _values())

        row = await compare(
            f"{THREADS} threads x {WRITES_A_THREAD} writes",
            lambda: asyncio.to_thread(_in_threads, lambda: _run(save_some())),
            "the same on 50 cursors",
            lambda: asyncio.to_thread(_in_threads, upsert_some),
            aim="<= 2x",
            runs=7,
            warm_up=1,
        )
    await store.close()
    return row


def _run(work: Coroutine[Any, Any, None]) -> None:
    asyncio.run(work)


def _in_threads(work: Callable[[], None]) -> None:
    threads = [threading.Thread(target=work) for _ in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def _against_contract(name: str, seconds: float, limit_name: str, limit: float, aim: str) -> Row:
    return Row(name, seconds, seconds, limit_name, limit, seconds / limit, aim)


# --- all of it --------------------------------------------------------------------------------------------------------


async def _rows(directory: Path) -> list[Row]:
    found: list[Row] = []
    for size in SIZES:
        found += await _held_ranking(directory, size)
        found.append(await _cold_ranking(directory, size))
    found += await _held_write(directory)
    found += await _cold_write(directory)
    found.append(await _write_from_threads(directory))
    return found


def rows() -> list[Row]:
    """Everything measured, in the order it is shown."""
    with tempfile.TemporaryDirectory() as directory:
        return asyncio.run(_rows(Path(directory)))


def run() -> str:
    """The store's part of the report."""
    return table("The store, beside bare DuckDB in the same run", rows())


if __name__ == "__main__":
    print(run())
