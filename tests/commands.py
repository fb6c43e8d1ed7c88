"""Commands as they are typed, run in this process: one of their own costs seconds of imports each time."""

import io
import os
from collections.abc import Mapping
from contextlib import ExitStack, chdir, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from unittest.mock import patch

import pytest

from mixseek.cli import logs, main

__all__ = ["Ran", "run_here"]


@dataclass(frozen=True)
class Ran:
    """What became of a command."""

    returncode: int
    stdout: str
    stderr: str


def run_here(*arguments: str, cwd: Path | None = None, variables: Mapping[str, str] | None = None) -> Ran:
    """Run ``mixseek`` with these arguments; ``variables`` are added to the environment, without those of MixSeek."""
    out, err = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8", newline="") for _ in range(2))
    kept = {name: value for name, value in os.environ.items() if not name.startswith("MIXSEEK_")}
    environment = {**kept, "MIXSEEK_ONLY_LOOPBACK": "1", **(variables or {})}
    with ExitStack() as around:
        around.enter_context(patch.dict(os.environ, environment, clear=True))
        around.enter_context(chdir(cwd or Path.cwd()))
        around.enter_context(redirect_stdout(out))
        around.enter_context(redirect_stderr(err))
        # The handlers of the log write to what is standard error now.
        around.callback(logs._exchange, [])
        code = _code(arguments)
    return Ran(code, _text(out), _text(err))


def _code(arguments: tuple[str, ...]) -> int:
    with pytest.raises(SystemExit) as ended:
        main(list(arguments))
    assert isinstance(ended.value.code, int)
    return ended.value.code


def _text(stream: io.TextIOWrapper) -> str:
    stream.flush()
    buffer = stream.buffer
    assert isinstance(buffer, io.BytesIO)
    return buffer.getvalue().decode()
