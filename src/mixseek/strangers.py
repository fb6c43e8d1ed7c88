"""The code of others at the edges where it must end nobody's work but its own.

It may raise what no ``except Exception`` catches: a library made in Rust panics with a ``BaseException`` of its own. It
may cancel the task it runs in, and it may let nothing cancel it.
"""

import asyncio
import logging
import sys
import threading
import time
import traceback
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from typing import Any, NamedTuple, TypeVar

from mixseek.amounts import counted
from mixseek.surrogates import whole_text

__all__ = [
    "LET_GO_SECONDS",
    "LeavableThreads",
    "Place",
    "a_loop_runs",
    "alone",
    "in_words",
    "is_anything_left",
    "is_for_us",
    "leave_behind",
    "place_in",
    "run_and_leave",
    "text_of",
]

logger = logging.getLogger(__name__)

LET_GO_SECONDS = 5.0
"""The longest that is waited for what was cancelled: code that catches the cancellation may go on for ever."""

T = TypeVar("T")
_NOT_OWN = ("mixseek", "builtins", "abc")
"""Where the classes come from that those of others are made of."""


def is_for_us(error: BaseException) -> bool:
    """Whether what came out of a stranger's code has to go on: a run that ends, and no failure of that code."""
    if isinstance(error, asyncio.CancelledError):
        # What cancels its own work is heard of in the same way, in a task that nobody cancels.
        task = asyncio.current_task()
        return task is not None and task.cancelling() > 0
    if isinstance(error, GeneratorExit):
        return not a_loop_runs()  # else nobody closes a coroutine: it was raised by hand
    return isinstance(error, KeyboardInterrupt)


def a_loop_runs() -> bool:
    """Whether this is called from an event loop."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def in_words(error: BaseException) -> str:
    """A failure of a stranger's code as it is told."""
    if isinstance(error, asyncio.CancelledError):
        return "it gave up its own work"
    return f"{type(error).__name__}: {text_of(error)}".rstrip(": ")


def text_of(error: BaseException) -> str:
    """The words of an exception, as they can be kept; none where even these cannot be had."""
    try:
        return whole_text(str(error))
    except KeyboardInterrupt:
        raise
    except BaseException:  # noqa: BLE001  # even this is a stranger's code
        return ""


class Place(NamedTuple):
    """A line of a stranger's code; the file is relative where it is in the workspace."""

    file: Path
    line: int


def place_in(stranger: type, error: BaseException, root: Path | None) -> Place | None:
    """The last line of a class's own files that was reached; None where it was in none of them."""
    own = [one.__module__ for one in stranger.__mro__ if one.__module__.partition(".")[0] not in _NOT_OWN]
    files = {getattr(sys.modules.get(module), "__file__", None) for module in own}
    places = [(frame.f_code.co_filename, line) for frame, line in traceback.walk_tb(error.__traceback__)]
    reached = [(Path(file), line) for file, line in places if file in files]
    if not reached:
        return None
    file, line = reached[-1]
    root = None if root is None else root.resolve()
    return Place(file.relative_to(root) if root and file.is_relative_to(root) else file, line)


async def alone(work: Callable[[], Awaitable[T]], name: str) -> T:
    """What a stranger's work gives or raises, in a task of its own, for what it does to its task must not reach ours.

    Whoever cancels us cancels it; if it does not end then, it is left as it is, and the log has its ``name``.
    """
    given: list[T] = []
    raised: list[BaseException] = []
    task = asyncio.create_task(_settle(work, given, raised), name=name)
    try:
        await asyncio.wait({task})
    except asyncio.CancelledError:
        task.cancel()
        await _told_if_left({task})
        raise
    for result in given:
        return result
    raise raised.pop() if raised else asyncio.CancelledError


async def _settle(work: Callable[[], Awaitable[T]], given: list[T], raised: list[BaseException]) -> None:
    """Beside the task: what is raised in one may end the loop, and what one gives that was cancelled is lost."""
    try:
        given.append(await work())
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # noqa: BLE001  # it is raised again where it is waited for
        raised.append(error)


async def _told_if_left(tasks: set[asyncio.Task[Any]]) -> set[asyncio.Task[Any]]:
    """Those that do not end although they were cancelled."""
    # Whoever is cancelled while waiting here has not given them the time to end, and so says nothing of it.
    _, left = await asyncio.wait(tasks, timeout=LET_GO_SECONDS)
    for task in left:
        logger.warning("%s does not end although it was cancelled, and is left as it is", task.get_name())
    return left


# --- the end of a program ---------------------------------------------------------------------------------------------

_something_is_left = threading.Event()


def is_anything_left() -> bool:
    """Whether code of others still runs that nobody waits for."""
    return _something_is_left.is_set()


class LeavableThreads(ThreadPoolExecutor):
    """For ``asyncio.to_thread``: what hangs in one of these threads keeps no program from ending.

    Those of Python are waited for when a loop is closed, and once more at the end of the program.
    """

    _MOST = 32

    def __init__(self) -> None:
        # One of this kind is all that event loops take; threads of its own are never started.
        super().__init__(max_workers=1)
        self._jobs: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._threads_started: list[threading.Thread] = []
        self._idle = 0
        self._guard = threading.Lock()

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Have a function called in a thread."""
        future: Future[Any] = Future()
        with self._guard:
            if self._idle:
                self._idle -= 1
            elif len(self._threads_started) < self._MOST:
                thread = threading.Thread(target=self._work, name="mixseek-thread", daemon=True)
                self._threads_started.append(thread)
                thread.start()
        self._jobs.put(partial(_call, future, partial(fn, *args, **kwargs)))
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Let the threads end, and leave those that do not."""
        for _ in self._threads_started:
            self._jobs.put(None)
        ends = time.monotonic() + LET_GO_SECONDS
        for thread in self._threads_started if wait else ():
            thread.join(max(0.0, ends - time.monotonic()))
        left = sum(thread.is_alive() for thread in self._threads_started) if wait else 0
        if left:
            _something_is_left.set()
            logger.warning("left in threads, since nothing ends them: %s", counted(left, "call"))

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            job()
            del job  # what it was given, before the next wait
            with self._guard:
                self._idle += 1


def _call(future: Future[Any], function: Callable[[], Any]) -> None:
    if not future.set_running_or_notify_cancel():
        return
    try:
        future.set_result(function())
    except BaseException as error:  # noqa: BLE001  # it is raised where it is waited for
        future.set_exception(error)


def run_and_leave(work: Coroutine[Any, Any, T]) -> T:
    """``asyncio.run``, but what lets nothing end it is left behind."""
    with asyncio.Runner() as runner:
        runner.get_loop().set_default_executor(LeavableThreads())
        try:
            return runner.run(work)
        finally:
            leave_behind(runner)


def leave_behind(runner: asyncio.Runner) -> None:
    """End what still runs when all is done, or leave it: to close a runner is to wait for all its tasks, for ever."""
    tasks = asyncio.all_tasks(runner.get_loop())
    if not tasks:
        return
    for task in tasks:
        task.cancel()
    for task in runner.run(_told_if_left(tasks)):
        asyncio._unregister_task(task)
        _keep_for_ever(task)
        _something_is_left.set()


def _keep_for_ever(task: asyncio.Task[Any]) -> None:
    """When a task is collected its coroutine is closed, and one that lets nothing end it would go on even there."""
    import ctypes  # for a case that hardly anybody sees

    ctypes.pythonapi.Py_IncRef(ctypes.py_object(task))
