"""What reaches the terminal: text without control codes, errors a line each, and JSON where JSON was asked for."""

import json
import re
import sys
from contextvars import ContextVar
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, TextIO

import typer

from mixseek.errors import ConfigurationError, MixSeekError

__all__ = [
    "Format",
    "FormatOption",
    "WorkspaceOption",
    "clean",
    "clean_text",
    "print_error",
    "print_json",
    "print_line",
    "print_text",
    "use_format",
    "warn",
    "writes_all",
]

# Codes that move the cursor, colour, ring or turn the direction of writing, and halves of characters.
_UNPRINTABLE = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


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


def clean(text: str) -> str:
    """One harmless line: what would steer a terminal is written as an escape.

    >>> clean("a\\x1b[31mb\\nc")
    'a\\\\x1b[31mb\\\\nc'
    """
    return _UNPRINTABLE.sub(lambda match: match[0].encode("unicode_escape").decode("ascii"), text)


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
    text = json.dumps(value, ensure_ascii=not writes_all(sys.stdout), indent=2, default=str)
    # What is left to escape stands inside strings, where JSON has one way of writing it.
    typer.echo("\n".join(_UNPRINTABLE.sub(lambda match: f"\\u{ord(match[0]):04x}", line) for line in text.split("\n")))


def _echo(text: str, *, err: bool = False) -> None:
    """What a terminal of another encoding cannot show is written as an escape: an answer is not lost for a letter."""
    stream = sys.stderr if err else sys.stdout
    if not writes_all(stream):
        text = text.encode(stream.encoding, "backslashreplace").decode(stream.encoding)
    typer.echo(text, err=err)


def writes_all(stream: TextIO) -> bool:
    """Whether a stream takes every letter there is."""
    return (stream.encoding or "utf-8").lower().replace("_", "-").startswith("utf")


def print_error(error: MixSeekError) -> None:
    """An error for people, a line for every problem on standard error, or for programs, on standard output."""
    if _format.get() is Format.JSON:
        print_json({"error": _as_json(error)})
        return
    for line in _lines(error):
        warn(f"mixseek: {line}")


def _lines(error: MixSeekError) -> list[str]:
    return [str(problem) for problem in error.problems] if isinstance(error, ConfigurationError) else [str(error)]


def _as_json(error: MixSeekError) -> dict[str, Any]:
    problems = error.problems if isinstance(error, ConfigurationError) else ()
    listed = [{"file": problem.file, "key": problem.key, "message": problem.message} for problem in problems]
    return {"type": type(error).__name__, "message": str(error), "problems": listed}
