"""Time that passes only when someone waits: retries without waiting, and proof of how long they would have waited."""

from dataclasses import dataclass, field

from mixseek.llm import Backoff

__all__ = ["FakeClock"]


@dataclass
class FakeClock:
    """A clock whose time is what was slept.

    >>> import asyncio
    >>> clock = FakeClock()
    >>> asyncio.run(clock.sleep(2.5))
    >>> clock.now, clock.slept
    (2.5, [2.5])
    """

    now: float = 0.0
    jitter: float = 1.0
    """What takes the place of the dice: 1.0 is the longest wait, 0.0 none."""
    slept: list[float] = field(default_factory=list)

    async def sleep(self, seconds: float) -> None:
        """Let ``seconds`` pass at once."""
        self.now += seconds
        self.slept.append(seconds)

    def backoff(self) -> Backoff:
        """Back-off by this clock."""
        return Backoff(sleep=self.sleep, random=lambda: self.jitter, clock=lambda: self.now)
