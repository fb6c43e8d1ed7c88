"""Files that are seen whole or not at all: written beside their place, then given their name."""

import os
import stat
from pathlib import Path
from uuid import uuid4

__all__ = ["try_to_write", "write_whole"]


def write_whole(path: Path, text: str, *, replace: bool = True) -> None:
    """Put a text into a file; ``replace=False`` raises ``FileExistsError`` where there is one, whoever made it.

    A pipe or a device is written to and never replaced. What is no Unicode is written as an escape: a text is not lost
    for a letter.
    """
    content = text.encode("utf-8", "backslashreplace")
    if replace and not _is_replaceable(path):
        path.write_bytes(content)
        return
    beside = _beside(path)
    try:
        with os.fdopen(_open(beside, like=path), "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        if replace:
            beside.replace(path)
        else:
            # Unlike a rename, a link fails when the name is taken.
            path.hardlink_to(beside)
    finally:
        beside.unlink(missing_ok=True)


def try_to_write(path: Path) -> Path:
    """The file that writing to ``path`` would change; raises what writing would raise, and leaves all as it is."""
    # A link stays one, and what it leads to is replaced; of a pipe, the end of the link is no name.
    path = path.resolve() if _is_replaceable(path) else path
    if path.is_dir():
        raise IsADirectoryError(0, "it is a directory")
    if not path.parent.is_dir():
        raise FileNotFoundError(0, f"there is no directory {str(path.parent)!r}")
    if path.exists():
        os.close(os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC))
    if _is_replaceable(path):
        beside = _beside(path)
        os.close(_open(beside, like=path))
        beside.unlink()
    return path


def _is_replaceable(path: Path) -> bool:
    """Whether another file may take its place."""
    return not path.exists() or stat.S_ISREG(path.stat().st_mode)


def _beside(path: Path) -> Path:
    """A name that nobody else uses, short enough whatever the file's own is."""
    return path.with_name(f".{uuid4().hex}.part")


def _open(beside: Path, *, like: Path) -> int:
    mode = stat.S_IMODE(like.stat().st_mode) if like.exists() else 0o666
    return os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
