"""A budget of money under kills; ``python -m soak.budget`` makes many of these."""

from soak.budget import play_with_kills


def test_a_budget_holds_in_a_run_that_is_killed_and_resumed() -> None:
    outcome = play_with_kills(["journal.after_commit:9", 14])
    assert outcome.kills == 2
    assert outcome.billed > 0
    assert outcome.with_result
    assert list(outcome.faults) == []
