"""The scenarios of ``make soak`` with small counts: several processes write and read one workspace, and are killed."""

from pathlib import Path

import pytest

from soak.store import Scenario, describe, play


@pytest.mark.parametrize("kills", [0, 4])
def test_several_processes_share_a_workspace_and_nothing_acknowledged_is_lost(tmp_path: Path, kills: int) -> None:
    scenario = Scenario(writers=3, rounds=15, readers=2, kills=kills, seed=kills, deadline_seconds=120)
    outcome = play(scenario, tmp_path)
    assert outcome.problems == [], describe(scenario, outcome)
    assert outcome.rows == 45
    assert outcome.reads > 0
    assert outcome.kills == kills
