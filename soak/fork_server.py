"""A process that has imported everything and forks what it is asked for: it begins in milliseconds, and not in seconds.

What it forks runs as ``python`` would run it, with arguments, directory, environment, streams and a session of its own,
up to its exit functions; only what was imported is not taken apart, which would be most of its work. The server has no
threads, so that a fork of it is as good as a new process. ``python fork_server.py ask NAME ARGUMENTS...`` is a program
that stands for what it starts, for shells.
"""

import json
import os
import selectors
import signal
import socket
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn, cast

__all__ = ["Started", "address", "start"]

_PRELOADED = (
    "mixseek.orchestrator",
    "mixseek.report.reading",
    "mixseek.testing",
    "soak.mortals",
    "pydantic_ai.models.openai",
    "genai_prices.data",
    "rapidfuzz.process",
    "anyio._backends._asyncio",
    "aiohttp.web",
    "runpy",
)
_LARGEST = 200_000
"""What is asked for is one packet."""


# --- asking -----------------------------------------------------------------------------------------------------------


class Started:
    """A process that was started, and its end when it comes."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self.pid = int(connection.recv(64))

    def status(self, seconds: float | None) -> int | None:
        """How it ended, as ``waitpid`` tells it; None if it does not end in time."""
        with selectors.DefaultSelector() as selector:
            selector.register(self._connection, selectors.EVENT_READ)
            if not selector.select(seconds):
                return None
        with self._connection:
            return int(self._connection.recv(64))


def address(name: str) -> str:
    """Where a server of this name is asked; no file has to be made for it, or removed."""
    return f"\0{name}"


def start(
    name: str,
    arguments: Sequence[str],
    *,
    cwd: str,
    environment: Mapping[str, str],
    streams: Sequence[int],
    new_session: bool = False,
) -> Started:
    """Start ``python`` with these arguments; in a session of its own it owns the terminal that is its first stream."""
    asked = {"arguments": [*arguments], "cwd": cwd, "environment": {**environment}, "new_session": new_session}
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    connection.connect(address(name))
    socket.send_fds(connection, [json.dumps(asked).encode()], [*streams])
    return Started(connection)


def _stand_for(name: str, arguments: Sequence[str]) -> NoReturn:
    """Start it, pass on the signals we get, and end as it does."""
    started = start(name, arguments, cwd=str(Path.cwd()), environment=os.environ, streams=(0, 1, 2))
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda number, _: os.kill(started.pid, number))
    code = os.waitstatus_to_exitcode(cast("int", started.status(None)))
    if code < 0:
        _die_by(-code)
    os._exit(code)


def _die_by(number: int) -> None:
    signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)


# --- serving ----------------------------------------------------------------------------------------------------------


def _serve(door: socket.socket) -> dict[str, Any] | None:
    """Fork for everyone who asks, until standard input ends; in what was forked, return what it is asked for."""
    selector = selectors.DefaultSelector()
    selector.register(door, selectors.EVENT_READ, "asked")
    selector.register(0, selectors.EVENT_READ, "over")
    while True:
        for key, _ in selector.select():
            if key.data == "over":
                return None
            if key.data != "asked":
                selector.unregister(key.fd)
                _tell_the_end(key.fd, *key.data)
                continue
            connection, _ = door.accept()
            content, streams, _, _ = socket.recv_fds(connection, _LARGEST, 3)
            if not (pid := os.fork()):
                selector.close()
                _take(streams)
                door.detach()
                connection.detach()
                return cast("dict[str, Any]", json.loads(content))
            for stream in streams:
                os.close(stream)
            connection.send(str(pid).encode())
            selector.register(os.pidfd_open(pid), selectors.EVENT_READ, (pid, connection))


def _take(streams: Sequence[int]) -> None:
    """Have these streams, and nothing else of what the server holds."""
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
    os.closerange(3, 1024)


def _tell_the_end(pidfd: int, pid: int, connection: socket.socket) -> None:
    os.close(pidfd)
    _, status = os.waitpid(pid, 0)
    with connection:
        try:
            connection.send(str(status).encode())
        except OSError:  # whoever asked is gone
            return


# --- being what was asked for -----------------------------------------------------------------------------------------


def _become(asked: dict[str, Any], path: Sequence[str]) -> None:
    """Be the process that is asked for, up to its first line."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if asked["new_session"]:
        os.setsid()
        _own_the_terminal()
    os.chdir(asked["cwd"])
    os.environ.clear()
    os.environ.update(asked["environment"])
    _open_streams(os.environ.get("PYTHONIOENCODING", "utf-8"))
    sys.path[:] = [*filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep)), *path]
    _read_the_environment_anew()


def _own_the_terminal() -> None:
    if os.isatty(0):
        import fcntl
        import termios

        fcntl.ioctl(0, termios.TIOCSCTTY, 0)


def _open_streams(told: str) -> None:
    """Open them anew, since an open one knows what it was opened on."""
    encoding, _, told_errors = told.partition(":")
    errors = told_errors or sys.stdout.errors or "strict"
    sys.stdin = sys.__stdin__ = _stream(0, "r", encoding, errors)  # type: ignore[misc]
    sys.stdout = sys.__stdout__ = _stream(1, "w", encoding, errors)  # type: ignore[misc]
    sys.stderr = sys.__stderr__ = _stream(2, "w", encoding, "backslashreplace", buffering=1)  # type: ignore[misc]


def _stream(number: int, mode: str, encoding: str, errors: str, buffering: int = -1) -> Any:
    return open(number, mode, buffering, encoding, errors, closefd=False)


def _read_the_environment_anew() -> None:
    import importlib
    import time

    from mixseek import crash_points

    time.tzset()
    # What other modules imported from it looks its choice up in the module, which this makes anew.
    importlib.reload(crash_points)


def _run(arguments: Sequence[str]) -> None:
    """What ``python`` does with ``-m MODULE``, ``-c CODE`` or a file."""
    import runpy
    from types import ModuleType

    sys.orig_argv[1:] = arguments
    kind, *rest = arguments
    if kind == "-m":
        sys.argv = ["-m", *rest[1:]]
        sys.path.insert(0, str(Path.cwd()))
        runpy.run_module(rest[0], run_name="__main__", alter_sys=True)
    elif kind == "-c":
        sys.argv = ["-c", *rest[1:]]
        sys.path.insert(0, "")
        sys.modules["__main__"] = main = ModuleType("__main__")
        exec(compile(rest[0], "<string>", "exec"), main.__dict__)
    else:
        sys.argv = [kind, *rest]
        sys.path.insert(0, str(Path(kind).absolute().parent))
        runpy.run_path(kind, run_name="__main__")


def _code(arguments: Sequence[str]) -> int:
    """Run it; its exit code, or the negative number of the signal it ends by."""
    try:
        _run(arguments)
    except SystemExit as ended:
        if ended.code is None or isinstance(ended.code, int):
            return ended.code or 0
        sys.stderr.write(f"{ended.code}\n")
        return 1
    except BaseException as error:  # noqa: BLE001  # as Python itself does
        sys.excepthook(type(error), error, error.__traceback__)
        return -signal.SIGINT if isinstance(error, KeyboardInterrupt) else 1
    return 0


def _end(code: int) -> NoReturn:
    """What Python does at the end of a program, but for taking apart what was imported."""
    import atexit
    import threading

    cast("Any", threading)._shutdown()
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    if code < 0:
        _die_by(-code)
    os._exit(code)


def _import_everything(path: Sequence[str]) -> None:
    """Import what commands import, from ``path`` besides."""
    import gc
    import importlib
    import pkgutil

    os.environ["PYDANTIC_DISABLE_PLUGINS"] = "logfire-plugin"  # as the command does
    sys.path[:0] = path
    import mixseek.cli

    commands = [f"mixseek.cli.{each.name}" for each in pkgutil.iter_modules(mixseek.cli.__path__)]
    for name in (*commands, *_PRELOADED):
        importlib.import_module(name)
    gc.freeze()
    assert len([*Path("/proc/self/task").iterdir()]) == 1, "a fork would lose the other threads"


def _main(role: str, *arguments: str) -> None:
    if role == "ask":
        _stand_for(arguments[0], arguments[1:])
    number, *path = arguments
    own_path = [*sys.path]
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _import_everything(path)
    asked = _serve(socket.socket(fileno=int(number)))
    if asked is None:
        os._exit(0)
    _become(asked, own_path)
    _end(_code(asked["arguments"]))


if __name__ == "__main__":
    _main(*sys.argv[1:])
