"""Two processes and one execution: a resume beside another, and one that takes over from one that stands still."""

import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import duckdb
import pytest

from mixseek.testing import ModelServerProcess, write_workspace
from soak import forked
from soak.together import Scenario, play
from tests.waiting import until_true

TASK = "What is bamboo for?"
SAFETY_SECONDS = 120
RESUME = """
import asyncio, sys
from mixseek.errors import MixSeekError
from mixseek.orchestrator import Orchestrator, load_orchestrator_settings
settings = load_orchestrator_settings("configs/orchestrator.toml", sys.argv[1])
try:
    summary = asyncio.run(Orchestrator(settings).resume(sys.argv[2]))
except MixSeekError as error:
    sys.exit(f"{type(error).__name__}: {error}")
print(sorted((entry.team_id, entry.score) for entry in summary.team_results), summary.interrupted)
"""


@pytest.fixture
def server() -> Iterator[ModelServerProcess]:
    with ModelServerProcess() as server:
        yield server


def _environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "MIXSEEK_ONLY_LOOPBACK": "1"}


@contextmanager
def _started(root: Path, *arguments: str) -> Iterator["subprocess.Popen[str]"]:
    child = forked.Popen(
        [sys.executable, *arguments],
        cwd=root,
        env=_environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield child
    finally:
        child.kill()
        child.communicate()


def _exec(root: Path) -> tuple[str, ...]:
    return ("-m", "mixseek", "exec", TASK, "-c", "configs/orchestrator.toml", "-w", str(root))


def _execution_id(root: Path) -> str:
    with closing(sqlite3.connect(root / "journal.db", timeout=30)) as db:
        ((found,),) = db.execute("SELECT execution_id FROM events WHERE kind = 'RunStarted'").fetchall()
    return str(found)


def _rows(root: Path) -> list[list[tuple[object, ...]]]:
    with closing(sqlite3.connect(root / "journal.db", timeout=30)) as db:
        kept = [db.execute(f"SELECT * FROM {name}").fetchall() for name in ("calls", "events", "prompts")]
    with duckdb.connect(str(root / "mixseek.db")) as db:
        tables = ("leader_board", "round_history", "round_status", "execution_summary", "model_usage")
        return [*kept, *(db.execute(f"SELECT * FROM {name}").fetchall() for name in tables)]


def _is_quiet(root: Path, server: ModelServerProcess) -> bool:
    """Whether the run waits for one hanging call alone, and holds nothing."""
    with closing(sqlite3.connect(root / "journal.db", timeout=30)) as db:
        ended = db.execute("SELECT count(*) FROM events WHERE kind = 'TeamFinished'").fetchone()[0]
    return bool(ended == 1 and server.bill.total.waiting == 1)


def test_a_frozen_run_loses_its_execution_to_a_resume_and_cannot_commit_when_it_wakes_up(
    tmp_path: Path, server: ModelServerProcess
) -> None:
    write_workspace(tmp_path, teams=2, members=1, max_rounds=2, base_url=server.base_url)
    server.fault("hang_before_headers", model="leader-b", after=1)
    with _started(tmp_path, *_exec(tmp_path)) as frozen:
        until_true(lambda: (tmp_path / "journal.db").exists() and server.bill.total.waiting == 1)
        until_true(lambda: _is_quiet(tmp_path, server))
        time.sleep(1.0)  # longer than any lease of the file
        frozen.send_signal(signal.SIGSTOP)
        server.clear_faults()
        with _started(tmp_path, "-c", RESUME, str(tmp_path), _execution_id(tmp_path)) as resume:
            out, err = resume.communicate(timeout=SAFETY_SECONDS)
            assert (resume.returncode, out.count("('a',"), out.count("('b',")) == (0, 1, 1), err
            assert f"taken over from process {frozen.pid} (mixseek exec)" in err
        kept = _rows(tmp_path)
        frozen.send_signal(signal.SIGCONT)
        out, err = frozen.communicate(timeout=SAFETY_SECONDS)
    assert (frozen.returncode, out) == (2, "")
    assert f"was taken over by process {resume.pid} (python)" in err
    assert _rows(tmp_path) == kept


def test_of_two_resumes_one_runs_and_the_other_names_it(tmp_path: Path, server: ModelServerProcess) -> None:
    write_workspace(tmp_path, teams=2, members=1, max_rounds=2, base_url=server.base_url)
    server.fault("hang_before_headers", model="leader-b", after=1)
    with _started(tmp_path, *_exec(tmp_path)) as killed:
        until_true(lambda: (tmp_path / "journal.db").exists() and server.bill.total.waiting == 1)
        until_true(lambda: _is_quiet(tmp_path, server))
        killed.kill()
        killed.wait()
    until_true(lambda: server.bill.total.waiting == 0)
    wanted = ("-c", RESUME, str(tmp_path), _execution_id(tmp_path))
    with _started(tmp_path, *wanted) as one, _started(tmp_path, *wanted) as other:
        until_true(lambda: one.poll() is not None or other.poll() is not None)
        refused, playing = (one, other) if one.poll() is not None else (other, one)
        _, err = refused.communicate()
        assert err.startswith("PlaceTakenError: "), err
        assert f"is being played by process {playing.pid} (python)" in err
        server.clear_faults()
        playing.kill()
        playing.wait()
    with _started(tmp_path, *wanted) as third:
        out, err = third.communicate(timeout=SAFETY_SECONDS)
        assert (third.returncode, out.count("('b',")) == (0, 1), err


@pytest.mark.long
def test_runs_a_resume_a_reader_and_a_shell_share_a_workspace() -> None:
    outcome = play(Scenario(teams=2, rounds=2, holds=1, hold_seconds=4.0, latency=0.05))
    assert outcome.problems == []
    assert outcome.waits
    assert outcome.reads
