"""The command line: a file per command; this is the one place where an error becomes a message and an exit code."""

import atexit
import os
import sys
from collections.abc import Sequence
from typing import NoReturn

import typer

from mixseek.cli.app import app
from mixseek.cli.bash_words import colons_joined
from mixseek.cli.output import (
    Format,
    asks_for_json,
    end_progress,
    open_closed_streams,
    print_error,
    print_unexpected,
    print_usage_error,
    use_format,
    write_whole_answers,
)
from mixseek.errors import MixSeekError

__all__ = ["main"]

EXIT_NO_RESULT = 2


def main(argv: Sequence[str] | None = None) -> NoReturn:
    """Run ``mixseek`` with these arguments, or with those of the process."""
    open_closed_streams()
    _load_no_plugin_for_nothing()
    write_whole_answers()
    arguments = sys.argv[1:] if argv is None else list(argv)
    use_format(Format.JSON if asks_for_json(arguments) else Format.TEXT)
    # An advertisement of the model library's, which it prints into terminals when the first agent runs.
    os.environ.setdefault("PYDANTIC_AI_NO_BANNER", "1")
    try:
        with colons_joined():
            code = _run(arguments)
    except typer.Exit as ended:  # nobody reads the message
        code = ended.exit_code
    end_progress()
    # Looked up, not imported: a command that asked nobody has no use for it, nor for the event loop it brings along.
    strangers = sys.modules.get("mixseek.strangers")
    if strangers is not None and strangers.is_anything_left():
        _end_at_once(code)
    sys.exit(code)


def _run(arguments: list[str]) -> int:
    try:
        return int(app(args=arguments, prog_name="mixseek", standalone_mode=False) or 0)
    except MixSeekError as error:
        from mixseek.cli.logs import without_secrets

        print_error(error, without_secrets)
    except typer.TyperException as error:
        print_usage_error(error)
    except Exception as error:  # noqa: BLE001  # the last resort: nobody is shown a traceback for our mistakes
        _tell_of_a_bug(error)
    return EXIT_NO_RESULT


def _end_at_once(code: int) -> NoReturn:
    """End without taking down what code of others still uses: libraries complain of it, or wait for it."""
    atexit._run_exitfuncs()
    sys.stdout.flush()
    end_progress()
    os._exit(code)


def _tell_of_a_bug(error: Exception) -> None:
    from mixseek.cli.logs import keep_unexpected, without_secrets

    kind, place = type(error).__name__, keep_unexpected(error)
    words = f"{kind}: {error}" if str(error) else kind
    print_unexpected(without_secrets(f"unexpected: {words}; this is a bug; details in {place}"), kind)


def _load_no_plugin_for_nothing() -> None:
    """Where Logfire is installed, pydantic loads it at every start: half a second, for a plugin that is rarely used."""
    if not os.environ.get("LOGFIRE_PYDANTIC_PLUGIN_RECORD"):
        os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "logfire-plugin")
