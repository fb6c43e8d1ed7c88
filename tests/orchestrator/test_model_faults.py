"""Every fault of a model, wherever it strikes: the documented outcome, other teams untouched, nothing hangs."""

import pytest

from mixseek.testing import FAULT_KINDS
from soak.faults import CALM, HANGING, PLACES, Place, expected, storm, strike

QUICK = [kind for kind in FAULT_KINDS if kind not in HANGING]
PASSING = {"429", "503", "reset_in_body", "cut_json", "wrong_tool", "empty_answer", "401"}
SOME = [kind for kind in QUICK if kind in PASSING]
HANGING_ONES = [kind for kind in FAULT_KINDS if kind in HANGING]


@pytest.fixture(autouse=True)
def _only_loopback(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MIXSEEK_ONLY_LOOPBACK", "1")


@pytest.mark.parametrize("place", PLACES)
async def test_a_lasting_fault_has_its_documented_outcome(place: Place) -> None:
    outcomes = await strike(place, lasting=True, kinds=QUICK)
    assert outcomes.pop(CALM) == "unharmed"
    assert outcomes == {kind: expected(kind, place, lasting=True) for kind in QUICK}


@pytest.mark.parametrize("place", PLACES)
async def test_a_passing_fault_is_retried_and_leaves_no_trace_in_the_results(place: Place) -> None:
    outcomes = await strike(place, lasting=False, kinds=SOME)
    assert outcomes.pop(CALM) == "unharmed"
    assert outcomes == {kind: expected(kind, place, lasting=False) for kind in SOME}


@pytest.mark.parametrize("place", PLACES)
async def test_a_model_that_hangs_holds_up_nobody(place: Place) -> None:
    outcomes = await strike(place, lasting=True, kinds=HANGING_ONES)
    assert outcomes.pop(CALM) == "unharmed"
    assert outcomes == {kind: expected(kind, place, lasting=True) for kind in HANGING_ONES}


@pytest.mark.parametrize("seed", [1, 2])
async def test_in_a_storm_every_team_has_an_outcome_and_every_token_is_counted(seed: int) -> None:
    assert await storm(seed) == ""
