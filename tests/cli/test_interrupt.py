"""Ctrl-C as it is pressed: real signals to real processes, at every stage of a run."""

import json
import os
import re
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import duckdb
import pytest

from mixseek.testing import ModelServerProcess, write_workspace
from soak import forked
from tests.processes import children_of
from tests.terminals import Terminal
from tests.waiting import until_true

TASK = "What is bamboo for?"
SAFETY_SECONDS = 60
SLEEPER = """
import asyncio, pathlib, time
from mixseek.agents.member.base import BaseMemberAgent
from mixseek.models.member_agent import MemberAgentResult

class Sleeper(BaseMemberAgent):
    async def execute(self, task, context=None, **kwargs):
        pathlib.Path("asleep").touch()
        await asyncio.to_thread(time.sleep, 300)
"""
SLEEPING_MEMBER = """
[[team.members]]
name = "sleeper"
type = "custom"
model = "loopback:member-1"
description = "Sleeps."
[team.members.plugin]
path = "sleeper.py"
agent_class = "Sleeper"
"""


@pytest.fixture
def server(server_process: ModelServerProcess) -> ModelServerProcess:
    return server_process


def _command(workspace: Path, *arguments: str) -> list[str]:
    config = str(workspace / "configs" / "orchestrator.toml")
    return [sys.executable, "-m", "mixseek", "exec", TASK, "-c", config, "-w", str(workspace), *arguments]


def _environment() -> dict[str, str]:
    dropped = ("MIXSEEK_", "COLUMNS", "LINES", "NO_COLOR", "FORCE_COLOR", "TERM")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(dropped)}
    return {**kept, "TERM": "xterm-256color", "PYTHONIOENCODING": "utf-8", "MIXSEEK_ONLY_LOOPBACK": "1"}


@contextmanager
def _started(workspace: Path, *arguments: str, command: list[str] | None = None) -> Iterator[subprocess.Popen[str]]:
    child = forked.Popen(
        command or _command(workspace, *arguments),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=workspace,
        env=_environment(),
    )
    try:
        yield child
    finally:
        child.kill()
        child.communicate()


def _asked(server: ModelServerProcess, model: str, times: int) -> Callable[[], bool]:
    return lambda: model in server.bill.models and server.bill.models[model].requests >= times


def _count(workspace: Path, query: str) -> int:
    with duckdb.connect(workspace / "mixseek.db", read_only=True) as connection:
        return int(connection.execute(f"SELECT count(*) FROM {query}").fetchall()[0][0])


def _events(workspace: Path) -> list[str]:
    with sqlite3.connect(workspace / "journal.db") as journal:
        return [kind for (kind,) in journal.execute("SELECT kind FROM events WHERE team_id IS NULL ORDER BY rowid")]


def _second_round_hangs(server: ModelServerProcess, workspace: Path) -> None:
    write_workspace(workspace, teams=2, max_rounds=3, base_url=server.base_url)
    server.fault("hang_before_headers", model="leader-b", after=1)
    server.fault("hang_before_headers", model="leader-a", after=1)


def test_ctrl_c_in_a_terminal_ends_with_the_best_so_far_and_says_how_to_see_it_again(
    server: ModelServerProcess, tmp_path: Path
) -> None:
    _second_round_hangs(server, tmp_path)
    installed = [str(Path(sys.executable).with_name("mixseek")), *_command(tmp_path)[3:]]
    with Terminal(installed, env=_environment(), columns=100) as terminal:
        terminal.until(lambda: terminal.text().count("2/3") == 2 and _asked(server, "leader-b", 2)())
        assert not children_of(terminal.child.pid)
        terminal.type("\x03")
        assert terminal.wait() == 130
    said = terminal.text()
    assert "stopping; Ctrl-C again ends at once" in said
    assert "Leader board, as far as it came\n  1. Team " in said
    assert "Team A (a): interrupted in round 2" in said
    assert "Best answer: Team " in said
    execution_id = said.partition("\nExecution ")[2].split()[0]
    assert f"mixseek show {execution_id}" in said.replace("\n", "")
    assert "Traceback" not in said
    assert _count(tmp_path, "leader_board") == 2
    assert _count(tmp_path, "leader_board WHERE final_submission") == 0
    assert _count(tmp_path, "execution_summary") == 0
    assert _events(tmp_path) == ["RunStarted", "RunInterrupted"]
    assert " rounds · " not in said, "no bar is left that seems to wait"
    listed, shown = _stored(tmp_path, "history"), _stored(tmp_path, "show", execution_id)
    [line] = listed
    assert (line["status"], line["is_running"], line["seconds"] > 0) == ("interrupted", False, True)
    assert (shown["status"], shown["seconds"] == line["seconds"]) == ("interrupted", True)
    assert [[one["is_finished"] for one in team["rounds"]] for team in shown["teams"]] == [[True, False]] * 2
    assert [team["rounds"] for team in _stored(tmp_path, "board", execution_id)] == [1, 1]


def _stored(workspace: Path, *command: str) -> Any:
    ran = forked.run(
        [sys.executable, "-m", "mixseek", *command, "-w", str(workspace), "-f", "json"],
        env=_environment(), capture_output=True, text=True, timeout=SAFETY_SECONDS, check=True,
    )  # fmt: skip
    return json.loads(ran.stdout)


def test_ctrl_c_ends_a_team_gracefully_with_the_answer_it_has(server: ModelServerProcess, tmp_path: Path) -> None:
    write_workspace(tmp_path, teams=1, base_url=server.base_url)
    server.fault("hang_before_headers", model="judge")
    command = _command(tmp_path, "--evaluate", "--save-db", "-f", "json")
    command[command.index("exec")] = "team"
    command[command.index("-c") + 1] = str(tmp_path / "configs" / "agents" / "team-a.toml")
    with _started(tmp_path, command=command) as child:
        until_true(_asked(server, "judge", 1), child)
        child.send_signal(signal.SIGINT)
        out, err = child.communicate(timeout=SAFETY_SECONDS)
    assert child.returncode == 130, err
    told = json.loads(out)
    assert (told["interrupted"], told["score"], told["error"]) == (True, None, "interrupted in round 1")
    assert told["answer"]
    assert "stopping; Ctrl-C again ends at once" in err
    assert [line["status"] for line in _stored(tmp_path, "history")] == ["interrupted"]
    # There is no orchestrator file to go on with.
    for command in (["history"], ["show", "last"], ["resume"]):
        ran = forked.run(
            [sys.executable, "-m", "mixseek", *command, "-w", str(tmp_path)],
            env=_environment(), capture_output=True, text=True, timeout=SAFETY_SECONDS, check=False,
        )  # fmt: skip
        assert "goes on with" not in ran.stdout
    assert "names no orchestrator file: it was played by mixseek team" in ran.stderr


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_as_json_an_interrupted_run_prints_the_summary_of_what_there_is(
    number: signal.Signals, server: ModelServerProcess, tmp_path: Path
) -> None:
    _second_round_hangs(server, tmp_path)
    with _started(tmp_path, "-f", "json") as child:
        until_true(lambda: _asked(server, "leader-a", 2)() and _asked(server, "leader-b", 2)(), child)
        child.send_signal(number)
        out, err = child.communicate(timeout=SAFETY_SECONDS)
    assert child.returncode == 130, err
    summary: dict[str, Any] = json.loads(out)
    assert summary["interrupted"]
    assert {entry["team_id"] for entry in summary["team_results"]} == {"a", "b"}
    assert summary["partial_team_ids"] == ["a", "b"]
    assert summary["best_score"] == max(entry["score"] for entry in summary["team_results"])
    assert "Traceback" not in err


def test_a_terminal_that_is_closed_ends_a_run_like_ctrl_c(server: ModelServerProcess, tmp_path: Path) -> None:
    _second_round_hangs(server, tmp_path)
    command = [str(Path(sys.executable).with_name("mixseek")), *_command(tmp_path)[3:]]
    with Terminal(command, env=_environment()) as terminal:
        terminal.until(lambda: _asked(server, "leader-a", 2)() and _asked(server, "leader-b", 2)())
        # Nobody can be told the answer any more, which is an error of its own.
        assert terminal.hang_up() == 2
    assert _events(tmp_path) == ["RunStarted", "RunInterrupted"]
    assert [line["status"] for line in _stored(tmp_path, "history")] == ["interrupted"]


def test_what_was_started_with_nohup_outlives_its_terminal(server: ModelServerProcess, tmp_path: Path) -> None:
    write_workspace(tmp_path, teams=1, max_rounds=1, base_url=server.base_url)
    server.set_latency(1.0, model="leader-a")
    command = ["nohup", str(Path(sys.executable).with_name("mixseek")), *_command(tmp_path)[3:]]
    try:
        with Terminal(command, env=_environment(), cwd=tmp_path) as terminal:
            until_true((tmp_path / "journal.db").exists, terminal.child)
            assert terminal.hang_up() == 0
    finally:
        server.set_latency(0.0, model="leader-a")
    assert _events(tmp_path) == ["RunStarted", "RunFinished"]
    assert "Best answer: Team A" in (tmp_path / "nohup.out").read_text(encoding="utf-8")


def test_an_interrupted_run_has_its_report_too(server: ModelServerProcess, tmp_path: Path) -> None:
    _second_round_hangs(server, tmp_path)
    with _started(tmp_path, "--report-file", "told.html") as child:
        until_true(lambda: _asked(server, "leader-a", 2)() and _asked(server, "leader-b", 2)(), child)
        child.send_signal(signal.SIGINT)
        _, err = child.communicate(timeout=SAFETY_SECONDS)
    assert child.returncode == 130, err
    page = (tmp_path / "told.html").read_text(encoding="utf-8")
    assert "This execution was interrupted; this is what was kept of it." in page
    assert page.count("<b>Round 1</b>") == 2
    assert '<h2>Answer</h2>\n<p class="meta">By ' in page


def test_ctrl_c_before_any_round_is_finished_says_so(server: ModelServerProcess, tmp_path: Path) -> None:
    write_workspace(tmp_path, teams=1, base_url=server.base_url)
    server.fault("hang_in_body", model="leader-a")
    with _started(tmp_path) as child:
        until_true(_asked(server, "leader-a", 1), child)
        child.send_signal(signal.SIGINT)
        out, err = child.communicate(timeout=SAFETY_SECONDS)
    assert child.returncode == 130
    assert "  no team has a result\n" in out
    assert "interrupted before any round of execution " in err
    assert "Traceback" not in err


def test_ctrl_c_while_the_run_is_built_ends_it_before_it_began(server: ModelServerProcess, tmp_path: Path) -> None:
    write_workspace(tmp_path, teams=1, base_url=server.base_url)
    # The metric is made while the run is built.
    (tmp_path / "slow.py").write_text(
        "import pathlib, time\nfrom mixseek.evaluator.metrics.base import BaseMetric\n"
        "class Slow(BaseMetric):\n    def __init__(self):\n"
        "        pathlib.Path('building').touch()\n        time.sleep(1.5)\n"
        "    async def evaluate(self, user_query, submission, **context): ...\n"
    )
    (tmp_path / "configs" / "evaluator.toml").write_text(
        '[[metrics]]\nname = "Slow"\n[custom_metrics.Slow]\npath = "slow.py"\nclass = "Slow"\n'
    )
    with _started(tmp_path) as child:
        until_true((tmp_path / "building").exists, child)
        child.send_signal(signal.SIGINT)
        out, err = child.communicate(timeout=SAFETY_SECONDS)
    assert child.returncode == 130, err
    assert err.endswith("mixseek: interrupted before the run began\n")
    assert out == "", "nobody finds an execution that has not begun"
    assert not server.bill.models
    with sqlite3.connect(tmp_path / "journal.db") as journal:
        assert journal.execute("SELECT count(*) FROM events").fetchone() == (0,)


def test_ctrl_c_while_another_program_holds_the_database_does_not_wait_for_it(
    server: ModelServerProcess, tmp_path: Path
) -> None:
    write_workspace(tmp_path, teams=1, base_url=server.base_url)
    with duckdb.connect(tmp_path / "mixseek.db"), _started(tmp_path) as child:
        until_true(lambda: "itself waiting" in _lock_file(tmp_path), child)
        begun = time.monotonic()
        child.send_signal(signal.SIGINT)
        _, err = child.communicate(timeout=SAFETY_SECONDS)
        assert child.returncode == 130, err
        assert time.monotonic() - begun < 20  # it would wait for a minute
    assert "mixseek: interrupted before the run began\n" in err


def _lock_file(workspace: Path) -> str:
    path = workspace / "mixseek.db.lock"
    return path.read_text() if path.exists() else ""


def test_a_member_that_sleeps_in_a_thread_does_not_hold_up_the_end(server: ModelServerProcess, tmp_path: Path) -> None:
    write_workspace(tmp_path, teams=1, base_url=server.base_url)
    (tmp_path / "sleeper.py").write_text(SLEEPER)
    team = tmp_path / "configs" / "agents" / "team-a.toml"
    team.write_text(team.read_text() + SLEEPING_MEMBER)
    with _started(tmp_path) as child:
        until_true((tmp_path / "asleep").exists, child)
        child.send_signal(signal.SIGINT)
        _, err = child.communicate(timeout=SAFETY_SECONDS)
    assert child.returncode == 130, err
    assert "interrupted before any round" in err


def test_a_second_ctrl_c_ends_at_once_whatever_happens(server: ModelServerProcess, tmp_path: Path) -> None:
    write_workspace(tmp_path, teams=1, base_url=server.base_url)
    (tmp_path / "stubborn.py").write_text(
        SLEEPER.replace("await asyncio.to_thread(time.sleep, 300)", "\n        while True: time.sleep(0.1)")
    )
    team = tmp_path / "configs" / "agents" / "team-a.toml"
    team.write_text(team.read_text() + SLEEPING_MEMBER.replace("sleeper.py", "stubborn.py"))
    with Terminal(_command(tmp_path), env=_environment(), cwd=tmp_path) as terminal:
        terminal.until((tmp_path / "asleep").exists)
        terminal.type("\x03")
        time.sleep(0.3)
        terminal.type("\x03")
        assert terminal.wait() == 130
    assert b"\x1b[?25l" not in terminal.raw  # no cursor is left hidden
    last = terminal.raw.decode().splitlines()[-2:]
    assert last[0] == "mixseek: ended at once; this goes on with it:"
    assert re.fullmatch(rf"  mixseek resume [-0-9a-f]{{36}} -w {re.escape(str(tmp_path))}", last[1])


def test_ctrl_c_when_all_is_done_changes_nothing(server: ModelServerProcess, tmp_path: Path) -> None:
    write_workspace(tmp_path, teams=1, max_rounds=1, base_url=server.base_url, orchestrator="min_rounds = 1")
    with _started(tmp_path, "-f", "json") as child:
        until_true(lambda: (tmp_path / "journal.db").exists() and "RunFinished" in _events_if_any(tmp_path), child)
        child.send_signal(signal.SIGINT)
        out, err = child.communicate(timeout=SAFETY_SECONDS)
    assert child.returncode in (0, 130), err
    assert "Traceback" not in err
    if child.returncode == 0:
        assert not json.loads(out)["interrupted"]


def _events_if_any(workspace: Path) -> list[str]:
    try:
        return _events(workspace)
    except sqlite3.OperationalError:
        return []


INTERRUPTED_WHILE_IT_LOADS = """
import runpy, sys

class Interrupting:
    def find_spec(self, name, path=None, target=None):
        if name == "mixseek.cli":
            raise KeyboardInterrupt

sys.meta_path.insert(0, Interrupting())
runpy.run_module("mixseek", run_name="__main__")
"""


def test_whoever_interrupts_a_command_that_is_still_loading_sees_no_traceback() -> None:
    ran = subprocess.run(
        [sys.executable, "-c", INTERRUPTED_WHILE_IT_LOADS], capture_output=True, text=True, check=False
    )
    assert (ran.returncode, ran.stdout, ran.stderr) == (130, "", "")
