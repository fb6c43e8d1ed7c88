"""A few of the kills of ``python -m soak.resume``: a run that is killed anywhere ends as one that nobody disturbed."""

import random
from collections.abc import Iterator

import pytest

from soak.arena import Team
from soak.resume import Field, asked_the_same, at_first_start, at_point, at_random, field_of, often, strangers

SMALL = (Team("alpha", scores=(70, 80), members=2), Team("beta", scores=(60, 65)))
TWO_ROUNDS = "max_rounds = 2\nmin_rounds = 1\n"


@pytest.fixture(scope="module")
def small() -> Iterator[Field]:
    with field_of(SMALL, orchestrator=TWO_ROUNDS) as made:
        yield made


@pytest.mark.parametrize(
    ("point", "time_reached"),
    [
        ("call.request_sent", 3),
        ("journal.before_commit", 9),
        ("results.after_commit", 4),
        ("round.kept", 2),
        ("summary.after_save", 1),
    ],
)
def test_a_run_killed_at_a_crash_point_and_resumed_ends_as_if_undisturbed(
    small: Field, point: str, time_reached: int
) -> None:
    assert at_point(small, point, time_reached) == []


def test_a_run_killed_several_times_pays_again_only_for_what_was_in_flight(small: Field) -> None:
    course = often(small, 3, random.Random(1))
    assert course.wrong == []
    assert course.repeated <= course.in_flight


def test_members_that_are_asked_the_same_get_their_own_answers_again() -> None:
    with field_of((Team("solo", members=3),), asked_the_same, orchestrator=TWO_ROUNDS, check=strangers) as made:
        assert [at_random(made, answers) for answers in (3, 13)] == [[], []]


@pytest.mark.parametrize("older", [False, True])
def test_a_workspace_whose_first_start_was_killed_starts_again(small: Field, older: bool) -> None:
    wrong, _ = at_first_start(small, 0.15 + small.seconds / 8, older=older)
    assert wrong == []
