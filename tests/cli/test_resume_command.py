"""``mixseek resume`` as a person uses it: after a kill, with files that changed, and with nothing left to do."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from mixseek import run
from mixseek.testing import ModelServer, ModelServerProcess
from soak import forked
from soak.arena import Arena, Team
from tests.commands import Ran, run_here

TASK = "What is 6 times 7?"


@pytest.fixture
def server() -> Iterator[ModelServerProcess]:
    with ModelServerProcess(latency=0.05, jitter=0.05) as running:
        yield running


@pytest.fixture
def arena(tmp_path: Path, server: ModelServerProcess) -> Arena:
    teams = [Team("alpha", members=2), Team("beta")]
    return Arena(tmp_path, server.base_url, teams, orchestrator="max_rounds = 2\nmin_rounds = 1\n", evaluator="")


def mixseek(arena: Arena, *arguments: str) -> Ran:
    return run_here(*arguments, "-w", str(arena.root))


def ended_by(how: signal.Signals, arena: Arena, server: ModelServerProcess, answered: int) -> None:
    """Play by ``exec``, with a time limit of its own, and end that when so many calls are answered."""
    command = [sys.executable, "-m", "mixseek", "exec", TASK, "--timeout", "500", "-w", str(arena.root)]
    child = forked.Popen(command, env=_environment(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 60
    while server.bill.total.answered < answered and child.poll() is None and time.monotonic() < deadline:
        time.sleep(0.01)
    child.send_signal(how)
    child.wait(30)


def _environment() -> dict[str, str]:
    return {**os.environ, "MIXSEEK_ONLY_LOOPBACK": "1"}


def test_an_execution_that_was_ended_goes_on_by_one_word(arena: Arena, server: ModelServerProcess) -> None:
    ended_by(signal.SIGTERM, arena, server, answered=8)
    listed = mixseek(arena, "history").stdout
    assert f"mixseek resume ID -w {arena.root} goes on with one that is interrupted or unfinished" in listed
    gone_on = mixseek(arena, "resume", "-f", "json")
    assert gone_on.returncode == 0, gone_on.stderr
    summary = json.loads(gone_on.stdout)
    assert (summary["completed_teams"], summary["failed_teams"]) == (2, 0)
    assert f'goes on: "{TASK}"; finished so far: ' in gone_on.stderr
    assert " s over all processes" in gone_on.stderr
    whole = mixseek(arena, "resume", "last")
    assert (whole.returncode, whole.stdout) == (2, "")
    assert "is whole, there is nothing to resume" in whole.stderr
    assert "is unfinished" in mixseek(arena, "resume").stderr


def test_an_execution_that_was_killed_when_it_only_had_to_be_told_ended_is_ended_by_one_word(
    arena: Arena, server: ModelServerProcess
) -> None:
    command = [sys.executable, "-m", "mixseek", "exec", TASK, "-w", str(arena.root)]
    environ = {**_environment(), "MIXSEEK_CRASH_AT": "summary.after_save"}
    forked.run(command, env=environ, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    asked = server.bill.total.requests
    assert "did not come to its end: mixseek resume" in mixseek(arena, "replay", "last").stderr
    gone_on = mixseek(arena, "resume")
    assert (gone_on.returncode, server.bill.total.requests) == (0, asked), gone_on.stderr
    assert mixseek(arena, "replay", "last").returncode == 0
    assert "is unfinished" in mixseek(arena, "resume").stderr


def test_a_changed_file_is_named_and_exec_resumes_too(arena: Arena, server: ModelServerProcess) -> None:
    ended_by(signal.SIGKILL, arena, server, answered=8)
    file = arena.root / "configs/agents/1.toml"
    file.write_text(file.read_text().replace('description = "helps"', 'description = "helps more"'))
    refused = mixseek(arena, "resume")
    assert refused.returncode == 2
    assert "configs/agents/1.toml: members[0].description: was 'helps', is 'helps more'" in refused.stderr
    assert "--accept-changes" in refused.stderr
    beside = mixseek(arena, "exec", "--resume", "last", "another task")
    assert (beside.returncode, "give no prompt" in beside.stderr) == (2, True)
    accepted = mixseek(arena, "exec", "--resume", "last", "--accept-changes")
    assert accepted.returncode == 0, accepted.stderr
    assert "Best answer" in accepted.stdout
    assert " s over all processes\n" in accepted.stdout


def test_an_execution_that_was_begun_from_python_is_gone_on_with_there_by_what_the_command_asked_for(
    tmp_path: Path,
) -> None:
    team = {"team_id": "a", "team_name": "A", "leader": {"model": "loop:leader"}}
    with ModelServer() as server:
        run(
            TASK,
            [team],
            evaluator={"default_model": "loop:judge"},
            judgment={"model": "none"},
            providers={"loop": {"base_url": server.base_url}},
            max_rounds=1,
            workspace=tmp_path,
        )
    for options, call in (([], "(..., resume=ID)"), (["--accept-changes"], "(..., resume=ID, accept_changes=True)")):
        refused = run_here("resume", "last", *options, "-w", str(tmp_path))
        assert "names no orchestrator file" in refused.stderr
        assert f"from Python: the same mixseek.run{call}" in refused.stderr


def test_resuming_is_not_offered_where_every_round_was_played_and_none_was_scored(tmp_path: Path) -> None:
    with ModelServer() as server:
        arena = Arena(tmp_path, server.base_url, [Team("alpha", members=0)], orchestrator="max_rounds = 1\n")
        arena.script(server)
        server.on("leader-alpha", lambda _: "")
        played = mixseek(arena, "exec", TASK)
        shown, resumed = mixseek(arena, "show", "last"), mixseek(arena, "resume")
    assert played.returncode == 2
    assert "has a scored submission" in played.stdout
    assert "mixseek resume" not in played.stderr + shown.stdout + resumed.stderr


CARELESS = """
from mixseek.evaluator.metrics import CodeMetric, Measured, MetricOptions


class Careless(CodeMetric):
    Options = MetricOptions

    def measure(self, submission, reference):
        return Measured(50, commment)
"""


def test_after_a_mistake_in_a_metric_the_hint_is_to_mend_it_and_leads_on(tmp_path: Path) -> None:
    (tmp_path / "careless.py").write_text(CARELESS)
    with ModelServer() as server:
        arena = Arena(
            tmp_path,
            server.base_url,
            [Team("alpha", members=0)],
            orchestrator="max_rounds = 1\n",
            evaluator=(
                '[[metrics]]\nname = "Careless"\n'
                '[custom_metrics]\nCareless = { path = "careless.py", class = "Careless" }\n'
            ),
        )
        arena.script(server)
        hint, command = mixseek(arena, "exec", TASK).stderr.splitlines()[-2:]
        shown, offered = mixseek(arena, "show", "last").stdout, mixseek(arena, "resume").stderr
        assert hint.startswith("mixseek: with metric 'Careless' mended, the team that failed goes on with this, ")
        assert command.strip().startswith("mixseek resume ")
        assert command.endswith(" --accept-changes")
        assert f"with metric 'Careless' mended, {command.strip()} lets the teams go on that failed" in shown
        assert "with metric 'Careless' mended, mixseek resume " in offered
        (tmp_path / "careless.py").write_text(CARELESS.replace("commment", '"short"'))
        # In another process, as files are read once in each.
        again = [sys.executable, "-m", "mixseek", "resume", "last", "--accept-changes", "-w", str(tmp_path)]
        child = forked.Popen(again, env=_environment(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        assert child.wait(60) == 0


def test_resuming_is_offered_with_the_workspace_that_was_given(tmp_path: Path) -> None:
    with ModelServer() as server:
        teams = [Team("alpha", members=0), Team("beta", members=0)]
        arena = Arena(tmp_path, server.base_url, teams, orchestrator="max_rounds = 1\nmax_retries_per_team = 0\n")
        arena.script(server)
        server.on("leader-alpha", lambda _: "")
        server.fault(401, model="leader-beta")
        played = mixseek(arena, "exec", TASK)
    last_line = played.stderr.splitlines()[-1].strip()
    assert last_line.startswith("mixseek resume ")
    assert f"{last_line} lets the teams go on that failed" in mixseek(arena, "show", "last").stdout
    assert last_line.endswith(f"-w {tmp_path}")
    assert f"{last_line} lets them go on" in mixseek(arena, "resume").stderr
