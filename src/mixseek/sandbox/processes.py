"""Watching a sandboxed process from outside: what it prints, how long it runs, how much memory all of it holds."""

import codecs
import contextlib
import json
import os
import select
import signal
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from mixseek.sandbox.results import CodeResult, Limit, Limits, Output
from mixseek.sandbox.workers import Switch

__all__ = ["watch"]

_LONGEST_PAUSE_SECONDS = 0.05
_SHORTEST_PAUSE_SECONDS = 0.005
# About as fast as memory can be filled: the nearer a run is to its limit, the sooner it is looked at again.
_BYTES_PER_SECOND = 4 * 1024**3
_CHUNK = 65536
# A process that was killed is gone as soon as the kernel gets to it.
_DYING_SECONDS = 10.0
_SIGNALLED = 128


@dataclass
class _Watched:
    """A bubblewrap process, and the first process of the name space that it tells of."""

    outer: "subprocess.Popen[bytes]"
    outer_fd: int
    printed_fd: int
    told_fd: int
    output: Output
    told: str = ""
    inner: int | None = None
    inner_fd: int | None = None
    _decoder: codecs.IncrementalDecoder = field(
        default_factory=lambda: codecs.getincrementaldecoder("utf-8")("replace")
    )

    def read(self, fd: int) -> bool:
        """Take in what has come through one of the two pipes; False at its end."""
        try:
            chunk = os.read(fd, _CHUNK)
        except BlockingIOError:
            return False
        if fd == self.told_fd:
            self.hear(chunk)
        else:
            self.output.add(self._decoder.decode(chunk, final=not chunk))
        return bool(chunk)

    def hear(self, status: bytes) -> None:
        """Take in what bubblewrap tells of the run, line by line."""
        self.told += status.decode()
        if self.inner_fd is None and "\n" in self.told:
            self.inner = json.loads(self.told.partition("\n")[0])["child-pid"]
            with contextlib.suppress(ProcessLookupError):
                self.inner_fd = os.pidfd_open(self.inner)

    @property
    def exit_code(self) -> int | None:
        """What the command ended with; None if it never began or was killed with its name space."""
        for line in self.told.splitlines():
            if "exit-code" in line:
                return int(json.loads(line)["exit-code"])
        return None

    def kill(self) -> None:
        """End all of it: the kernel ends a name space of processes with its first, and bubblewrap ends after that."""
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(self.outer_fd if self.inner_fd is None else self.inner_fd, signal.SIGKILL)

    def wait(self) -> None:
        """Come back when nothing of it is left."""
        try:
            self.outer.wait(_DYING_SECONDS)
        except subprocess.TimeoutExpired:
            self.outer.kill()
            self.outer.wait()

    def close(self) -> None:
        """Let go of the handles."""
        for fd in (self.outer_fd, self.inner_fd):
            if fd is not None:
                os.close(fd)


def watch(outer: "subprocess.Popen[bytes]", told_fd: int, limits: Limits, switch: Switch) -> tuple[CodeResult, bool]:
    """The result of a bubblewrap process, once all of it is gone, and whether its command was ever started."""
    assert outer.stdout is not None  # noqa: S101  # it was opened as a pipe
    printed_fd, output = outer.stdout.fileno(), Output(limits.output_chars)
    watched = _Watched(outer, os.pidfd_open(outer.pid), printed_fd, told_fd, output)
    try:
        with switch.ends(watched.kill):
            limit = _follow(watched, limits)
            _read_the_rest(watched)
    finally:
        watched.kill()
        watched.wait()
        watched.close()
    code = watched.exit_code
    if code == _SIGNALLED + signal.SIGXCPU:
        limit = "time"
    return output.result(code, limit), code is not None or limit is not None


def _follow(watched: _Watched, limits: Limits) -> Limit | None:
    """Read until the process ends or a limit is reached, which is returned."""
    now = time.monotonic()
    deadline, next_look = now + limits.timeout_seconds, now
    waiting = select.poll()  # a process with many connections has higher numbers than select() takes
    for fd in (watched.printed_fd, watched.told_fd, watched.outer_fd):
        waiting.register(fd, select.POLLIN)
    while (now := time.monotonic()) < deadline:
        pause = min(deadline - now, max(next_look - now, _SHORTEST_PAUSE_SECONDS))
        ready = {fd for fd, _ in waiting.poll(1000 * pause)}
        for fd in ready - {watched.outer_fd}:
            if not watched.read(fd):
                waiting.unregister(fd)
        if watched.output.is_flood:
            return "output"
        if watched.outer_fd in ready:
            return None
        if watched.inner is not None and time.monotonic() >= next_look:
            room = limits.memory_bytes - _memory_of(watched.inner, limits.memory_bytes)
            if room < 0:
                return "memory"
            next_look = time.monotonic() + _pause(room)
    return "time"


def _pause(room: int) -> float:
    return min(max(room / _BYTES_PER_SECOND, _SHORTEST_PAUSE_SECONDS), _LONGEST_PAUSE_SECONDS)


def _read_the_rest(watched: _Watched) -> None:
    """End whatever is left, and take in what it had written by then."""
    watched.kill()
    watched.wait()
    for fd in (watched.told_fd, watched.printed_fd):
        os.set_blocking(fd, False)
        while watched.read(fd):
            pass


# --- memory ---------------------------------------------------------------------------------------------------------


def _memory_of(first: int, enough: int) -> int:
    """Bytes that a process and all below it hold; only if that is too much are shared pages counted once, slowly."""
    family = _family(first)
    held = sum(map(_resident, family))
    return held if held <= enough else sum(map(_own_share, family))


def _family(first: int) -> list[int]:
    found, unseen = [], [first]
    while unseen:
        pid = unseen.pop()
        found.append(pid)
        with contextlib.suppress(OSError):
            for task in Path(f"/proc/{pid}/task").iterdir():
                unseen += map(int, (task / "children").read_text().split())
    return found


def _resident(pid: int) -> int:
    for place in _places(pid):
        with contextlib.suppress(OSError, IndexError):
            if pages := int((place / "statm").read_text().split()[1]):
                return pages * os.sysconf("SC_PAGE_SIZE")
    return 0


def _own_share(pid: int) -> int:
    for place in _places(pid):
        with contextlib.suppress(OSError):
            for line in (place / "smaps_rollup").read_text().splitlines():
                if line.startswith("Pss:"):
                    return int(line.split()[1]) * 1024
    # It is gone, or we lack the right to look into it: then all that it holds counts.
    return _resident(pid)


def _places(pid: int) -> Iterator[Path]:
    """Where the kernel tells of a process: its first thread may have ended before others, and then tells nothing."""
    yield Path(f"/proc/{pid}")
    with contextlib.suppress(OSError):
        yield from Path(f"/proc/{pid}/task").iterdir()
