"""Ending work from outside: from another thread, from a signal handler, or from the same loop."""

import asyncio
from contextlib import suppress
from types import TracebackType

__all__ = ["Stoppable"]


class Stoppable:
    """A stretch of a task that :meth:`stop` ends: all it awaits is cancelled, and the task goes on behind the stretch.

    What happens before the stretch is entered or after it is left cannot be stopped; a cancellation of the task by
    anybody else stays one.
    """

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._task: asyncio.Task[object] | None = None
        self._cancelling = 0
        self._stopped = False

    def stop(self) -> None:
        """End the stretch soon; harmless when it is over."""
        with suppress(RuntimeError):  # no loop runs in this thread
            if asyncio.get_running_loop() is self._loop:
                self._cancel()  # at once: the stretch may do much until the loop comes round
        # From elsewhere, and to wake up a loop that sleeps while a signal is handled.
        with suppress(RuntimeError):  # it is closed
            self._loop.call_soon_threadsafe(self._cancel)

    def _cancel(self) -> None:
        if self._task is not None and not self._stopped:
            self._stopped = True
            self._task.cancel()

    async def __aenter__(self) -> None:
        self._task = asyncio.current_task()
        self._cancelling = self._task.cancelling() if self._task else 0

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> bool:
        task, self._task = self._task, None
        if not self._stopped or task is None:
            return False
        return task.uncancel() <= self._cancelling and kind is asyncio.CancelledError
