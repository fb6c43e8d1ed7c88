import pytest

from soak.kills import kill_one


@pytest.fixture(autouse=True)
def _only_loopback(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MIXSEEK_ONLY_LOOPBACK", "1")


def test_a_killed_run_leaves_every_call_prompt_and_event_it_had_used() -> None:
    assert kill_one(after=90) == []
