"""Work that a cancellation must not cut in two."""

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any, TypeVar

__all__ = ["uncut"]

logger = logging.getLogger(__name__)
T = TypeVar("T")


async def uncut(work: Coroutine[Any, Any, T]) -> T:
    """What ``work`` gives; whoever is cancelled meanwhile goes when it is done, or at once when cancelled again."""
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
            if not task.cancelled() and (error := task.exception()) is not None:
                # Whoever would have heard of it hears of the cancellation instead.
                logger.warning("what was to be kept at the end could not be: %s", error)
        raise
