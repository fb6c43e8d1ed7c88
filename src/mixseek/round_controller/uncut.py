"""Work that a cancellation must not cut in two."""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

__all__ = ["uncut"]

logger = logging.getLogger(__name__)
T = TypeVar("T")


async def uncut(work: Coroutine[Any, Any, T], if_cancelled: Callable[[T], None]) -> T:
    """What ``work`` gives; whoever is cancelled meanwhile goes when it is done, or at once when cancelled again.

    ``if_cancelled`` is then given what would have been returned, in the caller's own task and context.
    """
    task = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        try:
            await asyncio.wait({task})
        finally:
            if not task.done():
                task.cancel()
                await asyncio.wait({task})
        if task.cancelled():
            raise
        if (error := task.exception()) is None:
            if_cancelled(task.result())
        else:
            # Whoever would have heard of it hears of the cancellation instead.
            logger.warning("what was to be kept at the end could not be: %s", error)
        raise
