"""A clock that is set back a day in the middle of a run: nothing goes by it but what people read."""

from datetime import UTC, datetime, timedelta, tzinfo
from pathlib import Path
from typing import Self

import pytest

from mixseek.events import Event, RoundFinished
from mixseek.orchestrator import Orchestrator, load_orchestrator_settings
from mixseek.report.reading import find_execution, list_executions, load_execution
from mixseek.storage.journal import Journal
from mixseek.testing import ModelServer, write_workspace
from mixseek.workspace import Workspace


class SetClock(datetime):
    """The clock of the process, some way off the true time."""

    off = timedelta()

    @classmethod
    def now(cls, tz: tzinfo | None = None) -> Self:
        true = datetime.now(tz or UTC) + cls.off
        return cls.fromtimestamp(true.timestamp(), tz)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> type[SetClock]:
    monkeypatch.setattr(SetClock, "off", timedelta())
    monkeypatch.setattr("mixseek.records.datetime", SetClock)
    return SetClock


async def test_a_run_and_its_record_do_not_mind_a_clock_that_is_set_back(
    tmp_path: Path, server: ModelServer, clock: type[SetClock]
) -> None:
    def set_back(event: Event) -> None:
        if isinstance(event, RoundFinished):
            clock.off = timedelta(days=-1)

    write_workspace(tmp_path, teams=2, members=1, max_rounds=2, base_url=server.base_url)
    settings = load_orchestrator_settings("configs/orchestrator.toml", tmp_path)
    first = await Orchestrator(settings, listeners=[set_back]).execute("first")
    second = await Orchestrator(settings).execute("second")

    workspace = Workspace(tmp_path)
    assert not first.failed_teams_info
    assert first.total_execution_time_seconds < 3600
    lines = await list_executions(workspace)
    assert [line.user_prompt for line in lines] == ["second", "first"]
    assert lines[0].started_at is not None
    assert lines[1].started_at is not None
    assert lines[0].started_at < lines[1].started_at  # as the clock had it
    assert await find_execution(workspace, "last") == second.execution_id

    record = await load_execution(workspace, first.execution_id)
    assert [[one.round_number for one in team.rounds] for team in record.teams] == [[1, 2], [1, 2]]
    assert all(one.seconds is not None and one.seconds >= 0 for team in record.teams for one in team.rounds)
    async with Journal(workspace.journal) as journal:
        events = await journal.events(first.execution_id)
        assert (events[0].kind, events[-1].kind) == ("RunStarted", "RunFinished")
        assert events[0].at - events[-1].at > timedelta(hours=23)
        for team_id in ("a", "b", None):
            told = [event.sequence for event in events if event.team_id == team_id]
            assert told == list(range(len(told)))
