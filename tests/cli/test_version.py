"""``mixseek --version`` and ``--help`` cost little more than importing typer.

``python tests/cli/test_version.py`` prints the ratio.
"""

import json
import os
import statistics
import subprocess
import sys
from pathlib import Path

import pytest

from mixseek import __version__

VERSION = [sys.executable, "-m", "mixseek", "--version"]
IMPORT_TYPER = [sys.executable, "-c", "import typer"]
REPEATS = 7

LOADED_MODULES = """
import json, sys
from mixseek.cli import main
try:
    main(sys.argv[1:])
except SystemExit:
    pass
print(json.dumps(sorted(sys.modules)), file=sys.stderr)
"""
HEAVY = {
    "anthropic",
    "boto3",
    "cohere",
    "duckdb",
    "fastapi",
    "genai_prices",
    "google.genai",
    "groq",
    "huggingface_hub",
    "jinja2",
    "mistralai",
    "openai",
    "pydantic",
    "pydantic_ai",
    "pydantic_settings",
    "sqlite3",
    "starlette",
    "xllamacpp",
}


def _modules(*arguments: str) -> set[str]:
    command = [sys.executable, "-c", LOADED_MODULES, *arguments]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    return set(json.loads(ran.stderr.splitlines()[-1]))


def _cpu_seconds(command: list[str]) -> float:
    """What a process costs; unlike the clock on the wall it does not depend on what else the machine does."""
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0
    return usage.ru_utime + usage.ru_stime


def _costs() -> tuple[float, float]:
    """Medians of ``--version`` and ``import typer``, measured in turn."""
    pairs = [(_cpu_seconds(VERSION), _cpu_seconds(IMPORT_TYPER)) for _ in range(REPEATS)]
    return statistics.median(a for a, _ in pairs), statistics.median(b for _, b in pairs)


def test_the_version_is_printed() -> None:
    ran = subprocess.run(VERSION, capture_output=True, text=True, timeout=60, check=True)
    assert (ran.stdout, ran.stderr) == (f"mixseek {__version__}\n", "")


@pytest.mark.parametrize("arguments", [["--version"], ["--help"]])
def test_neither_version_nor_help_loads_anything_heavy(arguments: list[str]) -> None:
    loaded = _modules(*arguments)
    assert "typer" in loaded
    assert loaded & HEAVY == set()
    assert not any(name.startswith(("mixseek.config", "mixseek.storage", "mixseek.prompt_builder")) for name in loaded)


def test_a_command_that_reads_configuration_loads_no_model_and_no_database() -> None:
    loaded = _modules("config", "list", "--workspace", str(Path(__file__).parent))
    assert "mixseek.config.manager" in loaded
    assert loaded & {"pydantic_ai", "duckdb", "openai", "anthropic", "google.genai"} == set()


def test_the_version_takes_at_most_twice_as_long_as_importing_typer() -> None:
    version, typer = _costs()
    assert version <= 2 * typer, f"{version / typer:.2f} times"


if __name__ == "__main__":
    version, typer = _costs()
    sys.stdout.write(f"mixseek --version {version:.3f} s, import typer {typer:.3f} s: {version / typer:.2f} times\n")
