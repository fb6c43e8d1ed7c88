"""The command line: a file per command; this is the one place where an error becomes a message and an exit code."""

import io
import sys
from collections.abc import Sequence
from typing import NoReturn

from mixseek.cli.app import app
from mixseek.cli.output import print_error
from mixseek.errors import MixSeekError

__all__ = ["main"]

EXIT_NO_RESULT = 2


def main(argv: Sequence[str] | None = None) -> NoReturn:
    """Run ``mixseek`` with these arguments, or with those of the process."""
    _never_fail_to_print()
    try:
        app(args=argv, prog_name="mixseek")
    except MixSeekError as error:
        print_error(error)
        sys.exit(EXIT_NO_RESULT)
    sys.exit(0)


def _never_fail_to_print() -> None:
    """A terminal that knows only ASCII gets escapes for the rest, not an error in the middle of the output."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
