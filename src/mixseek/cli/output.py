"""What reaches the terminal: text without control codes, errors a line each, and JSON where JSON was asked for."""

import contextlib
import io
import json
import math
import os
import re
import sys
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, TextIO

import typer
from typer.core import TyperGroup

from mixseek.amounts import counted
from mixseek.errors import ConfigurationError, MixSeekError, OutputError, Problem
from mixseek.hidden import hidden_places

__all__ = [
    "EXIT_INTERRUPTED",
    "Format",
    "FormatOption",
    "WorkspaceOption",
    "asks_for_json",
    "clean",
    "clean_text",
    "end_progress",
    "error_as_json",
    "json_text",
    "open_closed_streams",
    "print_document",
    "print_error",
    "print_interrupted",
    "print_json",
    "print_line",
    "print_text",
    "print_unexpected",
    "print_usage_error",
    "rounded",
    "use_format",
    "warn",
    "write_whole_answers",
    "writes_all",
]

EXIT_INTERRUPTED = 130
# What a shell tells of a program that writes to a pipe nobody reads any more.
EXIT_NO_READER = 141

_BREAKS = re.compile(r"[\t\r\n]")
_JSON_WANTED = re.compile("\0(?:--format[\0=]|-[A-Za-z]*f\0?)json\0")
"""In a command line whose words are divided; short options may stand together."""


class Format(StrEnum):
    """How a command answers."""

    TEXT = "text"
    JSON = "json"


WorkspaceOption = Annotated[
    Path | None,
    typer.Option("--workspace", "-w", help="Directory of the workspace.", envvar="MIXSEEK_WORKSPACE", show_envvar=True),
]
FormatOption = Annotated[Format, typer.Option("--format", "-f", help="How to answer.")]

_format: ContextVar[Format] = ContextVar("format", default=Format.TEXT)


def use_format(wanted: Format) -> None:
    """Answer in this format from now on, errors included."""
    _format.set(wanted)


def asks_for_json(arguments: Sequence[str]) -> bool:
    """Whether a command line wants JSON, looked up before it is parsed: its mistakes are to be told as JSON too.

    >>> asks_for_json(["exec", "--format=json"]), asks_for_json(["exec", "-f", "text", "json"])
    (True, False)
    >>> asks_for_json(["exec", "-vf", "json"])
    True
    """
    return bool(_JSON_WANTED.search("\0".join(["", *arguments, ""])))


def clean(text: str) -> str:
    """One harmless line: what would steer a terminal is written as an escape.

    >>> clean("a\\x1b[31mb\\nc")
    'a\\\\x1b[31mb\\\\nc'
    """
    return _escaped(text, lambda letter: letter.encode("unicode_escape").decode("ascii"))


def _escaped(text: str, escape: Callable[[str], str]) -> str:
    """With all that would steer a terminal, or that nobody would see, in letters."""
    if text.isascii() and text.isprintable():
        return text
    parts, done = [], 0
    for place in sorted({*hidden_places(text), *(found.start() for found in _BREAKS.finditer(text))}):
        parts += [text[done:place], escape(text[place])]
        done = place + 1
    return "".join([*parts, text[done:]])


def clean_text(text: str) -> str:
    """Harmless lines: as :func:`clean`, but line breaks and tabs stay.

    >>> clean_text("a\\tb\\r\\n\\x1b[2Jc")
    'a\\tb\\n\\\\x1b[2Jc'
    """
    lines = text.replace("\r\n", "\n").split("\n")
    return "\n".join("\t".join(map(clean, line.split("\t"))) for line in lines)


def print_line(text: str = "") -> None:
    """One line on standard output."""
    _echo(clean(text))


def print_text(text: str) -> None:
    """Any number of lines on standard output."""
    _echo(clean_text(text))


def warn(text: str) -> None:
    """One line on standard error."""
    _echo(clean(text), err=True)


def print_json(value: Any) -> None:
    """A JSON document on standard output."""
    _write(json_text(value, ascii_only=not writes_all(sys.stdout)))


def json_text(value: Any, *, ascii_only: bool = False) -> str:
    """A JSON document that steers no terminal."""
    text = json.dumps(value, ensure_ascii=ascii_only, indent=2, default=str)
    # What is left to escape stands inside strings, where JSON has one way of writing it.
    return "\n".join(_escaped(line, lambda letter: json.dumps(letter)[1:-1]) for line in text.split("\n"))


def rounded(value: Any) -> Any:
    """A JSON value whose numbers have as many digits as anyone reads; what is no finite number is null.

    >>> rounded({"score": 83.33333333333333, "cost_usd": 0.0000123456789, "teams": 2, "best": float("nan")})
    {'score': 83.3333, 'cost_usd': 1.23457e-05, 'teams': 2, 'best': None}
    """
    match value:
        case float():
            if not math.isfinite(value):
                return None
            return round(value, 4) if abs(value) >= 1 else float(f"{value:.6g}")
        case dict():
            return {name: rounded(item) for name, item in value.items()}
        case list():
            return [rounded(item) for item in value]
    return value


def print_document(text: str) -> None:
    """A document on standard output: harmless in a terminal, as it is for whatever else reads it."""
    _echo(clean_text(text) if sys.stdout.isatty() else text, end="")


def _echo(text: str, *, err: bool = False, end: str = "\n") -> None:
    """What a terminal of another encoding cannot show is written as an escape: an answer is not lost for a letter."""
    stream = sys.stderr if err else sys.stdout
    if not writes_all(stream):
        text = text.encode(stream.encoding, "backslashreplace").decode(stream.encoding)
    _write(text, err=err, end=end)


def writes_all(stream: TextIO | None) -> bool:
    """Whether a stream takes every letter there is."""
    return (getattr(stream, "encoding", None) or "utf-8").lower().replace("_", "-").startswith("utf")


def open_closed_streams() -> None:
    """Let standard streams that are closed, as some schedulers start programs, lead nowhere.

    Python has none then; and the next files that are opened would get their numbers, a database for one, into which
    whatever a library writes to its standard error would go.
    """
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            stream = Path(os.devnull).open("r" if number == 0 else "w", encoding="utf-8")  # noqa: SIM115 stays open
            setattr(sys, name, stream)
            if stream.fileno() != number and _is_closed(number):
                os.dup2(stream.fileno(), number)


def _is_closed(number: int) -> bool:
    try:
        os.fstat(number)
    except OSError:
        return True
    return False


def write_whole_answers() -> None:
    """Give standard output a buffer where it has none, as with PYTHONUNBUFFERED.

    Python drops what such a stream does not take at once, and says nothing.
    """
    raw = getattr(sys.stdout, "buffer", None)
    if isinstance(raw, io.RawIOBase):
        # The stream that is replaced lives on as sys.__stdout__; closing it would close the file of both.
        sys.stdout = io.TextIOWrapper(
            io.BufferedWriter(raw), sys.stdout.encoding, sys.stdout.errors, line_buffering=True
        )


def _write(text: str, *, err: bool = False, end: str = "\n") -> None:
    """One text and its end; a stream that takes no more ends the command, unless it only carried progress."""
    try:
        typer.echo(text + end, err=err, nl=False)
    except OSError as error:
        _let_go(sys.stderr if err else sys.stdout)
        if err:
            return
        if isinstance(error, BrokenPipeError):
            raise typer.Exit(EXIT_NO_READER) from None
        raise OutputError(f"standard output cannot be written: {error.strerror}") from error


def _let_go(stream: TextIO) -> None:
    """Send what a broken stream still holds nowhere: it would complain once more when the process ends."""
    with contextlib.suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)


def end_progress() -> None:
    """Let go of a standard error that takes no more: what it still holds would change the exit code."""
    try:
        sys.stderr.flush()
    except (OSError, ValueError):
        _let_go(sys.stderr)


def print_error(error: MixSeekError, redact: Callable[[str], str] = str) -> None:
    """An error for people, a line for every problem on standard error, or for programs, on standard output.

    ``redact`` takes secrets out of it: a server that refuses a key may repeat it.
    """
    if _format.get() is Format.JSON and not isinstance(error, OutputError):
        print_json({"error": error_as_json(error, redact)})
        return
    for line in _lines(error):
        warn(redact(f"mixseek: {line}"))


def print_usage_error(error: typer.TyperException) -> None:
    """What is wrong with a command line in one line, with the command that helps, or as JSON."""
    message, context = _message(error), getattr(error, "ctx", None)
    if _format.get() is Format.JSON:
        print_json({"error": {"type": "UsageError", "message": message, "problems": []}})
    elif context is None:
        warn(f"mixseek: {message}")
    elif message == context.get_help():
        # Nothing is wrong but that no command is named.
        for line in message.splitlines():
            warn(line)
    else:
        names_command = isinstance(context.command, TyperGroup) and not hasattr(error, "option_name")
        words = " ".join(message.split()).removesuffix(".")
        divided = words if words.endswith("?") else f"{words};"
        warn(f"mixseek: {divided} {context.command_path} --help lists the {'commands' if names_command else 'options'}")


def _message(error: typer.TyperException) -> str:
    words = getattr(error, "format_message", None)
    return str(words() if words else error)


def print_interrupted(told: str) -> None:
    """That a command was ended from outside before it had a result."""
    if _format.get() is Format.JSON:
        print_json({"error": {"type": "Interrupted", "message": told, "problems": []}})
    else:
        warn(told)


def print_unexpected(told: str, kind: str) -> None:
    """An error that is nobody's but ours."""
    if _format.get() is Format.JSON:
        print_json({"error": {"type": kind, "message": told, "problems": []}})
    else:
        warn(f"mixseek: {told}")


def _lines(error: MixSeekError) -> list[str]:
    """A line for every problem, or for all those together that one remedy mends."""
    if not isinstance(error, ConfigurationError):
        return [str(error)]
    alike: dict[str | Problem, list[Problem]] = {}
    for problem in error.problems:
        alike.setdefault(problem.message if problem.mended_at_once else problem, []).append(problem)
    return [_line(first, len(others)) for first, *others in alike.values()]


def _line(problem: Problem, others: int) -> str:
    if not others:
        return str(problem)
    return f"{problem} (here and in {counted(others, 'other place')})"


def error_as_json(error: MixSeekError, redact: Callable[[str], str] = str) -> dict[str, Any]:
    """An error for programs."""
    problems = error.problems if isinstance(error, ConfigurationError) else ()
    listed = [{"file": problem.file, "key": problem.key, "message": redact(problem.message)} for problem in problems]
    return {"type": type(error).__name__, "message": redact(str(error)), "problems": listed}
