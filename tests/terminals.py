"""A command in a terminal of its own: what it writes, byte by byte, and the screen that comes of it."""

import fcntl
import os
import pty
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyte

from soak import forked

__all__ = ["Terminal"]

_SAFETY_SECONDS = 60


class Terminal:
    """Runs one command in a pseudo-terminal; standard output may go to a file instead."""

    def __init__(
        self,
        command: Sequence[str],
        *,
        env: Mapping[str, str],
        columns: int = 80,
        rows: int = 24,
        cwd: Path | None = None,
        stdout: Path | None = None,
    ) -> None:
        self.raw = b""
        self.screen = pyte.HistoryScreen(columns, rows, history=10_000)
        self._stream = pyte.ByteStream(self.screen)
        self._fd, inside = pty.openpty()
        fcntl.ioctl(inside, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        out = inside if stdout is None else os.open(stdout, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        # The installed command starts as it does; Python is forked.
        begin = forked.Popen[bytes] if command[0] == sys.executable else _started
        self.child: subprocess.Popen[bytes] = begin(
            command,
            stdin=inside,
            stdout=out,
            stderr=inside,
            cwd=cwd,
            env={"TERM": "xterm-256color", **env},
            start_new_session=True,
        )
        for fd in {inside, out}:
            os.close(fd)

    def until(self, true: Callable[[], bool]) -> None:
        """Read until it is so; the command must not end before."""
        ends = time.monotonic() + _SAFETY_SECONDS
        while not true():
            assert self._read(0.05), f"it ended early:\n{self.text()}"
            assert time.monotonic() < ends, f"it did not come:\n{self.text()}"

    def wait(self) -> int:
        """Read to the end; the exit code."""
        ends = time.monotonic() + _SAFETY_SECONDS
        while self._read(0.2):
            assert time.monotonic() < ends, f"it did not end:\n{self.text()}"
        return self.child.wait(_SAFETY_SECONDS)

    def type(self, keys: str) -> None:
        """Press keys; Ctrl-C is ``\\x03``."""
        os.write(self._fd, keys.encode())

    def resize(self, columns: int, rows: int) -> None:
        """Another size, of which the command is told."""
        self.screen.resize(rows, columns)
        fcntl.ioctl(self._fd, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        self.child.send_signal(signal.SIGWINCH)

    def hang_up(self) -> int:
        """Close the terminal under the command; the exit code."""
        os.close(self._fd)
        self._fd = os.open(os.devnull, os.O_RDONLY)
        return self.child.wait(_SAFETY_SECONDS)

    def text(self) -> str:
        """All that was on the screen, what scrolled away included."""
        gone = ["".join(line[column].data for column in range(self.screen.columns)) for line in self.screen.history.top]
        return "\n".join(line.rstrip() for line in [*gone, *self.screen.display])

    def close(self) -> None:
        """End it, whatever it does."""
        self.child.kill()
        self.child.wait()
        os.close(self._fd)

    def __enter__(self) -> "Terminal":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _read(self, seconds: float) -> bool:
        """Take in what there is; False at the end."""
        if not select.select([self._fd], [], [], seconds)[0]:
            return True
        try:
            data = os.read(self._fd, 65536)
        except OSError:  # the other side is closed
            return False
        self.raw += data
        self._stream.feed(data)
        return bool(data)


def _started(command: Sequence[str], **options: Any) -> "subprocess.Popen[bytes]":
    return subprocess.Popen(command, preexec_fn=_own_the_terminal, **options)


def _own_the_terminal() -> None:
    # Tests may run in the background or under nohup, where these are ignored.
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
