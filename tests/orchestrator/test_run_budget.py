"""Budgets of runs and teams: rounds are paid for or not begun, and whoever has a result keeps it."""

import asyncio
import os
import sqlite3
import sys
import threading
from collections.abc import Sequence
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from mixseek.cli import main
from mixseek.config.manager import ConfigurationManager
from mixseek.crash_points import CRASH_AT
from mixseek.errors import BudgetExhaustedError, ConfigurationError, NotResumableError, RunChangedError
from mixseek.events import BudgetLow, Event
from mixseek.llm.purse import DEFAULT_MAX_OUTPUT_TOKENS
from mixseek.orchestrator import Orchestrator
from mixseek.orchestrator.single import Surroundings, evaluate_submission
from mixseek.records import EvaluationRequest, ExecutionSummary, utc_now
from mixseek.report.reading import load_execution
from mixseek.storage.aggregation_store import AggregationStore
from mixseek.testing import ModelCall, ModelServer, ModelServerProcess, ToolCall, write_workspace
from mixseek.workspace import Workspace
from soak import forked
from soak.arena import TASK, Arena, Played, Team, round_of

MODELS = ("leader-alpha", "leader-beta", "member-alpha", "member-beta", "judge", "judgment")
LIMITS = "max_rounds = 5\nmin_rounds = 2\nmax_retries_per_team = 0\n"
"""A round is two calls of the leader, one of its member and one of the judge; then the judgment is asked."""
ALPHA = (Team("alpha"),)
BOTH = (Team("alpha"), Team("beta", scores=(60, 65)))


def _prices(models: Sequence[str] = MODELS) -> str:
    costs = "input_usd_per_million = 1\noutput_usd_per_million = 2"
    return "".join(f'[prices."loop:{model}"]\n{costs}\n' for model in models)


def _arena(
    root: Path,
    server: ModelServer,
    budget: str = "",
    teams: Sequence[Team] = ALPHA,
    prices: str | None = None,
    **more: Any,
) -> Arena:
    arena = Arena(root, server.base_url, teams, **{"orchestrator": LIMITS, **more})
    file = root / "configs/orchestrator.toml"
    table = f"[budget]\n{budget}\n" if budget else ""
    file.write_text(f"{file.read_text()}\n{table}{_prices() if prices is None else prices}")
    arena.script(server)
    return arena


def _rounds(played: Played, team: str) -> int:
    return len(played.told("RoundFinished", team))


def _billed(server: ModelServer) -> float:
    total = server.bill.total
    return (total.input_tokens + 2 * total.output_tokens) / 1_000_000


async def test_a_team_stops_before_the_round_that_its_run_cannot_pay_for(tmp_path: Path, server: ModelServer) -> None:
    played = await _arena(tmp_path, server, "max_requests = 10").play()
    best = played.result("alpha")
    assert best is not None
    assert (best.exit_reason, best.score) == ("budget_exhausted", 80)
    assert _rounds(played, "alpha") == 2
    assert played.failure("alpha") is None
    judged = played.told("RoundJudged", "alpha")[-1]
    assert judged.exit_reason == "budget_exhausted"
    assert "8 of 10 calls are used" in judged.judgment.reasoning
    assert server.bill.total.requests == 8
    [low] = played.told("BudgetLow")
    assert low.words == "80 % of the run's budget is used: 8 of 10 calls"


async def test_a_budget_of_money_is_kept_by_all_teams_together_and_everyone_has_a_result(
    tmp_path: Path, server: ModelServer
) -> None:
    played = await _arena(tmp_path, server, "max_cost_usd = 0.014\nmax_output_tokens = 500", BOTH).play()
    assert "budget_exhausted" in {entry.exit_reason for entry in played.summary.team_results}
    assert len(played.summary.team_results) == 2
    assert played.summary.failed_teams_info == []
    assert played.summary.cost_usd == pytest.approx(_billed(server))
    assert 0.005 < _billed(server) <= 0.014


@pytest.mark.parametrize("rounds_of_alpha", [1, 2])
async def test_further_rounds_of_a_small_team_wait_for_the_first_of_a_large_one_and_have_what_that_leaves(
    tmp_path: Path, server: ModelServer, rounds_of_alpha: int
) -> None:
    # Two calls a round, and six: what a small team took says little of a large one.
    teams, allowed = [Team("alpha", members=0), Team("beta", members=3)], 2 * rounds_of_alpha + 6
    played = await _arena(tmp_path, server, f"max_requests = {allowed}", teams).play()
    assert played.summary.failed_teams_info == []
    assert [_rounds(played, team) for team in ("alpha", "beta")] == [rounds_of_alpha, 1]
    assert {entry.exit_reason for entry in played.summary.team_results} == {"budget_exhausted"}
    assert server.bill.total.requests == allowed


def _with_search(root: Path, server: ModelServer, provider: str, settings: str = "") -> Arena:
    """A team whose member searches; the provider ``wide`` has a search of its own."""
    member = f'[[team.members]]\nname = "searcher"\ntype = "web_search"\nmodel = "{provider}:gpt-5"\n'
    member += f'description = "searches"\n[team.members.tool_settings.web_search]\n{settings}\n'
    budget = "max_tokens = 60000\nmax_output_tokens = 500"
    arena = _arena(root, server, budget, [Team("alpha", members=0, extra=member)], orchestrator="max_rounds = 1\n")
    with (root / "configs/providers.toml").open("a") as file:
        file.write(f'[providers.wide]\nbase_url = "{server.base_url}"\napi = "responses"\n')
    server.on("gpt-5", lambda call: f"help for: {call.prompt}")
    return arena


@pytest.mark.parametrize(("provider", "settings"), [("loop", ""), ("wide", 'backend = "local"')])
async def test_nothing_is_set_aside_for_a_search_that_the_provider_is_not_offered(
    tmp_path: Path, server: ModelServer, provider: str, settings: str
) -> None:
    played = await _with_search(tmp_path, server, provider, settings).play()
    assert (played.failure("alpha"), _rounds(played, "alpha")) == (None, 1)


async def test_a_refusal_names_what_is_set_aside_for_an_answer_and_the_providers_own_search(
    tmp_path: Path, server: ModelServer
) -> None:
    told = (await _with_search(tmp_path, server, "wide").play()).failure("alpha") or ""
    words = "500 tokens for an answer of wide:gpt-5 and 200,000 for what the provider's own tools read"
    assert f"would be needed, with {words} (max_tokens of [budget])" in told


async def test_the_longest_answer_is_told_to_the_model_and_its_own_setting_is_stronger(
    tmp_path: Path, server: ModelServer
) -> None:
    team = Team("alpha", leader="max_tokens = 321", members=0)
    await _arena(tmp_path, server, "max_tokens = 1000000", [team]).play()
    sent = {request.model: _longest(request.body) for request in server.requests}
    assert sent["leader-alpha"] == 321
    assert sent["judge"] == DEFAULT_MAX_OUTPUT_TOKENS


def _longest(body: dict[str, Any]) -> Any:
    return body.get("max_completion_tokens", body.get("max_tokens"))


async def test_without_a_budget_nothing_is_told_to_the_model(tmp_path: Path, server: ModelServer) -> None:
    await _arena(tmp_path, server, orchestrator="max_rounds = 1\nmin_rounds = 1\n").play()
    assert {_longest(request.body) for request in server.requests} == {None}


async def test_a_team_with_a_budget_of_its_own_ends_alone(tmp_path: Path, server: ModelServer) -> None:
    poor = Team("alpha", extra="[team.budget]\nmax_requests = 4\n")
    rounds = "max_rounds = 2\nmin_rounds = 2\n"
    played = await _arena(tmp_path, server, teams=[poor, BOTH[1]], orchestrator=rounds).play()
    alpha, beta = played.result("alpha"), played.result("beta")
    assert alpha is not None
    assert beta is not None
    assert (alpha.exit_reason, _rounds(played, "alpha")) == ("budget_exhausted", 1)
    assert (beta.exit_reason, _rounds(played, "beta")) == ("max_rounds_reached", 2)


async def test_a_round_that_was_broken_off_costs_nobody_a_result_and_is_on_the_bill(
    tmp_path: Path, server: ModelServer
) -> None:
    arena = _arena(tmp_path, server, "max_tokens = 30000\nmax_output_tokens = 500")
    plain = arena.teams[0]

    def long_in_round_two(call: ModelCall) -> str:
        # A member that gives much more than before: what was earmarked does not last.
        return "help for: " + ("long " * 6000 if "round 2" in call.prompt else call.prompt)

    server.on(f"member-{plain.word}", long_in_round_two)
    played = await arena.play()
    best = played.result("alpha")
    assert best is not None
    assert (best.exit_reason, best.round_number) == ("budget_exhausted", 1)
    assert played.failure("alpha") is None
    told = {(line.round_number, line.role) for line in played.summary.bill}
    assert (2, "member") in told
    assert {(row["round_number"], row["role"]) for row in arena.rows("model_usage")} == told


async def test_a_call_waits_for_what_is_set_aside_for_the_round_of_another_team_instead_of_breaking_off_its_own(
    tmp_path: Path, server: ModelServer
) -> None:
    rounds = "max_rounds = 2\nmin_rounds = 2\n"
    arena = _arena(tmp_path, server, "max_tokens = 100000\nmax_output_tokens = 500", BOTH, orchestrator=rounds)
    # Calls of both teams have to share one turn, but for two models that wait for each other here.
    with (tmp_path / "configs/providers.toml").open("a") as file:
        file.write(f'max_concurrency = 1\n[providers.wide]\nbase_url = "{server.base_url}"\n')
    for number, model in enumerate(("member-alpha", "leader-beta")):
        team = tmp_path / f"configs/agents/{number}.toml"
        team.write_text(team.read_text().replace(f"loop:{model}", f"wide:{model}"))
    beta_is_in_round_two, alpha_has_much = threading.Event(), threading.Event()

    async def member_alpha(call: ModelCall) -> str:
        if "round 2" not in call.prompt:
            return f"help for: {call.prompt}"
        await asyncio.to_thread(beta_is_in_round_two.wait, 30)
        alpha_has_much.set()
        return "help for: " + "long " * 10_000

    async def leader_beta(call: ModelCall) -> Any:
        if round_of(call) == 2:
            beta_is_in_round_two.set()
            await asyncio.to_thread(alpha_has_much.wait, 30)
        if call.tool_results:
            return arena.teams[1].answer(round_of(call))
        return [ToolCall(call.tools[0].name, {"task": arena.teams[1].task(round_of(call))})]

    # A dear first round of beta sets much aside for its second, which a call of alpha with a long prompt would need.
    server.on("member-beta", lambda call: "help for: " + "long " * (8_000 if "round 1" in call.prompt else 1))
    server.on("member-alpha", member_alpha)
    server.on("leader-beta", leader_beta)
    async with asyncio.timeout(60):
        played = await arena.play()
    assert [_rounds(played, team) for team in ("alpha", "beta")] == [2, 2]
    assert {entry.exit_reason for entry in played.summary.team_results} == {"max_rounds_reached"}


async def test_a_team_without_any_result_fails_and_says_why(tmp_path: Path, server: ModelServer) -> None:
    played = await _arena(tmp_path, server, "max_requests = 3").play()
    assert played.summary.team_results == []
    assert played.failure("alpha") == (
        "the run's budget cannot pay for the next call: 3 of 3 calls are used, and up to 1 would be needed "
        "(max_requests of [budget])"
    )
    assert server.bill.total.requests == 3


async def test_an_answer_that_the_budget_cannot_let_be_judged_is_on_the_board_and_judged_with_a_larger_one(
    tmp_path: Path, server: ModelServer
) -> None:
    arena = _arena(tmp_path, server, "max_requests = 3", orchestrator=LIMITS.replace("5", "2"))
    played = await arena.play()
    assert "cannot pay for the next call: 3 of 3 calls are used" in (played.failure("alpha") or "")
    [row] = arena.rows("leader_board")
    assert (row["score"], row["submission_content"]) == (None, "alpha answer of round 1, worth 70")
    record = await load_execution(Workspace(tmp_path), played.summary.execution_id)
    assert [each.submission for each in record.teams[0].rounds] == [row["submission_content"]]
    file = tmp_path / "configs/orchestrator.toml"
    file.write_text(file.read_text().replace("max_requests = 3", "max_requests = 30"))
    summary = await arena.build().resume(played.summary.execution_id, accept_changes=True)
    assert [each["score"] for each in arena.rows("leader_board")] == [70, 80]
    assert (summary.best_score, server.bill.models["leader-alpha"].requests) == (80, 4)


async def test_the_time_of_a_run_ends_calls_in_flight_and_keeps_the_best_round(
    tmp_path: Path, server: ModelServer
) -> None:
    arena = _arena(tmp_path, server, "max_seconds = 3")
    began = asyncio.get_running_loop().time()

    async def slow_in_round_two(call: ModelCall) -> Any:
        if "round 1, worth" in call.prompt:
            await asyncio.sleep(60)
        return "alpha answer of round 1, worth 70"

    server.on("leader-alpha", slow_in_round_two)
    played = await arena.play()
    best = played.result("alpha")
    assert best is not None
    assert (best.exit_reason, best.score) == ("budget_exhausted", 70)
    assert asyncio.get_running_loop().time() - began < 30


async def test_the_time_that_was_played_before_a_resume_counts(tmp_path: Path, server: ModelServer) -> None:
    arena = _arena(tmp_path, server, "max_seconds = 600")

    def stop(event: Event) -> None:
        if event.kind == "RoundFinished":
            orchestrator.stop()

    orchestrator = arena.build(listeners=[stop])
    assert (await orchestrator.execute(TASK, execution_id="timed")).interrupted
    began = (utc_now() - timedelta(minutes=9)).isoformat(timespec="microseconds")
    with closing(sqlite3.connect(tmp_path / "journal.db")) as journal, journal:
        journal.execute("UPDATE events SET at = ? WHERE kind IN ('RunStarted', 'TeamStarted')", (began,))
    events: list[Event] = []
    summary = await arena.build(listeners=[events.append]).resume("timed")
    low = next(event for event in events if isinstance(event, BudgetLow))
    assert (low.limit, low.allowed) == ("max_seconds", 600)
    assert low.used >= 500
    assert summary.total_execution_time_seconds >= 500


async def test_a_team_that_its_budget_ended_goes_on_with_a_larger_one(tmp_path: Path, server: ModelServer) -> None:
    short = await _arena(tmp_path, server, "max_requests = 10").play()
    execution_id = short.summary.execution_id
    again = _arena(tmp_path, server, "max_requests = 10")
    with pytest.raises(NotResumableError, match="ended at its budget: raise the limit"):
        await again.build().resume(execution_id)
    assert server.bill.total.requests == 8

    longer = _arena(tmp_path, server, "max_requests = 100")
    with pytest.raises(RunChangedError, match="max_requests"):
        await longer.build().resume(execution_id)
    summary = await longer.build().resume(execution_id, accept_changes=True)

    [best] = summary.team_results
    assert (best.exit_reason, best.round_number) == ("max_rounds_reached", 2)
    rows = longer.rows("leader_board")
    assert [row["round_number"] for row in rows] == [1, 2, 3, 4, 5]
    assert [row["final_submission"] for row in rows] == [False, True, False, False, False]
    # Nothing of the first two rounds is paid for again, and the bill is that of both.
    assert (
        summary.usage.requests
        == server.bill.total.requests
        == sum(row["requests"] for row in longer.rows("model_usage"))
    )
    with pytest.raises(NotResumableError, match="is whole"):
        await longer.build().resume(execution_id)


async def test_models_without_a_price_are_refused_before_any_call(tmp_path: Path, server: ModelServer) -> None:
    arena = _arena(
        tmp_path,
        server,
        "max_cost_usd = 1",
        [Team("alpha", leader='fallback_models = ["loop:other"]')],
        prices=_prices(["leader-alpha", "judgment"]),
    )
    with pytest.raises(ConfigurationError) as caught:
        await arena.play()
    told = [(problem.file, problem.key) for problem in caught.value.problems]
    assert told == [
        ("configs/agents/0.toml", "team.leader.fallback_models[0]"),
        ("configs/agents/0.toml", "team.members[0].model"),
        ("configs/evaluator.toml", "default_model"),
    ]
    assert '[prices."loop:other"] with input_usd_per_million' in str(caught.value)
    assert server.bill.total.requests == 0


@pytest.mark.parametrize(
    ("budget", "words"),
    [
        ("max_cost_usd = 0.001", "0.001 USD cannot pay for one answer of 'loop:judge'"),
        ("max_tokens = 5_000", "5,000 tokens cannot pay for one answer of 'loop:judge'"),
        ("max_tokens = 5_000\nmax_output_tokens = 1_000", None),
        ("max_requests = 2", None),
    ],
)
async def test_judges_that_a_budget_could_never_pay_for_are_refused_before_any_team_is_paid(
    tmp_path: Path, server: ModelServer, budget: str, words: str | None
) -> None:
    arena = _arena(tmp_path, server, budget)
    if words is None:
        await arena.play()
        assert server.bill.total.requests
        return
    with pytest.raises(ConfigurationError) as refused:
        await arena.play()
    [problem] = refused.value.problems
    assert (problem.file, problem.key) == ("configs/orchestrator.toml", f"budget.{budget.split()[0]}")
    assert problem.message.startswith(words)
    assert not server.bill.total.requests


@pytest.mark.parametrize("prices", [None, ""])
async def test_what_was_cut_off_stays_spent_at_its_bound_and_refusals_cost_nothing(
    tmp_path: Path, server: ModelServer, prices: str | None
) -> None:
    budget = "max_tokens = 60000\nmax_output_tokens = 500"
    arena = _arena(tmp_path, server, budget, prices=prices, orchestrator="max_rounds = 1\n")
    server.fault("reset_in_body", model="member-alpha", at=1)
    server.fault(503, model="judge", at=1)
    played = await arena.play()
    [lost] = played.summary.lost
    assert (lost.role, lost.attempts) == ("member", 1)
    assert (lost.tokens or 0) > 500
    assert (lost.cost_usd is None) == (prices == ""), "without a price nobody knows"
    async with arena.journal() as journal:
        calls = await journal.spending(played.summary.execution_id)
        assert await journal.calls_in_flight(played.summary.execution_id) == []
    assert sum(call.lost_tokens or 0 for call in calls) == lost.tokens


@pytest.mark.parametrize("fault", ["reset_in_body", "missing_usage"])
async def test_what_nobody_told_the_price_of_is_told_as_that_and_not_as_the_most_that_it_cost(
    tmp_path: Path, server: ModelServer, capsys: pytest.CaptureFixture[str], fault: Any
) -> None:
    arena = _arena(tmp_path, server, "max_requests = 60", prices="", orchestrator="max_rounds = 1\n")
    server.fault(fault, model="member-alpha", at=1)
    played = await arena.play()
    [lost] = played.summary.lost
    assert all(_longest(request.body) is None for request in server.requests), "an answer may have any length"
    with pytest.raises(SystemExit):
        await asyncio.to_thread(main, ["show", "last", "-w", str(tmp_path)])
    told = "1 attempt broke off or told no usage and may have been billed beyond that"
    assert f"{told}: {lost.tokens:,} tokens were set aside" in capsys.readouterr().out.splitlines()


async def test_a_round_that_the_budget_breaks_off_is_told_of_and_billed(
    tmp_path: Path, server: ModelServer, capsys: pytest.CaptureFixture[str]
) -> None:
    arena = _arena(tmp_path, server, "max_requests = 10", orchestrator="max_rounds = 3\nmin_rounds = 1\n")

    def leader(call: ModelCall) -> str | list[ToolCall]:
        asks = 1 if round_of(call) == 1 else 9
        if len(call.tool_results) == asks:
            return "alpha, worth 70"
        return [ToolCall(call.tools[0].name, {"task": f"help {len(call.tool_results)}"})]

    server.on("leader-alpha", leader)
    played = await arena.play()
    [ended] = played.told("TeamFinished")
    assert ended.words.startswith("budget_exhausted: the run's budget cannot pay for the next call: 10 of 10 calls")
    with pytest.raises(SystemExit):
        await asyncio.to_thread(main, ["show", "-w", str(tmp_path)])
    assert "Team alpha ended: the run's budget cannot pay for the next call: 10 of 10 calls" in capsys.readouterr().out
    # As if the process had died before the end of the run was told, and the database were lost.
    before = arena.rows("model_usage")
    assert sum(line["requests"] for line in before) == 10
    with closing(sqlite3.connect(tmp_path / "journal.db")) as journal, journal:
        journal.execute("DELETE FROM events WHERE kind = 'RunFinished'")
    (tmp_path / "mixseek.db").unlink()
    async with AggregationStore(tmp_path) as store:
        await store.get_leader_board()
    assert arena.rows("model_usage") == before


@pytest.mark.parametrize(
    ("budget", "fault", "stopped_at"),
    [
        ("max_tokens = 20000\nmax_output_tokens = 500", None, ("RoundFinished", 1)),
        ("max_requests = 16", "missing_usage", ("RoundStarted", 3)),
    ],
)
async def test_a_budget_ends_a_run_that_was_stopped_where_it_ends_one_that_was_not(
    tmp_path: Path, server: ModelServer, budget: str, fault: Any, stopped_at: tuple[str, int]
) -> None:
    ends = []
    for is_stopped in (False, True):
        arena = _arena(tmp_path / str(is_stopped), server, budget, orchestrator="max_rounds = 3\nmin_rounds = 1\n")
        server.clear_faults()
        if fault is not None:
            server.fault(fault)
        before = server.bill.total.requests
        summary = await (_stopped_and_resumed(arena, stopped_at) if is_stopped else arena.build().execute(TASK))
        [best] = summary.team_results
        ends.append((best.round_number, best.exit_reason, server.bill.total.requests - before))
    assert ends[0] == ends[1]
    assert ends[0][2] > 10


async def test_a_judgment_that_is_asked_after_a_resume_counts_for_what_its_round_took(
    tmp_path: Path, server: ModelServer
) -> None:
    asked = []
    for is_stopped in (False, True):
        # Four calls and a judgment are a round: another one, with its judgment, would be the tenth call.
        arena = _arena(
            tmp_path / str(is_stopped), server, "max_requests = 9", orchestrator="max_rounds = 3\nmin_rounds = 1\n"
        )
        before = server.bill.total.requests
        stopped_at = ("RoundFinished", 1)
        summary = await (_stopped_and_resumed(arena, stopped_at) if is_stopped else arena.build().execute(TASK))
        assert [result.exit_reason for result in summary.team_results] == ["budget_exhausted"]
        asked.append(server.bill.total.requests - before)
    assert asked == [5, 5]


async def test_what_an_ended_team_took_of_its_guess_is_known_after_a_resume(
    tmp_path: Path, server: ModelServer
) -> None:
    ends = []
    for is_stopped in (False, True):
        one_by_one = "max_rounds = 2\nmin_rounds = 1\nmax_concurrent_teams = 1\n"
        budget = "max_tokens = 9000\nmax_output_tokens = 500"
        arena = _arena(tmp_path / str(is_stopped), server, budget, BOTH, orchestrator=one_by_one)
        stopped_at = ("RoundFinished", 1)
        summary = await (_stopped_and_resumed(arena, stopped_at) if is_stopped else arena.build().execute(TASK))
        ends.append([(row["team_id"], row["round_number"]) for row in arena.rows("leader_board")])
        assert len(summary.team_results) == 2
    assert ends[0] == ends[1]
    assert ("alpha", 2) in ends[0]


async def _stopped_and_resumed(arena: Arena, stopped_at: tuple[str, int]) -> ExecutionSummary:
    """Play, stop at the n-th event of a kind, and go on."""
    kinds: list[str] = []
    built: list[Orchestrator] = []

    def stop(event: Event) -> None:
        kinds.append(event.kind)
        if event.kind == stopped_at[0] and kinds.count(event.kind) == stopped_at[1]:
            built[0].stop()

    built.append(arena.build(listeners=[stop]))
    assert (await built[0].execute(TASK, execution_id="x")).interrupted
    return await arena.build().resume("x")


def test_a_round_that_a_killed_process_began_counts_as_if_one_process_had_played_it(tmp_path: Path) -> None:
    answered = []
    for crash_at in (None, "round.submitted:1"):
        root = tmp_path / str(crash_at)
        with ModelServerProcess() as server:
            file = write_workspace(root, teams=1, members=1, max_rounds=4, base_url=server.base_url)
            file.write_text(f"{file.read_text()}\n[budget]\nmax_tokens = 6500\nmax_output_tokens = 2000\n")
            # What is scored in code, and judged by rules, costs nothing that the second process could learn from.
            (root / "configs" / "evaluator.toml").write_text('[[metrics]]\nname = "Length"\noptions.maximum = 500\n')
            (root / "configs" / "judgment.toml").write_text('model = "none"\n')
            commands = [["exec", TASK], ["resume"]] if crash_at else [["exec", TASK]]
            for command, died_at in zip(commands, (crash_at, None), strict=False):
                environ = {**os.environ, **({CRASH_AT: died_at} if died_at else {})}
                ran = forked.run([sys.executable, "-m", "mixseek", *command, "-w", str(root)], env=environ, check=False)
            answered.append((ran.returncode, server.bill.total.answered))
    assert answered == [(0, 3), (0, 3)]


async def test_attempts_that_a_rate_limit_refused_are_not_counted_when_the_process_dies(
    tmp_path: Path, server: ModelServer
) -> None:
    arena = _arena(tmp_path, server, "max_tokens = 60000\nmax_output_tokens = 500", orchestrator="max_rounds = 1\n")
    server.fault(429, model="leader-alpha", count=3, retry_after=0)
    server.fault("hang_before_headers", model="leader-alpha")
    playing = asyncio.create_task(arena.build().execute(TASK, execution_id="x"))
    async with asyncio.timeout(30):
        while server.bill.total.waiting == 0:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    async with arena.journal() as journal:
        [spend] = await journal.spending("x")
    assert server.bill.total.requests == 4
    # What a process that died now would leave: one call on its way.
    assert (spend.lost_attempts, spend.lost_requests) == (1, 1)
    playing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await playing


async def test_an_evaluator_that_is_asked_alone_keeps_the_budget_of_its_orchestrator_file(
    tmp_path: Path, server: ModelServer
) -> None:
    _arena(tmp_path, server, "max_requests = 1", evaluator="")  # three judges
    manager = ConfigurationManager(Workspace(tmp_path))
    run = manager.load_run_settings(tmp_path / "configs/orchestrator.toml")
    around = Surroundings(run.workspace, run.prompt_builder, run.providers, run.orchestrator)
    request = EvaluationRequest(user_query="Why?", submission="alpha, worth 70")
    with pytest.raises(BudgetExhaustedError, match="1 of 1 call is used"):
        await evaluate_submission(run.evaluator, request, around)
    assert server.bill.total.requests == 1
