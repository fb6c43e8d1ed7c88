"""One gate in front of every account of a provider, shared by all that runs in this process.

The gate has a lane for the account and, where a refusal speaks of one model only, one for that model. A call passes
both. Refusals teach a lane its pace (:mod:`mixseek.llm.pace`); whose turn it is, is decided by team
(:mod:`mixseek.llm.lanes`).
"""

import logging
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import sha256
from threading import Lock
from typing import Final
from weakref import WeakValueDictionary

from mixseek.amounts import counted
from mixseek.errors import ModelRateLimitError
from mixseek.llm.breaker import Breaker
from mixseek.llm.lanes import Lane, Passage, Sleep

__all__ = ["Account", "Gate", "gate_of"]

logger = logging.getLogger(__name__)

_REFUSALS_OF_A_MODEL: Final = 5
"""So many in a row, while other models of the account are served, are not the account's."""
_LONGEST_OF_AN_ACCOUNT: Final = 60.0
"""Whoever asks to wait for longer speaks of a quota; those of an account are found out by each model for itself."""
_SHORTEST_NAME: Final = 4
_FIRST_SILENCE_SECONDS: Final = 60.0
_LONG_WAIT_SECONDS: Final = 15.0


@dataclass(frozen=True)
class Account:
    """Whose calls share a limit."""

    address: str
    key_hash: str = ""
    prefix: str = ""
    """Of a server in ``configs/providers.toml``, whose limits are its own."""

    @classmethod
    def of(cls, address: str, key: str | None, prefix: str = "") -> "Account":
        """The account of a key at an address."""
        return cls(address.rstrip("/"), sha256((key or "").encode()).hexdigest(), prefix)


@dataclass
class _Row:
    """Refusals of one model without an answer of it in between."""

    served_others: int
    """How many calls of the account had been served when it began."""
    length: int = 0
    latest: float = float("-inf")


@dataclass
class _Story:
    """What became of calls since a lane has a limit, and when people hear of it next."""

    what: str
    tell_at: float
    silence: float = _FIRST_SILENCE_SECONDS
    refused: int = 0
    served: int = 0


class Gate:
    """Where calls of one account wait for their turn; safe for threads and any number of event loops."""

    def __init__(self, name: str = "models", clock: Callable[[], float] = time.monotonic) -> None:
        self._name = name
        self._clock = clock
        self._lock = Lock()
        self._account = Lane(clock, self._lock)
        self._models: dict[str, Lane] = {}
        self._breakers: dict[str, Breaker] = {}
        self._rows: dict[str, _Row] = {}
        self._stories: dict[Lane, _Story] = {}
        self._served = 0

    def hold_to(self, places: int | None, most_per_second: float | None) -> None:
        """The user's own limits: calls at once, and calls a second."""
        self._account.hold_to(places, most_per_second)

    def breaker(self, model: str) -> Breaker:
        """The breaker of a model."""
        with self._lock:
            return self._breakers.setdefault(model, Breaker(model, self._clock))

    async def enter(self, passage: Passage, sleep: Sleep) -> None:
        """Wait for one's turn; whoever came through has to :meth:`leave`."""
        model = self._models.get(passage.model) if self._models else None
        if model is None:
            await self._account.enter(passage, sleep)
            return
        await model.enter(passage, sleep)
        try:
            await self._account.enter(passage, sleep)
        finally:
            # Its pace is all there is to a model's lane; places are the account's.
            model.leave()

    def leave(self) -> None:
        """An attempt is over, however it ended."""
        self._account.leave()

    def borne(self, passage: Passage) -> None:
        """An attempt was not refused."""
        with self._lock:
            self._served += 1
            if self._rows:
                self._rows.pop(passage.model, None)
            own = self._models.get(passage.model) if self._models else None
            for lane in (self._account,) if own is None else (self._account, own):
                lane.pace.borne(waited=lane in passage.waited)
                if lane in self._stories:
                    self._stories[lane].served += 1
                    self._tell_pace(lane)

    def refused(self, passage: Passage, refusal: ModelRateLimitError) -> None:
        """An attempt was refused: the lane it concerns stands still and goes on more slowly."""
        with self._lock:
            now = self._clock()
            own = self._is_of_the_model(passage, refusal, now)
            lane = self._models.setdefault(passage.model, Lane(self._clock, self._lock)) if own else self._account
            first = lane.pace.rate is None or lane not in self._stories
            if lane.pace.refused(now, passage.sent_at, refusal.retry_after) and first:
                what = passage.model if own else self._name
                self._stories[lane] = _Story(what, now + _FIRST_SILENCE_SECONDS)
                logger.warning("%s limits the rate of calls; they wait for their turn from now on", what)
            self._stories[lane].refused += 1
            self._tell_pace(lane)

    def _tell_pace(self, lane: Lane) -> None:
        """Say why it takes long, if it does: now and then, more and more seldom."""
        story, now, rate = self._stories[lane], self._clock(), lane.pace.rate
        if now < story.tell_at or rate is None:
            return
        wait = lane.pace.free_at() - now + lane.waiting / rate
        if wait < _LONG_WAIT_SECONDS:
            return
        story.silence *= 2
        story.tell_at = now + story.silence
        logger.warning(
            "%s refused %d of %s: they go out at about %s a minute now, and one waits for %.0f s; fewer teams at once "
            "(max_concurrent_teams), or requests_per_minute of a server in configs/providers.toml, let fewer be "
            "refused",
            story.what,
            story.refused,
            counted(story.refused + story.served, "call"),
            counted(round(60 * rate, 1), "call"),
            wait,
        )

    def _is_of_the_model(self, passage: Passage, refusal: ModelRateLimitError, now: float) -> bool:
        row = self._rows.setdefault(passage.model, _Row(self._served))
        if passage.sent_at > row.latest:
            row.length, row.latest = row.length + 1, now
        name = passage.model.partition(":")[2]
        named = len(name) >= _SHORTEST_NAME and name in str(refusal.args[0])
        alone = row.length >= _REFUSALS_OF_A_MODEL and self._served > row.served_others
        if alone and passage.model not in self._models:
            # The refusals before were taken for the account's.
            self._account.pace.forget()
        return named or alone or (refusal.retry_after or 0) > _LONGEST_OF_AN_ACCOUNT


_gates: WeakValueDictionary[tuple[Account, Callable[[], float]], Gate] = WeakValueDictionary()
_latest: deque[Gate] = deque(maxlen=64)
"""What one run learned the next one need not learn again; gates in use are held by those who use them."""
_registering = Lock()


def gate_of(account: Account, clock: Callable[[], float] = time.monotonic) -> Gate:
    """The gate of an account; those who go by another clock have another one."""
    with _registering:
        gate = _gates.get((account, clock))
        if gate is None:
            gate = _gates[account, clock] = Gate(account.prefix or account.address, clock)
            _latest.append(gate)
        return gate
