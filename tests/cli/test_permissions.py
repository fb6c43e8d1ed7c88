"""Files and directories that may not be read or written: told before anything is paid, and nothing is thrown away."""

import os
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from mixseek.testing import ModelServerProcess, write_workspace

SAFETY_SECONDS = 60
RIGHTS = "-dac_override,-dac_read_search"


def _mixseek(*arguments: str) -> "subprocess.CompletedProcess[str]":
    """Run a command as somebody whom permissions hold: root gives up what lets it pass them."""
    held = ["setpriv", f"--bounding-set={RIGHTS}", f"--inh-caps={RIGHTS}"] if os.geteuid() == 0 else []
    command = [*held, sys.executable, "-m", "mixseek", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=SAFETY_SECONDS, check=False)


@contextmanager
def _mode(path: Path, mode: int) -> Iterator[None]:
    before = path.stat().st_mode
    path.chmod(mode)
    try:
        yield
    finally:
        path.chmod(before)


@pytest.fixture
def played(server_process: ModelServerProcess, tmp_path: Path) -> Path:
    """A workspace in which something was played."""
    root = tmp_path / "workspace"
    root.mkdir()
    write_workspace(root, teams=1, max_rounds=1, base_url=server_process.base_url)
    ran = _mixseek("exec", "What is bamboo for?", "-w", str(root))
    assert ran.returncode == 0, ran.stderr
    return root


@pytest.mark.parametrize("name", ["", "mixseek.db", "journal.db"])
def test_what_may_not_be_written_is_told_before_a_call_is_paid(
    name: str, played: Path, server_process: ModelServerProcess
) -> None:
    paid = server_process.bill.total.requests
    barred = played / name
    # While somebody reads it, or after a kill, the journal's own files are there and need not be made.
    with closing(sqlite3.connect(played / "journal.db")) as reader, _mode(barred, 0o555 if not name else 0o444):
        reader.execute("SELECT count(*) FROM events").fetchone()
        ran = _mixseek("exec", "What is bamboo for?", "-w", str(played))
    assert (ran.returncode, ran.stdout) == (2, "")
    (line,) = ran.stderr.splitlines()
    assert str(barred) in line
    assert line.endswith("make the directory and its files writable for this user, or name another workspace")
    assert server_process.bill.total.requests == paid


@pytest.mark.parametrize("name", ["mixseek.db", "journal.db"])
def test_doctor_does_not_advise_to_move_away_what_only_may_not_be_read(name: str, played: Path) -> None:
    with _mode(played / name, 0):
        ran = _mixseek("doctor", "-w", str(played))
    assert ran.returncode == 1
    assert "give yourself the right to read it" in ran.stdout
    assert "away" not in ran.stdout


@pytest.mark.parametrize(
    ("barred", "arguments"),
    [
        ("", ["-w", "{root}"]),
        ("configs", ["-w", "{root}"]),
        ("configs/agents", ["-w", "{root}"]),
        ("configs/evaluator.toml", ["-w", "{root}"]),
        ("configs", ["-w", "{root}", "-c", "{root}/configs/orchestrator.toml"]),
    ],
)
def test_what_may_not_be_looked_at_is_not_told_to_be_missing(barred: str, arguments: list[str], played: Path) -> None:
    given = [argument.format(root=played) for argument in arguments]
    with _mode(played.parent if not barred else played / barred, 0):
        ran = _mixseek("exec", "What is bamboo for?", *given)
    assert (ran.returncode, ran.stdout, ran.stderr != "") == (2, "", True)
    assert [line for line in ran.stderr.splitlines() if "may not be read; check its permissions" not in line] == []
