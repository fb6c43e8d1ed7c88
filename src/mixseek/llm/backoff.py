"""How long to wait before a call is tried again. The clock, the sleep and the dice can be replaced in tests."""

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

__all__ = ["Backoff"]


@dataclass(frozen=True)
class Backoff:
    """Full jitter: anything from nothing to twice as much as at the try before, but never less than the server asks."""

    first_seconds: float = 1.0
    most_seconds: float = 60.0
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    random: Callable[[], float] = random.random
    clock: Callable[[], float] = time.monotonic

    def seconds(self, failed_tries: int, retry_after: float | None = None) -> float:
        """The wait after so many failed tries.

        >>> Backoff(random=lambda: 1.0).seconds(3)
        4.0
        >>> Backoff(random=lambda: 0.0).seconds(3, retry_after=7)
        7
        """
        jittered = self.random() * min(self.most_seconds, self.first_seconds * 2.0 ** (failed_tries - 1))
        return max(jittered, retry_after or 0)
