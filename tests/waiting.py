"""Waiting for something that another task, thread or process brings about."""

import asyncio
import subprocess
import time
from collections.abc import Callable
from typing import Any

__all__ = ["until", "until_true"]

SAFETY_SECONDS = 60.0
_STEP_SECONDS = 0.01


async def until(true: Callable[[], bool]) -> None:
    """Return when it is true, and let others of the event loop work meanwhile."""
    ends = time.monotonic() + SAFETY_SECONDS
    while not true():
        assert time.monotonic() < ends, "it did not come to that"
        await asyncio.sleep(_STEP_SECONDS)


def until_true(true: Callable[[], bool], child: "subprocess.Popen[Any] | None" = None) -> None:
    """Return when it is true; ``child`` is to bring it about and must not end before."""
    ends = time.monotonic() + SAFETY_SECONDS
    while not true():
        if child is not None:
            assert child.poll() is None, child.communicate()
        assert time.monotonic() < ends, "it did not come to that"
        time.sleep(_STEP_SECONDS)
