"""Work that a cancellation must not cut in two."""

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from typing import Any, TypeVar

__all__ = ["beside", "uncut"]

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
async def beside(write: Callable[[], Coroutine[Any, Any, None]]) -> AsyncGenerator[None]:
    """Let ``write`` go on beside what is done inside; whoever comes out, however, comes out when it is written.

    What could not be written is raised there, unless something else is on its way up already.
    """
    is_over = asyncio.Event()
    task = asyncio.ensure_future(_after_a_head_start(is_over, write))
    try:
        yield
    except BaseException:
        is_over.set()
        await _went_well(task)
        raise
    is_over.set()
    await uncut(task, lambda _: None)


async def _after_a_head_start(is_over: asyncio.Event, write: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Let requests leave first: the thread that writes would slow them down, and their answers take longer than it."""
    with suppress(TimeoutError):
        async with asyncio.timeout(_HEAD_START_SECONDS):
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
    if (error := task.exception()) is not None:
        # Whoever would have heard of it hears of something else instead.
        logger.warning("what was to be kept could not be: %s", error)
    return error is None
