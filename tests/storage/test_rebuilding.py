"""``mixseek.db`` made from the journal: row for row what the runs wrote, whoever finds that it is needed."""

import asyncio
import logging
import random
import sqlite3
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path
from typing import Any

import duckdb
import pytest

from mixseek.errors import DatabaseReadError, DatabaseWriteError
from mixseek.records import MemberSubmissionsRecord
from mixseek.storage.aggregation_store import AggregationStore
from mixseek.storage.executions import StoredExecutions
from mixseek.storage.tables import TABLES
from mixseek.testing import ModelServer
from soak import forked
from soak.arena import TASK, Arena, Team

Rows = dict[str, list[tuple[Any, ...]]]


def all_rows(root: Path) -> Rows:
    """Every row of every table as it is stored; the numbers that DuckDB gives rows are no part of what happened."""
    with duckdb.connect(root / "mixseek.db", read_only=True) as db:
        return {
            table.name: sorted(db.execute(f"SELECT {', '.join(table.columns)} FROM {table.name}").fetchall(), key=str)
            for table in TABLES
        }


async def touch(root: Path) -> None:
    async with AggregationStore(root) as store:
        await store.get_leader_board(limit=0)


@pytest.fixture
async def server() -> AsyncIterator[ModelServer]:
    async with ModelServer() as server:
        yield server


async def play_all_that_can_happen(root: Path, server: ModelServer, monkeypatch: pytest.MonkeyPatch) -> Arena:
    """Two executions: one with a failed round, an attachment and a secret; one whose judge is down for one team."""
    monkeypatch.setenv("LOOP_API_KEY", "sk-canary-0123456789abcdef")
    teams = [Team("alpha", members=2), Team("beta", scores=(60, 65)), Team("gamma")]
    arena = Arena(
        root, server.base_url, teams, orchestrator="max_rounds = 2\nmin_rounds = 2\nmax_retries_per_team = 1\n"
    )
    arena.script(server)
    (root / "notes.txt").write_text("注記")
    server.on("member-alpha", lambda call: "it is sk-canary-0123456789abcdef, told a member")
    server.on("leader-beta", lambda call: "" if "65" not in call.prompt else "beta answer, worth 65")
    await arena.build().execute(TASK, execution_id="first", attachments=[root / "notes.txt"])
    server.on("judge", lambda call: "no score" if "gamma" in call.text else {"evaluator_comment": "", "score": 100 / 3})
    await arena.build().execute(TASK, execution_id="second")
    return arena


async def test_the_rows_of_every_execution_come_back_as_the_runs_wrote_them(
    tmp_path: Path, server: ModelServer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    await play_all_that_can_happen(tmp_path, server, monkeypatch)
    before = all_rows(tmp_path)
    assert all(before.values()), before.keys()
    (tmp_path / "mixseek.db").unlink()
    with caplog.at_level(logging.WARNING):
        await touch(tmp_path)
    assert all_rows(tmp_path) == before
    assert "was missing and is made from journal.db" in caplog.text
    assert "2 executions" in caplog.text


async def test_a_journal_that_begins_in_the_middle_of_a_run_takes_no_row_away(
    tmp_path: Path, server: ModelServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    await play_all_that_can_happen(tmp_path, server, monkeypatch)
    before = all_rows(tmp_path)
    # As when the journal is removed while it is in use, and another begins.
    with closing(sqlite3.connect(tmp_path / "journal.db")) as journal, journal:
        journal.execute(
            "DELETE FROM events WHERE position <= (SELECT min(position) FROM events WHERE kind = 'RoundFinished')"
        )
    async with AggregationStore(tmp_path) as store:
        await store.rebuild()
    assert all_rows(tmp_path) == before
    (tmp_path / "mixseek.db").unlink()
    await touch(tmp_path)
    assert all_rows(tmp_path)["leader_board"]


# --- without any model ------------------------------------------------------------------------------------------------


async def test_rows_of_other_origin_stay_when_the_file_can_be_read_and_wrong_ones_are_mended(
    tmp_path: Path, server: ModelServer
) -> None:
    await small_run(tmp_path, server)
    before = all_rows(tmp_path)
    async with AggregationStore(tmp_path) as store:
        await store.save_to_leader_board("of another", "x", "X", 1, "text", score=1.0)
    with duckdb.connect(tmp_path / "mixseek.db") as db:
        db.execute("UPDATE leader_board SET score = 0.5, created_at = '2020-01-01' WHERE execution_id = 'one'")
        db.execute("DELETE FROM round_status")
        db.execute("CREATE TABLE mine AS SELECT 42 AS answer")
    async with AggregationStore(tmp_path) as store:
        rebuilt = await store.rebuild()
    after = all_rows(tmp_path)
    others = [row for row in after["leader_board"] if row[0] == "of another"]
    assert len(others) == 1
    assert {**after, "leader_board": [row for row in after["leader_board"] if row[0] == "one"]} == before
    assert (rebuilt.executions, rebuilt.others) == (("one",), 1)
    with duckdb.connect(tmp_path / "mixseek.db", read_only=True) as db:
        assert db.execute("FROM mine").fetchall() == [(42,)]


async def test_a_broken_file_is_kept_under_another_name_and_what_it_still_tells_of_others_is_taken_over(
    tmp_path: Path, server: ModelServer, caplog: pytest.LogCaptureFixture
) -> None:
    await small_run(tmp_path, server)
    before = all_rows(tmp_path)
    async with AggregationStore(tmp_path) as store:
        await store.save_to_leader_board("of another", "x", "X", 1, "text", score=1.0)
    whole = (tmp_path / "mixseek.db").read_bytes()
    (tmp_path / "mixseek.db").write_bytes(b"\0" * 4096 + whole[4096:])
    with caplog.at_level(logging.WARNING):
        [stored] = await StoredExecutions(tmp_path / "mixseek.db").all()
    assert stored.execution_id == "one"
    await touch(tmp_path)
    assert all_rows(tmp_path) == before
    [kept] = list(tmp_path.glob("mixseek.db.damaged-*"))  # noqa: ASYNC240
    assert kept.read_bytes()[4096:] == whole[4096:]
    assert f"the broken file is kept as {kept.name}" in caplog.text
    assert "why it was made anew: it was not a DuckDB database file" in caplog.text
    assert "move it away" not in caplog.text
    lost = "no table could be read: rows of executions that the journal does not have, if there were any, are only in"
    assert lost in caplog.text


async def test_rows_of_others_are_taken_from_all_tables_of_a_damaged_file_but_the_damaged_one(
    tmp_path: Path, server: ModelServer, caplog: pytest.LogCaptureFixture
) -> None:
    await small_run(tmp_path, server)
    before = all_rows(tmp_path)
    message = random.Random(0).randbytes(200_000).hex()
    async with AggregationStore(tmp_path) as store:
        await store.save_to_leader_board("of another", "x", "X", 1, "text", score=1.0)
        record = MemberSubmissionsRecord(execution_id="of another", team_id="x", team_name="X", round_number=1)
        await store.save_aggregation("of another", record, [message])
    damage(tmp_path / "mixseek.db", "round_history")
    with caplog.at_level(logging.WARNING):
        async with AggregationStore(tmp_path) as store:
            assert await store.load_round_history("of another", "x", 1) == (None, [])
    after = all_rows(tmp_path)
    assert [row[0] for row in after["leader_board"] if row not in before["leader_board"]] == ["of another"]
    assert {**after, "leader_board": before["leader_board"]} == before
    told = "1 row of executions that the journal does not have was taken over, but round_history could not be read: "
    assert told in caplog.text


async def test_a_damaged_table_that_had_only_rows_of_the_journals_executions_is_not_told_as_a_loss(
    tmp_path: Path, server: ModelServer, caplog: pytest.LogCaptureFixture
) -> None:
    await small_run(tmp_path, server)
    async with AggregationStore(tmp_path) as store:
        record = MemberSubmissionsRecord(execution_id="one", team_id="x", team_name="X", round_number=1)
        await store.save_aggregation("one", record, [random.Random(0).randbytes(200_000).hex()])
    damage(tmp_path / "mixseek.db", "round_history")
    with caplog.at_level(logging.WARNING):
        async with AggregationStore(tmp_path) as store:
            assert await store.load_round_history("one", "x", 1) == (None, [])
    assert "it had no rows of executions that the journal does not have; the broken file is kept" in caplog.text
    assert "could not be read" not in caplog.text


async def test_what_was_made_because_the_file_was_missing_or_broken_is_told_to_whoever_rebuilds_and_once(
    tmp_path: Path, server: ModelServer, caplog: pytest.LogCaptureFixture
) -> None:
    await small_run(tmp_path, server)
    made = sum(map(len, all_rows(tmp_path).values()))
    cut_off(tmp_path / "mixseek.db")
    with caplog.at_level(logging.WARNING):
        async with AggregationStore(tmp_path) as store:
            first, second = await store.rebuild(), await store.rebuild()
    assert [(one.anew, one.added, one.changed) for one in (first, second)] == [(made, 0, 0), (0, 0, 0)]
    assert f"made from journal.db: {made} rows of 1 execution" in caplog.text
    (tmp_path / "mixseek.db").write_bytes(b"no database" * 1000)
    async with AggregationStore(tmp_path) as store:
        await store.get_leader_board()
        assert (await store.rebuild()).anew == 0, "somebody else has found it broken"


async def test_a_log_of_a_file_that_is_gone_is_kept_and_told_as_what_it_is(
    tmp_path: Path, server: ModelServer, caplog: pytest.LogCaptureFixture
) -> None:
    await small_run(tmp_path, server)
    before = all_rows(tmp_path)
    (tmp_path / "mixseek.db").unlink()
    (tmp_path / "mixseek.db.wal").write_bytes(b"what was written last" * 100)
    with caplog.at_level(logging.WARNING):
        await touch(tmp_path)
    assert all_rows(tmp_path) == before
    [kept] = list(tmp_path.glob("mixseek.db.wal.damaged-*"))  # noqa: ASYNC240
    assert f"belongs to a mixseek.db that is gone, and is set aside as {kept.name}" in caplog.text
    assert "was missing and is made from journal.db" in caplog.text
    assert len([record for record in caplog.records if record.levelno >= logging.WARNING]) == 2


async def test_rows_of_a_team_with_a_damaged_event_stay_as_they_are_or_come_from_the_broken_file(
    tmp_path: Path, server: ModelServer, caplog: pytest.LogCaptureFixture
) -> None:
    await small_run(tmp_path, server)
    before = all_rows(tmp_path)
    with closing(sqlite3.connect(tmp_path / "journal.db")) as journal:
        journal.execute("UPDATE events SET payload = '{' WHERE kind = 'RoundFinished'")
        journal.commit()
    with duckdb.connect(tmp_path / "mixseek.db") as db:
        db.execute("DELETE FROM execution_summary")
    async with AggregationStore(tmp_path) as store:
        rebuilt = await store.rebuild()
    assert (rebuilt.executions, rebuilt.unreadable, rebuilt.added, rebuilt.changed) == ((), ("one",), 1, 0)
    assert all_rows(tmp_path) == before
    async with AggregationStore(tmp_path) as store:
        record = MemberSubmissionsRecord(execution_id="one", team_id="alpha", team_name="Alpha", round_number=9)
        await store.save_aggregation("one", record, [random.Random(0).randbytes(200_000).hex()])
    damage(tmp_path / "mixseek.db", "round_history")
    with caplog.at_level(logging.WARNING):
        async with AggregationStore(tmp_path) as store:
            assert (await store.rebuild()).unreadable == ("one",)
    assert {**all_rows(tmp_path), "round_history": before["round_history"]} == before
    assert "has a damaged row of execution one, team 'alpha': what was kept is no readable JSON" in caplog.text


@pytest.mark.parametrize("read", ["all", "rows"])
async def test_reading_commands_make_a_file_anew_that_opens_and_cannot_be_read(
    read: str, tmp_path: Path, server: ModelServer, caplog: pytest.LogCaptureFixture
) -> None:
    await small_run(tmp_path, server)
    before = all_rows(tmp_path)
    cut_off(tmp_path / "mixseek.db")
    stored = StoredExecutions(tmp_path / "mixseek.db")
    with caplog.at_level(logging.WARNING):
        found = await (stored.all() if read == "all" else stored.rows_of("one"))
    assert found
    await touch(tmp_path)
    assert all_rows(tmp_path) == before
    assert "Could not read enough bytes" in caplog.text
    assert len(list(tmp_path.glob("mixseek.db.damaged-*"))) == 1  # noqa: ASYNC240


async def test_a_run_on_a_damaged_file_has_it_made_anew_and_loses_nothing(tmp_path: Path, server: ModelServer) -> None:
    arena = await small_run(tmp_path, server)
    cut_off(tmp_path / "mixseek.db")
    summary = await arena.build().execute(TASK, execution_id="two")
    assert not summary.failed_teams_info
    assert {row[0] for row in all_rows(tmp_path)["leader_board"]} == {"one", "two"}
    assert len(list(tmp_path.glob("mixseek.db.damaged-*"))) == 1  # noqa: ASYNC240


async def test_a_damaged_file_without_a_journal_is_told_with_what_to_do_and_left_as_it_is(
    tmp_path: Path, server: ModelServer
) -> None:
    await small_run(tmp_path, server)
    for file in tmp_path.glob("journal.db*"):  # noqa: ASYNC240
        file.unlink()
    cut_off(tmp_path / "mixseek.db")
    left = (tmp_path / "mixseek.db").read_bytes()
    told = "the file is damaged: bring back a copy of it, or move it away for a new one"
    with pytest.raises(DatabaseReadError, match=told):
        await StoredExecutions(tmp_path / "mixseek.db").all()
    async with AggregationStore(tmp_path) as store:
        with pytest.raises(DatabaseWriteError, match=told):
            await store.rebuild()
    assert (tmp_path / "mixseek.db").read_bytes() == left
    assert sorted(path.name for path in tmp_path.glob("mixseek.db*")) == ["mixseek.db", "mixseek.db.lock"]  # noqa: ASYNC240


def cut_off(file: Path) -> None:
    """Take away blocks at the end, so that the file opens and not all of its tables can be read."""
    whole = file.read_bytes()
    copy = file.with_name("copy.db")
    for size in range(len(whole) - _BLOCK, _FIRST_BLOCK, -_BLOCK):
        copy.write_bytes(whole[:size])
        if unreadable(copy) not in ([], ["all"]):
            copy.rename(file)
            return
    raise AssertionError("every part of the file is needed to open it, or none")


def damage(file: Path, table: str) -> None:
    """Change a byte in a block of the file in which nothing but rows of one table is."""
    whole = file.read_bytes()
    for at in range(_FIRST_BLOCK + 1000, len(whole), _BLOCK):
        file.write_bytes(whole[:at] + bytes([whole[at] ^ 0xFF]) + whole[at + 1 :])
        if unreadable(file) == [table]:
            return
    raise AssertionError(f"no block has only rows of {table}")


_FIRST_BLOCK, _BLOCK = 3 * 4096, 32768


def unreadable(file: Path) -> list[str]:
    found = []
    try:
        with duckdb.connect(file, read_only=True) as db:
            for table in TABLES:
                try:
                    db.execute(f"SELECT {', '.join(table.columns)} FROM {table.name}").fetchall()
                except duckdb.Error:
                    found.append(table.name)
    except duckdb.Error:
        return ["all"]
    return found


async def test_a_file_that_nobody_can_rebuild_is_left_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "mixseek.db").write_bytes(b"no database" * 1000)
    async with AggregationStore(tmp_path) as store:
        with pytest.raises(DatabaseReadError, match="not a DuckDB database file"):
            await store.get_leader_board()
    assert (tmp_path / "mixseek.db").read_bytes() == b"no database" * 1000


async def test_many_processes_that_find_the_file_missing_make_it_once(tmp_path: Path, server: ModelServer) -> None:
    await small_run(tmp_path, server)
    before = all_rows(tmp_path)
    (tmp_path / "mixseek.db").unlink()
    children = [opening(tmp_path) for _ in range(3)]
    told = await asyncio.gather(*(asyncio.to_thread(child.communicate, timeout=120) for child in children))
    assert {int(out) for out, _ in told} == {len(before["leader_board"])}
    assert sum("is made from journal.db" in err for _, err in told) == 1
    assert all_rows(tmp_path) == before


async def small_run(root: Path, server: ModelServer) -> Arena:
    arena = Arena(root, server.base_url, [Team("alpha")], orchestrator="max_rounds = 1\nmin_rounds = 1\n")
    arena.script(server)
    await arena.build().execute(TASK, execution_id="one")
    return arena


def opening(root: Path) -> subprocess.Popen[str]:
    """A process that opens the results, and prints how many rounds there are."""
    code = (
        "import asyncio, logging, sys\nlogging.basicConfig()\n"
        "from mixseek.storage.aggregation_store import AggregationStore\n"
        "async def main():\n"
        "    async with AggregationStore(sys.argv[1]) as store:\n"
        "        print(len(await store.get_leader_board(limit=None)))\n"
        "asyncio.run(main())"
    )
    return forked.Popen(
        [sys.executable, "-c", code, str(root)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
