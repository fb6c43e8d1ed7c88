"""Work that would block the event loop, in threads that nothing has to wait for."""

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from contextvars import copy_context
from typing import Any

from mixseek.errors import ToolError

__all__ = ["Threads"]

# Threads cannot be ended from outside; work that hangs again and again must not fill the process with them.
_MOST_THREADS = 16


class Threads:
    """Runs functions in threads of their own.

    Not in those of the event loop, which are waited for at the end of the program: one function that hangs would keep
    it from ending.
    """

    def __init__(self) -> None:
        self._running = 0

    async def run(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """What the function gives or raises; a ToolError if too many are still at work."""
        if self._running >= _MOST_THREADS:
            raise ToolError(f"{_MOST_THREADS} calls are still running: none can be added")
        loop = asyncio.get_running_loop()
        outcome: asyncio.Future[tuple[Any, BaseException | None]] = loop.create_future()
        context = copy_context()

        def work() -> None:
            result, error = None, None
            try:
                result = context.run(function, *args, **kwargs)
            except BaseException as raised:  # noqa: BLE001  # it is raised again where the function was called
                error = raised
            with suppress(RuntimeError):  # the loop is closed: nobody waits any more
                loop.call_soon_threadsafe(self._settle, outcome, result, error)

        self._running += 1
        threading.Thread(target=work, name=f"tool {function.__name__}", daemon=True).start()
        result, error = await outcome
        if error is not None:
            raise error
        return result

    def _settle(
        self, outcome: asyncio.Future[tuple[Any, BaseException | None]], result: Any, error: BaseException | None
    ) -> None:
        self._running -= 1
        if not outcome.done():
            outcome.set_result((result, error))
