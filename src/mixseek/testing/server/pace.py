"""How long answers take and how many are given in a second."""

import math
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from hashlib import blake2b

from mixseek.testing.calls import ModelCall
from mixseek.testing.server.wire import Payload, error_payload

__all__ = ["Latency", "RateLimit"]


@dataclass
class Latency:
    """Seconds for each model, with a jitter that the seed decides; the newest setting that fits a model counts."""

    seed: int = 0
    _settings: dict[str, tuple[float, float]] = field(default_factory=dict)

    def set(self, model: str, seconds: float, jitter: float) -> None:
        """Let ``model``, a name or a pattern, take so long."""
        if seconds < 0 or jitter < 0:
            raise ValueError(f"latency and jitter must not be negative, not {seconds!r} and {jitter!r}")
        self._settings.pop(model, None)
        self._settings = {model: (seconds, jitter), **self._settings}

    def of(self, call: ModelCall) -> float:
        """How long the answer to ``call`` takes."""
        for pattern, (seconds, jitter) in self._settings.items():
            if pattern == "*" or fnmatchcase(call.model, pattern):
                return seconds + jitter * self._chance(call) if jitter else seconds
        return 0.0

    def _chance(self, call: ModelCall) -> float:
        drawn = blake2b(f"{self.seed}|{call.model}|{call.number}".encode(), digest_size=8).digest()
        return int.from_bytes(drawn, "big") / 2**64


class RateLimit:
    """A bucket that fills by ``per_second`` and holds ``burst`` requests, by default those of one second."""

    def __init__(self, per_second: float, burst: int | None = None, *, retry_after: bool = True) -> None:
        if per_second <= 0 or (burst is not None and burst < 1):
            raise ValueError(f"a rate limit must be positive, not {per_second!r} a second with a burst of {burst!r}")
        self._per_second = per_second
        self._retry_after = retry_after
        self._holds = float(burst or max(1, math.ceil(per_second)))
        self._left = self._holds
        self._looked_at: float | None = None

    def seconds_to_wait(self, now: float) -> float:
        """Take a request out of the bucket: 0, or the seconds until there is one to take."""
        passed = 0.0 if self._looked_at is None else now - self._looked_at
        self._looked_at = now
        self._left = min(self._holds, self._left + passed * self._per_second)
        if self._left >= 1:
            self._left -= 1
            return 0.0
        return (1 - self._left) / self._per_second

    def refusal(self, seconds: float) -> Payload:
        """The 429 that says how long to wait, in whole seconds as HTTP has it and in milliseconds as OpenAI does."""
        wait = {"Retry-After": str(math.ceil(seconds)), "retry-after-ms": str(math.ceil(seconds * 1000))}
        headers = wait if self._retry_after else {}
        message = f"Rate limit of {self._per_second:g} requests a second reached."
        return error_payload(429, message, kind="rate_limit_error", code="rate_limit_exceeded", headers=headers)
