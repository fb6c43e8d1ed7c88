"""Executions as the stores tell of them: whole, interrupted, old, without a journal, and while they are played."""

import asyncio
import os
import sqlite3
from collections.abc import Awaitable, Callable
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import duckdb
import pytest

from mixseek.errors import ConfigurationError, NotResumableError
from mixseek.events import Event, ModelCalled
from mixseek.hindsight.whatif import StopRule, what_if
from mixseek.llm import Backoff
from mixseek.orchestrator import Orchestrator, load_orchestrator_settings
from mixseek.records import ExecutionSummary
from mixseek.report.reading import best_results, find_execution, find_unfinished, list_executions, load_execution
from mixseek.storage.aggregation_store import AggregationStore
from mixseek.storage.journal import Journal
from mixseek.storage.playing import Playing, is_playing
from mixseek.storage.pruning import drop_bodies, prunable
from mixseek.testing import Match, ModelServer, Script, scripted, write_workspace
from mixseek.workspace import Workspace
from tests.storage.old_schema import OLD
from tests.waiting import until

TASK = "日本の首都は？"


async def play(
    root: Path,
    task: str = TASK,
    *,
    journal: bool = True,
    execution_id: str | None = None,
    prepare: Callable[[Script], None] | None = None,
    attachments: tuple[Path, ...] = (),
    **files: Any,
) -> ExecutionSummary:
    """One competition of two teams with a member each, on scripted models."""
    file = write_workspace(root, **{"teams": 2, "members": 1, "max_rounds": 2, **files})
    with scripted() as script:
        script.on(Match("judge", contains="better"), lambda call: {"evaluator_comment": "good", "score": 91.234567})
        script.on(Match("leader-b"), lambda call: "a better answer" if call.tool_results else None)
        if prepare:
            prepare(script)
        orchestrator = Orchestrator(load_orchestrator_settings(file, root), journal=journal)
        return await orchestrator.execute(task, execution_id=execution_id, attachments=attachments)


def files_in(root: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in root.iterdir() if path.is_file()}


async def test_the_cost_is_that_of_the_summary_to_the_last_digit(tmp_path: Path) -> None:
    models = ("judge", "leader-c", "leader-b", "leader-a", "judgment")
    prices = "\n".join(
        f'[prices."scripted:{model}"]\ninput_usd_per_million = {10**place / 7}\noutput_usd_per_million = {1 / place}'
        for place, model in enumerate(models, 1)
    )
    # One after the other, so that the run has its bill always in the same order, which is not that of the tables.
    file = write_workspace(tmp_path, teams=3, members=0, max_rounds=4, orchestrator="max_concurrent_teams = 1")
    file.write_text(f"{file.read_text()}\n{prices}\n")
    with scripted():
        summary = await Orchestrator(load_orchestrator_settings(file, tmp_path)).execute(TASK)
    record = await load_execution(Workspace(tmp_path), summary.execution_id)
    assert record.cost_usd is not None
    assert record.cost_usd == summary.cost_usd


async def test_a_finished_execution_is_told_whole(tmp_path: Path) -> None:
    letter = tmp_path / "letter.txt"
    letter.write_text("dear teams")
    summary = await play(tmp_path, attachments=(letter,))
    record = await load_execution(Workspace(tmp_path), summary.execution_id)
    assert (record.status, record.is_running, record.user_prompt, record.max_rounds) == ("completed", False, TASK, 2)
    assert [(team.rank, team.team_name) for team in record.teams] == [(1, "Team B"), (2, "Team A")]
    assert record.best is not None
    assert (record.best.best_score, record.best.best_round) == (91.234567, 2)
    assert record.best.exit_reason == "max_rounds_reached"
    assert record.best.final is not None
    assert record.best.final.submission == "a better answer"
    assert record.usage.requests == sum(line.requests for line in summary.bill) > 0
    assert sorted(record.bill, key=str) == sorted(summary.bill, key=str)
    assert record.seconds == summary.total_execution_time_seconds
    assert [attachment.name for attachment in record.attachments] == ["letter.txt"]


async def test_a_round_has_its_scores_judgment_members_times_and_bill(tmp_path: Path) -> None:
    summary = await play(tmp_path)
    record = await load_execution(Workspace(tmp_path), summary.execution_id)
    first, second = record.teams[0].rounds
    assert [(metric.metric_name, metric.score) for metric in first.metrics] == [
        (name, 91.234567) for name in ("ClarityCoherence", "Coverage", "Relevance")
    ]
    assert second.flags == ("copy_of_round_1",)
    assert first.judgment is not None
    assert first.judgment.should_continue
    [call] = first.members
    assert (call.agent_name, call.status, call.all_messages) == ("member-1", "SUCCESS", None)
    assert call.task is not None
    assert call.task.startswith("Your part")
    assert first.started_at is not None
    assert first.ended_at is not None
    assert call.started_at is not None
    assert first.started_at <= call.started_at <= first.ended_at
    assert first.seconds is not None
    assert {line.role for line in first.bill} == {"leader", "member", "evaluator"}
    assert "judgment" in {line.role for line in second.bill}


_NO_NUMBER = """
from mixseek.evaluator.metrics.base import BaseMetric
from mixseek.records import MetricScore

class NoNumber(BaseMetric):
    async def evaluate(self, user_query, submission, **other):
        score = float("nan") if "second" in submission else 80.0
        return MetricScore(metric_name="Own", score=score, evaluator_comment="")
"""


def _second_round_of_b_alone(script: Script) -> None:
    """Both teams have 80 points in their first round; a ends there, and b plays another."""
    opinions = iter((False, True))
    submissions = iter(("first", "second"))
    script.on(Match("leader-b"), lambda _: next(submissions))
    script.on(
        Match("judgment"),
        lambda _: {"reasoning": "so", "should_continue": next(opinions), "confidence_score": 1},
    )


def _judge_that_cannot_score_it(script: Script) -> None:
    _second_round_of_b_alone(script)
    verdict = {"evaluator_comment": "", "score": 80}
    script.on(Match("judge"), lambda call: "no form at all" if "second" in call.text else verdict)


@pytest.mark.parametrize("journal", [True, False])
@pytest.mark.parametrize(
    ("prepare", "evaluator"),
    [
        # Its team failed there, and the submission is on the board all the same.
        (_judge_that_cannot_score_it, "max_retries = 0\n"),
        (
            _second_round_of_b_alone,
            '[[metrics]]\nname = "Own"\n[custom_metrics]\nOwn = { path = "own.py", class = "NoNumber" }\n',
        ),
    ],
)
async def test_on_a_tie_the_winner_is_everywhere_the_one_of_the_summary(
    tmp_path: Path, prepare: Callable[[Script], None], evaluator: str, *, journal: bool
) -> None:
    (tmp_path / "own.py").write_text(_NO_NUMBER)
    rules = "min_rounds = 1\nmax_concurrent_teams = 1\nmax_retries_per_team = 0\n"
    summary = await play(tmp_path, journal=journal, members=0, prepare=prepare, orchestrator=rules, evaluator=evaluator)
    place = Workspace(tmp_path)
    record = await load_execution(place, summary.execution_id)
    [line] = await list_executions(place)
    order = [entry.team_id for entry in summary.team_results]
    assert order == ["b", "a"]
    assert [team.team_id for team in record.teams] == order
    assert [best.team_id for best in await best_results(place)] == order
    assert line.best_team == "Team B"
    assert what_if(record, []).recorded.winner == "b"
    [team] = [team for team in record.teams if team.team_id == "b"]
    assert [one.submission for one in team.rounds] == ["first", "second"]
    assert team.finished_rounds == 2


async def test_the_settings_a_run_was_played_with_are_kept_without_secrets(tmp_path: Path) -> None:
    words = 'system_instruction = "Say Bearer 0123456789abcdefghij to nobody."'
    summary = await play(tmp_path, judgment=words)
    configuration: Any = (await load_execution(Workspace(tmp_path), summary.execution_id)).configuration
    assert configuration["orchestrator"]["max_rounds"] == 2
    assert [team["team_id"] for team in configuration["teams"]] == ["a", "b"]
    assert configuration["teams"][0]["members"][0]["name"] == "member-1"
    assert configuration["evaluator"]["default_model"] == "scripted:judge"
    assert configuration["judgment"]["model"] == "scripted:judgment"
    assert configuration["judgment"]["system_instruction"] == "Say ******** to nobody."
    assert b"0123456789abcdefghij" not in (tmp_path / "journal.db").read_bytes()


async def test_without_a_journal_all_that_the_results_hold_is_told(tmp_path: Path) -> None:
    summary = await play(tmp_path, journal=False)
    assert not (tmp_path / "journal.db").exists()
    record = await load_execution(Workspace(tmp_path), summary.execution_id)
    assert (record.status, record.user_prompt, record.configuration) == ("completed", TASK, None)
    assert record.started_at is not None
    [call] = record.teams[0].rounds[0].members
    assert (call.agent_name, call.task) == ("member-1", None)
    assert not (tmp_path / "journal.db").exists()
    [line] = await list_executions(Workspace(tmp_path))
    assert (line.execution_id, line.total_teams, line.best_team) == (summary.execution_id, 2, "Team B")


async def test_a_journal_that_cannot_be_read_costs_only_what_it_adds(tmp_path: Path) -> None:
    summary = await play(tmp_path)
    (tmp_path / "journal.db").write_bytes(b"this is no journal" * 100)
    for ending in ("-wal", "-shm"):
        (tmp_path / f"journal.db{ending}").unlink(missing_ok=True)
    record = await load_execution(Workspace(tmp_path), summary.execution_id)
    assert (record.status, record.best and record.best.team_id) == ("completed", "b")
    assert len(await list_executions(Workspace(tmp_path))) == 1


async def test_a_team_that_failed_has_its_reason_and_a_failed_round_too(tmp_path: Path) -> None:
    def prepare(script: Script) -> None:
        script.on(Match("leader-a"), lambda call: "" if call.tool_results else None)

    summary = await play(tmp_path, prepare=prepare)
    assert len(summary.failed_teams_info) == 1
    record = await load_execution(Workspace(tmp_path), summary.execution_id)
    assert record.status == "partial_failure"
    failed = record.teams[-1]
    assert (failed.team_id, failed.rank, failed.best_score) == ("a", None, None)
    assert failed.error == summary.failed_teams_info[0].error_message
    assert [(one.submission, one.score) for one in failed.rounds] == [(None, None)] * 2
    assert all(one.failure for one in failed.rounds)


# --- runs without an end ----------------------------------------------------------------------------------------------


def _never_scores(reached: asyncio.Event) -> Callable[[Any], Awaitable[str]]:
    """A judge that tells when it is asked, and has no answer."""

    async def answer(call: Any) -> str:
        reached.set()
        await asyncio.sleep(3600)
        return ""

    return answer


def _as_if_killed(root: Path) -> None:
    """Take away what a run that was cancelled told of its end."""
    with closing(sqlite3.connect(root / "journal.db")) as journal, journal:
        journal.execute("DELETE FROM events WHERE kind = 'RunInterrupted'")
    with duckdb.connect(str(root / "mixseek.db")) as connection:
        connection.execute("DELETE FROM model_usage WHERE round_number = 2")


async def killed(root: Path) -> str:
    """A run that ends while the only team has a round on the board and its second answer is being scored."""
    reached = asyncio.Event()

    def prepare(script: Script) -> None:
        script.on(Match("leader-a"), ["first answer", "second answer"])
        script.on(Match("judge", contains="second answer"), _never_scores(reached))

    prices = "".join(
        f'[prices."scripted:{model}"]\ninput_usd_per_million = 1\noutput_usd_per_million = 1\n'
        for model in ("leader-a", "judge", "judgment")
    )
    playing = play(root, prepare=prepare, execution_id="cut-short", teams=1, members=0, orchestrator=prices)
    task = asyncio.create_task(playing)
    await asyncio.wait_for(reached.wait(), timeout=60)
    assert is_playing(Workspace(root).database, "cut-short")
    [line] = await list_executions(Workspace(root))
    assert (line.status, line.is_running, line.user_prompt) == ("unfinished", True, TASK)
    record = await load_execution(Workspace(root), "cut-short")
    assert (record.status, record.is_running) == ("unfinished", True)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    _as_if_killed(root)
    return "cut-short"


async def test_a_run_that_goes_on_or_was_killed_is_unfinished_and_told_as_far_as_it_came(tmp_path: Path) -> None:
    execution_id = await killed(tmp_path)
    assert not is_playing(tmp_path / "mixseek.db", execution_id)
    record = await load_execution(Workspace(tmp_path), execution_id)
    assert (record.status, record.is_running, record.user_prompt) == ("unfinished", False, TASK)
    [team] = record.teams
    first, second = team.rounds
    assert first.submission == "first answer"
    assert first.score is not None
    assert (second.submission, second.score, second.ended_at) == ("second answer", None, None)
    assert second.started_at is not None
    assert [(line.role, line.requests) for line in second.bill] == [("leader", 1)], "no table has it, the journal does"
    assert record.usage.requests == 5


async def test_rounds_that_only_the_journal_has_are_told_like_any_other(tmp_path: Path) -> None:
    execution_id = await killed(tmp_path)
    written = await load_execution(Workspace(tmp_path), execution_id)
    with duckdb.connect(str(tmp_path / "mixseek.db")) as connection:
        # As if it could not be scored at first, and the process had been killed before it wrote that it was.
        connection.execute("UPDATE leader_board SET score = NULL, updated_at = updated_at - INTERVAL 1 SECOND")
    assert await load_execution(Workspace(tmp_path), execution_id) == written
    with duckdb.connect(str(tmp_path / "mixseek.db")) as connection:
        # As if the process had been killed just before it wrote them.
        for table in ("leader_board", "round_status", "model_usage"):
            connection.execute(f"DELETE FROM {table}")
    assert await load_execution(Workspace(tmp_path), execution_id) == written
    assert [one.is_finished for one in written.teams[0].rounds] == [True, False]
    assert written.teams[0].rounds[0].judgment is not None


async def test_a_run_that_was_killed_before_any_call_was_answered_cost_nothing_that_is_known(tmp_path: Path) -> None:
    execution_id = await killed(tmp_path)
    with closing(sqlite3.connect(tmp_path / "journal.db")) as journal, journal:
        journal.execute("DELETE FROM calls")
    with duckdb.connect(str(tmp_path / "mixseek.db")) as connection:
        connection.execute("DELETE FROM model_usage")
    [line] = await list_executions(Workspace(tmp_path))
    record = await load_execution(Workspace(tmp_path), execution_id)
    assert (line.cost_usd, record.cost_usd, record.usage.requests) == (0.0, 0.0, 0)


async def test_the_list_has_the_cost_of_rounds_that_did_not_end(tmp_path: Path) -> None:
    execution_id = await killed(tmp_path)
    [line] = await list_executions(Workspace(tmp_path))
    record = await load_execution(Workspace(tmp_path), execution_id)
    ended = sum(one.cost_usd or 0 for one in record.teams[0].rounds[0].bill)
    assert line.cost_usd is not None
    assert line.cost_usd == pytest.approx(record.cost_usd)
    assert line.cost_usd > ended > 0


async def test_a_round_that_did_not_end_has_all_attempts_that_were_paid_on_its_bill(tmp_path: Path) -> None:
    async with ModelServer() as server:
        file = write_workspace(tmp_path, teams=1, base_url=server.base_url)
        server.fault("early_end", model="leader-a", count=2)
        server.fault("hang_before_headers", model="judge")
        orchestrator = Orchestrator(load_orchestrator_settings(file, tmp_path), backoff=Backoff(first_seconds=0))
        task = asyncio.create_task(orchestrator.execute(TASK, execution_id="cut-short"))
        await until(lambda: "judge" in server.bill.models)
        record = await load_execution(Workspace(tmp_path), "cut-short")
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        paid = server.bill.models["leader-a"]
    [line] = record.bill
    assert (line.role, line.requests) == ("leader", 3)
    assert (line.input_tokens, line.output_tokens) == (paid.input_tokens, paid.output_tokens)


async def test_an_execution_that_was_gone_on_with_has_no_status_of_before(tmp_path: Path) -> None:
    reached = asyncio.Event()

    def prepare(script: Script) -> None:
        script.on(Match("leader-a"), lambda call: "a poor answer" if call.tool_results else None)
        script.on(Match("judge", contains="poor"), lambda call: "no score")

    await play(tmp_path, prepare=prepare, execution_id="again")
    workspace = Workspace(tmp_path)
    assert [line.status for line in await list_executions(workspace)] == ["partial_failure"]
    with scripted() as script:
        script.on(Match("judge"), _never_scores(reached))
        resumed = Orchestrator(load_orchestrator_settings("configs/orchestrator.toml", tmp_path)).resume("again")
        task = asyncio.create_task(resumed)
        await asyncio.wait_for(reached.wait(), timeout=60)
        [line] = await list_executions(workspace)
        assert (line.status, line.is_running) == ("unfinished", True)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    async def told() -> tuple[object, ...]:
        [line], record = await list_executions(workspace), await load_execution(workspace, "again")
        return line.status, line.is_running, record.status, record.user_prompt

    assert await told() == ("interrupted", False, "interrupted", TASK)
    assert prunable(workspace.journal) == []
    _as_if_killed(tmp_path)
    assert await told() == ("unfinished", False, "unfinished", TASK)
    assert await find_unfinished(workspace) == "again"
    assert prunable(workspace.journal) == []


async def test_the_list_does_not_call_a_run_completed_that_goes_on_with_a_larger_budget(tmp_path: Path) -> None:
    reached = asyncio.Event()
    budget = "[budget]\nmax_requests = 6\n"
    await play(tmp_path, execution_id="again", teams=1, members=0, orchestrator=budget)
    workspace = Workspace(tmp_path)
    assert [line.status for line in await list_executions(workspace)] == ["completed"]
    file = write_workspace(tmp_path, teams=1, members=0, max_rounds=2, orchestrator=budget.replace("6", "60"))
    with scripted() as script:
        script.on(Match("judge"), _never_scores(reached))
        resumed = Orchestrator(load_orchestrator_settings(file, tmp_path)).resume("again", accept_changes=True)
        task = asyncio.create_task(resumed)
        await asyncio.wait_for(reached.wait(), timeout=60)
        [running] = await list_executions(workspace)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    [stopped] = await list_executions(workspace)
    assert (running.status, running.is_running) == ("unfinished", True)
    assert (stopped.status, stopped.is_running) == ("interrupted", False)


async def test_an_execution_that_was_gone_on_with_by_other_settings_is_told_with_these(tmp_path: Path) -> None:
    execution_id = await killed(tmp_path)
    file = write_workspace(tmp_path, teams=2, max_rounds=2, orchestrator="max_retries_per_team = 0")
    file.write_text(f"{file.read_text()}\n[budget]\nmax_requests = 100\n")
    with scripted() as script:
        script.on(Match("judge", contains="team b"), lambda call: "no score")
        script.on(Match("leader-b"), lambda call: "of team b")
        await Orchestrator(load_orchestrator_settings(file, tmp_path)).resume(execution_id, accept_changes=True)
    [line] = await list_executions(Workspace(tmp_path))
    record = await load_execution(Workspace(tmp_path), execution_id)
    assert (line.total_teams, line.status) == (2, "partial_failure")
    assert [team.team_name for team in record.teams] == ["Team A", "Team B"]
    told: Any = record.configuration
    assert told["orchestrator"]["budget"]["max_requests"] == 100


async def test_who_plays_an_execution_is_named_where_no_other_is_unfinished(tmp_path: Path) -> None:
    execution_id = await killed(tmp_path)
    assert await find_unfinished(Workspace(tmp_path)) == execution_id
    playing = Playing(tmp_path / "mixseek.db", execution_id)
    with pytest.raises(NotResumableError, match=f"execution {execution_id} is being played, and no other is"):
        await find_unfinished(Workspace(tmp_path))
    async with Journal(tmp_path / "journal.db") as journal:
        await journal.take_place(execution_id, tmp_path / "mixseek.db")
        holder = rf"is being played by process {os.getpid()} \(.+\) on .+ since .+, and no other is unfinished"
        with pytest.raises(NotResumableError, match=holder):
            await find_unfinished(Workspace(tmp_path))
    playing.end()


async def test_a_pruned_execution_is_not_named_as_one_that_could_go_on(tmp_path: Path) -> None:
    def prepare(script: Script) -> None:
        script.on(Match("leader-a"), lambda call: "a poor answer" if call.tool_results else None)
        script.on(Match("judge", contains="poor"), lambda call: "no score")

    await play(tmp_path, prepare=prepare, execution_id="failed")
    workspace = Workspace(tmp_path)
    with pytest.raises(NotResumableError, match="mixseek resume failed lets them go on"):
        await find_unfinished(workspace)
    drop_bodies(workspace.journal, ["failed"])
    with pytest.raises(NotResumableError, match="is unfinished: mixseek history lists all there are"):
        await find_unfinished(workspace)


async def test_a_run_whose_last_write_failed_is_finished_by_its_journal(tmp_path: Path) -> None:
    summary = await play(tmp_path)
    with duckdb.connect(str(tmp_path / "mixseek.db")) as db:
        db.execute("DELETE FROM execution_summary")
    record = await load_execution(Workspace(tmp_path), summary.execution_id)
    assert (record.status, record.seconds) == ("completed", summary.total_execution_time_seconds)
    [line] = await list_executions(Workspace(tmp_path))
    assert (line.status, line.seconds) == ("completed", summary.total_execution_time_seconds)


# --- files as they are ------------------------------------------------------------------------------------------------


async def test_reading_an_empty_workspace_makes_no_file(tmp_path: Path) -> None:
    assert await list_executions(Workspace(tmp_path)) == []
    assert await best_results(Workspace(tmp_path)) == []
    with pytest.raises(ConfigurationError, match=r"nothing was played in .* yet: mixseek exec"):
        await find_execution(Workspace(tmp_path), "last")
    with pytest.raises(ConfigurationError, match="no execution 'x' here: mixseek history"):
        await load_execution(Workspace(tmp_path), "x")
    assert files_in(tmp_path) == {}


async def test_an_old_file_is_told_and_stays_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "mixseek.db"
    with duckdb.connect(str(path)) as db:
        db.execute(OLD)
        db.execute(
            "INSERT INTO leader_board (execution_id, team_id, team_name, round_number, submission_content, score,"
            " score_details, final_submission, exit_reason) VALUES"
            " ('old-1', 'a', 'A', 1, 'one', 85.57, '{\"clarity\": 80}', TRUE, 'max_rounds_reached'),"
            " ('old-1', 'b', 'B', 1, 'two', 'NaN', '{}', FALSE, NULL),"
            " ('old-2', 'a', 'A', 1, 'three', 12.5, '{}', FALSE, 'odd')"
        )
        db.execute(
            "INSERT INTO round_status (execution_id, team_id, team_name, round_number, should_continue, reasoning,"
            " confidence_score) VALUES ('old-1', 'a', 'A', 1, FALSE, 'enough', 0.7)"
        )
        db.execute(
            "INSERT INTO execution_summary (execution_id, user_prompt, status, team_results, total_teams, best_team_id,"
            " best_score, total_execution_time_seconds)"
            " VALUES ('old-1', 'old task', 'completed', '[]', 2, 'a', 85.57, 3)"
        )
    before = files_in(tmp_path)
    record = await load_execution(Workspace(tmp_path), "old-1")
    assert (record.status, record.user_prompt, record.cost_usd, record.bill) == ("completed", "old task", None, ())
    best, other = record.teams
    assert (best.team_id, best.best_score, best.exit_reason) == ("a", 85.57, "max_rounds_reached")
    assert best.rounds[0].judgment is not None
    assert best.rounds[0].judgment.confidence_score == 0.7
    assert (other.rank, other.rounds[0].score, other.rounds[0].submission) == (None, None, "two")
    assert (await load_execution(Workspace(tmp_path), "old-2")).status == "unfinished"
    lines = {line.execution_id: line.best_score for line in await list_executions(Workspace(tmp_path))}
    best_of_all = {one.execution_id: one.score for one in await best_results(Workspace(tmp_path))}
    assert lines == best_of_all == {"old-1": 85.57, "old-2": 12.5}
    after = files_in(tmp_path)
    assert {name: data for name, data in after.items() if name != "mixseek.db.lock"} == before


async def test_whoever_cannot_take_turns_reads_all_the_same(tmp_path: Path) -> None:
    summary = await play(tmp_path)
    # As in a directory that nobody may write to, but true for every user: the lock file cannot be opened.
    (tmp_path / "mixseek.db.lock").unlink()
    (tmp_path / "mixseek.db.lock").mkdir()
    assert (await load_execution(Workspace(tmp_path), summary.execution_id)).status == "completed"
    assert len(await list_executions(Workspace(tmp_path))) == 1


async def test_a_store_of_the_same_process_may_be_open(tmp_path: Path) -> None:
    summary = await play(tmp_path)
    async with AggregationStore(tmp_path) as store:
        for number in range(5):
            await store.save_to_leader_board("another", "a", "A", number + 1, "text", "md", 1.0, {})
            record = await load_execution(Workspace(tmp_path), summary.execution_id)
            assert record.status == "completed"
    assert len(await list_executions(Workspace(tmp_path))) == 2


# --- ids --------------------------------------------------------------------------------------------------------------


async def test_ids_may_be_whole_shortened_or_last(tmp_path: Path) -> None:
    async with AggregationStore(tmp_path) as store:
        for day, each in enumerate(("abc-1", "abc-12", "abd", "last-but-one"), 1):
            began = datetime(2026, 1, day, tzinfo=UTC)
            await store.save_round_status(each, "a", "A", 1, round_started_at=began, round_ended_at=began)
    place = Workspace(tmp_path)
    assert await find_execution(place, "abc-1") == "abc-1", "a whole id wins over what it begins"
    assert await find_execution(place, "abc-12") == "abc-12"
    assert await find_execution(place, "abd") == await find_execution(place, "abd") == "abd"
    assert await find_execution(place, "last") == "last-but-one"
    with pytest.raises(ConfigurationError, match=r"any of 3 executions: give more of the id \(abd, abc-12, abc-1\)"):
        await find_execution(place, "ab")
    for unknown in ("x", "", "ABD"):
        with pytest.raises(ConfigurationError, match="mixseek history lists"):
            await find_execution(place, unknown)


async def test_the_newest_execution_stands_first_and_one_without_a_round_too(tmp_path: Path) -> None:
    first = await play(tmp_path, "first")
    second = await play(tmp_path, "second")
    lines = await list_executions(Workspace(tmp_path))
    assert [(line.execution_id, line.user_prompt) for line in lines] == [
        (second.execution_id, "second"),
        (first.execution_id, "first"),
    ]
    with duckdb.connect(str(tmp_path / "mixseek.db")) as db:
        for table in ("execution_summary", "leader_board", "round_status", "round_history", "model_usage"):
            db.execute(f"DELETE FROM {table} WHERE execution_id = ?", [second.execution_id])
    with sqlite3.connect(tmp_path / "journal.db") as journal:
        journal.execute("DELETE FROM events WHERE execution_id = ? AND kind <> 'RunStarted'", [second.execution_id])
    newest, _ = await list_executions(Workspace(tmp_path))
    assert (newest.execution_id, newest.status, newest.total_teams) == (second.execution_id, "unfinished", 2)
    record = await load_execution(Workspace(tmp_path), second.execution_id)
    assert [team.rounds[0].members[0].agent_name for team in record.teams] == ["member-1", "member-1"]


async def test_the_best_of_all_executions_come_in_the_one_order(tmp_path: Path) -> None:
    async with AggregationStore(tmp_path) as store:
        for execution, team, number, score in (
            ("e1", "a", 1, 50.0), ("e1", "a", 2, 70.0), ("e1", "b", 1, 70.0),
            ("e2", "a", 1, 90.0), ("e2", "c", 1, None),
        ):  # fmt: skip
            await store.save_to_leader_board(execution, team, team.upper(), number, "text", "md", score, {})
    found = await best_results(Workspace(tmp_path))
    assert [(one.execution_id, one.team_id, one.round_number, one.score) for one in found] == [
        ("e2", "a", 1, 90.0),
        ("e1", "a", 2, 70.0),
        ("e1", "b", 1, 70.0),
    ]
    assert len(await best_results(Workspace(tmp_path), limit=1)) == 1


async def test_a_round_that_was_broken_off_took_what_all_processes_took_and_no_pause(tmp_path: Path) -> None:
    file = write_workspace(tmp_path, teams=1, members=1, max_rounds=2)
    built: list[Orchestrator] = []

    def stop(event: Event) -> None:
        if isinstance(event, ModelCalled) and event.role == "member":
            built[0].stop()

    with scripted():
        settings = load_orchestrator_settings(file, tmp_path)
        built.append(Orchestrator(settings, listeners=[stop]))
        begun = await built[0].execute(TASK)
        assert begun.interrupted
        await Orchestrator(settings).resume(begun.execution_id)
    at = _a_second_for_each_event(tmp_path, pause=3600)
    record = await load_execution(Workspace(tmp_path), begun.execution_id)
    first = at["ModelCalled"][1] - at["RoundStarted"][0]
    second = at["RoundFinished"][0] - at["TeamStarted"][1]
    [team] = record.teams
    assert team.rounds[0].seconds == first + second
    [report] = what_if(record, [StopRule(max_rounds=1)]).rules
    assert report.teams[0].kept.seconds == first + second


async def test_a_round_that_was_finished_before_took_as_long_after_a_resume(tmp_path: Path) -> None:
    file = write_workspace(tmp_path, teams=1, members=1, max_rounds=2)
    built: list[Orchestrator] = []

    def stop(event: Event) -> None:
        if isinstance(event, ModelCalled) and event.role == "member" and event.round_number == 2:
            built[0].stop()

    with scripted():
        settings = load_orchestrator_settings(file, tmp_path)
        built.append(Orchestrator(settings, listeners=[stop]))
        begun = await built[0].execute(TASK)
        before = await load_execution(Workspace(tmp_path), begun.execution_id)
        await Orchestrator(settings).resume(begun.execution_id)
    after = await load_execution(Workspace(tmp_path), begun.execution_id)
    assert before.teams[0].rounds[0].seconds is not None
    assert after.teams[0].rounds[0].seconds == before.teams[0].rounds[0].seconds


def _a_second_for_each_event(root: Path, *, pause: int) -> dict[str, list[int]]:
    """Set the clock of the journal: what happened, and at which second, with a pause before the second process."""
    seconds: dict[str, list[int]] = {}
    with sqlite3.connect(root / "journal.db") as journal:
        for position, kind in journal.execute("SELECT position, kind FROM events ORDER BY position").fetchall():
            second = position + (pause if kind == "RunResumed" or "RunResumed" in seconds else 0)
            seconds.setdefault(kind, []).append(second)
            moment = datetime.fromtimestamp(second, UTC).isoformat()
            journal.execute("UPDATE events SET at = ? WHERE position = ?", (moment, position))
    journal.close()
    return seconds
