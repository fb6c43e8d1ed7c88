"""What stopping earlier would have kept and saved, told from a record."""

import asyncio
import json
import os
import sys
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path
from typing import cast

import duckdb
import pytest

from mixseek.cli import main
from mixseek.crash_points import CRASH_AT
from mixseek.errors import ConfigurationError
from mixseek.events import Event, RoundStarted
from mixseek.hindsight.whatif import StopRule, WhatIf, what_if
from mixseek.orchestrator import Orchestrator, load_orchestrator_settings
from mixseek.records import ExitReason, ModelRole, ModelUsage
from mixseek.report.reading import load_execution
from mixseek.report.record import ExecutionRecord, RoundRecord, TeamRecord
from mixseek.testing import Match, ModelServer, ModelServerProcess, scripted, write_workspace
from mixseek.workspace import Workspace
from soak import forked
from soak.arena import Arena, Team

START = datetime(2026, 1, 1, tzinfo=UTC)


def _line(team_id: str, number: int, role: ModelRole, cost: float | None) -> ModelUsage:
    return ModelUsage(
        execution_id="e",
        team_id=team_id,
        round_number=number,
        role=role,
        agent_name=role,
        model="p:m",
        requests=1,
        input_tokens=10,
        output_tokens=1,
        cost_usd=cost,
    )


def _round(team_id: str, number: int, score: float | None, seconds: float, cost: float | None) -> RoundRecord:
    return RoundRecord(
        round_number=number,
        submission="s",
        score=score,
        bill=(_line(team_id, number, "leader", cost), _line(team_id, number, "judgment", 0.01)),
        started_at=START + timedelta(seconds=seconds * (number - 1)),
        ended_at=START + timedelta(seconds=seconds * number),
    )


def _record(cost: float | None = 0.1, min_rounds: int = 1, *, judge_on_final_round: bool = True) -> ExecutionRecord:
    """Team a is quick and good at first; b takes its time and wins in its third round."""

    def team(team_id: str, scores: Sequence[float | None], seconds: float, rank: int) -> TeamRecord:
        rounds = tuple(_round(team_id, number, score, seconds, cost) for number, score in enumerate(scores, 1))
        return TeamRecord(
            team_id=team_id,
            team_name=team_id.upper(),
            rank=rank,
            exit_reason="max_rounds_reached",
            rounds=rounds,
        )

    teams = (team("b", (50, None, 90), 20, 1), team("a", (70, 71, 72), 10, 2))
    judgment = {"judge_on_final_round": judge_on_final_round}
    configuration = {"orchestrator": {"min_rounds": min_rounds}, "judgment": judgment}
    return ExecutionRecord(
        execution_id="e",
        user_prompt="p",
        status="completed",
        started_at=START,
        seconds=61,
        teams=teams,
        configuration=configuration,
    )


def _under(rule: str, record: ExecutionRecord | None = None) -> WhatIf:
    [one] = what_if(record or _record(), [StopRule.parse(rule)]).rules
    return one


def test_fewer_rounds_change_the_winner_and_save_what_was_played_after_them() -> None:
    one = _under("max_rounds=2")
    assert (one.winner, one.best_score) == ("a", 71)
    assert [(team.team_id, team.kept.rounds, team.exit_reason) for team in one.teams] == [
        ("a", 2, "max_rounds_reached"),
        ("b", 2, "max_rounds_reached"),
    ]
    assert (one.kept.requests, one.saved.requests) == (8, 4)
    assert one.kept.cost_usd == pytest.approx(0.44)
    assert one.saved.cost_usd == pytest.approx(0.22)
    assert (one.kept.seconds, one.saved.seconds) == (40, 21)


def test_after_the_last_of_fewer_rounds_the_judgment_is_saved_only_where_settings_say_so() -> None:
    one = _under("max_rounds=2", _record(judge_on_final_round=False))
    assert (one.kept.requests, one.saved.requests) == (6, 6)
    assert one.kept.cost_usd == pytest.approx(0.42)
    assert one.saved.cost_usd == pytest.approx(0.24)


def test_what_was_played_is_told_as_it_was() -> None:
    recorded = what_if(_record(), []).recorded
    assert (recorded.winner, recorded.best_score, recorded.kept.rounds, recorded.kept.requests) == ("b", 90, 6, 12)
    assert (recorded.kept.seconds, recorded.saved.rounds, recorded.saved.cost_usd) == (61, 0, 0)


def test_a_target_ends_a_team_where_it_is_reached_and_not_before_the_least_of_rounds() -> None:
    assert {team.team_id: team.kept.rounds for team in _under("target_score=70").teams} == {"a": 1, "b": 3}
    later = _under("target_score=70", _record(min_rounds=2))
    assert {team.team_id: team.kept.rounds for team in later.teams} == {"a": 2, "b": 3}
    assert _under("target_score=70,min_rounds=1", _record(min_rounds=2)).teams[-1].kept.rounds == 1


def test_it_is_known_where_only_the_least_of_rounds_kept_a_team_going() -> None:
    held = _under("target_score=70", _record(min_rounds=3))
    assert (held.saved.rounds, held.held_until_round) == (0, 3)
    assert _under("target_score=70").held_until_round is None
    assert _under("target_score=100", _record(min_rounds=3)).held_until_round is None


def test_the_least_of_rounds_kept_nobody_going_who_ended_all_the_same() -> None:
    record = _ended_by("budget_exhausted")
    [team] = record.teams
    unjudged = team.rounds[0].model_copy(update={"bill": team.rounds[0].bill[:1]})
    short = record.model_copy(update={"teams": (team.model_copy(update={"rounds": (unjudged,)}),)})
    assert _under("target_score=70,min_rounds=2", short).held_until_round is None


def test_a_plateau_needs_the_gain_that_is_named() -> None:
    ends = {team.team_id: (team.kept.rounds, team.exit_reason) for team in _under("plateau_rounds=1").teams}
    assert ends == {"a": (3, "max_rounds_reached"), "b": (3, "max_rounds_reached")}
    ends = {
        team.team_id: (team.kept.rounds, team.exit_reason)
        for team in _under("plateau_rounds=1,plateau_min_gain=1").teams
    }
    assert ends == {"a": (2, "score_plateau"), "b": (3, "max_rounds_reached")}


def _ended_by(reason: ExitReason) -> ExecutionRecord:
    """The record of team a alone, which ended so after its third round."""
    record = _record()
    return record.model_copy(update={"teams": (record.teams[1].model_copy(update={"exit_reason": reason}),)})


@pytest.mark.parametrize(
    ("recorded", "rule", "told", "saved"),
    [
        ("no_improvement_expected", "target_score=72", "target_score_reached", 1),
        ("no_improvement_expected", "plateau_rounds=2,plateau_min_gain=2", "score_plateau", 1),
        ("no_improvement_expected", "max_rounds=3", "max_rounds_reached", 0),
        ("no_improvement_expected", "target_score=73", "no_improvement_expected", 0),
        ("max_rounds_reached", "target_score=72", "target_score_reached", 1),
        # After the last round the count comes before a plateau.
        ("max_rounds_reached", "plateau_rounds=2,plateau_min_gain=2", "max_rounds_reached", 0),
        ("target_score_reached", "max_rounds=3", "target_score_reached", 0),
    ],
)
def test_a_rule_that_ends_a_team_after_its_last_round_saves_the_judgment(
    recorded: ExitReason, rule: str, told: ExitReason, saved: int
) -> None:
    one = _under(rule, _ended_by(recorded))
    [team] = one.teams
    assert (team.exit_reason, team.kept.rounds, one.saved.rounds, one.saved.requests) == (told, 3, 0, saved)


async def _played(root: Path, last_round: int, max_rounds: int, judgment: str) -> ExecutionRecord:
    """One team that has 50 points in its first round and 80 later; the judgment ends it after ``last_round``."""
    file = write_workspace(root, teams=1, max_rounds=max_rounds, orchestrator="min_rounds = 1", judgment=judgment)
    submissions, opinions = count(1), count(1)
    with scripted() as script:
        script.on(Match("leader-a"), lambda _: f"answer {next(submissions)}")
        script.on(
            Match("judge"), lambda call: {"evaluator_comment": "", "score": 50 if "answer 1" in call.text else 80}
        )
        go_on = {"reasoning": "so", "confidence_score": 1}
        script.on(Match("judgment"), lambda _: {**go_on, "should_continue": next(opinions) < last_round})
        await Orchestrator(load_orchestrator_settings(file, root)).execute("What is it?", execution_id="x")
    return await load_execution(Workspace(root), "x")


@pytest.mark.parametrize(
    ("rule", "last_round", "max_rounds", "judgment"),
    [
        ("max_rounds=2", 9, 2, ""),
        ("max_rounds=2", 9, 2, "judge_on_final_round = false\n"),
        ("target_score=80", 2, 3, "target_score = 80\n"),
        ("target_score=80", 9, 3, "target_score = 80\n"),
        ("plateau_rounds=1,plateau_min_gain=40", 2, 3, "plateau_rounds = 1\nplateau_min_gain = 40\n"),
        ("plateau_rounds=2,plateau_min_gain=40", 9, 3, "plateau_rounds = 2\nplateau_min_gain = 40\n"),
    ],
)
def test_what_would_be_kept_is_what_playing_by_the_rule_takes(
    tmp_path: Path, rule: str, last_round: int, max_rounds: int, judgment: str
) -> None:
    without = judgment if "final" in judgment else ""
    free = asyncio.run(_played(tmp_path / "free", last_round, 3, without))
    bound = asyncio.run(_played(tmp_path / "bound", last_round, max_rounds, judgment))
    told, real = _under(rule, free), what_if(bound, []).recorded
    assert [(team.exit_reason, team.best_score) for team in told.teams] == [
        (team.exit_reason, team.best_score) for team in real.teams
    ]
    assert (told.kept.rounds, told.kept.requests) == (real.kept.rounds, real.kept.requests)


def test_a_rule_that_ends_nobody_saves_nothing() -> None:
    one = _under("target_score=100")
    assert (one.winner, one.saved.rounds, one.saved.requests, one.kept.seconds) == ("b", 0, 0, 61)


def test_a_budget_pays_for_rounds_in_the_order_in_which_they_ended() -> None:
    # a1 10 s, a2 20 s (with b1), a3 30 s, b2 40 s, b3 60 s; each 0.11.
    one = _under("budget=0.45")
    assert {team.team_id: team.kept.rounds for team in one.teams} == {"a": 3, "b": 1}
    assert (one.winner, one.teams[-1].exit_reason) == ("a", "budget_exhausted")
    assert one.kept.cost_usd is not None
    assert one.kept.cost_usd <= 0.45


def test_a_judgment_that_nobody_asks_leaves_its_price_to_the_other_teams() -> None:
    def one(team_id: str, number: int, seconds: float, **costs: float) -> RoundRecord:
        bill = tuple(_line(team_id, number, cast("ModelRole", role), cost) for role, cost in costs.items())
        ended_at = START + timedelta(seconds=seconds)
        return RoundRecord(round_number=number, submission="s", score=50, bill=bill, ended_at=ended_at)

    first = TeamRecord(
        team_id="a", team_name="A", rounds=(one("a", 1, 10, leader=1, judgment=0.5), one("a", 2, 20, leader=10))
    )
    second = TeamRecord(team_id="b", team_name="B", rounds=(one("b", 1, 30, leader=2),))
    told = _under("budget=3", _record().model_copy(update={"teams": (first, second)}))
    assert {team.team_id: team.kept.rounds for team in told.teams} == {"a": 1, "b": 1}
    assert told.kept.cost_usd == 3


def test_rounds_of_a_team_stay_in_their_order_when_a_clock_is_set_back() -> None:
    record = _record()
    quick = record.teams[1]
    back = quick.rounds[2].model_copy(update={"ended_at": START - timedelta(days=1)})
    teams = (record.teams[0], quick.model_copy(update={"rounds": (*quick.rounds[:2], back)}))
    # a1 first, then b1, a2 and a3, which ended no earlier than a2; there is money for two.
    one = _under("budget=0.25", record.model_copy(update={"teams": teams}))
    assert {team.team_id: team.kept.rounds for team in one.teams} == {"a": 1, "b": 1}


def test_a_budget_of_nothing_leaves_nothing() -> None:
    one = _under("budget=0")
    assert (one.winner, one.kept.rounds, one.kept.requests, one.kept.seconds) == (None, 0, 0, 0)


def test_a_refused_budget_names_every_model_without_a_price() -> None:
    record = _record(cost=None)
    b, a = record.teams
    of_a = [one.model_copy(update={"bill": (one.bill[0].model_copy(update={"model": "p:other"}),)}) for one in a.rounds]
    teams = (b, a.model_copy(update={"rounds": tuple(of_a)}))
    with pytest.raises(ConfigurationError, match=r"what p:m, p:other cost is not known"):
        _under("budget=1", record.model_copy(update={"teams": teams}))


def test_a_budget_over_unknown_prices_is_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"what p:m cost is not known"):
        _under("budget=1", _record(cost=None))
    assert _under("max_rounds=1", _record(cost=None)).kept.cost_usd is None


def test_a_budget_over_an_answer_that_told_no_usage_is_refused_without_the_advice_to_give_a_price_that_is_there(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    price = "input_usd_per_million = 1\noutput_usd_per_million = 1\n"
    with ModelServer() as server:
        arena = Arena(tmp_path, server.base_url, (Team("alpha"), Team("beta")), "max_rounds = 1\n")
        arena.script(server)
        with (tmp_path / "configs/orchestrator.toml").open("a") as file:
            models = ("leader-alpha", "leader-beta", "member-alpha", "judge", "judgment")
            file.writelines(f'[prices."loop:{model}"]\n{price}' for model in models)
        server.fault("missing_usage", model="leader-alpha", at=1)  # the other call of its line is known
        server.fault("missing_usage", model="leader-beta")  # none of its line is
        asyncio.run(arena.play())
    capsys.readouterr()
    with pytest.raises(SystemExit) as end:
        main(["whatif", "last", "--stop-rule", "max_rounds=1", "--stop-rule", "budget=1", "-w", str(tmp_path)])
    assert end.value.code == 2
    assert capsys.readouterr().err.splitlines() == [
        "mixseek: what loop:member-beta cost is not known, so nothing can be said about a budget: "
        "prices that stand in [prices] of the orchestrator file when it is played are kept with the record",
        "mixseek: what loop:leader-alpha, loop:leader-beta cost is not known, so nothing can be said about a budget: "
        "an answer came without the number of its tokens, so that no price but 0 tells what it cost",
    ]


@pytest.mark.parametrize(
    ("rule", "told"),
    [
        ("rounds=2", "rounds"),
        ("max_rounds", "write NAME=NUMBER"),
        ("max_rounds=", "write NAME=NUMBER"),
        ("max_rounds=zero", "max_rounds"),
        ("max_rounds=11", "max_rounds"),
        ("target_score=101", "target_score"),
        ("budget=nan", "budget"),
        ("plateau_min_gain=2", "has no meaning without plateau_rounds"),
        ("max_rounds=2, max_rounds=3", "max_rounds: is given twice"),
    ],
)
def test_a_rule_that_is_none_is_refused_by_its_name(rule: str, told: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        StopRule.parse(rule)
    assert told in str(refused.value)
    assert rule in str(refused.value)


def test_the_command_tells_it_of_a_real_execution_and_changes_no_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = write_workspace(tmp_path, teams=2, members=1, max_rounds=3)
    with scripted() as script:
        script.on(Match("judge"), lambda call: {"evaluator_comment": "fair", "score": 60 if "a" in call.text else 50})
        summary = asyncio.run(Orchestrator(load_orchestrator_settings(file, tmp_path)).execute("What is it?"))
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.db")}
    arguments = ["whatif", "last", "--stop-rule", "max_rounds=1", "--stop-rule", "target_score=99", "-w", str(tmp_path)]
    with pytest.raises(SystemExit) as end:
        main([*arguments, "-f", "json"])
    told = json.loads(capsys.readouterr().out)
    assert end.value.code in (None, 0)
    assert told["recorded"]["kept"]["requests"] == summary.usage.requests
    first, same = told["rules"]
    assert (first["kept"]["rounds"], first["saved"]["rounds"]) == (2, 4)
    assert first["kept"]["requests"] + first["saved"]["requests"] == summary.usage.requests
    assert same["kept"] == told["recorded"]["kept"]
    with pytest.raises(SystemExit):
        main(arguments)
    out = capsys.readouterr().out
    assert "as it was played" in out
    assert "With max_rounds=1: 4 rounds, " in out
    assert "With target_score=99: nothing would have been saved\n" in out
    with pytest.raises(SystemExit):
        main(["whatif", "last", "--stop-rule", "target_score=40,min_rounds=3", "-w", str(tmp_path)])
    # Each team meets its target in the last round, after which nobody asks.
    assert "With min_rounds=3, target_score=40: 0 rounds, 2 calls, " in (out := capsys.readouterr().out)
    assert "; no round, since no team may stop so before round 3 (min_rounds)\n" in out
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.db")} == before


def test_the_command_says_when_nothing_is_saved_only_because_of_the_least_of_rounds(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asyncio.run(_played(tmp_path, 9, 3, "judge_on_final_round = false\n"))
    with pytest.raises(SystemExit):
        main(["whatif", "last", "--stop-rule", "target_score=40,min_rounds=3", "-w", str(tmp_path)])
    held = "nothing would have been saved, since no team may stop so before round 3 (min_rounds)"
    assert held in capsys.readouterr().out


def test_a_round_that_did_not_end_is_no_round_that_was_played() -> None:
    record = _record()
    first, *others = record.teams
    begun = RoundRecord(round_number=4, is_finished=False, started_at=START)
    longer = record.model_copy(update={"teams": (first.model_copy(update={"rounds": (*first.rounds, begun)}), *others)})
    assert what_if(longer, []).recorded.kept.rounds == what_if(record, []).recorded.kept.rounds


def test_stopping_earlier_never_takes_longer_though_a_pause_lay_between_two_processes() -> None:
    record = _record().model_copy(update={"seconds": 1.0})
    [report] = what_if(record, [StopRule.parse("max_rounds=2")]).rules
    assert (report.kept.seconds, report.saved.seconds) == (1.0, 0.0)


async def _paused(root: Path) -> str:
    """Stopped in its second round, and gone on with when a day had passed."""
    write_workspace(root, teams=2, members=0, max_rounds=3)
    built: list[Orchestrator] = []

    def stop(event: Event) -> None:
        if isinstance(event, RoundStarted) and event.round_number == 2:
            built[0].stop()

    settings = load_orchestrator_settings(root / "configs" / "orchestrator.toml", root)
    with scripted() as script:
        script.on(Match("judge"), lambda _: {"evaluator_comment": "fair", "score": 50})
        built.append(Orchestrator(settings, listeners=[stop]))
        execution_id = (await built[0].execute("What is it?")).execution_id
        await Orchestrator(settings).resume(execution_id)
    earlier = "- INTERVAL 1 DAY WHERE round_number = 1"
    with duckdb.connect(root / "mixseek.db") as db:
        for moment in ("round_started_at", "round_ended_at"):
            db.execute(f"UPDATE round_status SET {moment} = {moment} {earlier}")
    return execution_id


def test_without_the_journal_of_a_run_that_had_a_pause_only_the_time_of_all_of_it_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    execution_id = asyncio.run(_paused(tmp_path))
    for file in tmp_path.glob("journal.db*"):
        file.unlink()
    arguments = ["whatif", "last", "--stop-rule", "max_rounds=1", "--stop-rule", "target_score=99", "-w", str(tmp_path)]
    capsys.readouterr()
    with pytest.raises(SystemExit):
        main([*arguments, "-f", "json"])
    told = json.loads(capsys.readouterr().out)
    fewer, same = told["rules"]
    assert told["has_unknown_pauses"]
    assert told["recorded"]["kept"]["seconds"] == same["kept"]["seconds"] > 0
    assert (fewer["kept"]["seconds"], fewer["saved"]["seconds"], fewer["saved"]["rounds"]) == (None, None, 4)
    assert {team["kept"]["seconds"] for team in fewer["teams"]} == {None}
    with pytest.raises(SystemExit):
        main(arguments)
    out, err = capsys.readouterr()
    assert [line.split()[-1] for line in out.splitlines() if line.startswith("max_rounds=1 ")] == ["-"]
    assert err == (
        f"mixseek: the journal cannot tell of execution {execution_id}, which may have had pauses: "
        "how long its rounds were played is not known\n"
    )


def test_of_a_damaged_journal_it_is_not_said_that_it_has_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    execution_id = asyncio.run(_paused(tmp_path))
    for file in tmp_path.glob("journal.db*"):
        file.unlink()
    (tmp_path / "journal.db").write_bytes(b"no journal at all")
    with pytest.raises(SystemExit):
        main(["whatif", "last", "--stop-rule", "max_rounds=1", "-w", str(tmp_path)])
    err = capsys.readouterr().err
    assert "is damaged" in err
    assert f"the journal cannot tell of execution {execution_id}, which may have had pauses" in err
    assert "has nothing" not in err


def test_how_long_teams_played_that_were_killed_in_their_first_round_is_not_known(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with ModelServerProcess() as server:
        server.set_latency(0.2)  # time for the mark to be written
        write_workspace(tmp_path, teams=1, members=1, max_rounds=2, base_url=server.base_url)
        command = [sys.executable, "-m", "mixseek", "exec", "What is it?", "-w", str(tmp_path)]
        forked.run(command, env={**os.environ, CRASH_AT: "call.after_answer:2"}, capture_output=True, check=False)
    arguments = ["whatif", "last", "--stop-rule", "max_rounds=1", "-w", str(tmp_path)]
    with pytest.raises(SystemExit):
        main([*arguments, "-f", "json"])
    [one] = json.loads(capsys.readouterr().out)["rules"]
    [team] = one["teams"]
    assert (one["kept"]["seconds"], team["kept"]["rounds"], team["kept"]["seconds"]) == (None, 0, None)
    with pytest.raises(SystemExit):
        main(arguments)
    assert "0.0s" not in capsys.readouterr().out


def test_without_the_journal_of_a_run_without_a_pause_its_times_are_known(tmp_path: Path) -> None:
    asyncio.run(_played(tmp_path, 9, 3, ""))
    for file in tmp_path.glob("journal.db*"):
        file.unlink()
    record = asyncio.run(load_execution(Workspace.locate(tmp_path), "x"))
    report = what_if(record, [StopRule.parse("max_rounds=1")])
    assert not report.has_unknown_pauses
    assert report.rules[0].kept.seconds is not None


def test_a_pause_between_two_processes_is_no_time_that_was_played() -> None:
    record = _record().model_copy(update={"seconds": 70.0, "was_resumed": True})
    pause = timedelta(hours=1)
    paused = [
        team.model_copy(
            update={
                "rounds": tuple(
                    one.model_copy(update={"started_at": one.started_at + pause, "ended_at": one.ended_at + pause})
                    for one in team.rounds
                    if one.started_at is not None and one.ended_at is not None
                )
            }
        )
        for team in record.teams
    ]
    [report] = what_if(record.model_copy(update={"teams": tuple(paused)}), [StopRule.parse("max_rounds=2")]).rules
    # The slower team takes 20 seconds for a round.
    assert (report.kept.seconds, report.saved.seconds) == (40.0, 30.0)
