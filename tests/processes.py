"""Which processes there are, as /proc tells it."""

from contextlib import suppress
from pathlib import Path

__all__ = ["children_of"]


def children_of(pid: int | str = "self") -> set[int]:
    """The processes a process has started and that are still there."""
    found = set[int]()
    for task in Path(f"/proc/{pid}/task").glob("*"):
        # A thread may end while we look.
        with suppress(OSError):
            found |= {int(child) for child in (task / "children").read_text().split()}
    return found
