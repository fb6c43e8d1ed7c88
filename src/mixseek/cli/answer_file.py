"""The file an answer is written to: tried before anything is paid for, and never seen half written."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from mixseek.cli.output import warn
from mixseek.errors import ConfigurationError, OutputError, Problem
from mixseek.whole_file import try_to_write, write_whole

__all__ = ["AnswerFile", "OutputOption", "answer_file", "writable_file", "write_answer"]

OutputOption = Annotated[
    Path | None,
    typer.Option(
        "--output", "-o", metavar="FILE", help="Write the answer to this file too; an existing one is replaced."
    ),
]


@dataclass(frozen=True)
class AnswerFile:
    """A place that was found to take an answer."""

    path: Path
    shown: str

    def write(self, answer: str) -> None:
        """Put the answer there, whole or not at all."""
        try:
            write_whole(self.path, f"{answer}\n")
        except OSError as error:
            raise OutputError(f"--output {self.shown!r} cannot be written: {error.strerror}") from error


def answer_file(given: Path | None) -> AnswerFile | None:
    """Where ``--output`` leads, or a ConfigurationError if nothing can be written there."""
    if given is None:
        return None
    if str(given) == "-":
        raise ConfigurationError(
            Problem("name a file: on standard output the answer stands anyway", f"--output {str(given)!r}")
        )
    return AnswerFile(writable_file(given, "--output"), str(given))


def writable_file(given: Path, option: str) -> Path:
    """Where the option leads, or a ConfigurationError if nothing can be written there."""
    try:
        return try_to_write(given.expanduser().absolute())
    except (OSError, RuntimeError, ValueError) as error:
        why = getattr(error, "strerror", None) or str(error)
        raise ConfigurationError(Problem(f"cannot be written: {why}", f"{option} {str(given)!r}")) from error


def write_answer(answer: str | None, place: AnswerFile | None) -> bool:
    """Whether the answer is where it was asked for; it is printed by now, so it is not lost."""
    if place is None:
        return True
    if answer is None:
        warn(f"mixseek: there is no answer: {place.shown} is left as it was")
        return True
    try:
        place.write(answer)
    except OutputError as error:
        warn(f"mixseek: {error}")
        return False
    warn(f"the answer is in {place.shown}")
    return True
