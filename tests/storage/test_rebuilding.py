"""``mixseek.db`` made from the journal: row for row what the runs wrote, whoever finds that it is needed."""

import logging
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import duckdb
import pytest

from mixseek.storage.aggregation_store import AggregationStore
from mixseek.storage.tables import TABLES
from mixseek.testing import ModelServer
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
