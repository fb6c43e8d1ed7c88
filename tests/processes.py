"""Which processes there are, as /proc tells it, and one that holds a database."""

import subprocess
import sys
from contextlib import suppress
from pathlib import Path

__all__ = ["children_of", "holder_of"]

_HOLD = """
import duckdb, sys, time
while True:
    try: held = duckdb.connect(sys.argv[1]); break
    except duckdb.IOException: time.sleep(0.01)
print("held", flush=True); sys.stdin.read()
"""


def children_of(pid: int | str = "self") -> set[int]:
    """The processes a process has started and that are still there."""
    found = set[int]()
    for task in Path(f"/proc/{pid}/task").glob("*"):
        # A thread may end while we look.
        with suppress(OSError):
            found |= {int(child) for child in (task / "children").read_text().split()}
    return found


def holder_of(database: Path) -> "subprocess.Popen[bytes]":
    """A process that has the database open, and takes no turns, until ``communicate`` ends it."""
    command = [sys.executable, "-c", _HOLD, str(database)]
    holder = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert holder.stdout is not None
    assert holder.stdout.readline() == b"held\n"
    return holder
