"""Other judges over recorded submissions: what they are asked, what is paid, and how the ranking changes."""

import asyncio
import json
import os
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import duckdb
import pytest

from mixseek.cli import main
from mixseek.config.manager import ConfigurationManager
from mixseek.errors import ConfigurationError, PlaceTakenError
from mixseek.events import Event, SubmissionMade
from mixseek.hindsight.rejudging import Rejudgment, plan_rejudging, rejudge
from mixseek.hindsight.whatif import StopRule, what_if
from mixseek.report.deleting import delete_execution
from mixseek.report.reading import list_executions, load_execution
from mixseek.storage.aggregation_store import AggregationStore
from mixseek.storage.journal import Journal
from mixseek.storage.pruning import drop_bodies
from mixseek.storage.rebuilding import Rebuilt
from mixseek.testing import ModelCall, ModelServer
from mixseek.workspace import Workspace
from soak import forked
from soak.arena import GO_ON, TASK, Arena, Team, at_once
from tests.waiting import until_true

SAFETY_SECONDS = 180
SAME = '[[metrics]]\nname = "Quality"\nsystem_instruction = "How good is it?"\nmodel = "loop:judge"\n'
OTHER = '[[metrics]]\nname = "Style"\nsystem_instruction = "Is it well written?"\nmodel = "loop:stylist"\n'
PRICE = '[prices."loop:stylist"]\ninput_usd_per_million = 1\noutput_usd_per_million = 2\n'


TEAMS = (Team("alpha"), Team("beta", scores=(60, 65)), Team("gamma", members=0))


def _script(server: ModelServer, arena: Arena) -> None:
    arena.script(server)
    server.on("leader-gamma", lambda _: "")
    server.on("stylist", lambda call: {"evaluator_comment": "elegant", "score": 90 if "beta" in call.text else 10})


@pytest.fixture(scope="module")
def once(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[ModelServer, Arena]]:
    """Alpha wins with 80 in round 2, beta has 65, and gamma never submits anything."""
    with ModelServer() as server:
        arena = Arena(tmp_path_factory.mktemp("played"), server.base_url, TEAMS)
        _script(server, arena)
        asyncio.run(arena.play())
        yield server, arena


@pytest.fixture
def server(once: tuple[ModelServer, Arena]) -> ModelServer:
    """The server it was played on, with new books."""
    server, arena = once
    server.reset()
    server.set_latency(0)
    _script(server, arena)
    return server


@pytest.fixture
def played(once: tuple[ModelServer, Arena], server: ModelServer, tmp_path: Path) -> Arena:
    """A copy of the workspace."""
    shutil.copytree(once[1].root, tmp_path, dirs_exist_ok=True)
    return Arena(tmp_path, server.base_url, TEAMS)


def _evaluator(arena: Arena, text: str, name: str = "strict.toml") -> Path:
    file = arena.root / "configs" / name
    file.write_text(f'default_model = "loop:judge"\n{text}', encoding="utf-8")
    return file


def _rejudge(arena: Arena, text: str, name: str = "strict.toml") -> Rejudgment:
    [line] = asyncio.run(list_executions(Workspace.locate(arena.root)))
    return asyncio.run(rejudge(line.execution_id, _evaluator(arena, text, name), arena.root, backoff=at_once))


def _asked(server: ModelServer, model: str) -> int:
    return sum(request.model == model for request in server.requests)


def test_other_judges_change_scores_and_ranks_and_no_team_is_asked(played: Arena, server: ModelServer) -> None:
    told = _rejudge(played, OTHER)
    assert [(team.team_id, team.old_rank, team.new_rank, team.moved) for team in told.teams] == [
        ("beta", 2, 1, 1),
        ("alpha", 1, 2, -1),
        ("gamma", None, None, None),
    ]
    beta = told.teams[0]
    assert (beta.old_score, beta.new_score, beta.new_round) == (65, 90, 2)
    assert [(one.round_number, one.old_score, one.new_score) for one in beta.rounds] == [(1, 60, 90), (2, 65, 90)]
    assert beta.rounds[0].metrics[0].evaluator_comment == "elegant"
    assert (told.old_winner, told.new_winner, told.submissions, told.failed_metrics) == ("alpha", "beta", 4, 0)
    assert (told.usage.requests, told.reused_calls, len(told.bill)) == (4, 0, 4)
    assert [request.model for request in server.requests] == ["stylist"] * 4


def test_doing_the_same_again_asks_nobody(played: Arena, server: ModelServer) -> None:
    first, asked = _rejudge(played, OTHER), len(server.requests)
    again = _rejudge(played, OTHER)
    assert again.teams == first.teams
    assert (again.usage.requests, again.reused_calls, again.cost_usd) == (0, 4, 0)
    assert len(server.requests) == asked


def test_other_weights_cost_no_call_not_even_of_judges_of_the_execution_itself(
    played: Arena, server: ModelServer
) -> None:
    asked = len(server.requests)
    told = _rejudge(played, SAME)
    assert len(server.requests) == asked
    assert [(team.old_score, team.new_score, team.moved) for team in told.teams[:2]] == [(80, 80, 0), (65, 65, 0)]
    both = _rejudge(played, f"{SAME}weight = 0.5\n{OTHER}weight = 0.5\n")
    assert [(team.team_id, team.new_score) for team in both.teams[:2]] == [("beta", 77.5), ("alpha", 45)]
    assert (both.usage.requests, both.reused_calls) == (4, 4)
    asked = len(server.requests)
    other = _rejudge(played, f"{SAME}weight = 0.9\n{OTHER}weight = 0.1\n")
    assert [team.team_id for team in other.teams[:2]] == ["alpha", "beta"]
    assert [team.new_score for team in other.teams[:2]] == pytest.approx([73, 67.5])
    assert len(server.requests) == asked


def test_the_same_judges_cost_no_call_after_the_execution_was_pruned(played: Arena, server: ModelServer) -> None:
    workspace = Workspace.locate(played.root)
    [line] = asyncio.run(list_executions(workspace))
    drop_bodies(workspace.journal, [line.execution_id])
    plan = asyncio.run(plan_rejudging(line.execution_id, _evaluator(played, SAME), played.root))
    assert (plan.calls, plan.reused_calls) == (0, 4)
    told = _rejudge(played, SAME)
    assert [(team.old_score, team.new_score) for team in told.teams[:2]] == [(80, 80), (65, 65)]
    assert (told.usage.requests, told.reused_calls, server.requests) == (0, 4, [])


def test_other_weights_cost_no_call_of_a_team_that_failed_and_was_resumed(tmp_path: Path) -> None:
    evaluator = SAME + "max_retries = 0\n"
    with ModelServer() as server:
        orchestrator = "max_rounds = 2\nmin_rounds = 2\nmax_retries_per_team = 1\n"
        arena = Arena(tmp_path, server.base_url, (Team("alpha"),), orchestrator, evaluator=evaluator)
        arena.script(server)
        server.fault("500", model="judge", count=2)
        failed = asyncio.run(arena.build().execute("task", execution_id="x"))
        server.clear_faults()
        server.fault("500", model="judge", count=1)
        whole = asyncio.run(arena.build().resume("x"))
        assert (failed.status, whole.status) == ("failed", "completed")
        asked = len(server.requests)
        file = _evaluator(arena, evaluator)
        plan = asyncio.run(plan_rejudging("x", file, tmp_path))
        assert (plan.calls, plan.reused_calls) == (0, 2)
        told = asyncio.run(rejudge("x", file, tmp_path))
        assert (len(server.requests), told.reused_calls, told.failed_metrics) == (asked, 2, 0)


def test_a_judge_that_is_told_something_else_is_asked(played: Arena, server: ModelServer) -> None:
    _rejudge(played, SAME)
    told = _rejudge(played, SAME.replace("How good is it?", "How bad is it?"))
    assert (told.usage.requests, told.reused_calls) == (4, 0)


def test_a_judge_that_judged_before_is_not_asked_again_beside_another_or_with_a_reference_it_is_not_shown(
    played: Arena, server: ModelServer
) -> None:
    asked = len(server.requests)
    _rejudge(played, OTHER)
    strict = SAME.replace("How good is it?", "How bad is it?")
    both = _rejudge(played, f"{OTHER}weight = 0.5\n{strict}weight = 0.5\n")
    assert (both.usage.requests, both.reused_calls) == (4, 4)
    assert [(team.team_id, team.new_score) for team in both.teams[:2]] == [("beta", 77.5), ("alpha", 45)]
    file = _evaluator(played, OTHER)
    plan = asyncio.run(plan_rejudging(both.execution_id, file, played.root, reference="another one"))
    assert (plan.calls, plan.reused_calls) == (0, 4)
    told = asyncio.run(rejudge(both.execution_id, file, played.root, reference="another one"))
    assert (told.usage.requests, told.reused_calls, len(server.requests)) == (0, 4, asked + 8)


def test_a_judge_that_was_shown_the_reference_is_not_asked_again_beside_another(
    played: Arena, server: ModelServer
) -> None:
    shown = f"{OTHER}use_reference = true\n"
    [line] = asyncio.run(list_executions(Workspace.locate(played.root)))

    def judged(text: str, reference: str) -> Rejudgment:
        return asyncio.run(rejudge(line.execution_id, _evaluator(played, text), played.root, reference=reference))

    judged(shown, "Tokyo")
    both = judged(f"{shown}weight = 0.5\n{SAME}weight = 0.5\n", "Tokyo")
    assert (both.usage.requests, both.reused_calls) == (0, 8)
    assert judged(shown, "Kyoto").usage.requests == 4


def test_an_attachment_that_is_not_what_came_with_the_task_is_refused_before_a_judge_is_asked(
    tmp_path: Path, server: ModelServer
) -> None:
    arena = Arena(tmp_path, server.base_url, [Team("alpha")], orchestrator="max_rounds = 1\n")
    arena.script(server)
    (tmp_path / "notes.txt").write_text("what it is about")
    asyncio.run(arena.build().execute(TASK, execution_id="e", attachments=[tmp_path / "notes.txt"]))
    asked = server.bill.total.requests
    [kept] = (tmp_path / "attachments").iterdir()
    kept.write_text("something else!!")
    with pytest.raises(ConfigurationError, match=r"shown something else .*'notes.txt' in .* is not what came with"):
        asyncio.run(rejudge("e", _evaluator(arena, OTHER), tmp_path))
    assert server.bill.total.requests == asked


def test_metrics_computed_in_code_need_no_judge(played: Arena, server: ModelServer) -> None:
    asked = len(server.requests)
    told = _rejudge(played, '[[metrics]]\nname = "Says"\ntype = "Terms"\noptions = {required = ["beta"]}\n')
    assert [(team.team_id, team.new_score) for team in told.teams] == [("beta", 100), ("alpha", 0), ("gamma", None)]
    assert (len(server.requests), told.usage.requests) == (asked, 0)


def test_a_metric_that_fails_costs_only_its_own_cell(played: Arena, server: ModelServer) -> None:
    server.fault("400", model="stylist", contains="alpha answer of round 2")
    told = _rejudge(played, f"{SAME}weight = 0.5\n{OTHER}weight = 0.5\n")
    alpha = next(team for team in told.teams if team.team_id == "alpha")
    first, second = alpha.rounds
    assert [cell.error for cell in first.metrics] == [None, None]
    quality, style = second.metrics
    assert (quality.score, quality.error, style.score) == (80, None, None)
    assert "metric 'Style' could not score" in str(style.error)
    assert (second.new_score, told.failed_metrics) == (None, 1)
    assert (alpha.new_score, alpha.new_round) == (40, 1)
    server.clear_faults()
    asked = len(server.requests)
    assert _rejudge(played, f"{SAME}weight = 0.5\n{OTHER}weight = 0.5\n").failed_metrics == 0
    assert len(server.requests) == asked + 1


def test_submissions_are_judged_at_the_same_time(played: Arena, server: ModelServer) -> None:
    most = 0

    def stylist(_: ModelCall) -> dict[str, object]:
        nonlocal most
        most = max(most, server.bill.total.waiting)
        return {"evaluator_comment": "fine", "score": 50}

    server.on("stylist", stylist)
    server.set_latency(0.3, model="stylist")
    _rejudge(played, OTHER)
    assert most >= 2


def test_a_dry_run_asks_nobody_writes_nothing_and_knows_what_was_answered(played: Arena, server: ModelServer) -> None:
    file = _evaluator(played, f"{SAME}weight = 0.5\n{OTHER}weight = 0.5\n")
    [line] = asyncio.run(list_executions(Workspace.locate(played.root)))
    asked, size = len(server.requests), (played.root / "journal.db").read_bytes()
    plan = asyncio.run(plan_rejudging(line.execution_id, file, played.root))
    assert (plan.submissions, plan.judges, plan.calls, plan.reused_calls) == (4, ("Quality", "Style"), 4, 4)
    assert (len(server.requests), (played.root / "journal.db").read_bytes()) == (asked, size)
    _rejudge(played, f"{SAME}weight = 0.5\n{OTHER}weight = 0.5\n")
    plan = asyncio.run(plan_rejudging(line.execution_id, file, played.root))
    assert (plan.calls, plan.reused_calls) == (0, 8)


@pytest.mark.parametrize("judge", ["", f"{SAME}weight = 0\n"])
def test_a_dry_run_counts_calls_also_where_no_judge_counts(played: Arena, judge: str) -> None:
    weight = "weight = 1\n" if judge else ""
    in_code = f'[[metrics]]\nname = "Says"\ntype = "Terms"\noptions = {{required = ["beta"]}}\n{weight}'
    file = _evaluator(played, f"{judge}{in_code}")
    [line] = asyncio.run(list_executions(Workspace.locate(played.root)))
    plan = asyncio.run(plan_rejudging(line.execution_id, file, played.root))
    assert (plan.submissions, plan.calls, plan.reused_calls) == (4, 0, 4 if judge else 0)


def test_the_execution_stays_as_it_is_and_the_judges_calls_leave_with_it(played: Arena) -> None:
    tables = ("leader_board", "round_status", "model_usage", "execution_summary")
    before = {table: played.rows(table) for table in tables}
    told = _rejudge(played, OTHER)
    assert {table: played.rows(table) for table in tables} == before
    place = Workspace.locate(played.root)
    assert [line.execution_id for line in asyncio.run(list_executions(place))] == [told.execution_id]

    async def kept() -> int:
        async with Journal(place.journal) as journal:
            return len(await journal.calls(told.journal_id))

    assert asyncio.run(kept()) == 4
    asyncio.run(delete_execution(place, told.execution_id))
    assert asyncio.run(kept()) == 0


def test_judging_twice_and_rebuilding_leave_nothing_of_it_in_the_results_when_the_execution_is_deleted(
    played: Arena,
) -> None:
    for _ in range(2):
        told = _rejudge(played, OTHER)

    async def rebuilt() -> Rebuilt:
        async with AggregationStore(played.root) as store:
            return await store.rebuild()

    def places() -> list[tuple[object, ...]]:
        with duckdb.connect(str(played.root / "mixseek.db"), read_only=True) as db:
            return db.execute("SELECT execution_id FROM places").fetchall()

    asyncio.run(rebuilt())
    assert places() == []
    asyncio.run(delete_execution(Workspace.locate(played.root), told.execution_id))
    assert places() == []


def test_a_metric_that_needs_a_reference_gets_the_one_that_is_given(played: Arena) -> None:
    exact = _evaluator(played, '[[metrics]]\nname = "Similarity"\n')
    [line] = asyncio.run(list_executions(Workspace.locate(played.root)))
    with pytest.raises(ConfigurationError, match="needs a reference answer"):
        asyncio.run(rejudge(line.execution_id, exact, played.root))
    given = "beta answer of round 1, worth 60"
    told = asyncio.run(rejudge(line.execution_id, exact, played.root, reference=given))
    assert [(team.team_id, team.new_score, team.new_round) for team in told.teams[:1]] == [("beta", 100, 1)]


def test_settings_may_be_given_in_place_of_a_file(played: Arena) -> None:
    settings = ConfigurationManager(played.root).get_evaluator_settings(_evaluator(played, OTHER))
    [line] = asyncio.run(list_executions(Workspace.locate(played.root)))
    assert asyncio.run(rejudge(line.execution_id, settings, played.root)).new_winner == "beta"


def test_a_round_that_did_not_end_decides_no_tie(tmp_path: Path) -> None:
    """Both teams have 80 points; alpha stops after its first round, and beta is interrupted in its second."""
    opinions = iter((False, True))
    with ModelServer() as server:
        teams = (Team("alpha", scores=(80,)), Team("beta", scores=(80,)))
        arena = Arena(tmp_path, server.base_url, teams, "min_rounds = 1\nmax_concurrent_teams = 1\n")
        arena.script(server)
        server.on("judgment", lambda _: {**GO_ON, "should_continue": next(opinions)})

        def stop(event: Event) -> None:
            if isinstance(event, SubmissionMade) and event.round_number == 2:
                orchestrator.stop()

        orchestrator = arena.build(listeners=[stop])
        summary = asyncio.run(orchestrator.execute("task", execution_id="x"))
        assert (summary.interrupted, summary.best_team_id) == (True, "alpha")
        record = asyncio.run(load_execution(Workspace.locate(tmp_path), "x"))
        assert [[one.is_finished for one in team.rounds] for team in record.teams] == [[True], [True, False]]
        report = what_if(record, [StopRule(max_rounds=3)])
        assert (report.recorded.winner, report.rules[0].winner) == ("alpha", "alpha")
        told = asyncio.run(rejudge("x", _evaluator(arena, SAME), tmp_path))
        assert [(team.team_id, team.new_score, team.moved) for team in told.teams] == [
            ("alpha", 80, 0),
            ("beta", 80, 0),
        ]


# --- the command ------------------------------------------------------------------------------------------------------


def _command(arena: Arena, *more: str) -> list[str]:
    return ["rejudge", "last", "--evaluator", "configs/strict.toml", "-w", str(arena.root), *more]


def test_of_two_at_once_one_pays_and_the_other_names_it(played: Arena, server: ModelServer) -> None:
    server.set_latency(2.5)  # longer than it takes to see that somebody else is at work
    [line] = asyncio.run(list_executions(Workspace.locate(played.root)))
    file = _evaluator(played, OTHER)

    async def both() -> list[Rejudgment | BaseException]:
        return await asyncio.gather(
            *(rejudge(line.execution_id, file, played.root, backoff=at_once) for _ in range(2)), return_exceptions=True
        )

    told = asyncio.run(both())
    [refused] = [each for each in told if isinstance(each, PlaceTakenError)]
    assert f"is being judged by the same judges, by process {os.getpid()} (" in str(refused)
    [rejudged] = [each for each in told if isinstance(each, Rejudgment)]
    assert rejudged.usage.requests == _asked(server, "stylist") == 4
    # Whoever comes afterwards finds the place free and every answer there.
    assert asyncio.run(rejudge(line.execution_id, file, played.root)).reused_calls == 4


def test_what_is_being_judged_is_not_deleted(played: Arena, server: ModelServer) -> None:
    server.set_latency(1)
    place = Workspace.locate(played.root)
    [line] = asyncio.run(list_executions(place))
    file = _evaluator(played, OTHER)

    async def meanwhile() -> Rejudgment:
        judging = asyncio.create_task(rejudge(line.execution_id, file, played.root, backoff=at_once))
        while not _asked(server, "stylist"):  # noqa: ASYNC110  # the server is in a thread of its own
            await asyncio.sleep(0.01)
        with pytest.raises(ConfigurationError, match=f"is being played by process {os.getpid()}"):
            await delete_execution(place, line.execution_id)
        return await judging

    assert asyncio.run(meanwhile()).usage.requests == 4
    assert asyncio.run(delete_execution(place, line.execution_id)).journal_rows > 0


def test_the_command_shows_old_and_new_what_moved_and_the_bill(
    played: Arena, server: ModelServer, capsys: pytest.CaptureFixture[str]
) -> None:
    _evaluator(played, OTHER)
    with pytest.raises(SystemExit) as end:
        main(_command(played))
    out = capsys.readouterr().out
    assert end.value.code == 0
    assert "1 Team beta 90.00 2 2 65.00 2 up 1" in " ".join(out.split())
    assert "Team beta wins, no longer Team alpha; 2 of 3 teams moved" in out
    assert "4 model calls" in out
    [line] = asyncio.run(list_executions(Workspace.locate(played.root)))
    shown = f"mixseek show {line.execution_id} --team beta --rounds -w {played.root}"
    assert f"its answer is that of round 2 in {shown}\n" in out
    with pytest.raises(SystemExit):
        main(shown.split()[1:])
    assert "beta answer of round 2, worth 65" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        main(_command(played, "--dry-run"))
    assert "0 model calls to make, 4 answered before" in capsys.readouterr().out
    server.fault("400", model="judge")
    _evaluator(played, SAME.replace("good", "odd"))
    with pytest.raises(SystemExit) as end:
        main(_command(played, "-f", "json"))
    told = json.loads(capsys.readouterr().out)
    assert (end.value.code, told["failed_metrics"], told["new_winner"]) == (2, 4, None)


@pytest.mark.parametrize(
    ("team", "words"),
    [
        ("alpha", "Team beta wins among the teams that could be scored; Team alpha could not be"),
        ("beta", "Team alpha wins as before, among the teams that could be scored; Team beta could not be"),
        ("answer", "nobody wins: Team alpha, Team beta could not be scored"),
    ],
)
def test_nobody_is_told_to_win_over_a_team_that_could_not_be_scored(
    team: str, words: str, played: Arena, server: ModelServer, capsys: pytest.CaptureFixture[str]
) -> None:
    server.fault("400", model="stylist", contains=f"{team} answer" if team != "answer" else team)
    _evaluator(played, OTHER)
    with pytest.raises(SystemExit) as end:
        main(_command(played))
    told = capsys.readouterr()
    assert (end.value.code, words in told.out.splitlines()) == (2 if team == "answer" else 1, True), told.out


def test_the_budget_of_an_orchestrator_file_ends_the_judging_and_what_was_paid_is_kept(
    played: Arena, server: ModelServer, capsys: pytest.CaptureFixture[str]
) -> None:
    _evaluator(played, OTHER, "evaluator.toml")
    file = played.root / "configs" / "orchestrator.toml"
    command = ["rejudge", "last", "--evaluator", "configs/orchestrator.toml", "-w", str(played.root)]
    without = file.read_text(encoding="utf-8")
    file.write_text(f"{without}\n[budget]\nmax_requests = 3\n", encoding="utf-8")
    with pytest.raises(SystemExit) as end:
        main(command)
    assert (end.value.code, _asked(server, "stylist")) == (2, 3)
    err = capsys.readouterr().err
    place = "mixseek: configs/orchestrator.toml: budget.max_requests: "
    assert f"{place}the run's budget cannot pay for the next call: 3 of 3 calls are used" in err
    assert "; with a larger limit, the same again asks only what was not answered" in err
    with pytest.raises(SystemExit) as end:
        main(command)
    assert (end.value.code, _asked(server, "stylist")) == (2, 3), "the budget is one for all times"
    assert "3 of 3 calls are used" in capsys.readouterr().err
    file.write_text(without, encoding="utf-8")
    with pytest.raises(SystemExit) as end:
        main(command)
    assert (end.value.code, _asked(server, "stylist")) == (0, 4)
    assert "1 model call, " in (out := capsys.readouterr().out)
    assert "3 answers from the journal" in out


def _with_budget(arena: Arena, tables: str) -> list[str]:
    """A command by an orchestrator file with a budget."""
    text = (arena.root / "configs" / "orchestrator.toml").read_text(encoding="utf-8")
    (arena.root / "configs" / "bounded.toml").write_text(f"{text}\n{tables}", encoding="utf-8")
    return ["rejudge", "last", "--evaluator", "configs/bounded.toml", "-w", str(arena.root)]


def test_the_judging_ends_when_the_time_of_the_budget_is_over_and_goes_on_from_there(
    played: Arena, server: ModelServer, capsys: pytest.CaptureFixture[str]
) -> None:
    _evaluator(played, OTHER, "evaluator.toml")
    server.set_latency(10, model="stylist")
    with pytest.raises(SystemExit) as end:
        main(_with_budget(played, "[budget]\nmax_seconds = 1\n"))
    assert end.value.code == 2
    used_up = (
        "configs/bounded.toml: budget.max_seconds: the run's budget of 1 second is used up (max_seconds of [budget])"
    )
    assert used_up in capsys.readouterr().err
    server.set_latency(0, model="stylist")
    with pytest.raises(SystemExit) as end:
        main(_with_budget(played, "[budget]\nmax_seconds = 600\n"))
    assert (end.value.code, "4 model calls" in capsys.readouterr().out) == (0, True)


def test_a_dry_run_estimates_what_would_be_asked_as_that_of_exec_does(
    played: Arena, server: ModelServer, capsys: pytest.CaptureFixture[str]
) -> None:
    _evaluator(played, f"{SAME}{OTHER}", "evaluator.toml")
    price = "input_usd_per_million = 1\noutput_usd_per_million = 2\n"
    command = [*_with_budget(played, f'[prices."loop:stylist"]\n{price}'), "--dry-run"]
    with pytest.raises(SystemExit):
        main([*command, "-f", "json"])
    told = json.loads(capsys.readouterr().out)
    low, high = told["estimate"]["low"], told["estimate"]["high"]
    # What the judge of the execution said is there, and costs nothing.
    assert (told["calls"], told["reused_calls"], low["calls"], high["calls"]) == (4, 4, 4, 4)
    assert (low["output_tokens"], high["output_tokens"]) == (4 * 15, 4 * 200)
    assert len(TASK.encode()) < low["input_tokens"] < high["input_tokens"]
    for course in (low, high):
        assert course["cost_usd"] == pytest.approx((course["input_tokens"] + 2 * course["output_tokens"]) / 1e6)
    assert told["estimate"]["unpriced"] == []
    with pytest.raises(SystemExit):
        main(command)
    out = capsys.readouterr().out
    assert "\nEstimate\n  4 model calls, " in out
    assert re.search(r"^  4 model calls, [\d,]+ to [\d,]+ tokens, 0\.\d+ to 0\.\d+ USD$", out, re.MULTILINE)
    with pytest.raises(SystemExit):
        main([*_with_budget(played, ""), "--dry-run"])
    out = capsys.readouterr().out
    assert "tokens, cost not known\n" in out
    assert "  no price is known for loop:stylist: give it one in [prices]\n" in out
    assert server.requests == []


@pytest.mark.parametrize("more", [(), ("--dry-run",)])
def test_a_judge_without_a_price_is_refused_before_any_other_is_paid(
    played: Arena, server: ModelServer, capsys: pytest.CaptureFixture[str], more: tuple[str, ...]
) -> None:
    _evaluator(played, f"{SAME.replace('good', 'odd')}{OTHER}", "evaluator.toml")
    prices = '[prices."loop:judge"]\ninput_usd_per_million = 1\noutput_usd_per_million = 1\n'
    asked = len(server.requests)
    with pytest.raises(SystemExit) as end:
        main([*_with_budget(played, f"[budget]\nmax_cost_usd = 1\n{prices}"), *more])
    assert (end.value.code, len(server.requests)) == (2, asked)
    refused = "configs/evaluator.toml: metrics[1].model: model 'loop:stylist' has no known price"
    assert refused in capsys.readouterr().err


@pytest.mark.parametrize("more", [(), ("--dry-run",)])
@pytest.mark.parametrize(
    ("budget", "place", "taken"),
    [
        ("max_tokens = 10", "budget.max_tokens: 10 tokens", "8,192"),
        ("max_cost_usd = 0.0001", "budget.max_cost_usd: 0.0001 USD", "0.016384"),
    ],
)
def test_a_budget_that_could_not_pay_for_one_answer_is_refused_before_a_judge_is_asked_or_anything_is_estimated(
    played: Arena,
    server: ModelServer,
    capsys: pytest.CaptureFixture[str],
    budget: str,
    place: str,
    taken: str,
    more: tuple[str, ...],
) -> None:
    _evaluator(played, OTHER, "evaluator.toml")
    with pytest.raises(SystemExit) as end:
        main([*_with_budget(played, f"[budget]\n{budget}\n{PRICE}"), *more])
    assert (end.value.code, server.requests) == (2, [])
    refused = f"mixseek: configs/bounded.toml: {place} cannot pay for one answer of 'loop:stylist', which judges: "
    told = capsys.readouterr()
    assert (told.out, told.err.startswith(refused)) == ("", True)
    assert f"with 8,192 tokens it may take {taken}; allow more, or set max_output_tokens" in told.err


@pytest.mark.parametrize(
    ("budget", "stands", "asked"),
    [
        ("max_requests = 1", "1 call: will end the judging after 1 of 4 calls", 1),
        ("max_requests = 4", "4 calls: enough for all 4 calls", 4),
        ("max_tokens = 9000", "9,000 tokens: cannot pay for one call: at least ", 0),
        ("max_tokens = 11300", "11,300 tokens: may end the judging early, in the worst case after none of 4 calls", 4),
        ("max_tokens = 15000", "15,000 tokens: may end the judging early, in the worst case after 1 of 4 calls", 4),
        ("max_tokens = 90000", "90,000 tokens: enough for all 4 calls in the worst case", 4),
        ("max_cost_usd = 0.3", "0.3 USD: enough for all 4 calls in the worst case", 4),
        ("max_seconds = 0.0001", "0.0001 seconds: how long models take is not estimated", 0),
        ("max_seconds = 500", "500 seconds: how long models take is not estimated", 4),
    ],
)
def test_a_dry_run_tells_how_each_limit_stands_and_the_judging_does_so(
    played: Arena, server: ModelServer, capsys: pytest.CaptureFixture[str], budget: str, stands: str, asked: int
) -> None:
    _evaluator(played, OTHER, "evaluator.toml")
    command = _with_budget(played, f"[budget]\n{budget}\n{PRICE}")
    with pytest.raises(SystemExit) as end:
        main([*command, "--dry-run"])
    assert (end.value.code, server.requests) == (0, [])
    assert f"\n  budget of {stands}" in capsys.readouterr().out
    with pytest.raises(SystemExit) as end:
        main(command)
    assert (end.value.code, _asked(server, "stylist")) == (0 if asked == 4 else 2, asked)


@pytest.mark.parametrize(
    ("budget", "used", "stands"),
    [
        ("max_requests = 2", "2 calls, of which 2 are used", "cannot pay for one call: at least 1 would be needed"),
        ("max_requests = 3", "3 calls, of which 2 are used", "will end the judging after 1 of 2 calls"),
        ("max_requests = 4", "4 calls, of which 2 are used", "enough for all 2 calls"),
        ("max_tokens = 90000", r"90,000 tokens, of which [\d,]+ are used", "enough for all 2 calls in the worst case"),
    ],
)
def test_a_dry_run_reckons_with_what_the_same_judging_has_used_of_the_budget(
    played: Arena, server: ModelServer, capsys: pytest.CaptureFixture[str], budget: str, used: str, stands: str
) -> None:
    _evaluator(played, OTHER, "evaluator.toml")
    with pytest.raises(SystemExit):
        main(_with_budget(played, "[budget]\nmax_requests = 2\n"))
    assert _asked(server, "stylist") == 2
    capsys.readouterr()
    with pytest.raises(SystemExit):
        main([*_with_budget(played, f"[budget]\n{budget}\n"), "--dry-run", "-f", "json"])
    [told] = json.loads(capsys.readouterr().out)["estimate"]["against_budget"]
    assert re.fullmatch(f"{used}: {stands}.*", told)


def test_a_process_that_is_killed_half_way_goes_on_where_it_was(played: Arena, server: ModelServer) -> None:
    _evaluator(played, OTHER)
    command = [sys.executable, "-m", "mixseek", *_command(played, "-f", "json")]
    environ = os.environ | {"MIXSEEK_CRASH_AT": "call.after_answer:3"}
    killed = forked.run(command, env=environ, capture_output=True, timeout=SAFETY_SECONDS, check=False)
    assert killed.returncode == -signal.SIGKILL
    assert _asked(server, "stylist") >= 3
    with closing(sqlite3.connect(played.root / "journal.db")) as journal:
        (kept,) = journal.execute("SELECT count(*) FROM calls WHERE execution_id LIKE '%~%'").fetchone()
    server.reset()
    _script(server, played)
    ran = forked.run(command, capture_output=True, timeout=SAFETY_SECONDS, check=True)
    told = json.loads(ran.stdout)
    assert told["new_winner"] == "beta"
    assert (told["usage"]["requests"], told["reused_calls"]) == (4 - kept, kept)
    assert _asked(server, "stylist") == 4 - kept
    again = json.loads(forked.run(command, capture_output=True, timeout=SAFETY_SECONDS, check=True).stdout)
    assert (again["usage"]["requests"], again["reused_calls"]) == (0, 4)


def test_calls_that_were_on_their_way_when_the_judging_was_killed_are_told_the_next_time_and_listed_by_their_id(
    played: Arena, server: ModelServer, capsys: pytest.CaptureFixture[str]
) -> None:
    def told(*command: str) -> str:
        with pytest.raises(SystemExit) as end:
            main([*command, "-w", str(played.root)])
        assert end.value.code in (None, 0)
        return capsys.readouterr().out

    file = _evaluator(played, OTHER)
    server.fault("hang_before_headers", model="stylist", after=1)
    with forked.Popen[str](
        [sys.executable, "-m", "mixseek", *_command(played)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as judging:
        try:
            # Without a budget a mark of a start may come to the journal after the request has left.
            until_true(lambda: _begun_and_kept(played) == (4, 1), judging)
        finally:
            judging.kill()
    server.clear_faults()
    again = ("rejudge", "last", "--evaluator", str(file))
    server.fault("missing_usage", model="stylist", count=1)
    beyond = "broke off or told no usage{} and may have been billed beyond that"
    before = " when this was asked before"
    assert told(*again).splitlines()[-1] == f"4 attempts, 3 of them{before}, {beyond.format('')}"
    rejudged = json.loads(told(*again, "-f", "json"))
    assert (sum(line["attempts"] for line in rejudged["lost"]), rejudged["lost_before"]) == (4, 4)
    *_, bill, lost = told(*again).splitlines()
    assert bill.startswith("0 model calls, ")
    assert lost == f"4 attempts {beyond.format(before)}"
    *_, total = told("journal", "calls", rejudged["journal_id"]).splitlines()
    assert total.startswith("4 calls, ")
    assert ", and 3 that were on their way when their process ended" in total
    with pytest.raises(SystemExit) as end:
        main(["journal", "calls", f"{rejudged['execution_id']}~other", "-w", str(played.root)])
    assert end.value.code == 2
    assert "~other: nobody was asked by this id" in capsys.readouterr().err


def _begun_and_kept(arena: Arena) -> tuple[int, int]:
    """How many calls of judges that came later are marked as begun in the journal, and how many are there whole."""
    with closing(sqlite3.connect(arena.root / "journal.db", timeout=SAFETY_SECONDS)) as journal:
        counts = [
            journal.execute(f"SELECT count(*) FROM {table} WHERE execution_id LIKE '%~%'").fetchone()[0]
            for table in ("started_calls", "calls")
        ]
    return counts[0], counts[1]


def test_of_an_execution_that_did_not_end_it_is_said_that_only_a_part_was_looked_at(
    played: Arena, capsys: pytest.CaptureFixture[str]
) -> None:
    _evaluator(played, OTHER)
    command = [sys.executable, "-m", "mixseek", "exec", "task", "-w", str(played.root)]
    environ = os.environ | {"MIXSEEK_CRASH_AT": "round.between:5"}
    killed = forked.run(command, env=environ, capture_output=True, timeout=SAFETY_SECONDS, check=False)
    assert killed.returncode == -signal.SIGKILL
    whatif = ["whatif", "last", "--stop-rule", "max_rounds=1", "-w", str(played.root)]
    for arguments in (whatif, _command(played), _command(played, "--dry-run")):
        with pytest.raises(SystemExit) as end:
            main(arguments)
        assert end.value.code in (None, 0)
        assert "is unfinished: this goes by the rounds that it has so far" in capsys.readouterr().err


# --- prompts ----------------------------------------------------------------------------------------------------------

FAILING = """\
[prompt_builder]
team_user_prompt = "{{ user_prompt }}"
judgment_user_prompt = "{{ user_prompt }}"
evaluator_user_prompt = '''{{ user_prompt }} {{ submission }}
{{ 1 // (0 if "beta answer of round 2" in submission else 1) }}'''
"""


def test_a_template_that_fails_is_told_with_file_and_key_before_any_judge_is_asked(
    played: Arena, server: ModelServer, capsys: pytest.CaptureFixture[str]
) -> None:
    (played.root / "configs" / "prompt_builder.toml").write_text(FAILING)
    file = _evaluator(played, OTHER)
    with pytest.raises(SystemExit) as end:
        main(["rejudge", "last", "--evaluator", str(file), "-w", str(played.root)])
    told = capsys.readouterr().err.splitlines()
    assert (end.value.code, server.requests) == (2, [])
    assert told[-1].startswith(
        "mixseek: configs/prompt_builder.toml: prompt_builder.evaluator_user_prompt: "
        "fails for round 2 of team 'beta', correct it: "
    )
    assert "line 2" in told[-1]


def test_metrics_in_code_need_no_prompt(played: Arena, server: ModelServer) -> None:
    (played.root / "configs" / "prompt_builder.toml").write_text(FAILING)
    told = _rejudge(played, '[[metrics]]\nname = "Terms"\noptions = {required = ["alpha"]}\n')
    assert (told.failed_metrics, told.new_winner) == (0, "alpha")
