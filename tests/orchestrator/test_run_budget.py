"""Budgets of runs and teams: rounds are paid for or not begun, and whoever has a result keeps it."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from mixseek.testing import ModelServer
from soak.arena import Arena, Played, Team

PRICES = "".join(
    f'[prices."loop:{model}"]\ninput_usd_per_million = 1\noutput_usd_per_million = 2\n'
    for model in ("leader-alpha", "leader-beta", "member-alpha", "member-beta", "judge", "judgment")
)
FOUR_CALLS = "max_rounds = 5\nmin_rounds = 2\n"
"""A round is two calls of the leader, one of its member and one of the judge; then the judgment is asked."""


@pytest.fixture
async def server() -> AsyncIterator[ModelServer]:
    async with ModelServer() as running:
        yield running


def _arena(
    root: Path, server: ModelServer, budget: str, teams: tuple[Team, ...] = (Team("alpha"),), **more: Any
) -> Arena:
    arena = Arena(root, server.base_url, teams, **{"orchestrator": FOUR_CALLS, **more})
    file = root / "configs/orchestrator.toml"
    file.write_text(f"{file.read_text()}\n[budget]\n{budget}\n{PRICES}")
    arena.script(server)
    return arena


def _rounds(played: Played, team: str) -> int:
    return len(played.told("RoundFinished", team))


async def test_a_team_stops_before_the_round_that_its_run_cannot_pay_for(tmp_path: Path, server: ModelServer) -> None:
    played = await _arena(tmp_path, server, "max_requests = 10").play()
    best = played.result("alpha")
    assert best is not None
    assert (best.exit_reason, best.score) == ("budget_exhausted", 80)
    assert _rounds(played, "alpha") == 2
    assert played.failure("alpha") is None
    judged = played.told("RoundJudged", "alpha")[-1]
    assert judged.exit_reason == "budget_exhausted"
    assert "8 of 10 calls are used" in judged.judgment.reasoning
    assert server.bill.total.requests == 8
