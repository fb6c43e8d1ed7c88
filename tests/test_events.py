"""Events: frozen, whole, and never able to end a run."""

import asyncio
import json
import logging

import pytest
from pydantic import ValidationError

from mixseek.events import BudgetLow, Event, EventBus, RoundStarted, TeamStarted


def an_event() -> RoundStarted:
    return RoundStarted(execution_id="e", team_id="t", round_number=2, prompt="課題")


def test_an_event_knows_its_kind_and_what_it_adds() -> None:
    event = an_event()
    assert event.kind == "RoundStarted"
    assert json.loads(json.dumps(event.payload())) == {"round_number": 2}


@pytest.mark.parametrize("team_name", ["チーム", "half a surrogate pair: \ud800"])
def test_what_a_journal_is_given_says_the_same_as_the_payload(team_name: str) -> None:
    event = TeamStarted(execution_id="e", team_id="t", team_name=team_name)
    kept = event.kept_payload()
    assert (json.loads(kept) if isinstance(kept, bytes) else kept) == event.payload()


def test_an_event_cannot_be_changed() -> None:
    with pytest.raises(ValidationError, match="frozen"):
        an_event().round_number = 3  # type: ignore[misc]


@pytest.mark.parametrize(
    ("limit", "used", "allowed", "told"),
    [
        ("max_tokens", 1_712_345, 2_000_000, "86 % of the run's budget is used: 1,712,345 of 2,000,000 tokens"),
        ("max_cost_usd", 0.0412, 0.05, "82 % of the run's budget is used: 0.0412 of 0.05 USD"),
        ("max_cost_usd", 0.00000008, 0.0000001, "80 % of the run's budget is used: 0.00000008 of 0.0000001 USD"),
        ("max_requests", 1, 1, "100 % of the run's budget is used: 1 of 1 call"),
        ("max_seconds", 48.26, 60, "80 % of the run's budget is used: 48.3 of 60 seconds"),
    ],
)
def test_how_far_a_budget_is_used_is_told_in_whole_numbers_and_its_unit(
    limit: str, used: float, allowed: float, told: str
) -> None:
    assert BudgetLow(execution_id="e", limit=limit, used=used, allowed=allowed).words == told


def test_every_listener_hears_every_event_in_order() -> None:
    first: list[Event] = []
    second: list[Event] = []
    bus = EventBus(first.append)
    bus.subscribe(second.append)
    events = [TeamStarted(execution_id="e", team_id="t", team_name="T"), an_event()]
    for event in events:
        bus.emit(event)
    assert first == second == events


@pytest.mark.parametrize("error", [RuntimeError("no screen"), SystemExit("no screen"), asyncio.CancelledError()])
def test_a_listener_that_fails_is_logged_and_the_others_still_hear(
    error: BaseException, caplog: pytest.LogCaptureFixture
) -> None:
    heard: list[Event] = []

    def broken(event: Event) -> None:
        raise error

    bus = EventBus(broken, heard.append)
    with caplog.at_level(logging.ERROR):
        bus.emit(an_event())
    assert len(heard) == 1
    assert "a listener failed on RoundStarted" in caplog.text
