"""The command line: a file per command; this is the one place where an error becomes a message and an exit code."""

import os
import sys
from collections.abc import Sequence
from typing import NoReturn

from mixseek.cli.app import app
from mixseek.cli.output import Format, print_error, use_format
from mixseek.errors import MixSeekError

__all__ = ["main"]

EXIT_NO_RESULT = 2


def main(argv: Sequence[str] | None = None) -> NoReturn:
    """Run ``mixseek`` with these arguments, or with those of the process."""
    use_format(Format.TEXT)
    # An advertisement of the model library's, which it prints into terminals when the first agent runs.
    os.environ.setdefault("PYDANTIC_AI_NO_BANNER", "1")
    try:
        app(args=argv, prog_name="mixseek")
    except MixSeekError as error:
        print_error(error)
        sys.exit(EXIT_NO_RESULT)
    sys.exit(0)
