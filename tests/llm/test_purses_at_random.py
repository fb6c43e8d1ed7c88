"""Purses under many teams at once: a few of the runs that ``soak.purses`` plays by the thousand."""

from soak.purses import faults_of


async def test_no_budget_is_exceeded_and_nobody_waits_for_ever_whatever_teams_do() -> None:
    faults = {seed: found for seed in range(300) if (found := await faults_of(seed))}

    assert faults == {}
