"""Time limits that stand still while a call waits for its turn: a rate limit must not decide who is too late."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from types import TracebackType
from typing import Final, Self

__all__ = ["PatientTimeout", "let_time_run_out", "time_limits_stand_still"]

MOST_GROWTH: Final = 10
"""A limit with all that it stood still is at most so many times as long."""


class PatientTimeout:
    """``asyncio.timeout``, but what is waited at a gate does not count, up to ten times the limit in all.

    It holds for every call inside, in other tasks of the same loop too, and stands still while any of them waits.
    """

    def __init__(self, seconds: float | None) -> None:
        self._limit = asyncio.timeout(seconds)
        self._spare = max(0.0, seconds or 0.0) * (MOST_GROWTH - 1)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._waiting = 0
        self._stopped_at = 0.0
        self._due = 0.0
        self.stood_still = 0.0
        """Seconds that did not count, as far as the waits are over."""

    async def __aenter__(self) -> Self:
        await self._limit.__aenter__()
        self._loop = asyncio.get_running_loop()
        self._token = _limits.set((*_limits.get(), self))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._loop = None
        _limits.reset(self._token)
        await self._limit.__aexit__(kind, error, traceback)

    def expired(self) -> bool:
        """Whether the time ran out."""
        return self._limit.expired()

    def _stop(self) -> None:
        self._waiting += 1
        if self._waiting == 1 and self._can_move():
            self._stopped_at, self._due = _now(), self._limit.when() or 0.0
            self._limit.reschedule(self._due + self._spare)

    def _go_on(self) -> None:
        self._waiting -= 1
        if self._waiting == 0 and self._can_move():
            waited = min(_now() - self._stopped_at, self._spare)
            self._spare -= waited
            self.stood_still += waited
            self._limit.reschedule(self._due + waited)

    def _can_move(self) -> bool:
        """A task may outlive the block it was started in, and one on another loop must not touch this one's timers."""
        has_end = self._limit.when() is not None
        return has_end and self._loop is asyncio.get_running_loop() and not self._limit.expired()


_limits: ContextVar[tuple[PatientTimeout, ...]] = ContextVar("limits", default=())


@contextmanager
def time_limits_stand_still() -> Iterator[None]:
    """Stop the time of every limit around this."""
    around = _limits.get()
    for limit in around:
        limit._stop()
    try:
        yield
    finally:
        for limit in around:
            limit._go_on()


def let_time_run_out(place: int) -> None:
    """End the time of one of the limits around this, counted from the outermost, or with a minus from the innermost."""
    around = _limits.get()
    if -len(around) <= place < len(around) and around[place]._can_move():
        around[place]._limit.reschedule(_now())


def _now() -> float:
    return asyncio.get_running_loop().time()
