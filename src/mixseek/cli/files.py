"""Files that commands write for people: whole or not at all, and never over what is there unless that is asked for."""

import os
import tempfile
from collections.abc import Callable
from importlib.resources import files
from pathlib import Path

from mixseek.cli.output import print_line
from mixseek.errors import ConfigurationError, Problem

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
        _put(root / name, text, force=force)
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


def _put(file: Path, text: str, *, force: bool) -> None:
    """The whole file or nothing: it is written beside its place and then given its name."""
    file.parent.mkdir(parents=True, exist_ok=True)
    descriptor, name = tempfile.mkstemp(dir=file.parent, prefix=f".{file.name}.")
    temporary = Path(name)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as stream:
            stream.write(text)
        temporary.chmod(0o644)
        if force:
            temporary.replace(file)
        else:
            # Unlike a rename, a link fails when the name is taken, whoever took it since we looked.
            file.hardlink_to(temporary)
    finally:
        temporary.unlink(missing_ok=True)
