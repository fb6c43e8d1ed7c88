"""One process plays an execution: who comes later is refused before a call is paid, who was taken over ends at once."""

import asyncio
import os
import sqlite3
import subprocess
import sys
from pathlib import Path

import duckdb
import pytest

from mixseek.config.manager import ConfigurationManager
from mixseek.errors import PlaceLostError, PlaceTakenError
from mixseek.events import Event, TeamFailed
from mixseek.orchestrator import Orchestrator, load_orchestrator_settings
from mixseek.records import OrchestratorTask
from mixseek.round_controller import RoundController
from mixseek.storage.journal import Journal
from mixseek.testing import ModelServer, ModelServerProcess, write_workspace
from soak import forked
from tests.waiting import until

TASK = "What is bamboo for?"


def _orchestrator(root: Path, base_url: str, heard: list[Event] | None = None) -> Orchestrator:
    write_workspace(root, teams=2, members=1, max_rounds=2, base_url=base_url)
    settings = load_orchestrator_settings("configs/orchestrator.toml", root)
    return Orchestrator(settings, listeners=[] if heard is None else [heard.append])


def _take_over(root: Path) -> None:
    """As another process does it that found this one standing still."""
    with sqlite3.connect(root / "journal.db", timeout=30) as db:
        db.execute("UPDATE places SET epoch = epoch + 1, holder = 'another', pid = 77, command = 'mixseek resume'")


def _rows(root: Path) -> tuple[int, ...]:
    with sqlite3.connect(root / "journal.db", timeout=30) as db:
        kept = [db.execute(f"SELECT count(*) FROM {name}").fetchone()[0] for name in ("calls", "events", "prompts")]
    with duckdb.connect(str(root / "mixseek.db")) as db:
        tables = ("leader_board", "round_history", "round_status", "execution_summary", "model_usage")
        results = [(db.execute(f"SELECT count(*) FROM {name}").fetchone() or (0,))[0] for name in tables]
    return (*kept, *results)


async def test_an_execution_that_is_played_is_refused_before_a_call_is_paid(
    tmp_path: Path, server: ModelServer
) -> None:
    server.fault("hang_before_headers", model="leader-b")
    first = _orchestrator(tmp_path, server.base_url)
    running = asyncio.create_task(first.execute(TASK, execution_id="shared"))
    await until(lambda: first.get_all_team_statuses() != [] and first.get_team_status("a").status == "completed")
    asked = server.bill.total.requests
    with pytest.raises(PlaceTakenError, match=rf"'shared' is being played by process {os.getpid()} \("):
        await _orchestrator(tmp_path, server.base_url).execute(TASK, execution_id="shared")
    assert server.bill.total.requests == asked
    first.stop()
    assert (await running).interrupted


@pytest.mark.parametrize("first_has_journal", [False, True])
async def test_an_execution_that_is_played_without_a_journal_is_refused_too(
    tmp_path: Path, server: ModelServer, first_has_journal: bool
) -> None:
    server.fault("hang_before_headers", model="leader-b")
    write_workspace(tmp_path, teams=2, members=1, max_rounds=2, base_url=server.base_url)
    settings = load_orchestrator_settings("configs/orchestrator.toml", tmp_path)
    first = Orchestrator(settings, journal=first_has_journal)
    running = asyncio.create_task(first.execute(TASK, execution_id="shared"))
    await until(lambda: server.bill.models.get("leader-b") is not None)
    with pytest.raises(PlaceTakenError, match="'shared' is being played by another run"):
        await Orchestrator(settings, journal=not first_has_journal).execute(TASK, execution_id="shared")
    assert server.bill.models["leader-b"].requests == 1
    first.stop()
    await running


async def test_a_run_that_was_taken_over_ends_at_once_and_writes_nothing_more(
    tmp_path: Path, server: ModelServer, caplog: pytest.LogCaptureFixture
) -> None:
    heard: list[Event] = []
    server.fault("hang_before_headers", model="leader-b")
    orchestrator = _orchestrator(tmp_path, server.base_url, heard)
    before = asyncio.all_tasks()
    running = asyncio.create_task(orchestrator.execute(TASK))
    await until(lambda: orchestrator.get_all_team_statuses() != [])
    await until(lambda: orchestrator.get_team_status("a").status == "completed")
    await asyncio.sleep(0.5)  # for the lease of the file to end, which the test wants to read
    kept = _rows(tmp_path)
    _take_over(tmp_path)
    async with asyncio.timeout(30):
        with pytest.raises(PlaceLostError, match=r"taken over by process 77 \(mixseek resume\) on "):
            await running
    assert _rows(tmp_path) == kept
    assert not any(isinstance(event, TeamFailed) for event in heard)
    assert "failed" not in caplog.text
    assert asyncio.all_tasks() == before


async def test_a_run_that_finds_out_when_it_writes_fails_no_team(tmp_path: Path, server: ModelServer) -> None:
    heard: list[Event] = []
    taken: list[Event] = []

    def take_over_after_a_round(event: Event) -> None:
        heard.append(event)
        if event.kind == "RoundFinished" and not taken:
            taken.append(event)
            _take_over(tmp_path)

    write_workspace(tmp_path, teams=2, members=1, max_rounds=2, base_url=server.base_url)
    settings = load_orchestrator_settings("configs/orchestrator.toml", tmp_path)
    with pytest.raises(PlaceLostError):
        await Orchestrator(settings, listeners=[take_over_after_a_round]).execute(TASK)
    assert not {"TeamFailed", "RunFinished", "RunInterrupted"} & {event.kind for event in heard}
    async with Journal(tmp_path / "journal.db") as journal:
        assert "RunFinished" not in {event.kind for event in await journal.events()}


def test_the_command_names_the_new_holder_and_ends_with_2(tmp_path: Path) -> None:
    with ModelServerProcess() as server:
        server.fault("hang_before_headers", model="leader-b")
        write_workspace(tmp_path, teams=2, members=1, max_rounds=2, base_url=server.base_url)
        command = [sys.executable, "-m", "mixseek", "exec", TASK, "-c", "configs/orchestrator.toml", "-w", "."]
        environment = {**os.environ, "MIXSEEK_ONLY_LOOPBACK": "1"}
        child = forked.Popen(
            command, cwd=tmp_path, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        try:
            asyncio.run(until(lambda: server.bill.total.waiting > 0))
            _take_over(tmp_path)
            out, err = child.communicate(timeout=60)
        finally:
            child.kill()
            child.wait()
    assert (child.returncode, out) == (2, "")
    assert "was taken over by process 77 (mixseek resume)" in err
    assert "Traceback" not in err


async def test_controllers_on_their_own_may_share_an_execution(tmp_path: Path, server: ModelServer) -> None:
    write_workspace(tmp_path, teams=2, members=1, max_rounds=1, base_url=server.base_url)
    manager = ConfigurationManager(tmp_path)
    files = [Path(team.config) for team in load_orchestrator_settings("configs/orchestrator.toml", tmp_path).teams]
    task = OrchestratorTask(user_prompt=TASK, team_configs=files, timeout_seconds=60, max_rounds=1, min_rounds=1)
    controllers = [
        RoundController(
            file,
            tmp_path,
            task,
            manager.get_evaluator_settings(),
            manager.get_judgment_settings(),
            manager.get_prompt_builder_settings(),
        )
        for file in files
    ]
    played = await asyncio.gather(*(controller.run_round(TASK, 60) for controller in controllers))
    assert {entry.execution_id for entry in played} == {task.execution_id}
