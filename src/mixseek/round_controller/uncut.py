"""Work that a cancellation must not cut in two, and writes that need not be waited for at once."""

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Any, TypeVar

from mixseek.errors import PlaceLostError

__all__ = ["Backlog", "beside", "uncut"]

logger = logging.getLogger(__name__)
T = TypeVar("T")
_HEAD_START_SECONDS = 0.01


async def uncut(work: Awaitable[T], if_cancelled: Callable[[T], None]) -> T:
    """What ``work`` gives; whoever is cancelled meanwhile goes when it is done, or at once when cancelled again.

    ``if_cancelled`` is then given what would have been returned, in the caller's own task and context.
    """
    task = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        if await _went_well(task):
            if_cancelled(task.result())
        raise


@asynccontextmanager
async def beside(
    write: Callable[[], Coroutine[Any, Any, None]], *, head_start_seconds: float = _HEAD_START_SECONDS
) -> AsyncGenerator[None]:
    """Let ``write`` go on beside what is done inside; whoever comes out, however, comes out when it is written.

    What could not be written is raised there, unless something else is on its way up already. Requests that leave
    inside have a head start: the thread that writes would slow them down, and their answers take longer than it.
    """
    is_over = asyncio.Event()
    task = asyncio.ensure_future(_after_a_head_start(head_start_seconds, is_over, write))
    try:
        yield
    except BaseException:
        is_over.set()
        await _went_well(task)
        raise
    is_over.set()
    await uncut(task, lambda _: None)


class Backlog:
    """Writes that may come a little after what follows from them; they are made in their order, and together."""

    def __init__(self) -> None:
        self._writes: list[Callable[[], Coroutine[Any, Any, None]]] = []
        self._made = 0
        self._writing = asyncio.Lock()

    def add(self, write: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Have ``write`` made with the next :meth:`clear`."""
        self._writes.append(write)

    def so_far(self) -> Callable[[], Coroutine[Any, Any, None]]:
        """A :meth:`clear` of what waits by now: what is added later is for others to wait for."""
        return partial(self.clear, self._made + len(self._writes))

    async def clear(self, last: int | None = None) -> None:
        """Make all writes that wait, or those up to the ``last`` one by its number; if one fails, all wait again."""
        async with self._writing:
            while some := tuple(self._writes if last is None else self._writes[: max(0, last - self._made)]):
                # Handed in at once, they share a commit.
                for outcome in await asyncio.gather(*(write() for write in some), return_exceptions=True):
                    if isinstance(outcome, BaseException):
                        raise outcome
                del self._writes[: len(some)]
                self._made += len(some)

    @asynccontextmanager
    async def cleared_on_error(self) -> AsyncGenerator[None]:
        """Whoever is thrown out of what is done inside leaves when nothing waits any more."""
        try:
            yield
        except BaseException:
            await _went_well(asyncio.ensure_future(self.clear()))
            raise


async def _after_a_head_start(
    seconds: float, is_over: asyncio.Event, write: Callable[[], Coroutine[Any, Any, None]]
) -> None:
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await is_over.wait()
    await write()


async def _went_well(task: asyncio.Future[Any]) -> bool:
    """Whether it came to its end and did not fail; whoever is cancelled while waiting for it takes it along."""
    try:
        await asyncio.wait({task})
    finally:
        if not task.done():
            task.cancel()
            await asyncio.wait({task})
    if task.cancelled():
        return False
    error = task.exception()
    if error is not None and not isinstance(error, PlaceLostError):
        # Whoever would have heard of it hears of something else instead; who has the place now is said elsewhere, once.
        logger.warning("what was to be kept could not be: %s", error)
    return error is None
