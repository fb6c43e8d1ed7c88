"""Ctrl-C: the first one ends a run gracefully, the second one the process at once. A closed terminal is like one."""

import asyncio
import contextlib
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from typing import Any, NoReturn, TypeVar

import typer

from mixseek.cli.output import EXIT_INTERRUPTED, warn
from mixseek.strangers import LeavableThreads, leave_behind

__all__ = ["leave_interrupted", "run_until_stopped"]

_SIGNALS = (signal.SIGINT, signal.SIGTERM, *([signal.SIGHUP] if hasattr(signal, "SIGHUP") else []))
# Some programs that run others pass on a signal that has reached everybody already.
_ONE_AND_THE_SAME_SECONDS = 0.1
_PATIENCE_SECONDS = 2.0

T = TypeVar("T")


def run_until_stopped(
    work: Coroutine[Any, Any, T], stop: Callable[[], None], last_words: Callable[[], str] = lambda: ""
) -> T:
    """What the work gives; on the first Ctrl-C, SIGTERM or SIGHUP ``stop`` is called, which has to make it end soon.

    The second one ends the process at once, without any clearing up, so that nothing can keep a user waiting; then
    ``last_words`` are all that is told.
    """
    with asyncio.Runner() as runner:
        loop = runner.get_loop()
        loop.set_default_executor(LeavableThreads())
        asked = threading.Event()

        def ask_to_stop() -> None:
            stop()
            warn("stopping; Ctrl-C again ends at once")

        def on_signal() -> None:
            asked.set()
            # By the loop, not at once: a signal may come in the middle of printing something.
            loop.call_soon_threadsafe(ask_to_stop)

        async def main() -> T:
            if asked.is_set():
                loop.call_soon(ask_to_stop)  # once more, now that there is something to stop
            return await work

        with _hearing_signals(on_signal, last_words):
            try:
                return runner.run(main())
            finally:
                leave_behind(runner)


@contextlib.contextmanager
def _hearing_signals(stop: Callable[[], object], last_words: Callable[[], str]) -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread may handle signals
        return
    first: float | None = None

    def handle(_number: int, _frame: object) -> None:
        nonlocal first
        if first is None:
            first = time.monotonic()
            stop()
        elif time.monotonic() - first > _ONE_AND_THE_SAME_SECONDS:
            os.write(sys.__stderr__.fileno() if sys.__stderr__ else 2, f"\n{last_words()}".encode())
            os._exit(EXIT_INTERRUPTED)

    # What is ignored stays so: whoever started this with nohup wants it to outlive the terminal.
    heard = [number for number in _SIGNALS if signal.getsignal(number) is not signal.SIG_IGN]
    before = {number: signal.signal(number, handle) for number in heard}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def leave_interrupted() -> NoReturn:
    """Exit as an interrupted command does, within a moment: a thread that hangs must not hold up the process."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    if any(not thread.daemon for thread in threading.enumerate() if thread is not threading.main_thread()):
        guard = threading.Timer(_PATIENCE_SECONDS, os._exit, (EXIT_INTERRUPTED,))
        guard.daemon = True
        guard.start()
    raise typer.Exit(EXIT_INTERRUPTED)
