"""How this process is named to others, and what can be said of a process that is waited for."""

import os
import re
import sys
from pathlib import Path

__all__ = ["LONG_WAIT_SECONDS", "is_stopped", "named", "process_named", "this_command", "this_pid"]

LONG_WAIT_SECONDS = 2.0
"""After so long whoever waits for another process says so."""
_LONGEST_NAME = 200


def this_pid() -> int:
    """The number of this process."""
    return os.getpid()


def this_command() -> str:
    """The program that runs, and of MixSeek's own the command; never an argument, which may be a secret."""
    program = Path(sys.argv[0] or "python")
    name = program.parent.name if program.name == "__main__.py" else program.name
    if name.startswith("-"):
        return "python"
    command = sys.argv[1] if name == "mixseek" and len(sys.argv) > 1 else ""
    return f"{name} {command}" if re.fullmatch("[a-z]+", command) else name


def process_named(pid: int) -> str:
    """A process of this machine and its program, where the system tells."""
    try:
        program = Path(f"/proc/{pid}/comm").read_text(errors="replace").strip()
    except OSError:
        return f"process {pid}"
    return f"process {pid} ({program})"


def named(words: str) -> str:
    """What a file says of a process, as one harmless line, and whether that process was stopped."""
    line = "".join(letter for letter in words if letter.isprintable())[:_LONGEST_NAME].strip()
    pids = re.findall(r"process (\d+)", line)
    if pids and is_stopped(int(pids[-1])):
        return f"{line}, which is stopped (`kill -CONT {pids[-1]}` lets it go on)"
    return line


def is_stopped(pid: int) -> bool:
    """Whether a process of this machine was stopped by a signal, where the system tells."""
    try:
        # As in "123 (its name) T ...", and the name may hold anything.
        state = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        return False
    return state in ("T", "t")
