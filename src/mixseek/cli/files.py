"""Files that commands write for people: whole or not at all, and never over what is there unless that is asked for."""

import os
from collections.abc import Callable
from importlib.resources import files
from pathlib import Path

from mixseek.cli.output import print_line
from mixseek.errors import ConfigurationError, Problem
from mixseek.whole_file import write_whole

__all__ = ["EXISTS", "keep_out_of_git", "make_directory", "write"]

EXISTS = "exists already: use --force to overwrite it"
_GITIGNORE = ".gitignore"

Tell = Callable[[str], None]


def make_directory(directory: Path) -> None:
    """Make a directory, unless there is one."""
    try:
        directory.expanduser().mkdir(parents=True, exist_ok=True)
    except FileExistsError:
        return  # told as what it is when it is opened as a workspace
    except OSError as error:
        raise ConfigurationError(f"workspace {str(directory)!r} cannot be created: {error.strerror}") from error


def write(root: Path, name: str, text: str, *, force: bool, tell: Tell | None = print_line) -> None:
    """Write a file below ``root`` and tell of it; one that is there is kept, unless ``force``."""
    try:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        write_whole(root / name, text, replace=force)
        told = f"wrote {name}"
    except FileExistsError:
        told = f"kept {name}: {EXISTS}"
    except OSError as error:
        raise ConfigurationError(Problem(f"cannot be written: {error.strerror}", name)) from error
    if tell is not None:
        tell(told)


def keep_out_of_git(root: Path, *, tell: Tell | None = print_line) -> None:
    """Keep keys and results out of a repository, where nobody has said yet what to keep out."""
    if not os.path.lexists(root / _GITIGNORE):
        text = files("mixseek.cli").joinpath("templates", "gitignore").read_text(encoding="utf-8")
        write(root, _GITIGNORE, text, force=False, tell=tell)
