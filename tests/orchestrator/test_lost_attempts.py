"""Attempts of which nobody knows what they cost: how many there were is told, with a budget and without."""

import asyncio
import json
import os
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mixseek.amounts import cost_words
from mixseek.cli import main
from mixseek.crash_points import CRASH_AT
from mixseek.orchestrator import Orchestrator, load_orchestrator_settings
from mixseek.report.reading import load_execution
from mixseek.testing import Match, ModelServer, ModelServerProcess, scripted, write_workspace
from mixseek.workspace import Workspace
from soak import forked
from soak.arena import TASK, Arena, Team

ONE = "1 attempt broke off or told no usage and may have been billed beyond that"
ALPHA = (Team("alpha"),)
ONCE = "max_rounds = 1\n"
Run = Callable[..., tuple[int, str]]


@pytest.fixture
def run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Run:
    def call(*arguments: str) -> tuple[int, str]:
        with pytest.raises(SystemExit) as end:
            main([*arguments, "-w", str(tmp_path)])
        return int(end.value.code or 0), capsys.readouterr().out

    return call


@pytest.mark.parametrize("fault", ["reset_in_body", "missing_usage"])
def test_without_a_budget_exec_show_json_and_reports_tell_how_many_attempts_nobody_knows_the_cost_of(
    tmp_path: Path, run: Run, fault: Any
) -> None:
    with ModelServer() as server:
        arena = Arena(tmp_path, server.base_url, ALPHA, ONCE)
        arena.script(server)
        server.fault(fault, model="member-alpha", at=1)
        code, out = run("exec", TASK)
    assert code == 0
    assert ONE in out.splitlines()
    assert ONE in run("show")[1].splitlines()
    [lost] = json.loads(run("show", "-f", "json")[1])["lost"]
    assert (lost["role"], lost["attempts"], lost["tokens"], lost["cost_usd"]) == ("member", 1, None, None)
    assert ONE in run("export", "-f", "md")[1].splitlines()
    run("export", "-f", "html")
    [page] = (tmp_path / "reports").glob("*.html")
    assert ONE in page.read_text()


def _priced(arena: Arena) -> None:
    price = "input_usd_per_million = 1\noutput_usd_per_million = 1\n"
    models = ("leader-alpha", "member-alpha", "judge", "judgment")
    with (arena.root / "configs/orchestrator.toml").open("a") as file:
        file.writelines(f'[prices."loop:{model}"]\n{price}' for model in models)


def _known(out: str) -> str:
    """What is known of a cost that is not known in whole."""
    [told] = {found[1] for found in re.finditer(r"cost not known, but (\S+ USD) at least", out)}
    return told


def test_where_one_call_told_no_usage_what_all_others_cost_is_told_alike_by_all_that_tell_it(
    tmp_path: Path, run: Run
) -> None:
    with ModelServer() as server:
        arena = Arena(tmp_path, server.base_url, ALPHA, ONCE)
        arena.script(server)
        _priced(arena)
        # The leader is asked again in the same round, which is the same line of the bill.
        server.fault("missing_usage", model="leader-alpha", at=1)
        _, played = run("exec", TASK)
    calls = json.loads(run("journal", "calls", "-f", "json")[1])
    assert sorted(call["cost_usd"] is None for call in calls if call["role"] == "leader") == [False, True]
    known = cost_words(sum(call["cost_usd"] or 0 for call in calls))
    assert _known(played) == known
    for command in (["show"], ["show", "--team", "alpha"], ["export", "-f", "md"], ["journal", "calls"]):
        assert _known(run(*command)[1]) == known
    bill = json.loads(run("show", "-f", "json")[1])["bill"]
    assert [line["cost_usd"] for line in bill if line["role"] == "leader"] == [None]
    for file in tmp_path.glob("journal.db*"):
        file.unlink()
    assert _known(run("show")[1]) < known, "the table knows of whole lines alone"


def test_a_process_that_goes_on_knows_what_is_known_of_costs_before(tmp_path: Path, run: Run) -> None:
    with ModelServer() as server:
        arena = Arena(tmp_path, server.base_url, ALPHA, ONCE)
        arena.script(server)
        _priced(arena)
        server.fault("missing_usage", model="leader-alpha", at=1)
        command = [sys.executable, "-m", "mixseek", "exec", TASK, "-w", str(tmp_path)]
        killed_by_its_judge = {CRASH_AT: "call.after_answer:4"}
        forked.run(command, env={**os.environ, **killed_by_its_judge}, capture_output=True, check=False)
        assert _known(run("show")[1]) == _known(run("journal", "calls")[1])
        _, resumed = run("resume")
    calls = json.loads(run("journal", "calls", "-f", "json")[1])
    known = cost_words(sum(call["cost_usd"] or 0 for call in calls))
    assert _known(resumed) == _known(run("show")[1]) == _known(run("journal", "calls")[1]) == known


async def test_what_was_set_aside_is_told_of_those_attempts_that_a_budget_bounds(
    tmp_path: Path, server: ModelServer, capsys: pytest.CaptureFixture[str]
) -> None:
    limited = Team("alpha", extra="[team.budget]\nmax_tokens = 60_000\nmax_output_tokens = 500\n")
    arena = Arena(tmp_path, server.base_url, (limited, Team("beta")), ONCE)
    arena.script(server)
    for word in ("alpha", "beta"):
        server.fault("reset_in_body", model=f"member-{word}", at=1)
    server.fault(503, model="judge", at=1)  # refused at no cost
    lost = {line.team_id: line for line in (await arena.play()).summary.lost}
    assert lost["alpha"].tokens is not None
    assert lost["beta"].tokens is None
    with pytest.raises(SystemExit):
        await asyncio.to_thread(main, ["show", "-w", str(tmp_path)])
    told = f"{ONE.replace('1 attempt', '2 attempts')}: {lost['alpha'].tokens:,} tokens were set aside for 1 of them"
    assert told in capsys.readouterr().out.splitlines()


async def test_an_attempt_that_is_interrupted_is_counted_and_one_that_is_on_its_way_is_not(
    tmp_path: Path, server: ModelServer
) -> None:
    arena = Arena(tmp_path, server.base_url, ALPHA, ONCE)
    arena.script(server)
    server.fault("hang_before_headers", model="leader-alpha")
    built = arena.build()
    playing = asyncio.create_task(built.execute(TASK, execution_id="x"))
    async with asyncio.timeout(30), arena.journal() as journal:
        while not server.bill.total.waiting or not await journal.calls_in_flight("x"):  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    assert (await load_execution(Workspace(tmp_path), "x")).lost == ()
    built.stop()
    [lost] = (await playing).lost
    assert (lost.role, lost.attempts) == ("leader", 1)
    assert (await load_execution(Workspace(tmp_path), "x")).lost == (lost,)


async def test_a_call_that_never_had_its_turn_is_neither_lost_nor_a_fault_of_the_journal(
    tmp_path: Path, server: ModelServer, capsys: pytest.CaptureFixture[str]
) -> None:
    arena = Arena(tmp_path, server.base_url, (Team("alpha"), Team("beta")), ONCE)
    arena.script(server)
    file = tmp_path / "configs/providers.toml"
    file.write_text(f"{file.read_text()}max_concurrency = 1\n")
    server.fault("hang_before_headers", model="leader-*")
    built = arena.build()
    playing = asyncio.create_task(built.execute(TASK, execution_id="x"))
    async with asyncio.timeout(30), arena.journal() as journal:
        while not server.bill.total.waiting or not await journal.calls_in_flight("x"):  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        assert len(await journal.calls_in_flight("x")) == 1
    built.stop()
    assert [line.attempts for line in (await playing).lost] == [1]
    with pytest.raises(SystemExit) as end:
        await asyncio.to_thread(main, ["journal", "verify", "-w", str(tmp_path)])
    assert (end.value.code or 0) == 0, capsys.readouterr().out


def test_what_was_on_its_way_when_a_process_was_killed_is_told_before_and_after_the_resume(
    tmp_path: Path, run: Run
) -> None:
    with ModelServerProcess() as server:
        server.set_latency(0.2)  # time for the mark to be written
        write_workspace(tmp_path, teams=1, members=1, max_rounds=1, base_url=server.base_url)
        command = [sys.executable, "-m", "mixseek", "exec", TASK, "-w", str(tmp_path)]
        forked.run(command, env={**os.environ, CRASH_AT: "call.after_answer:2"}, check=False)
        assert ONE in run("show")[1].splitlines()
        code, out = run("resume")
    assert code == 0
    assert ONE in out.splitlines()
    assert ONE in run("show")[1].splitlines()


async def test_nobody_bills_what_a_model_of_this_process_was_asked_in_vain(tmp_path: Path) -> None:
    file = write_workspace(tmp_path, teams=1, max_rounds=1)

    def fail(call: Any) -> str:
        raise RuntimeError("no")

    with scripted() as script:
        script.on(Match("leader-a"), fail)
        summary = await Orchestrator(load_orchestrator_settings(file, tmp_path)).execute(TASK)
    assert summary.lost == []
