"""Events: frozen, whole, and never able to end a run."""

import json
import logging

import pytest
from pydantic import ValidationError

from mixseek.events import Event, EventBus, RoundStarted, TeamStarted


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


def test_every_listener_hears_every_event_in_order() -> None:
    first: list[Event] = []
    second: list[Event] = []
    bus = EventBus(first.append)
    bus.subscribe(second.append)
    events = [TeamStarted(execution_id="e", team_id="t", team_name="T"), an_event()]
    for event in events:
        bus.emit(event)
    assert first == second == events


def test_a_listener_that_fails_is_logged_and_the_others_still_hear(caplog: pytest.LogCaptureFixture) -> None:
    heard: list[Event] = []

    def broken(event: Event) -> None:
        raise RuntimeError("no screen")

    bus = EventBus(broken, heard.append)
    with caplog.at_level(logging.ERROR):
        bus.emit(an_event())
    assert len(heard) == 1
    assert "a listener failed on RoundStarted" in caplog.text
