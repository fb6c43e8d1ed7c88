"""The help of every command: there, quick, with an example, and as wide as a terminal; kept as transcripts.

``make transcripts`` writes ``transcripts/help/`` anew after a change that is meant.
"""

import os
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import pytest
import typer
from typer.core import TyperGroup

from mixseek.cli import main
from mixseek.cli.app import COMMANDS

TRANSCRIPTS = Path(__file__).parent / "transcripts" / "help"
WRITES = os.environ.get("MIXSEEK_WRITE_TRANSCRIPTS") == "1"
WIDEST = 80
HEAVY = (
    "pydantic",
    "pydantic_ai",
    "duckdb",
    "sqlite3",
    "rich",
    "logfire",
    "opentelemetry",
    "httpx2",
    "jinja2",
    "asyncio",
)


def _commands() -> Iterator[tuple[str, ...]]:
    yield ()
    for name, (module, _) in COMMANDS.items():
        if find_spec(module) is None:
            continue
        yield (name,)
        command = typer.main.get_command(import_module(module).app)
        if isinstance(command, TyperGroup):
            yield from ((name, inner) for inner in command.commands)


ALL = list(_commands())


@pytest.mark.parametrize("command", ALL, ids=" ".join)
def test_the_help_of_a_command_is_its_transcript_fits_a_terminal_and_has_an_example(
    command: tuple[str, ...], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(WIDEST))
    monkeypatch.setenv("TERMINAL_WIDTH", str(WIDEST))
    monkeypatch.delenv("MIXSEEK_WORKSPACE", raising=False)
    with pytest.raises(SystemExit) as ended:
        main([*command, "--help"])
    assert ended.value.code == 0
    told = capsys.readouterr().out
    kept = TRANSCRIPTS / f"{'-'.join(('mixseek', *command))}.txt"
    if WRITES:
        kept.parent.mkdir(parents=True, exist_ok=True)
        kept.write_text(told, encoding="utf-8")
    assert told == kept.read_text(encoding="utf-8"), "run make transcripts"
    assert [line for line in told.splitlines() if len(line) > WIDEST] == []
    assert "Examples:" in told
    assert f"  {' '.join(('mixseek', *command))}" in told.partition("Examples:")[2]


def test_there_is_no_transcript_of_a_command_that_is_not_there() -> None:
    assert {path.stem for path in TRANSCRIPTS.glob("*.txt")} == {"-".join(("mixseek", *command)) for command in ALL}


def test_the_help_of_all_loads_nothing_heavy() -> None:
    code = f"""
import sys
from mixseek.cli import main
try:
    main(["--help"])
except SystemExit as ended:
    assert ended.code == 0
print([name for name in {HEAVY} if name in sys.modules])
"""
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert ran.stdout.splitlines()[-1] == "[]"
