"""Whole competitions on a server that takes only so many requests a second."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from mixseek.llm import Backoff
from mixseek.testing import ModelServer
from soak.arena import Arena, Team
from soak.rates import compete


@pytest.fixture(autouse=True)
def _only_loopback(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MIXSEEK_ONLY_LOOPBACK", "1")


@pytest.mark.parametrize(
    "options",
    [{}, {"retry_after": False}, {"orchestrators": 2}],
    ids=["told how long", "not told", "two orchestrators"],
)
async def test_the_allowed_rate_is_used_and_hardly_anything_is_refused(options: dict[str, Any]) -> None:
    teams = [Team(f"team{number}", members=0) for number in range(12)]
    busy = await asyncio.wait_for(compete(teams, 15, rounds=3, latency=0.01, warm_up_seconds=3.0, **options), 120)
    assert busy.failed == 0
    assert busy.used >= 0.75
    assert busy.refused <= 0.2
    assert busy.latest <= 1.5


async def test_a_limit_that_falls_in_the_midst_costs_no_team_anything() -> None:
    async def fall(server: ModelServer) -> None:
        while server.bill.total.requests < 40:  # noqa: ASYNC110  # the bill has no event to wait for
            await asyncio.sleep(0.01)
        server.set_rate_limit(8, retry_after=False)

    teams = [Team(f"team{number}", members=0) for number in range(8)]
    busy = await asyncio.wait_for(compete(teams, 40, latency=0.01, meanwhile=fall), 120)
    assert busy.failed == 0
    assert busy.latest <= 1.5


async def test_no_team_is_too_late_because_it_waited_for_its_turn(tmp_path: Path) -> None:
    teams = [Team(f"team{number}", members=0) for number in range(10)]
    async with ModelServer() as server:
        server.set_rate_limit(4, burst=1)
        arena = Arena(
            tmp_path,
            server.base_url,
            teams,
            orchestrator="max_rounds = 1\nsubmission_timeout_seconds = 1\nmax_concurrent_teams = 10\n",
        )
        arena.script(server)
        played = await asyncio.wait_for(arena.play(backoff=Backoff(), save_db=False), 120)
    assert not played.summary.failed_teams_info
    assert all(entry.score is not None for entry in played.summary.team_results)
    assert played.summary.total_execution_time_seconds > 3


async def test_fallback_models_take_what_the_first_model_refuses(tmp_path: Path) -> None:
    own = 'fallback_models = ["loop:spare"]\nmax_retries = 1\n'
    teams = [Team(f"team{number}", members=0, leader=own) for number in range(4)]
    async with ModelServer() as server:
        arena = Arena(tmp_path, server.base_url, teams, orchestrator="max_rounds = 1\n")
        arena.script(server)
        server.on("spare", lambda _: "spare answer, worth 50")
        server.fault(429, model="leader-*")
        played = await asyncio.wait_for(arena.play(save_db=False), 120)
    assert [entry.score for entry in played.summary.team_results] == [50, 50, 50, 50]
