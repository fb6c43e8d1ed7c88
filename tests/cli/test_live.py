"""Progress as it is seen: real processes in real terminals of many sizes."""

import os
import sys
from pathlib import Path

import pytest

from mixseek.cli.live import showing
from mixseek.events import TeamFailed
from mixseek.testing import ModelServerProcess, write_workspace
from tests.terminals import Terminal

TASK = "What is bamboo for?"


@pytest.fixture
def server(server_process: ModelServerProcess) -> ModelServerProcess:
    return server_process


def _command(workspace: Path, *arguments: str) -> list[str]:
    config = str(workspace / "configs" / "orchestrator.toml")
    return [sys.executable, "-m", "mixseek", "exec", TASK, "-c", config, "-w", str(workspace), *arguments]


def _environment(**variables: str) -> dict[str, str]:
    dropped = ("MIXSEEK_", "COLUMNS", "LINES", "NO_COLOR", "FORCE_COLOR", "TERM", "PYTEST_")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(dropped)}
    return {**kept, "TERM": "xterm-256color", "PYTHONIOENCODING": "utf-8", "MIXSEEK_ONLY_LOOPBACK": "1", **variables}


def test_a_terminal_shows_every_team_while_it_plays_and_finished_rounds_above(
    server: ModelServerProcess, tmp_path: Path
) -> None:
    file = write_workspace(tmp_path, teams=2, members=1, max_rounds=2, base_url=server.base_url)
    file.write_text(f"{file.read_text()}\n[budget]\nmax_requests = 32\n")
    server.set_latency(0.5, model="member-1")
    with Terminal(_command(tmp_path), env=_environment()) as terminal:
        terminal.until(lambda: terminal.text().count("member member-1") == 2)
        terminal.until(lambda: "Team A: round 1 " in terminal.text() and " 2/2 " in terminal.text())
        assert terminal.wait() == 0
    lines = terminal.text().splitlines()
    whole = next(number for number, line in enumerate(lines) if "4 of 4 rounds · 2 finished" in line)
    assert lines[whole + 1] == "Leader board"
    assert sum(": round " in line for line in lines[:whole]) == 4
    assert "81 % of the run's budget is used: 26 of 32 calls" in lines[:whole]
    assert not any(" Phase " in line for line in lines)


def test_a_terminal_that_is_made_narrower_shows_one_picture_and_not_two(
    server: ModelServerProcess, tmp_path: Path
) -> None:
    write_workspace(tmp_path, teams=40, max_rounds=1, base_url=server.base_url, orchestrator="min_rounds = 1")
    server.fault("hang_before_headers", model="leader-b")
    with Terminal(_command(tmp_path), env=_environment()) as terminal:
        terminal.until(lambda: "39 finished" in terminal.text())
        terminal.until(lambda: any(line.startswith(" and 25 more: ") for line in terminal.screen.display))
        terminal.resize(50, 24)
        terminal.until(lambda: _is_whole(terminal) and not any("Tokens" in line for line in terminal.screen.display))
        picture = terminal.screen.display
        assert sum(line.startswith(" Team  ") for line in picture) == 1
        assert sum(" rounds · " in line for line in picture) == 1


def _is_whole(terminal: Terminal) -> bool:
    return any(" rounds · " in line for line in terminal.screen.display)


@pytest.mark.parametrize("terminal_kind", ["dumb", ""])
def test_a_terminal_that_cannot_move_its_cursor_gets_plain_lines(
    terminal_kind: str, server: ModelServerProcess, tmp_path: Path
) -> None:
    write_workspace(tmp_path, teams=1, max_rounds=1, base_url=server.base_url, orchestrator="min_rounds = 1")
    with Terminal(_command(tmp_path), env=_environment(TERM=terminal_kind)) as terminal:
        assert terminal.wait() == 0
    assert b"\x1b" not in terminal.raw
    assert "a: round 1 finished, score " in terminal.text()


def test_a_reason_is_whole_where_no_terminal_is(capsys: pytest.CaptureFixture[str]) -> None:
    reason = f"{'long ' * 100}(max_cost_usd of [budget])"
    with showing() as progress:
        progress(TeamFailed(execution_id="e", team_id="a", team_name="A", reason=reason))
    assert capsys.readouterr().err == f"a: failed: {reason}\n"
