"""Files of every kind: new, of an older or newer version, left by a killed process, damaged, or no database at all."""

import logging
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
from datetime import datetime
from pathlib import Path
from typing import Any

import duckdb
import pytest

from mixseek.errors import DatabaseReadError, DatabaseVersionError, DatabaseWriteError
from mixseek.storage.aggregation_store import AggregationStore
from mixseek.storage.database import CannotOpenError, open_database
from mixseek.storage.migrations import MIGRATIONS, migrate
from tests.storage.old_schema import OLD

ENVIRONMENT = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}

OLD_ROWS = """
INSERT INTO leader_board
    (execution_id, team_id, team_name, round_number, submission_content, score, score_details, created_at)
    VALUES ('e', 'a', 'A', 1, 'gone', 1, '{}', TIMESTAMP '2025-01-01');
DELETE FROM leader_board;
INSERT INTO leader_board
    (execution_id, team_id, team_name, round_number, submission_content, score, score_details, created_at)
    VALUES ('e', 'a', 'A', 1, 'first', 85.57, '{"accuracy": 80.0}', TIMESTAMP '2025-11-01 09:00:00'),
        ('e', 'b', 'B', 1, 'nan', 'nan', '{}', TIMESTAMP '2025-11-01 09:00:01');
INSERT INTO round_history (execution_id, team_id, team_name, round_number, message_history, member_submissions_record)
    VALUES ('e', 'a', 'A', 1, '[{"kind": "request"}]', '{"execution_id": "e", "team_id": "a", "team_name": "A",
        "round_number": 1, "total_count": 1, "submissions": [{"agent_name": "m", "agent_type": "plain", "content": "c",
        "status": "success", "usage": {"requests": 2, "request_tokens": 5}, "timestamp": "2025-11-01T00:00:00Z",
        "unknown": 1}]}');
INSERT INTO round_status (execution_id, team_id, team_name, round_number, should_continue, confidence_score)
    VALUES ('e', 'a', 'A', 1, TRUE, 0.85);
INSERT INTO execution_summary (execution_id, user_prompt, status, total_teams, best_score)
    VALUES ('e', 'q', 'completed', 2, 85.57);
"""


def make(path: Path, sql: str) -> None:
    with duckdb.connect(str(path)) as connection:
        connection.execute(sql)


def rows(path: Path, sql: str) -> list[tuple[Any, ...]]:
    with duckdb.connect(str(path)) as connection:
        return connection.execute(sql).fetchall()


def killed(path: Path, *statements: str) -> None:
    """Run statements in a process that ends without closing the file, so that they stay in the write-ahead log."""
    code = (
        "import duckdb, os, signal, sys\n"
        "connection = duckdb.connect(sys.argv[1])\n"
        "for sql in sys.argv[2:]: connection.execute(sql)\n"
        "os.kill(os.getpid(), signal.SIGKILL)"
    )
    done = subprocess.run([sys.executable, "-c", code, path, *statements])
    assert done.returncode == -signal.SIGKILL
    assert path.with_name(path.name + ".wal").stat().st_size > 0


def insert(number: int) -> str:
    return (
        "INSERT INTO leader_board (execution_id, team_id, team_name, round_number, submission_content, score) "
        f"VALUES ('e', 'a', 'A', {number}, '{'s' * 200}', {number})"
    )


async def scores(workspace: Path) -> list[float]:
    async with AggregationStore(workspace) as store:
        return sorted(row["score"] for row in await store.get_leader_board(limit=None))


# --- versions ---------------------------------------------------------------------------------------------------------


async def test_a_database_of_0_1_is_copied_and_keeps_everything(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "mixseek.db"
    own = (
        "CREATE TABLE notes AS SELECT 'mine' AS note;"
        "ALTER TABLE leader_board ADD COLUMN \"my tag\" VARCHAR DEFAULT 'kept';"
        "CREATE VIEW mine AS SELECT score FROM leader_board;"
    )
    make(path, OLD + OLD_ROWS + own + "CREATE INDEX my_index ON leader_board (team_name)")
    async with AggregationStore(tmp_path) as store:
        board = {row["team_id"]: row for row in await store.get_leader_board()}
        record, messages = await store.load_round_history("e", "a", 1)
        results = await store.get_evaluation_results_by_execution("e")
        await store.save_to_leader_board("e", "c", "C", 1, "new", "md", None, {})
        await store.save_to_leader_board("e", "a", "A", 1, "again", "md", 90.0, {})
    assert (board["a"]["id"], board["a"]["score"], board["a"]["my tag"]) == (2, 85.57, "kept")
    assert board["a"]["created_at"].replace(tzinfo=None) == datetime(2025, 11, 1, 9)
    assert (board["b"]["id"], board["b"]["score"]) == (3, None)
    assert record is not None
    assert record.submissions[0].usage.requests == 2
    assert messages == [{"kind": "request"}]
    assert [(m.metric_name, m.score) for m in results[0].metrics] == [("accuracy", 80.0)]
    assert results[0].overall_score == 85.57
    assert rows(path, "SELECT id, team_id, score FROM leader_board ORDER BY id") == [
        (2, "a", 90.0),
        (3, "b", None),
        (4, "c", None),
    ]
    assert rows(path, "SELECT confidence_score FROM round_status") == [(0.85,)]
    assert rows(path, "SELECT id, best_score FROM execution_summary") == [(1, 85.57)]
    assert rows(path, "SELECT note FROM notes") == [("mine",)]
    assert rows(path, "SELECT count(*) FROM mine") == [(3,)]
    assert rows(path, "SELECT index_name FROM duckdb_indexes()") == [("my_index",)]
    copy = tmp_path / "mixseek.db.before-v1"
    assert rows(copy, "SELECT id, score::VARCHAR FROM leader_board ORDER BY id") == [(2, "85.57"), (3, "nan")]
    assert "mixseek.db.before-v1" in caplog.text


async def test_a_log_left_beside_an_old_file_is_in_the_copy_and_in_the_new_file(tmp_path: Path) -> None:
    path = tmp_path / "mixseek.db"
    make(path, OLD)
    killed(path, OLD_ROWS)
    async with AggregationStore(tmp_path) as store:
        assert [row["max_score"] for row in await store.get_leader_board_ranking("e")] == [85.57]
    assert rows(tmp_path / "mixseek.db.before-v1", "SELECT count(*) FROM leader_board") == [(2,)]


async def test_an_existing_copy_is_never_overwritten(tmp_path: Path) -> None:
    make(tmp_path / "mixseek.db", OLD)
    (tmp_path / "mixseek.db.before-v1").write_text("precious")
    async with AggregationStore(tmp_path) as store:
        assert await store.get_leader_board() == []
    assert (tmp_path / "mixseek.db.before-v1").read_text() == "precious"
    assert rows(tmp_path / "mixseek.db.before-v1.2", "SELECT count(*) FROM leader_board") == [(0,)]


async def test_two_rows_for_one_round_in_an_old_file_are_both_kept(tmp_path: Path) -> None:
    path = tmp_path / "mixseek.db"
    without_constraint = OLD.replace(",\n    UNIQUE (execution_id, team_id, round_number)", "").replace(
        ", UNIQUE (execution_id, team_id, round_number)", ""
    )
    make(
        path,
        without_constraint
        + OLD_ROWS
        + insert(1).replace("score)", "score, score_details)").replace(", 1)", ", 7, '{}')"),
    )
    assert await scores_or_none(tmp_path) == [7.0, None]
    assert rows(path, "SELECT id, score::VARCHAR FROM leader_board_before_v1") == [(2, "85.57")]


async def scores_or_none(workspace: Path) -> list[float | None]:
    async with AggregationStore(workspace) as store:
        return [row["score"] for row in await store.get_leader_board()]


async def test_a_file_of_a_newer_version_is_refused_and_left_alone(tmp_path: Path) -> None:
    async with AggregationStore(tmp_path) as store:
        await store.get_leader_board()
    make(tmp_path / "mixseek.db", "INSERT INTO mixseek_schema VALUES (999, 'm999_future', NULL)")
    before = (tmp_path / "mixseek.db").read_bytes()
    async with AggregationStore(tmp_path) as store:
        with pytest.raises(DatabaseVersionError, match=r"mixseek\.db.*version 999.*update MixSeek"):
            await store.get_leader_board()
        with pytest.raises(DatabaseVersionError):
            await store.save_to_leader_board("e", "a", "A", 1, "s", "md", 1.0, {})
    assert (tmp_path / "mixseek.db").read_bytes() == before


def test_a_migration_that_breaks_off_leaves_the_old_state(tmp_path: Path) -> None:
    path = tmp_path / "mixseek.db"
    open_database(path).close()

    def breaks(db: duckdb.DuckDBPyConnection) -> None:
        db.execute("ALTER TABLE leader_board ADD COLUMN half INTEGER")
        db.execute("SELECT no_such_function()")

    number = len(MIGRATIONS) + 1
    with pytest.raises(
        CannotOpenError, match=rf"could not be brought to schema version {number} and was left as it is"
    ):
        open_database(path, (*MIGRATIONS, breaks))
    assert "half" not in [row[0] for row in rows(path, "SELECT column_name FROM duckdb_columns()")]
    known = [(place, migration.__name__) for place, migration in enumerate(MIGRATIONS, 1)]
    assert rows(path, "SELECT version, name FROM mixseek_schema ORDER BY ALL") == known
    assert (tmp_path / f"mixseek.db.before-v{number}").exists()


def test_a_kill_in_the_middle_of_a_migration_leaves_the_old_state(tmp_path: Path) -> None:
    path = tmp_path / "mixseek.db"
    make(path, OLD + OLD_ROWS)
    code = """
import os, signal, sys
from pathlib import Path
from mixseek.storage import migrations
from mixseek.storage.database import open_database
def m001_results(db):
    migrations.m001_results(db)
    os.kill(os.getpid(), signal.SIGKILL)
open_database(Path(sys.argv[1]), (m001_results,))
"""
    done = subprocess.run([sys.executable, "-c", code, path], env=ENVIRONMENT, capture_output=True)
    assert done.returncode == -signal.SIGKILL
    shutil.copy(path, tmp_path / "look.db")
    assert rows(tmp_path / "look.db", "SELECT typeof(score) FROM leader_board LIMIT 1") == [("FLOAT",)]
    with open_database(path) as connection:
        assert connection.execute("SELECT max(score) FROM leader_board").fetchone() == (85.57,)


def test_migrations_are_appended_and_remembered(tmp_path: Path) -> None:
    path = tmp_path / "mixseek.db"
    open_database(path).close()

    def adds(db: duckdb.DuckDBPyConnection) -> None:
        db.execute("CREATE TABLE added (x INTEGER)")

    for _ in range(2):
        open_database(path, (*MIGRATIONS, adds)).close()
    names = [migration.__name__ for migration in (*MIGRATIONS, adds)]
    assert rows(path, "SELECT version, name FROM mixseek_schema ORDER BY ALL") == list(enumerate(names, 1))


def test_the_names_of_migrations_begin_with_their_number() -> None:
    for number, migration in enumerate(MIGRATIONS, 1):
        assert migration.__name__.startswith(f"m{number:03}_")
        assert migration.__doc__


# --- the write-ahead log ----------------------------------------------------------------------------------------------


@pytest.fixture
def interrupted(tmp_path: Path) -> Path:
    """A workspace whose last writer was killed: round 1 is in the file, rounds 2 to 9 in its write-ahead log."""
    open_database(tmp_path / "mixseek.db").close()
    make(tmp_path / "mixseek.db", insert(1))
    killed(tmp_path / "mixseek.db", *(insert(number) for number in range(2, 10)))
    return tmp_path


def log_of(workspace: Path) -> Path:
    return workspace / "mixseek.db.wal"


def kept_logs(workspace: Path) -> list[Path]:
    return sorted(workspace.glob("mixseek.db.wal.damaged-*"))


async def test_the_log_of_a_killed_process_is_replayed(interrupted: Path) -> None:
    assert await scores(interrupted) == [float(number) for number in range(1, 10)]
    assert kept_logs(interrupted) == []


@pytest.mark.parametrize("place", [10, -3], ids=["header", "last checksum"])
async def test_a_log_that_cannot_be_replayed_is_set_aside_by_name(
    interrupted: Path, place: int, caplog: pytest.LogCaptureFixture
) -> None:
    damaged = bytearray(log_of(interrupted).read_bytes())
    damaged[place] ^= 0xFF
    log_of(interrupted).write_bytes(damaged)
    assert await scores(interrupted) == [1.0]
    (kept,) = kept_logs(interrupted)
    assert kept.read_bytes() == damaged
    assert [record.levelno for record in caplog.records] == [logging.WARNING]
    assert str(interrupted / "mixseek.db") in caplog.text
    assert kept.name in caplog.text


@pytest.mark.parametrize("content", [b"\0" * 5000, b"garbage" * 700, b"abc"], ids=["zeros", "garbage", "short"])
async def test_a_log_that_duckdb_would_overwrite_is_set_aside_by_name(
    interrupted: Path, content: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    log_of(interrupted).write_bytes(content)
    assert await scores(interrupted) == [1.0]
    assert [kept.read_bytes() for kept in kept_logs(interrupted)] == [content]
    assert kept_logs(interrupted)[0].name in caplog.text


async def test_a_log_that_is_cut_short_is_replayed_as_far_as_it_goes_and_a_copy_kept(interrupted: Path) -> None:
    cut = log_of(interrupted).read_bytes()[:-40]
    log_of(interrupted).write_bytes(cut)
    assert await scores(interrupted) == [float(number) for number in range(1, 9)]
    assert [kept.read_bytes() for kept in kept_logs(interrupted)] == [cut]


async def test_a_log_of_another_database_is_set_aside(
    interrupted: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    other = tmp_path_factory.mktemp("other") / "mixseek.db"
    open_database(other).close()
    killed(other, insert(5))
    shutil.copy(other.with_name("mixseek.db.wal"), log_of(interrupted))
    assert await scores(interrupted) == [1.0]
    assert len(kept_logs(interrupted)) == 1


async def test_with_a_damaged_file_the_log_stays_where_it_is(interrupted: Path) -> None:
    path = interrupted / "mixseek.db"
    damaged = bytearray(path.read_bytes())
    damaged[12288:12400] = bytes(112)
    damaged[4096:12288] = bytes(8192)
    path.write_bytes(damaged)
    before = log_of(interrupted).read_bytes()
    with pytest.raises(DatabaseReadError, match=r"mixseek\.db.*damaged and was left as it is"):
        await scores(interrupted)
    assert path.read_bytes() == damaged
    assert log_of(interrupted).read_bytes() == before
    assert kept_logs(interrupted) == []


# --- no database ------------------------------------------------------------------------------------------------------


def sqlite_file(path: Path) -> None:
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE t (x)")
    connection.commit()
    connection.close()


@pytest.mark.parametrize(
    "fill",
    [lambda path: path.write_bytes(b"random bytes " * 1000), lambda path: path.write_bytes(b"x"), sqlite_file],
    ids=["bytes", "short", "sqlite"],
)
async def test_a_file_that_is_no_duckdb_database_is_named_and_left_alone(tmp_path: Path, fill: Any) -> None:
    path = tmp_path / "mixseek.db"
    fill(path)
    before = path.read_bytes()
    async with AggregationStore(tmp_path) as store:
        with pytest.raises(DatabaseReadError, match=r"mixseek\.db' is not a DuckDB database file.*move it away"):
            await store.get_leader_board()
        with pytest.raises(DatabaseWriteError, match=r"is not a DuckDB database file"):
            await store.save_to_leader_board("e", "a", "A", 1, "s", "md", 1.0, {})
    assert path.read_bytes() == before


@pytest.mark.parametrize("place", [4100, 12300], ids=["header", "block"])
async def test_a_damaged_file_is_named_and_left_alone(tmp_path: Path, place: int) -> None:
    path = tmp_path / "mixseek.db"
    open_database(path).close()
    damaged = bytearray(path.read_bytes())
    damaged[place] ^= 0xFF
    damaged[place + 4096 if place < 12288 else place] ^= 0xFF if place < 12288 else 0
    path.write_bytes(damaged)
    async with AggregationStore(tmp_path) as store:
        with pytest.raises(DatabaseReadError, match=r"mixseek\.db.*damaged and was left as it is: restore a copy"):
            await store.get_leader_board()
    assert path.read_bytes() == damaged


async def test_a_new_file_is_small(tmp_path: Path) -> None:
    async with AggregationStore(tmp_path) as store:
        await store.save_to_leader_board("e", "a", "A", 1, "s", "md", 1.0, {})
    # DuckDB's own blocks would make it more than half a megabyte.
    assert (tmp_path / "mixseek.db").stat().st_size < 300_000


async def test_a_file_with_larger_blocks_is_used_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "mixseek.db"
    with duckdb.connect(str(path), config={"default_block_size": 262144}) as connection:
        migrate(connection, MIGRATIONS, is_new=True)
    async with AggregationStore(tmp_path) as store:
        await store.save_to_leader_board("e", "a", "A", 1, "s", "md", 1.0, {})
        assert [row["score"] for row in await store.get_leader_board()] == [1.0]
    assert rows(path, "SELECT block_size FROM pragma_database_size()") == [(262144,)]


async def test_an_empty_file_is_a_new_database(tmp_path: Path) -> None:
    (tmp_path / "mixseek.db").touch()
    assert await scores(tmp_path) == []


def names_in(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


async def test_a_draft_left_by_a_killed_process_is_in_nobodys_way(tmp_path: Path) -> None:
    (tmp_path / "mixseek.db.new").write_bytes(b"half")
    (tmp_path / "mixseek.db.new.wal").write_bytes(b"half")
    assert await scores(tmp_path) == []
    assert names_in(tmp_path) == ["mixseek.db", "mixseek.db.lock"]


async def test_a_missing_directory_is_named_with_its_remedy(tmp_path: Path) -> None:
    async with AggregationStore(db_path=tmp_path / "no" / "mixseek.db") as store:
        with pytest.raises(DatabaseReadError, match=r"no' does not exist; create it"):
            await store.get_leader_board()
        with pytest.raises(DatabaseWriteError, match=r"no' does not exist; create it"):
            await store.mark_final_submission("e", "a", 1, None)


async def test_a_directory_in_place_of_the_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "mixseek.db").mkdir()
    async with AggregationStore(tmp_path) as store:
        with pytest.raises(DatabaseReadError, match=r"mixseek\.db' is a directory"):
            await store.get_leader_board()


def test_a_read_only_directory_is_named_with_its_remedy() -> None:
    code = """
import asyncio, os, sys
from mixseek.errors import *
from mixseek.storage.aggregation_store import AggregationStore
if os.getuid() == 0:
    os.setuid(65534)
async def main():
    async with AggregationStore(sys.argv[1]) as store:
        for call in (store.get_leader_board(), store.save_to_leader_board("e", "a", "A", 1, "s", "md", 1.0, {})):
            try:
                await call
            except (DatabaseReadError, DatabaseWriteError) as error:
                print(type(error).__name__, error)
asyncio.run(main())
"""
    with tempfile.TemporaryDirectory() as directory:
        Path(directory).chmod(0o555)
        done = subprocess.run([sys.executable, "-c", code, directory], env=ENVIRONMENT, capture_output=True, text=True)
        Path(directory).chmod(0o755)
        first, second = done.stdout.splitlines() or [done.stderr, ""]
    assert first.startswith("DatabaseReadError")
    assert second.startswith("DatabaseWriteError")
    for line in (first, second):
        assert f"{directory}/mixseek.db" in line
        assert "make the directory and its files writable" in line


def test_a_new_file_has_every_table_of_the_contract(tmp_path: Path) -> None:
    with duckdb.connect(str(tmp_path / "x.db")) as connection:
        migrate(connection)
        found = connection.execute("SELECT table_name FROM duckdb_tables() ORDER BY ALL").fetchall()
    names = [
        "attachments",
        "execution_summary",
        "leader_board",
        "mixseek_schema",
        "model_usage",
        "places",
        "round_history",
        "round_status",
    ]
    assert [name for (name,) in found] == names


@pytest.mark.parametrize(
    ("name", "fault"), [(b"is it good?", "holds '?'"), (b"a\\b", r"holds '\\'"), (b"\xff", "is not UTF-8")]
)
async def test_a_name_that_duckdb_cannot_keep_is_told(tmp_path: Path, name: bytes, fault: str) -> None:
    root = tmp_path / os.fsdecode(name)
    root.mkdir()
    async with AggregationStore(root) as store:
        with pytest.raises(DatabaseReadError) as raised:
            await store.get_leader_board()
    assert str(raised.value).endswith(f"the path {fault}; give the workspace another name")
