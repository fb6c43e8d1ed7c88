"""Runs that are killed, stopped or fail, and go on: nothing that was answered is paid for again."""

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from mixseek.events import Event
from mixseek.records import ExecutionSummary
from mixseek.testing import ModelServer, ModelServerProcess
from soak.arena import TASK, Arena, Team

ID = "resumed"
BOARD = ("team_id", "round_number", "submission_content", "score", "score_details", "final_submission", "exit_reason")


@pytest.fixture(autouse=True)
def _only_loopback(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MIXSEEK_ONLY_LOOPBACK", "1")


@pytest.fixture
def server() -> Iterator[ModelServerProcess]:
    with ModelServerProcess(latency=0.002, jitter=0.03, seed=7) as running:
        yield running


def board(arena: Arena) -> list[tuple[Any, ...]]:
    return [tuple(row[name] for name in BOARD) for row in arena.rows("leader_board")]


def wait_until(holds: Callable[[], bool], seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, "the run did not come so far"
        time.sleep(0.002)


def play_until(arena: Arena, server: ModelServerProcess, answered: int) -> int:
    """Play in a process of its own, kill it when so many calls are answered, and say how many were in flight then."""
    code = f"""
import asyncio
from mixseek.orchestrator import Orchestrator, load_orchestrator_settings
settings = load_orchestrator_settings("configs/orchestrator.toml", {str(arena.root)!r})
asyncio.run(Orchestrator(settings).execute({TASK!r}, execution_id={ID!r}))
"""
    child = subprocess.Popen([sys.executable, "-c", code], env={**os.environ, "MIXSEEK_ONLY_LOOPBACK": "1"})
    try:
        wait_until(lambda: server.bill.total.answered >= answered or child.poll() is not None)
    finally:
        child.kill()
        child.wait()
    wait_until(lambda: server.bill.total.waiting == 0)
    return server.bill.total.requests


async def resumed(arena: Arena, **options: Any) -> tuple[ExecutionSummary, list[Event]]:
    events: list[Event] = []
    summary = await arena.build(listeners=[events.append]).resume(ID, **options)
    return summary, events


def an_arena(root: Path, server: ModelServerProcess | ModelServer) -> Arena:
    teams = [Team("alpha", members=3), Team("beta", members=3)]
    root.mkdir(exist_ok=True)
    return Arena(root, server.base_url, teams, orchestrator="max_rounds = 2\nmin_rounds = 1\n", evaluator="")


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[tuple[Any, ...]], int]:
    """The leader board of a run that nobody kills, and how many calls it made."""
    os.environ["MIXSEEK_ONLY_LOOPBACK"] = "1"
    with ModelServerProcess(seed=7) as running:
        arena = an_arena(tmp_path_factory.mktemp("undisturbed"), running)
        asyncio.run(arena.build().execute(TASK, execution_id=ID))
        return board(arena), running.bill.total.requests


@pytest.mark.parametrize("answered", [3, 9, 17, 26])
async def test_a_killed_run_goes_on_to_the_same_board_and_pays_only_for_what_was_in_flight(
    answered: int, tmp_path: Path, server: ModelServerProcess, undisturbed: tuple[list[tuple[Any, ...]], int]
) -> None:
    arena = an_arena(tmp_path, server)
    play_until(arena, server, answered)
    async with arena.journal() as journal:
        kept = sum(call.answer is not None for call in await journal.calls(ID))
    before = server.bill.total.requests
    summary, _ = await resumed(arena)
    rows, calls = undisturbed
    assert board(arena) == rows
    assert server.bill.total.requests - before == calls - kept
    assert (summary.failed_teams_info, summary.interrupted) == ([], False)
    assert summary.usage.requests == calls
