"""Blocking work in threads of its own, which whoever waits for it can end."""

import asyncio
import os
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from threading import Lock
from typing import TypeVar

__all__ = ["Switch", "off_the_loop"]

T = TypeVar("T")


class Switch:
    """Ends what runs in another thread, whether it has begun by then or not."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._kill: Callable[[], None] | None = None
        self.is_pulled = False

    def pull(self) -> None:
        """End it now."""
        with self._lock:
            self.is_pulled = True
            if self._kill is not None:
                self._kill()

    @contextmanager
    def ends(self, kill: Callable[[], None]) -> Iterator[None]:
        """Inside, pulling the switch calls ``kill``; afterwards it can no longer hit whoever has the number next."""
        with self._lock:
            self._kill = kill
            if self.is_pulled:
                kill()
        try:
            yield
        finally:
            with self._lock:
                self._kill = None


@cache
def _threads() -> ThreadPoolExecutor:
    """Code keeps a processor busy, so no more runs at once than there are processors; the others wait in line.

    Not the loop's own threads: whoever else needs those would wait for somebody's endless loop. A thread lives as long
    as the process, which is what lets the kernel end a child with the one that started it.
    """
    return ThreadPoolExecutor(max_workers=max(2, os.cpu_count() or 1), thread_name_prefix="mixseek-sandbox")


async def off_the_loop(work: Callable[[Switch], T]) -> T:
    """What ``work`` gives; cancelled, it pulls the switch and comes back when the work has ended."""
    switch = Switch()
    job = _threads().submit(work, switch)
    try:
        return await asyncio.shield(asyncio.wrap_future(job))
    except asyncio.CancelledError:
        if not job.cancel():
            switch.pull()
            await _ended(job)
        raise


async def _ended(job: "Future[T]") -> None:
    """Wait for the end of something that was killed, however often the wait is cancelled meanwhile."""
    while not job.done():
        try:
            await asyncio.wait([asyncio.wrap_future(job)])
        except asyncio.CancelledError:
            continue
