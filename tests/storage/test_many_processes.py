"""The scenarios of ``make soak`` with small counts: several processes write and read one workspace, and are killed."""

from pathlib import Path

from soak.store import Scenario, describe, play


def test_several_processes_share_a_workspace_and_nothing_acknowledged_is_lost(tmp_path: Path) -> None:
    scenario = Scenario(writers=3, rounds=15, readers=2, kills=4, seed=4, deadline_seconds=120)
    outcome = play(scenario, tmp_path)
    assert outcome.problems == [], describe(scenario, outcome)
    assert outcome.rows == 45
    assert outcome.reads > 0
    assert outcome.kills == 4
