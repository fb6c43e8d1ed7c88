"""The help of every command: there, quick, with an example, and as wide as a terminal.

Its transcript is ``docs/commands.md``; ``make docs`` writes that anew after a change that is meant.
"""

import subprocess
import sys

import pytest

from docs.generate import DOCS, command_lines
from mixseek.cli import main

TRANSCRIPT = (DOCS / "commands.md").read_text(encoding="utf-8")
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


@pytest.mark.parametrize("command", list(command_lines()), ids=" ".join)
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
    assert f"{' '.join(('mixseek', *command))}\n\n```text\n{told.strip()}\n```\n" in TRANSCRIPT, "run make docs"
    assert [line for line in told.splitlines() if len(line) > WIDEST] == []
    assert "Examples:" in told
    assert f"  {' '.join(('mixseek', *command))}" in told.partition("Examples:")[2]


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
