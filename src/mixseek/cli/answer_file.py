"""The file an answer is written to: tried before anything is paid for, and never seen half written."""

import os
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from mixseek.cli.output import warn
from mixseek.errors import ConfigurationError, OutputError, Problem

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
            _write(self.path, f"{answer}\n".encode("utf-8", "backslashreplace"))
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
        path = given.expanduser().absolute()
        # A link stays one, and what it leads to is replaced; of a pipe, the end of the link is no name.
        path = path.resolve() if _is_replaceable(path) else path
        _try(path)
    except (OSError, RuntimeError, ValueError) as error:
        why = getattr(error, "strerror", None) or str(error)
        raise ConfigurationError(Problem(f"cannot be written: {why}", f"{option} {str(given)!r}")) from error
    return path


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


def _try(path: Path) -> None:
    """Raise what writing would raise, and leave everything as it is."""
    if path.is_dir():
        raise IsADirectoryError(0, "it is a directory")
    if not path.parent.is_dir():
        raise FileNotFoundError(0, f"there is no directory {str(path.parent)!r}")
    if path.exists():
        os.close(os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC))
    if _is_replaceable(path):
        os.close(_open_beside(path))
        _beside(path).unlink()


def _write(path: Path, content: bytes) -> None:
    if not _is_replaceable(path):
        path.write_bytes(content)
        return
    beside = _beside(path)
    try:
        with os.fdopen(_open_beside(path), "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(path)
    except OSError:
        beside.unlink(missing_ok=True)
        raise


def _is_replaceable(path: Path) -> bool:
    """Whether another file may take its place: not a pipe or a device."""
    return not path.exists() or stat.S_ISREG(path.stat().st_mode)


def _open_beside(path: Path) -> int:
    mode = stat.S_IMODE(path.stat().st_mode) if path.exists() else 0o666
    _beside(path).unlink(missing_ok=True)
    return os.open(_beside(path), os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)


def _beside(path: Path) -> Path:
    return path.with_name(f".{path.name[:100]}.{os.getpid()}.part")
