"""Python processes as ``subprocess`` starts them, but forked from one that has imported everything.

Tests start hundreds of commands, and imports would be most of what these do. What is tested is a real process all the
same: it can be signalled, killed and waited for. Where starting itself is tested, or what is imported, use
``subprocess``.
"""

import atexit
import os
import shlex
import socket
import subprocess
import sys
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any, AnyStr, TypeAlias

from soak import fork_server
from soak.fork_server import Started

__all__ = ["Command", "Popen", "run", "shell_command"]

Command: TypeAlias = Sequence[str | os.PathLike[str]]
_SERVER = Path(fork_server.__file__)


class Popen(subprocess.Popen[AnyStr]):
    """As in ``subprocess``, for commands that begin with ``sys.executable``.

    With ``start_new_session`` it owns the terminal that is its standard input. Ctrl-C is never ignored, as it would be
    in tests that run in the background.
    """

    _started: Started

    def _execute_child(self, args: Command, *given: Any) -> None:
        # Their order is that of Python 3.11 to 3.13.
        _, preexec, _, _, cwd, env, _, _, _, *ends = given[:15]
        new_session = given[-2]
        python, *arguments = [os.fspath(each) for each in args]
        assert (python, preexec) == (sys.executable, None)
        theirs = (ends[0], ends[3], ends[5])
        self._started = fork_server.start(
            _server(),
            arguments,
            cwd=os.fspath(cwd or Path.cwd()),
            environment=os.environ if env is None else env,
            streams=[number if end < 0 else end for number, end in enumerate(theirs)],
            new_session=new_session,
        )
        self.pid = self._started.pid
        self._child_created = True
        self._close_pipe_fds(*ends)  # type: ignore[attr-defined]

    def _internal_poll(self, **_: Any) -> int | None:
        return self._ended(0)

    def _wait(self, timeout: float | None) -> int:
        code = self._ended(timeout)
        if code is None:
            raise subprocess.TimeoutExpired(self.args, timeout or 0)
        return code

    def _ended(self, seconds: float | None) -> int | None:
        if self.returncode is None and (status := self._started.status(seconds)) is not None:
            self.returncode = os.waitstatus_to_exitcode(status)
        return self.returncode


def run(
    command: Command,
    *,
    input: AnyStr | None = None,  # noqa: A002  # as in subprocess
    capture_output: bool = False,
    timeout: float | None = None,
    check: bool = False,
    **options: Any,
) -> "subprocess.CompletedProcess[Any]":
    """As in ``subprocess``."""
    if capture_output:
        options |= {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    if input is not None:
        options["stdin"] = subprocess.PIPE
    with Popen[Any](command, **options) as process:
        try:
            out, err = process.communicate(input, timeout)
        except BaseException:
            process.kill()
            raise
    ran = subprocess.CompletedProcess(command, process.returncode, out, err)
    if check:
        ran.check_returncode()
    return ran


def shell_command(*arguments: str) -> str:
    """The line of a shell that starts ``python`` with these arguments in place of the shell."""
    return "exec " + shlex.join([sys.executable, "-I", "-S", str(_SERVER), "ask", _server(), *arguments])


@cache
def _server() -> str:
    """The name of the server, which ends with this process."""
    name = f"mixseek-tests-{os.getpid()}-{os.urandom(8).hex()}"
    path = [each for each in sys.path if each]
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as door:
        door.bind(fork_server.address(name))
        door.listen(64)
        number = door.fileno()
        command = [sys.executable, "-P", str(_SERVER), "serve", str(number), *path]
        server = subprocess.Popen(command, stdin=subprocess.PIPE, env=environment, pass_fds=[number])
    atexit.register(server.communicate)
    return name
