"""Runs that are killed, stopped or fail, and go on: nothing that was answered is paid for again."""

import asyncio
import os
import re
import sqlite3
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import duckdb
import pytest

from mixseek.cli import main
from mixseek.cli.progress import words_of
from mixseek.errors import NotResumableError, RunChangedError
from mixseek.events import Event, RoundStarted, SubmissionMade
from mixseek.hindsight.replaying import replay
from mixseek.orchestrator import Orchestrator, load_orchestrator_settings
from mixseek.records import ExecutionSummary
from mixseek.storage.aggregation_store import AggregationStore
from mixseek.testing import ModelCall, ModelServer, ModelServerProcess, ToolCall, write_workspace
from soak import forked
from soak.arena import TASK, Arena, Team
from tests.processes import holder_of
from tests.waiting import until

ID = "resumed"
ROUNDS = "max_rounds = 2\nmin_rounds = 1\n"
NO_RETRIES = "max_retries_per_team = 0\n"
ONE_RETRY = "max_retries_per_team = 1\n"
CALLS_OF_ONE_TEAM = 12
"""Leader twice, two members and a judge in each of two rounds, and a judgment after each."""
BOARD = ("team_id", "round_number", "submission_content", "score", "score_details", "final_submission", "exit_reason")


@pytest.fixture(autouse=True)
def _only_loopback(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MIXSEEK_ONLY_LOOPBACK", "1")


@pytest.fixture
def server() -> Iterator[ModelServerProcess]:
    with ModelServerProcess(latency=0.002, jitter=0.03, seed=7) as running:
        yield running


def board(arena: Arena) -> list[tuple[Any, ...]]:
    return [tuple(row[name] for name in BOARD) for row in arena.rows("leader_board")]


def wait_until(holds: Callable[[], bool], seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, "the run did not come so far"
        time.sleep(0.002)


def play_until(arena: Arena, server: ModelServerProcess, answered: int) -> int:
    """Play in a process of its own, kill it when so many calls are answered, and say how many were in flight then."""
    code = f"""
import asyncio
from mixseek.orchestrator import Orchestrator, load_orchestrator_settings
settings = load_orchestrator_settings("configs/orchestrator.toml", {str(arena.root)!r})
asyncio.run(Orchestrator(settings).execute({TASK!r}, execution_id={ID!r}))
"""
    child = forked.Popen([sys.executable, "-c", code], env={**os.environ, "MIXSEEK_ONLY_LOOPBACK": "1"})
    try:
        wait_until(lambda: server.bill.total.answered >= answered or child.poll() is not None)
    finally:
        child.kill()
        child.wait()
    wait_until(lambda: server.bill.total.waiting == 0)
    return server.bill.total.requests


async def resumed(arena: Arena, **options: Any) -> tuple[ExecutionSummary, list[Any]]:
    events: list[Event] = []
    summary = await arena.build(listeners=[events.append]).resume(ID, **options)
    return summary, events


def an_arena(root: Path, server: ModelServerProcess | ModelServer) -> Arena:
    teams = [Team("alpha", members=3), Team("beta", members=3)]
    root.mkdir(exist_ok=True)
    return Arena(root, server.base_url, teams, orchestrator="max_rounds = 2\nmin_rounds = 1\n", evaluator="")


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[tuple[Any, ...]], int]:
    """The leader board of a run that nobody kills, and how many calls it made."""
    os.environ["MIXSEEK_ONLY_LOOPBACK"] = "1"
    with ModelServerProcess(seed=7) as running:
        arena = an_arena(tmp_path_factory.mktemp("undisturbed"), running)
        asyncio.run(arena.build().execute(TASK, execution_id=ID))
        return board(arena), running.bill.total.requests


@pytest.mark.parametrize("answered", [17])
async def test_a_killed_run_goes_on_to_the_same_board_and_pays_only_for_what_was_in_flight(
    answered: int, tmp_path: Path, server: ModelServerProcess, undisturbed: tuple[list[tuple[Any, ...]], int]
) -> None:
    arena = an_arena(tmp_path, server)
    play_until(arena, server, answered)
    async with arena.journal() as journal:
        kept = sum(call.answer is not None for call in await journal.calls(ID))
    before = server.bill.total.requests
    summary, _ = await resumed(arena)
    rows, calls = undisturbed
    assert board(arena) == rows
    assert server.bill.total.requests - before == calls - kept
    assert (summary.failed_teams_info, summary.interrupted) == ([], False)
    assert summary.usage.requests == calls


# --- other ends than a kill -------------------------------------------------------------------------------------------


@pytest.fixture
async def scripted() -> AsyncIterator[ModelServer]:
    async with ModelServer() as running:
        yield running


async def begun(arena: Arena, **options: Any) -> ExecutionSummary:
    return await arena.build(**options).execute(TASK, execution_id=ID)


@pytest.mark.parametrize(
    ("damaged", "again"),
    [
        ("SELECT 1", 1),
        ("UPDATE calls SET answer = '{' WHERE answer IS NOT NULL AND role = 'leader' AND round_number = 2", 3),
        ("UPDATE calls SET answer = CAST(x'a5' AS TEXT) WHERE answer IS NOT NULL AND round_number = 2", 3),
        ("UPDATE tool_results SET result = '[' WHERE round_number = 2", 1),
    ],
)
async def test_a_damaged_row_costs_what_it_held_and_keeps_no_run_from_going_on(
    damaged: str, again: int, tmp_path: Path, scripted: ModelServer, caplog: pytest.LogCaptureFixture
) -> None:
    two_rounds = f"max_rounds = 2\nmin_rounds = 2\n{NO_RETRIES}"
    arena = Arena(tmp_path, scripted.base_url, [Team("alpha")], orchestrator=two_rounds)
    arena.script(scripted)
    scripted.fault(401, model="leader-alpha", at=4)
    failed = await begun(arena)
    assert [team.team_id for team in failed.failed_teams_info] == ["alpha"]
    scripted.clear_faults()
    with closing(sqlite3.connect(tmp_path / "journal.db")) as db:
        db.execute(damaged)
        db.commit()
    asked = scripted.bill.total.requests
    summary, _ = await resumed(arena)
    assert (summary.failed_teams_info, summary.team_results[0].round_number) == ([], 2)
    rest = 2  # a judge and a judgment, which nobody had been asked for
    assert scripted.bill.total.requests - asked == again + rest
    assert ("has a damaged row: " in caplog.text) == (damaged != "SELECT 1")


@pytest.mark.parametrize("kind", ["RoundFinished", "RoundJudged", "SubmissionMade", "TeamStarted", "HistoryKept"])
async def test_a_team_with_a_damaged_event_goes_on_from_before_it_with_the_answers_it_had_since(
    kind: str, tmp_path: Path, scripted: ModelServer, caplog: pytest.LogCaptureFixture
) -> None:
    three_rounds = f"max_rounds = 3\nmin_rounds = 3\n{NO_RETRIES}"
    teams = [Team("alpha"), Team("beta", scores=(60, 65), members=0)]
    arena = Arena(tmp_path, scripted.base_url, teams, orchestrator=three_rounds)
    arena.script(scripted)
    scripted.fault(401, model="leader-alpha", at=5)
    failed = await begun(arena)
    assert [team.team_id for team in failed.failed_teams_info] == ["alpha"]
    before = [row for row in board(arena) if row[0] == "alpha"]
    scripted.clear_faults()
    with closing(sqlite3.connect(tmp_path / "journal.db")) as db:
        db.execute(f"UPDATE events SET payload = '{{' WHERE team_id = 'alpha' AND kind = '{kind}'")
        db.commit()
    asked = scripted.bill.total.requests
    summary, _ = await resumed(arena)
    assert (summary.failed_teams_info, len(summary.team_results)) == ([], 2)
    last_round = 5  # the leader twice, its member, a judge and a judgment
    assert scripted.bill.total.requests - asked == last_round
    assert summary.usage.requests == sum(bill.answered for bill in scripted.bill.models.values())
    content = [[(*row[:5],) for row in rows if row[0] == "alpha"] for rows in (before, board(arena))]
    assert content[1][: len(content[0])] == content[0]
    if kind != "HistoryKept":
        assert "team 'alpha' goes on from before it, and what its models answered since is used" in caplog.text


async def test_a_submission_whose_judge_was_down_is_only_scored(tmp_path: Path, scripted: ModelServer) -> None:
    arena = Arena(tmp_path, scripted.base_url, [Team("alpha", members=2)], orchestrator=f"{ROUNDS}{NO_RETRIES}")
    arena.script(scripted)
    scripted.fault(401, model="judge")
    failed = await begun(arena)
    assert [team.team_id for team in failed.failed_teams_info] == ["alpha"]
    scripted.clear_faults()
    asked = scripted.bill.models["leader-alpha"].requests
    summary, events = await resumed(arena)
    assert summary.failed_teams_info == []
    # Round 1 is not asked for again: two calls of round 2.
    assert scripted.bill.models["leader-alpha"].requests - asked == 2
    assert [event.round_number for event in events if event.kind == "RoundStarted"] == [2]
    assert [entry.exit_reason for entry in summary.team_results] == ["max_rounds_reached"]
    assert [row["final_submission"] for row in arena.rows("leader_board")] == [False, True]


async def test_what_was_told_and_not_written_is_written_when_the_run_goes_on(
    tmp_path: Path, scripted: ModelServer
) -> None:
    arena = Arena(tmp_path, scripted.base_url, [Team("alpha", members=1)], orchestrator=f"{ROUNDS}{NO_RETRIES}")
    arena.script(scripted)

    def break_judges(event: Event) -> None:
        if isinstance(event, RoundStarted) and event.round_number == 2:
            scripted.fault(401, model="judge")

    await begun(arena, listeners=[break_judges])
    told = [arena.rows(table) for table in ("round_status", "round_history", "model_usage")]
    board = arena.rows("leader_board", "round_number = 1")
    with duckdb.connect(str(tmp_path / "mixseek.db")) as connection:
        # As if the process had been killed just before it wrote them.
        connection.execute("DELETE FROM leader_board WHERE round_number = 1")
        connection.execute("DELETE FROM round_status WHERE round_number = 1")
        connection.execute("DELETE FROM model_usage WHERE round_number = 1")
        connection.execute("DELETE FROM round_history WHERE round_number = 2")
    scripted.clear_faults()
    await resumed(arena)
    status, history, usage = (arena.rows(table) for table in ("round_status", "round_history", "model_usage"))
    assert _without_id(status[0]) == _without_id(told[0][0])
    resumed_board = arena.rows("leader_board", "round_number = 1")
    unmarked = {"final_submission": False, "exit_reason": None, "updated_at": board[0]["created_at"]}
    assert [_without_id(row) for row in resumed_board] == [{**_without_id(row), **unmarked} for row in board]
    assert [_without_id(row) for row in history] == [_without_id(row) for row in told[1]]
    assert [row for row in told[2] if row["round_number"] == 1] == [row for row in usage if row["round_number"] == 1]


def _without_id(row: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in row.items() if name != "id"}


async def test_a_team_in_its_second_try_goes_on_in_it(tmp_path: Path, scripted: ModelServer) -> None:
    arena = Arena(tmp_path, scripted.base_url, [Team("alpha", members=2)], orchestrator=f"{ROUNDS}{ONE_RETRY}")
    arena.script(scripted)
    scripted.fault(500, model="judge")
    await begun(arena)
    scripted.clear_faults()
    before = scripted.bill.total.requests
    summary, events = await resumed(arena)
    assert [event.attempt for event in events if event.kind == "TeamStarted"] == [2]
    # A judge for round 1; a leader twice, two members and a judge for round 2; a judgment after each.
    assert scripted.bill.total.requests - before == 1 + 5 + 2
    assert summary.failed_teams_info == []


async def test_a_team_whose_answers_made_it_fail_asks_anew(tmp_path: Path, scripted: ModelServer) -> None:
    arena = Arena(tmp_path, scripted.base_url, [Team("alpha")], orchestrator=f"{ROUNDS}{NO_RETRIES}")
    arena.script(scripted)
    scripted.on("judge", ["no form"] * 4)
    failed = await begun(arena)
    assert failed.failed_teams_info
    summary, events = await resumed(arena)
    assert [event.attempt for event in events if event.kind == "TeamStarted"] == [1, 2]
    assert summary.failed_teams_info == []


BESIDE = """
from pathlib import Path

from mixseek.evaluator.metrics import CodeMetric, Measured, MetricOptions


class Careless(CodeMetric):
    Options = MetricOptions

    def measure(self, submission, reference):
        if not Path(__file__).with_name("mended").exists():
            raise KeyError("a mistake")
        return Measured(50, "mended")
"""


def beside(
    root: Path, server: ModelServer, metric: str, code: str, judges: Sequence[str] = ("Quality",), retries: str = ""
) -> Arena:
    """One team and one round, judged by models and, for half of the score, by a metric of one's own."""
    (root / "own.py").write_text(code)
    weight = 0.5 / len(judges)
    asked = (f'[[metrics]]\nname = "{name}"\nweight = {weight}\nsystem_instruction = "How good?"\n' for name in judges)
    arena = Arena(
        root,
        server.base_url,
        [Team("alpha", members=0)],
        orchestrator=f"max_rounds = 1\n{retries}",
        evaluator=(
            f'{"".join(asked)}[[metrics]]\nname = "{metric}"\nweight = 0.5\n'
            f'[custom_metrics]\n{metric} = {{ path = "own.py", class = "{metric}" }}\n'
        ),
    )
    arena.script(server)
    return arena


async def test_judges_that_were_asked_when_a_metric_beside_them_failed_are_not_asked_again(
    tmp_path: Path, scripted: ModelServer
) -> None:
    arena = beside(tmp_path, scripted, "Careless", BESIDE)
    scripted.set_latency(0.3, model="judge")
    failed = await begun(arena)
    assert [team.team_id for team in failed.failed_teams_info] == ["alpha"]
    summary, events = await resumed(arena)
    assert summary.failed_teams_info, "it is not mended yet"
    assert [event.attempt for event in events if event.kind == "TeamStarted"] == [1]
    (tmp_path / "mended").touch()
    summary, _ = await resumed(arena)
    assert summary.best_score == 60
    assert scripted.bill.models["judge"].requests == 1


async def test_a_judge_that_waits_for_its_turn_is_not_asked_any_more_where_a_metric_has_failed(
    tmp_path: Path, scripted: ModelServer
) -> None:
    arena = beside(tmp_path, scripted, "Careless", BESIDE, judges=("Quality", "Style"))
    with (tmp_path / "configs" / "providers.toml").open("a") as providers:
        providers.write("max_concurrency = 1\n")
    scripted.set_latency(0.3, model="judge")
    failed = await begun(arena)
    assert [team.team_id for team in failed.failed_teams_info] == ["alpha"]
    judge = scripted.bill.models["judge"]
    assert (judge.requests, judge.answered, judge.aborted) == (1, 1, 0)
    (tmp_path / "mended").touch()
    await resumed(arena)
    judge = scripted.bill.models["judge"]
    assert (judge.requests, judge.answered, judge.aborted) == (2, 2, 0)


LATE = """
import asyncio
import sqlite3
import threading
from pathlib import Path

from mixseek.evaluator.metrics import BaseMetric
from mixseek.models.evaluation_result import MetricScore

ROOT = Path(__file__).parent


class Late(BaseMetric):
    async def evaluate(self, user_query, submission, **kwargs):
        if (ROOT / "mended").exists():
            return MetricScore(metric_name="Late", score=50)
        (ROOT / "mended").touch()
        # What the judge answers meanwhile cannot be committed before somebody else has written.
        other = sqlite3.connect(ROOT / "journal.db", isolation_level=None, check_same_thread=False)
        other.execute("BEGIN IMMEDIATE")
        threading.Timer(1.5, other.close).start()
        await asyncio.sleep(0.7)
        raise OSError("not now")
"""


async def test_a_judges_answer_that_came_and_is_not_written_yet_is_waited_for_where_a_metric_fails(
    tmp_path: Path, scripted: ModelServer
) -> None:
    arena = beside(tmp_path, scripted, "Late", LATE, retries=ONE_RETRY)
    scripted.set_latency(0.2, model="judge")
    summary = await begun(arena)
    assert (summary.failed_teams_info, summary.best_score) == ([], 60)
    assert scripted.bill.models["judge"].requests == 1


def two_judges(root: Path, server: ModelServer, retries: str) -> Arena:
    """One team and one round, judged by two models."""
    arena = Arena(
        root,
        server.base_url,
        [Team("alpha", members=0)],
        orchestrator=f"max_rounds = 1\n{retries}",
        top_of_evaluator="max_retries = 0",
        evaluator=(
            '[[metrics]]\nname = "Quality"\nsystem_instruction = "How good is it?"\n'
            '[[metrics]]\nname = "Style"\nsystem_instruction = "How does it sound?"\nmodel = "loop:stylist"\n'
        ),
    )
    arena.script(server)
    server.on("stylist", lambda _: {"evaluator_comment": "dull", "score": 30})
    return arena


@pytest.mark.parametrize("faults", [1, 2])
async def test_a_judge_that_has_scored_is_not_asked_again_where_another_could_not(
    tmp_path: Path, scripted: ModelServer, faults: int
) -> None:
    arena = two_judges(tmp_path, scripted, ONE_RETRY)
    scripted.fault(503, model="stylist", count=faults)
    scripted.set_latency(0.2, model="judge")
    summary = await begun(arena)
    assert len(summary.failed_teams_info) == faults - 1
    if summary.failed_teams_info:
        summary, _ = await resumed(arena)
    assert (summary.failed_teams_info, summary.best_score) == ([], 50)
    assert [metric["metric_name"] for metric in arena.rows("leader_board")[0]["score_details"]["metrics"]] == [
        "Quality",
        "Style",
    ]
    assert scripted.bill.models["judge"].requests == 1
    assert scripted.bill.models["stylist"].requests == faults + 1
    played_again = await replay(ID, tmp_path)
    assert (played_again.equal, played_again.calls_not_asked_for) == (True, 0)


@pytest.mark.parametrize(
    ("before", "after", "asked"),
    [
        ("How good is it?", "How true is it?", 2),
        ('name = "Quality"', 'name = "Quality"\ntemperature = 0.5', 2),
        ("max_retries = 0", "max_retries = 1", 1),
        ("How does it sound?", "How does it read?", 1),
        ('default_model = "loop:judge"', 'default_model = "loop:judge"\n[llm_default]\ntop_p = 0.5', 2),
        ("loop:stylist", "loop:judge", 2),  # Style alone, by the model of Quality
    ],
)
async def test_a_judge_that_was_changed_scores_again_what_it_had_scored(
    tmp_path: Path, scripted: ModelServer, before: str, after: str, asked: int
) -> None:
    arena = two_judges(tmp_path, scripted, NO_RETRIES)
    scripted.fault(503, model="stylist", count=1)
    scripted.set_latency(0.2, model="stylist")
    assert (await begun(arena)).failed_teams_info
    file = tmp_path / "configs" / "evaluator.toml"
    file.write_text(file.read_text().replace(before, after))
    summary, _ = await resumed(arena, accept_changes=True)
    assert summary.failed_teams_info == []
    assert scripted.bill.models["judge"].requests == asked


async def test_a_team_that_ran_out_of_time_goes_on_when_it_is_given_more(tmp_path: Path, scripted: ModelServer) -> None:
    arena = Arena(tmp_path, scripted.base_url, [Team("beta")], orchestrator=ROUNDS)
    arena.script(scripted)
    scripted.set_latency(30, model="member-beta")
    first = await arena.build().execute(TASK, 2, execution_id=ID)
    assert [team.team_id for team in first.failed_teams_info] == ["beta"]
    scripted.set_latency(0, model="member-beta")
    summary, _ = await resumed(arena, timeout_seconds=60)
    assert summary.failed_teams_info == []
    assert summary.total_execution_time_seconds >= 2
    assert summary.usage.requests == sum(row["requests"] for row in arena.rows("model_usage"))


async def test_a_team_that_was_taken_up_with_its_submission_is_in_the_round_of_that(
    tmp_path: Path, scripted: ModelServer
) -> None:
    arena = Arena(tmp_path, scripted.base_url, [Team("alpha", members=0)], orchestrator=f"{ROUNDS}{NO_RETRIES}")
    arena.script(scripted)
    scripted.fault(401, model="judge")
    await begun(arena)
    scripted.clear_faults()
    scripted.fault("hang_before_headers", model="judge")
    again = arena.build()
    playing = asyncio.create_task(again.resume(ID))
    await until(lambda: scripted.bill.models["judge"].waiting > 0)
    assert again.get_team_status("alpha").current_round == 1
    again.stop()
    assert [team.error_message for team in (await playing).failed_teams_info] == ["interrupted in round 1"]


async def test_a_run_that_was_stopped_goes_on(tmp_path: Path, scripted: ModelServer) -> None:
    arena = Arena(tmp_path, scripted.base_url, [Team("alpha", members=2)], orchestrator=ROUNDS)
    arena.script(scripted)
    built: list[Orchestrator] = []

    def stop(event: Event) -> None:
        if event.kind == "RoundFinished":
            built[0].stop()

    built.append(arena.build(listeners=[stop]))
    stopped = await built[0].execute(TASK, execution_id=ID)
    assert stopped.interrupted
    paid = scripted.bill.total.answered
    summary, _ = await resumed(arena)
    assert not summary.interrupted
    assert scripted.bill.total.answered - paid == CALLS_OF_ONE_TEAM - paid
    async with arena.journal() as journal:
        events = await journal.events(ID)
    for team_id in (None, "alpha"):
        own = [event.sequence for event in events if event.team_id == team_id]
        assert own == list(range(len(own)))


async def test_a_run_that_is_resumed_with_fewer_rounds_plays_none_beyond_them(
    tmp_path: Path, scripted: ModelServer
) -> None:
    arena = Arena(tmp_path, scripted.base_url, [Team("alpha")], orchestrator="max_rounds = 4\nmin_rounds = 1\n")
    arena.script(scripted)
    built: list[Orchestrator] = []

    def stop(event: Event) -> None:
        if isinstance(event, RoundStarted) and event.round_number == 3:
            built[0].stop()

    built.append(arena.build(listeners=[stop]))
    await built[0].execute(TASK, execution_id=ID)
    paid = scripted.bill.total.requests
    file = tmp_path / "configs" / "orchestrator.toml"
    file.write_text(file.read_text().replace("max_rounds = 4", "max_rounds = 2"))
    summary, events = await resumed(arena, accept_changes=True)
    assert [result.exit_reason for result in summary.team_results] == ["max_rounds_reached"]
    assert [event.kind for event in events if event.kind == "RoundStarted"] == []
    assert scripted.bill.total.requests == paid


async def _is_what_the_journal_tells(arena: Arena) -> None:
    with pytest.raises(SystemExit) as end:
        await asyncio.to_thread(main, ["journal", "verify", "-w", str(arena.root)])
    assert end.value.code == 0
    async with AggregationStore(arena.root) as store:
        rebuilt = await store.rebuild()
    assert (rebuilt.added, rebuilt.changed) == (0, 0)


@pytest.mark.parametrize("point", ["round.submitted:2", "round.scored:2"])
async def test_what_a_round_cost_that_is_not_played_any_more_is_on_the_bill(
    tmp_path: Path, server: ModelServerProcess, point: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    teams = [Team("alpha", members=0)]
    arena = Arena(tmp_path, server.base_url, teams, orchestrator="max_rounds = 3\nmin_rounds = 1\n", evaluator="")
    monkeypatch.setenv("MIXSEEK_CRASH_AT", point)
    play_until(arena, server, answered=1_000)
    monkeypatch.delenv("MIXSEEK_CRASH_AT")
    _with_fewer_rounds(arena, 3)
    summary, _ = await resumed(arena, accept_changes=True)
    assert [(best.round_number, best.exit_reason) for best in summary.team_results] == [(1, "max_rounds_reached")]
    leader = [row["requests"] for row in arena.rows("model_usage") if row["role"] == "leader"]
    assert leader == [1, 1]
    await _is_what_the_journal_tells(arena)


@pytest.mark.parametrize("is_taken_out", [False, True])
async def test_what_was_told_of_a_round_that_is_not_played_any_more_is_written(
    tmp_path: Path, scripted: ModelServer, is_taken_out: bool
) -> None:
    teams = [Team("alpha"), Team("beta")]
    arena = Arena(tmp_path, scripted.base_url, teams, orchestrator="max_rounds = 3\nmin_rounds = 1\n")
    arena.script(scripted)
    built: list[Orchestrator] = []

    def stop(event: Event) -> None:
        if isinstance(event, SubmissionMade) and (event.team_id, event.round_number) == ("beta", 2):
            built[0].stop()

    built.append(arena.build(listeners=[stop]))
    await built[0].execute(TASK, execution_id=ID)
    with duckdb.connect(str(tmp_path / "mixseek.db")) as connection:
        # As if the process had been killed just before it wrote them.
        connection.execute("DELETE FROM model_usage WHERE team_id = 'beta' AND round_number = 2")
        connection.execute("DELETE FROM round_history WHERE team_id = 'beta' AND round_number = 2")
    if is_taken_out:
        file = tmp_path / "configs" / "orchestrator.toml"
        file.write_text(file.read_text().replace('[[orchestrator.teams]]\nconfig = "configs/agents/1.toml"\n', ""))
    else:
        _with_fewer_rounds(arena, 3)
    await resumed(arena, accept_changes=True)
    assert arena.rows("round_history", "team_id = 'beta' AND round_number = 2")
    await _is_what_the_journal_tells(arena)


def _with_fewer_rounds(arena: Arena, rounds: int) -> None:
    file = arena.root / "configs" / "orchestrator.toml"
    file.write_text(file.read_text().replace(f"max_rounds = {rounds}", "max_rounds = 1"))


async def test_an_answer_of_a_fallback_is_used_again_although_the_first_model_is_back(
    tmp_path: Path, scripted: ModelServer
) -> None:
    team = Team("alpha", leader='fallback_models = ["loop:spare"]')
    arena = Arena(tmp_path, scripted.base_url, [team], orchestrator=f"{ROUNDS}{NO_RETRIES}")
    arena.script(scripted)
    scripted.on("spare", lambda call: "the spare's answer, worth 10" if call.tool_results else None)
    scripted.fault(401, model="leader-alpha")
    scripted.fault(401, model="judge")
    await begun(arena)
    asked = scripted.bill.models["spare"].requests
    assert asked == 2
    # The submission itself is not in the journal: the round has to be played again.
    with sqlite3.connect(tmp_path / "journal.db") as journal:
        journal.execute("DELETE FROM events WHERE kind IN ('SubmissionMade', 'HistoryKept')")
    scripted.clear_faults()
    summary, _ = await resumed(arena)
    assert scripted.bill.models["spare"].requests == asked
    assert summary.team_results[0].round_number == 2
    assert arena.rows("leader_board")[0]["submission_content"] == "the spare's answer, worth 10"


@pytest.mark.parametrize("kind", ["plain", "web_fetch", "code_execution"])
async def test_tools_of_members_are_not_used_again(tmp_path: Path, scripted: ModelServer, kind: str) -> None:
    (tmp_path / "noting.py").write_text(
        'from pathlib import Path\n\n\ndef note(word: str) -> str:\n    """Note a word."""\n'
        f'    with Path({str(tmp_path / "noted")!r}).open("a") as file:\n        file.write(word)\n    return word\n'
    )
    team = Team("alpha", member='functions = ["noting:note"]')
    arena = Arena(tmp_path, scripted.base_url, [team], orchestrator=f"max_rounds = 1\nmin_rounds = 1\n{NO_RETRIES}")
    arena.script(scripted)
    file = tmp_path / "configs" / "agents" / "0.toml"
    file.write_text(file.read_text().replace('type = "plain"', f'type = "{kind}"'))
    scripted.on(
        "member-alpha", lambda call: "help for it" if call.tool_results else [ToolCall("note", {"word": "once."})]
    )
    scripted.fault(401, model="judge")
    await begun(arena)
    with sqlite3.connect(tmp_path / "journal.db") as journal:
        journal.execute("DELETE FROM events WHERE kind IN ('SubmissionMade', 'HistoryKept')")
        # Of the member only its calls and tools are known, not what it gave.
        journal.execute("DELETE FROM tool_results WHERE role = 'leader'")
        journal.execute("DELETE FROM calls WHERE role = 'leader' AND id > (SELECT min(id) FROM calls)")
    scripted.clear_faults()
    asked = scripted.bill.models["member-alpha"].requests
    summary, _ = await resumed(arena)
    assert summary.failed_teams_info == []
    assert (tmp_path / "noted").read_text() == "once."
    assert scripted.bill.models["member-alpha"].requests == asked


async def test_each_answer_of_a_member_is_its_own_where_a_model_names_all_its_calls_alike(
    tmp_path: Path, scripted: ModelServer
) -> None:
    arena = Arena(tmp_path, scripted.base_url, [Team("alpha")], orchestrator="max_rounds = 1\nmin_rounds = 1\n")
    arena.script(scripted)

    def leader(call: ModelCall) -> str | list[ToolCall]:
        if len(call.tool_results) > 1:
            return f"{call.tool_results}, worth 70"
        return [ToolCall(call.tools[0].name, {"task": "look again"}, id="call_0")]

    scripted.on("leader-alpha", leader)
    scripted.on("member-alpha", ["the first", "the second"])
    built: list[Orchestrator] = []

    def stop(event: Event) -> None:
        # The second answer is in the journal, and what the member made of it is not.
        if event.kind == "ModelCalled" and getattr(event, "role", "") == "member" and len(scripted.requests) == 4:
            built[0].stop()

    built.append(arena.build(listeners=[stop]))
    assert (await built[0].execute(TASK, execution_id=ID)).interrupted
    summary, _ = await resumed(arena)
    [answer] = [entry.submission_content for entry in summary.team_results]
    assert "the first" in answer
    assert "the second" in answer
    assert scripted.bill.models["member-alpha"].requests == 2


async def test_results_that_cannot_be_written_are_no_reason_to_ask_again(tmp_path: Path, scripted: ModelServer) -> None:
    arena = Arena(
        tmp_path,
        scripted.base_url,
        [Team("alpha")],
        orchestrator=f"{ROUNDS}{NO_RETRIES}",
        storage="lock_wait_seconds = 0",
    )
    arena.script(scripted)
    holders: list[subprocess.Popen[bytes]] = []

    async with AggregationStore(tmp_path) as store:
        await store.get_leader_board()

    def take_the_file(event: Event) -> None:
        if event.kind == "TeamStarted" and not holders:
            holders.append(holder_of(tmp_path / "mixseek.db"))

    asked = []
    for is_resumed in (False, True, True):
        built = arena.build(listeners=[take_the_file])
        try:
            failed = await (built.resume(ID) if is_resumed else built.execute(TASK, execution_id=ID))
        finally:
            holders.pop().communicate()
        assert "is held by" in failed.failed_teams_info[0].error_message
        asked.append(scripted.bill.total.requests)
    # A leader twice, a member and a judge, once and for all.
    assert asked == [4, 4, 4]
    summary, _ = await resumed(arena)
    assert summary.failed_teams_info == []


async def test_a_run_that_was_resumed_after_its_end_has_ended_only_when_it_ends_again(
    tmp_path: Path, scripted: ModelServer
) -> None:
    arena = Arena(tmp_path, scripted.base_url, orchestrator=f"{ROUNDS}{NO_RETRIES}")
    arena.script(scripted)
    scripted.fault(401, model="leader-beta")
    first = await begun(arena)
    assert (first.best_team_id, len(first.failed_teams_info)) == ("alpha", 1)
    scripted.clear_faults()
    # What was written of the second end is gone, as if the process had died before it.
    await resumed(arena)
    with sqlite3.connect(tmp_path / "journal.db") as journal:
        journal.execute("DELETE FROM events WHERE position = (SELECT max(position) FROM events)")
    asked = scripted.bill.total.requests
    summary, _ = await resumed(arena)
    assert scripted.bill.total.requests == asked
    assert summary.failed_teams_info == []
    [row] = arena.rows("execution_summary")
    assert (row["status"], row["total_teams"]) == ("completed", 2)


@pytest.mark.parametrize("stopped_at", ["RunResumed", "TeamStarted"])
async def test_a_team_with_more_to_spend_goes_on_although_the_first_resume_was_stopped(
    tmp_path: Path, scripted: ModelServer, stopped_at: str
) -> None:
    arena = Arena(
        tmp_path, scripted.base_url, [Team("alpha")], orchestrator=ROUNDS, storage="[budget]\nmax_requests = 7\n"
    )
    arena.script(scripted)
    ended = await begun(arena)
    assert [entry.exit_reason for entry in ended.team_results] == ["budget_exhausted"]
    file = tmp_path / "configs/orchestrator.toml"
    file.write_text(file.read_text().replace("max_requests = 7", "max_requests = 100"))
    assert (await stopped_resume(arena, stopped_at, accept_changes=True)).interrupted
    summary, _ = await resumed(arena)
    assert [(entry.exit_reason, entry.round_number) for entry in summary.team_results] == [("max_rounds_reached", 2)]


@pytest.mark.parametrize("is_stopped", [False, True])
async def test_a_team_that_failed_has_all_its_retries_again(
    tmp_path: Path, scripted: ModelServer, is_stopped: bool
) -> None:
    arena = Arena(tmp_path, scripted.base_url, [Team("alpha")], orchestrator=f"{ROUNDS}max_retries_per_team = 2\n")
    arena.script(scripted)
    scripted.fault(500, model="leader-alpha")
    await begun(arena)
    if is_stopped:
        await stopped_resume(arena, "TeamStarted")
    _, events = await resumed(arena)
    tries = [event for event in events if event.kind == "TeamStarted"]
    assert [(event.attempt, event.retry) for event in tries] == [(3, 0), (4, 1), (5, 2)]
    assert [words_of(event) for event in tries] == [
        "goes on (Team alpha)",
        "tries again, retry 1",
        "tries again, retry 2",
    ]


async def test_a_try_that_failed_by_recorded_answers_is_not_counted_among_the_retries(
    tmp_path: Path, scripted: ModelServer
) -> None:
    arena = Arena(tmp_path, scripted.base_url, [Team("alpha")], orchestrator=f"{ROUNDS}{ONE_RETRY}")
    arena.script(scripted)
    scripted.on("judge", ["no form"] * 4)
    failed = await begun(arena)
    assert failed.failed_teams_info
    scripted.fault(500, model="judge", count=4)
    summary, events = await resumed(arena)
    tries = [event for event in events if event.kind == "TeamStarted"]
    assert [(event.attempt, event.retry) for event in tries] == [(1, 0), (2, 0), (3, 1)]
    assert summary.failed_teams_info == []


async def stopped_resume(arena: Arena, kind: str, **options: Any) -> ExecutionSummary:
    """Go on, and stop at the first event of this kind."""
    built: list[Orchestrator] = []

    def stop(event: Event) -> None:
        if event.kind == kind:
            built[0].stop()

    built.append(arena.build(listeners=[stop]))
    return await built[0].resume(ID, **options)


# --- what is refused --------------------------------------------------------------------------------------------------


async def a_failed_run(tmp_path: Path, scripted: ModelServer) -> Arena:
    arena = Arena(tmp_path, scripted.base_url, [Team("alpha")], orchestrator=f"{ROUNDS}{NO_RETRIES}")
    arena.script(scripted)
    scripted.fault(401, model="judge")
    await begun(arena)
    scripted.clear_faults()
    return arena


async def test_what_changed_is_told_and_nothing_is_asked(tmp_path: Path, scripted: ModelServer) -> None:
    arena = await a_failed_run(tmp_path, scripted)
    asked = scripted.bill.total.requests
    file = tmp_path / "configs/agents/0.toml"
    file.write_text(file.read_text().replace('description = "helps"', 'description = "helps more"'))
    with pytest.raises(RunChangedError, match=r"members\[0\].description: was 'helps', is 'helps more'") as refused:
        await resumed(arena)
    first = refused.value.problems[0]
    assert (first.file, first.key) == ("configs/agents/0.toml", "members[0].description")
    assert scripted.bill.total.requests == asked
    summary, _ = await resumed(arena, accept_changes=True)
    assert summary.failed_teams_info == []
    with pytest.raises(NotResumableError, match="nothing to resume"):
        await resumed(arena)


async def test_a_setting_that_a_variable_changes_is_not_blamed_on_a_file(
    tmp_path: Path, scripted: ModelServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    arena = await a_failed_run(tmp_path, scripted)
    monkeypatch.setenv("MIXSEEK_MAX_ROUNDS", "4")
    with pytest.raises(RunChangedError, match=r"orchestrator: max_rounds: was \d, is 4") as refused:
        await resumed(arena)
    assert refused.value.problems[0].file is None


async def test_a_workspace_that_is_reached_by_another_path_is_the_one_a_run_was_begun_in(
    tmp_path: Path, scripted: ModelServer
) -> None:
    real, other = tmp_path / "real", tmp_path / "other"
    real.mkdir()
    other.symlink_to(real)
    (real / "noting.py").write_text('def note(word: str) -> str:\n    """Note a word."""\n    return word\n')
    arena = Arena(
        other,
        scripted.base_url,
        [Team("alpha", member='functions = ["noting:note"]')],
        orchestrator=f"{ROUNDS}{NO_RETRIES}",
    )
    arena.script(scripted)
    scripted.fault(401, model="judge")
    await begun(arena)
    scripted.clear_faults()

    again = load_orchestrator_settings("configs/orchestrator.toml", real)
    summary = await Orchestrator(again).resume(ID)

    assert summary.failed_teams_info == []


async def test_more_time_and_more_tries_for_a_model_pay_for_no_answer_again(
    tmp_path: Path, scripted: ModelServer
) -> None:
    arena = await a_failed_run(tmp_path, scripted)
    asked = scripted.bill.models["leader-alpha"].requests
    file = tmp_path / "configs/agents/0.toml"
    file.write_text(re.sub(r'(model = "loop:.*")', r"\1\ntimeout_seconds = 77\nmax_retries = 7", file.read_text()))
    with sqlite3.connect(tmp_path / "journal.db") as journal:
        journal.execute("DELETE FROM events WHERE kind IN ('SubmissionMade', 'HistoryKept')")
    summary, _ = await resumed(arena, accept_changes=True)
    assert summary.failed_teams_info == []
    # The first round was answered before; the second one is new.
    assert scripted.bill.models["leader-alpha"].requests == 2 * asked


async def test_a_judge_that_was_not_asked_yet_is_shown_the_reference_there_is_now(
    tmp_path: Path, scripted: ModelServer
) -> None:
    file = write_workspace(
        tmp_path,
        teams=1,
        max_rounds=1,
        base_url=scripted.base_url,
        orchestrator='reference = "the wrong one"\nmax_retries_per_team = 0',
        evaluator='[[metrics]]\nname = "Relevance"\nuse_reference = true\n',
    )
    scripted.fault(401, model="judge")
    await Orchestrator(load_orchestrator_settings(file, tmp_path)).execute(TASK, execution_id=ID)
    scripted.clear_faults()
    asked = len(scripted.requests)
    file.write_text(file.read_text().replace("the wrong one", "the right one"))
    await Orchestrator(load_orchestrator_settings(file, tmp_path)).resume(ID, accept_changes=True)
    [judged] = [request for request in scripted.requests[asked:] if request.model == "judge"]
    assert "the right one" in str(judged.body)
    assert [request.model for request in scripted.requests[asked:] if "leader" in request.model] == []


async def test_a_file_that_a_setting_names_is_part_of_the_run(tmp_path: Path, scripted: ModelServer) -> None:
    (tmp_path / "schema.json").write_text('{"type": "object"}')
    team = Team("alpha", top='answer_schema = "schema.json"')
    arena = Arena(tmp_path, scripted.base_url, [team], orchestrator=f"{ROUNDS}{NO_RETRIES}")
    scripted.fault(401, model="leader-alpha")
    await begun(arena)
    scripted.clear_faults()
    (tmp_path / "schema.json").write_text('{"type": "object", "required": ["answer"]}')
    with pytest.raises(RunChangedError, match=r"^schema.json: has changed"):
        await resumed(arena)


async def test_an_execution_is_resumed_by_the_beginning_of_its_id_or_as_the_last_one(
    tmp_path: Path, scripted: ModelServer
) -> None:
    arena = Arena(tmp_path, scripted.base_url)
    scripted.fault(400, model="leader-alpha")
    ids = ("abc-1", "abc-21", "other")
    for each in ids:
        await arena.build().execute(TASK, execution_id=each)
    scripted.reset()
    asked = len(scripted.requests)
    with pytest.raises(NotResumableError, match=r"'abc' may be any of 2 executions: .* \(abc-21, abc-1\)$"):
        await arena.build().resume("abc")
    assert len(scripted.requests) == asked
    summaries = [await arena.build().resume(wanted) for wanted in ("last", "abc-1", "abc-2")]
    assert [summary.execution_id for summary in summaries] == ["other", "abc-1", "abc-21"]
    assert all(summary.completed_teams for summary in summaries)


async def test_an_execution_that_nobody_knows_is_not_resumed_and_leaves_nothing(
    tmp_path: Path, scripted: ModelServer
) -> None:
    arena = Arena(tmp_path, scripted.base_url)
    with pytest.raises(NotResumableError, match="knows no execution 'resumed'"):
        await resumed(arena)
    assert not (tmp_path / "journal.db").exists()
    assert not (tmp_path / "mixseek.db").exists()
    await arena.play()
    before = _everything(arena)
    with pytest.raises(NotResumableError, match="knows no execution 'resumed'"):
        await resumed(arena)
    assert _everything(arena) == before


def _everything(arena: Arena) -> list[str]:
    """All that the journal holds, the places of those who play included."""
    with closing(sqlite3.connect(arena.root / "journal.db")) as journal:
        return list(journal.iterdump())
