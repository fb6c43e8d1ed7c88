"""Completion as a person at a bash meets it, and as zsh and fish ask for it."""

import asyncio
import os
import pty
import select
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from mixseek.orchestrator import Orchestrator, load_orchestrator_settings
from mixseek.testing import scripted, write_workspace

SAFETY_SECONDS = 60


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A home with the command on the path."""
    command = tmp_path / "bin" / "mixseek"
    command.parent.mkdir()
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m mixseek "$@"\n')
    command.chmod(0o755)
    return tmp_path


def _environment(home: Path, **variables: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("MIXSEEK_", "COMP_"))}
    return {**kept, "HOME": str(home), "PATH": f"{home / 'bin'}:{os.environ['PATH']}", "TERM": "dumb", **variables}


class _Bash:
    """A bash at a terminal of its own."""

    def __init__(self, home: Path) -> None:
        self._ours, theirs = pty.openpty()
        self.process = subprocess.Popen(
            ["bash", "--norc", "-i"],
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            env=_environment(home, PS1="$ "),
            cwd=home,
            start_new_session=True,
        )
        os.close(theirs)
        self._seen = ""

    def type(self, text: str) -> None:
        os.write(self._ours, text.encode())

    def until(self, words: str) -> str:
        """Wait until the terminal shows this after what was waited for before; all that it showed till then."""
        ends = time.monotonic() + SAFETY_SECONDS
        while words not in self._seen:
            ready, _, _ = select.select([self._ours], [], [], max(0.0, ends - time.monotonic()))
            assert ready, self._seen
            self._seen += os.read(self._ours, 4096).decode("utf-8", "replace")
        before, _, self._seen = self._seen.partition(words)
        return before

    def line(self, text: str) -> str:
        """The line that is left when this was typed, with all that a tab did to it; it is not run."""
        self.type(f"{text}#end")
        shown = self.until("#end")
        self.type("\x15")
        return shown.rpartition("$ ")[2].rpartition("\x07")[2].lstrip("\r")

    def close(self) -> None:
        self.process.kill()
        self.process.wait(SAFETY_SECONDS)
        os.close(self._ours)


@pytest.fixture
def bash(home: Path) -> Iterator[_Bash]:
    shell = _Bash(home)
    yield shell
    shell.close()


def test_a_tab_in_bash_completes_commands_options_and_values(bash: _Bash) -> None:
    bash.until("$ ")
    bash.type('eval "$(_MIXSEEK_COMPLETE=source_bash mixseek)"; echo read"y"\n')
    bash.until("ready")
    bash.until("$ ")
    assert bash.line("mixseek doc\t") == "mixseek doctor "
    assert bash.line("mixseek doctor --work\t") == "mixseek doctor --workspace "
    assert bash.line("mixseek config val\t") == "mixseek config validate "
    assert bash.line("mixseek exec --log-level war\t") == "mixseek exec --log-level warning "


def test_a_tab_completes_the_id_of_an_execution(bash: _Bash, home: Path) -> None:
    workspace, execution = home / "workspace", "1234abcd-0000-4000-8000-000000000001"
    workspace.mkdir()
    write_workspace(workspace, teams=1, max_rounds=1)
    with scripted():
        settings = load_orchestrator_settings("configs/orchestrator.toml", workspace)
        asyncio.run(Orchestrator(settings).execute("task", execution_id=execution))
    bash.until("$ ")
    bash.type('eval "$(_MIXSEEK_COMPLETE=source_bash mixseek)"; export MIXSEEK_WORKSPACE=workspace; echo read"y"\n')
    bash.until("ready")
    bash.until("$ ")
    bash.type("mixseek show 12\t")
    bash.until(f"mixseek show {execution}")
    # One that cannot be asked offers nothing, and above all no error.
    bash.type('\x15export MIXSEEK_WORKSPACE=nowhere; echo don"e"\n')
    bash.until("done")
    bash.until("$ ")
    bash.type('mixseek show 12\t\x15echo fin"e"\n')
    assert "rror" not in bash.until("fine")


def test_a_tab_completes_the_name_of_a_model(bash: _Bash, home: Path) -> None:
    workspace = home / "workspace"
    workspace.mkdir()
    write_workspace(workspace, teams=1)
    bash.until("$ ")
    bash.type('eval "$(_MIXSEEK_COMPLETE=source_bash mixseek)"; export MIXSEEK_WORKSPACE=workspace; echo read"y"\n')
    bash.until("ready")
    bash.until("$ ")
    bash.type("mixseek models check loc\t")
    bash.until("mixseek models check local:smollm2-135m")
    bash.type("\x15")
    assert bash.line("mixseek models check scripted:le\t") == "mixseek models check scripted:leader-a "
    two = "mixseek models check scripted:judge scripted:"
    assert bash.line(f"{two}lea\t") == f"{two}leader-a "
    assert bash.line("mixseek models pull s\t").startswith("mixseek models pull smollm2-135m")


def test_show_completion_tells_the_current_shell(bash: _Bash) -> None:
    bash.until("$ ")
    bash.type('mixseek --show-completion; echo ended with "$?"\n')
    told = bash.until("ended with 0")
    assert "complete -o default -F _mixseek_completion mixseek" in told
    assert "_MIXSEEK_COMPLETE=complete_bash" in told


def test_install_completion_writes_into_the_home(bash: _Bash, home: Path) -> None:
    bash.until("$ ")
    bash.type("mixseek --install-completion\n")
    bash.until("bash completion installed in")
    assert "_mixseek_completion" in (home / ".bash_completions" / "mixseek.sh").read_text()


@pytest.mark.parametrize(("shell", "words"), [("zsh", "#compdef mixseek"), ("fish", "complete --command mixseek")])
def test_zsh_and_fish_have_their_script_and_their_answers(shell: str, words: str, home: Path) -> None:
    def ask(**variables: str) -> str:
        ran = subprocess.run(
            [sys.executable, "-m", "mixseek"],
            env=_environment(home, **variables),
            capture_output=True,
            text=True,
            timeout=SAFETY_SECONDS,
            check=True,
        )
        return ran.stdout

    assert words in ask(_MIXSEEK_COMPLETE=f"source_{shell}")
    asked = {"_MIXSEEK_COMPLETE": f"complete_{shell}", "_TYPER_COMPLETE_ARGS": "mixseek doc"}
    answer = ask(**asked, _TYPER_COMPLETE_FISH_ACTION="get-args", _TYPER_COMPLETE_WORD_TO_COMPLETE="doc")
    assert "doctor" in answer
