"""Ending a run from outside with Orchestrator.stop()."""

import asyncio
import threading
from pathlib import Path

import duckdb
import pytest

from mixseek.events import Event, RoundFinished, RunInterrupted, SubmissionEvaluated
from mixseek.orchestrator import Orchestrator, load_orchestrator_settings
from mixseek.storage.aggregation_store import AggregationStore
from mixseek.storage.journal import Journal
from mixseek.testing import ModelServer, write_workspace
from tests.waiting import until


def _orchestrator(tmp_path: Path, server: ModelServer, heard: list[Event], teams: int = 2) -> Orchestrator:
    write_workspace(tmp_path, teams=teams, members=1, max_rounds=2, base_url=server.base_url)
    settings = load_orchestrator_settings("configs/orchestrator.toml", tmp_path)
    return Orchestrator(settings, listeners=[heard.append])


async def _until_asked(server: ModelServer, model: str, times: int) -> None:
    await until(lambda: model in server.bill.models and server.bill.models[model].requests >= times)


async def test_a_run_that_is_stopped_from_another_thread_returns_what_there_is(
    tmp_path: Path, server: ModelServer
) -> None:
    heard: list[Event] = []
    orchestrator = _orchestrator(tmp_path, server, heard)
    # Each leader asks its member and answers in every round: team b hangs in its second.
    server.fault("hang_before_headers", model="leader-b", after=2)
    before = asyncio.all_tasks()
    running = asyncio.create_task(orchestrator.execute("What is bamboo for?"))
    await _until_asked(server, "leader-b", 3)
    await until(lambda: orchestrator.get_team_status("a").status == "completed")
    threading.Thread(target=orchestrator.stop).start()
    async with asyncio.timeout(30):
        summary = await running

    assert summary.interrupted
    assert {entry.team_id: entry.round_number for entry in summary.team_results if entry.team_id == "b"} == {"b": 1}
    assert {entry.team_id: entry.final_submission for entry in summary.team_results} == {"a": True, "b": False}
    assert [(one.team_id, one.error_message) for one in summary.failed_teams_info] == [
        ("b", "interrupted in round 2"),
    ]
    assert (summary.total_teams, summary.partial_team_ids) == (2, ["b"])
    assert orchestrator.get_team_status("b").status == "interrupted"
    assert isinstance(heard[-1], RunInterrupted)
    assert asyncio.all_tasks() == before
    with duckdb.connect(tmp_path / "mixseek.db", read_only=True) as connection:
        assert connection.execute("FROM execution_summary").fetchall() == []


async def test_what_was_used_in_the_unfinished_round_is_on_the_stored_bill(tmp_path: Path, server: ModelServer) -> None:
    orchestrator = _orchestrator(tmp_path, server, [], teams=1)
    server.fault("hang_before_headers", model="leader-a", after=1)
    running = asyncio.create_task(orchestrator.execute("What is bamboo for?"))
    await _until_asked(server, "leader-a", 2)
    orchestrator.stop()
    summary = await running
    assert summary.team_results == []
    assert {line.agent_name for line in summary.bill if line.output_tokens} == {"leader", "member-1"}
    async with AggregationStore(tmp_path) as store:
        stored = await store.get_model_usage(summary.execution_id)
    assert {line.agent_name for line in stored if line.output_tokens} == {"leader", "member-1"}


async def test_stop_ends_what_runs_and_not_what_comes_later(tmp_path: Path, server: ModelServer) -> None:
    heard: list[Event] = []
    orchestrator = _orchestrator(tmp_path, server, heard, teams=1)
    orchestrator.stop()
    running = asyncio.create_task(orchestrator.execute("What is bamboo for?"))
    await asyncio.sleep(0)
    orchestrator.stop()
    summary = await running
    assert summary.interrupted
    assert not heard
    assert not (await orchestrator.execute("What is bamboo for?")).interrupted


async def test_a_listener_may_stop_the_run_it_listens_to(tmp_path: Path, server: ModelServer) -> None:
    heard: list[Event] = []
    orchestrator = _orchestrator(tmp_path, server, heard)

    def stop_after_a_round(event: Event) -> None:
        if isinstance(event, RoundFinished):
            orchestrator.stop()

    orchestrator._listeners = (stop_after_a_round,)
    summary = await orchestrator.execute("What is bamboo for?")
    assert summary.interrupted
    assert summary.best_score is not None


async def test_a_round_that_was_scored_when_the_run_was_stopped_counts_everywhere(
    tmp_path: Path, server: ModelServer
) -> None:
    heard: list[Event] = []
    orchestrator = _orchestrator(tmp_path, server, heard, teams=1)

    def stop_when_scored(event: Event) -> None:
        heard.append(event)
        if isinstance(event, SubmissionEvaluated):
            orchestrator.stop()

    orchestrator._listeners = (stop_when_scored,)
    summary = await orchestrator.execute("What is bamboo for?")
    [scored] = [event.score for event in heard if isinstance(event, SubmissionEvaluated)]
    assert summary.interrupted
    assert [(entry.round_number, entry.score) for entry in summary.team_results] == [(1, scored)]
    assert [event.entry.score for event in heard if isinstance(event, RoundFinished)] == [scored]
    assert [one.error_message for one in summary.failed_teams_info] == ["interrupted after round 1"]
    async with AggregationStore(tmp_path) as store:
        assert [row["score"] for row in await store.get_leader_board()] == [scored]


async def test_a_run_that_is_cancelled_stays_cancelled(tmp_path: Path, server: ModelServer) -> None:
    orchestrator = _orchestrator(tmp_path, server, [])
    server.fault("hang_before_headers", model="leader-*")
    running = asyncio.create_task(orchestrator.execute("What is bamboo for?"))
    await _until_asked(server, "leader-a", 1)
    orchestrator.stop()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running


async def test_a_run_that_somebody_cancels_is_recorded_as_interrupted(tmp_path: Path, server: ModelServer) -> None:
    heard: list[Event] = []
    orchestrator = _orchestrator(tmp_path, server, heard, teams=1)
    server.fault("hang_before_headers", model="leader-a", after=2)
    running = asyncio.create_task(orchestrator.execute("What is bamboo for?", execution_id="given"))
    await _until_asked(server, "leader-a", 3)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    last = heard[-1]
    assert isinstance(last, RunInterrupted)
    assert [one.error_message for one in last.summary.failed_teams_info] == ["interrupted in round 2"]
    async with Journal(tmp_path / "journal.db") as journal:
        assert (await journal.events("given"))[-1].kind == "RunInterrupted"
