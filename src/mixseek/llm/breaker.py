"""Leaving a model alone that is down.

A model counts as down when its server gave no proper reply for a while: connections that fail, time-outs, 5xx. Any
other reply, even a refusal, shows that it is there. While it is down one call in a growing period is let through to see
whether it is back. A call that has another model to turn to does so at once. One that has none waits for the next such
attempt and shares its fate: no call fails without a real attempt that ended after it came.
"""

import asyncio
import logging
from collections.abc import Callable
from threading import Lock
from typing import Final

from mixseek.errors import ModelError, ModelTimeoutError, ModelUnavailableError
from mixseek.llm.lanes import Sleep

__all__ = ["Breaker", "says_down"]

logger = logging.getLogger(__name__)

FAILURES: Final = 8
SECONDS: Final = 15.0
"""Twice what the default number of retries waits at most: a shorter gap is theirs to bridge."""
FIRST_PERIOD: Final = 2.0
LONGEST_PERIOD: Final = 30.0
_LOOK_SECONDS: Final = 0.25


def says_down(fault: ModelError) -> bool:
    """Whether a fault speaks of the server and not of the request or of one answer."""
    if isinstance(fault, ModelUnavailableError):
        return fault.status is None or fault.status >= 500
    return isinstance(fault, ModelTimeoutError)


class Breaker:
    """Counts what one model of one account failed to reply to; safe for threads."""

    def __init__(self, model: str, clock: Callable[[], float]) -> None:
        self._model = model
        self._clock = clock
        self._lock = Lock()
        self._failures = 0
        self._failing_since = 0.0
        self._open = False
        self._period = FIRST_PERIOD
        self._next_probe = 0.0
        self._probing: object | None = None
        self._failed_probes = 0
        self._last_words = ""

    async def enter(self, call: object, sleep: Sleep, *, has_alternative: bool) -> None:
        """Go on at once while the model is up; ``call`` is whoever asks, for all its attempts."""
        seen = self._failed_probes
        while self._open and not self._probes(call):
            if has_alternative or self._failed_probes > seen:
                raise ModelUnavailableError(
                    f"it is down and left alone for a while: {self._last_words}", model=self._model, retryable=False
                )
            await sleep(_LOOK_SECONDS)
            # A sleep of a test's clock may take no time at all; whoever probes needs some.
            await asyncio.sleep(0)

    def failed(self, call: object, fault: ModelError) -> None:
        """An attempt failed in a way that speaks of the server."""
        now = self._clock()
        with self._lock:
            self._failing_since = self._failing_since if self._failures else now
            self._failures += 1
            self._last_words = str(fault.args[0])
            if self._probing is call:
                self._probe_failed(now)
            elif not self._open and self._failures >= FAILURES and now - self._failing_since >= SECONDS:
                self._begin(now)

    def replied(self, call: object) -> None:
        """The server is there."""
        if self._failures:
            with self._lock:
                if self._open:
                    logger.warning("%s answers again", self._model)
                self._failures, self._open, self._probing, self._period = 0, False, None, FIRST_PERIOD

    def gave_up(self, call: object) -> None:
        """An attempt ended without a word of the server, cancelled for example."""
        if self._probing is call:
            self._probing = None

    def _probes(self, call: object) -> bool:
        with self._lock:
            if self._probing is None and self._clock() >= self._next_probe:
                self._probing = call
            return self._probing is call

    def _begin(self, now: float) -> None:
        self._open, self._next_probe = True, now + self._period
        logger.warning(
            "%s is down and left alone, but for one call in a while: %d failed in %.3g seconds, the last one by: %s",
            self._model,
            self._failures,
            now - self._failing_since,
            self._last_words,
        )

    def _probe_failed(self, now: float) -> None:
        self._probing = None
        self._failed_probes += 1
        self._period = min(LONGEST_PERIOD, 2 * self._period)
        self._next_probe = now + self._period
