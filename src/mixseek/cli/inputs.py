"""What a command works on: a prompt or an answer as text, as a file or as a stream, and files by their path."""

import filecmp
import os
import re
import sys
from pathlib import Path
from typing import Annotated

import typer

from mixseek.cli.output import warn
from mixseek.config.reading import checked_text, existing_file, is_there, read_text
from mixseek.errors import ConfigurationError, MissingFileError
from mixseek.workspace import Workspace

__all__ = [
    "AttachmentsOption",
    "PromptArgument",
    "PromptFileOption",
    "ReferenceOption",
    "find_config",
    "given_file",
    "read_given",
    "reference_text",
]

PromptArgument = Annotated[
    str | None,
    typer.Argument(metavar="PROMPT", help="The task; - or nothing: it is read from standard input."),
]
PromptFileOption = Annotated[
    Path | None, typer.Option("--prompt-file", metavar="FILE", help="Read the task from this file.")
]
AttachmentsOption = Annotated[
    list[Path] | None,
    typer.Option("--file", "--attach", metavar="FILE", help="A file that comes with the task; repeatable."),
]
ReferenceOption = Annotated[
    str | None,
    typer.Option("--reference", metavar="TEXT|FILE", help="A reference answer for metrics and judges."),
]

MAX_BYTES = 1_000_000
_LIKE_A_PATH = re.compile(r"\S+\.(?:md|txt|json|toml|html?|csv|rst)", re.IGNORECASE)


def read_given(
    text: str | None, file: Path | None, workspace: Workspace, *, what: str = "prompt", option: str = "--prompt-file"
) -> str:
    """A text from an argument, from a file or from standard input; one that says nothing is refused."""
    if text is not None and file is not None:
        raise ConfigurationError(f"the {what} is given twice, as an argument and with {option}: leave one out")
    if file is not None:
        given = _without_last_breaks(read_text(given_file(file, option, workspace), f"{option} {str(file)!r}"))
    elif text is None or text == "-":
        given = _from_standard_input(what, option)
    else:
        given = text
    return checked_text(given, what)


def given_file(file: Path, option: str, workspace: Workspace) -> Path:
    """The file that an option names, in the current directory or in the workspace."""
    return existing_file(file, workspace, f"{option} {str(file)!r}")


def _from_standard_input(what: str, option: str) -> str:
    if sys.stdin is None or sys.stdin.isatty():
        raise ConfigurationError(f"no {what}: give it as an argument, with {option} FILE, or on standard input")
    content = sys.stdin.buffer.read(MAX_BYTES + 1)
    if len(content) > MAX_BYTES:
        raise ConfigurationError(f"the {what} on standard input is larger than {MAX_BYTES:,} bytes")
    try:
        return _without_last_breaks(content.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        raise ConfigurationError(f"the {what} is not UTF-8 text") from error


def _without_last_breaks(text: str) -> str:
    """As a shell does it with what a command printed: a file ends with a line break that nobody means."""
    return text.rstrip("\r\n")


def reference_text(given: str | None, workspace: Workspace) -> str | None:
    """A reference answer: what stands in the file of this name, or the text itself where there is none."""
    if given is None:
        return None
    path = Path(given)
    try:
        found = workspace.find(path) if "\n" not in given and given.strip() else None
        stands = found is not None and os.path.lexists(found)
    except (OSError, RuntimeError, ValueError):
        found, stands = None, False  # too long for a name, or with a letter no name can have
    if found is not None and stands:
        given = read_text(found, f"--reference {given!r}")
    elif _LIKE_A_PATH.fullmatch(given):
        given_file(path, "--reference", workspace)
    return checked_text(given, "reference answer")


def find_config(given: Path | None, workspace: Workspace, default: str, remedy: str) -> Path:
    """The file a command works by: the one that is named, else the workspace's own."""
    if given is None:
        own = workspace.configs / default
        if not is_there(own):
            raise MissingFileError(f"no -c FILE is given, and the workspace has no configs/{default}: {remedy}")
        return own
    _tell_which(given, workspace)
    return given


def _tell_which(given: Path, workspace: Workspace) -> None:
    """Say which of two files is meant: the current directory comes before the workspace, which is easily forgotten."""
    other = workspace.root / given
    try:
        is_meant_by_both = not given.is_absolute() and given.is_file() and other.is_file()
    except OSError:
        return  # no name that a file can have; told where the file is read
    if is_meant_by_both and not other.samefile(given) and not filecmp.cmp(given, other, shallow=False):
        warn(f"mixseek: {given}: the file in the current directory is used, not the one in the workspace ({other})")
