"""A line in front of a server: calls leave at its pace and in turn, one team after the other.

Every call that has to wait gets a number: one more than the last of its team or than the one served now, whichever is
higher. The lowest is served first. A team that asks for ten things at once so waits for its turn ten times, like anyone
else, and one that was away for a while is neither punished nor ahead. A call keeps its number until it is over, so one
that was refused comes next.

There is no task behind this: one of those who wait is on watch, sleeps until the next may leave, and calls it. The one
on watch may leave or be cancelled like any other; it then hands the watch on. Waiters may stand on several event loops
in several threads.
"""

import asyncio
import heapq
import itertools
from collections.abc import Awaitable, Callable, Hashable
from dataclasses import dataclass, field
from threading import Lock
from typing import Final

from mixseek.llm.pace import Pace
from mixseek.llm.patience import time_limits_stand_still

__all__ = ["Lane", "Passage", "Sleep", "TooLongAPause"]

Sleep = Callable[[float], Awaitable[None]]

_MOMENT: Final = 1e-6
"""Less than clocks tell apart: a sleep may end by so much too early."""
_LOOK_UP_SECONDS: Final = 5.0
"""How often the others look whether the one on watch still is: its loop may have been stopped in the midst."""
_MOST_TEAMS_KEPT: Final = 256


@dataclass(eq=False)
class Passage:
    """One call on its way through the lanes, for all its attempts."""

    team: Hashable
    model: str
    patience: float = float("inf")
    """Longest pause it waits for, in seconds."""
    sent_at: float = 0.0
    waited: set["Lane"] = field(default_factory=set)
    """Where the latest attempt had to wait."""
    numbers: dict["Lane", int] = field(default_factory=dict)


@dataclass(eq=False, slots=True)
class _Waiter:
    passage: Passage
    loop: asyncio.AbstractEventLoop
    called: asyncio.Event = field(default_factory=asyncio.Event)
    served: bool = False
    gone: bool = False

    def call(self) -> bool:
        """Wake it up; whether there is anyone to wake."""
        try:
            if self.loop is _running_loop():
                self.called.set()
            else:
                self.loop.call_soon_threadsafe(self.called.set)
        except RuntimeError:  # its loop is closed
            return False
        return True


class TooLongAPause(Exception):  # noqa: N818  # a finding, which its caller tells in words of its own
    """The server wants nothing for longer than a call can wait."""

    def __init__(self, seconds: float) -> None:
        super().__init__(f"nothing may be asked for another {seconds:.3g} seconds")
        self.seconds = seconds


class Lane:
    """One line with one pace and a number of places."""

    def __init__(self, clock: Callable[[], float], lock: Lock) -> None:
        self._clock = clock
        self._lock = lock
        self.pace = Pace()
        self._places: int | None = None
        self._inside = 0
        self._line: list[tuple[int, int, _Waiter]] = []
        self._arrivals = itertools.count()
        self._last_numbers: dict[Hashable, int] = {}
        self._serving = 0
        self._on_watch: _Waiter | None = None
        self._watch_until = 0.0
        self._waits_for_room = False
        """Whether the one on watch sleeps until someone leaves, and not until the next may go."""

    async def enter(self, passage: Passage, sleep: Sleep) -> None:
        """Come through; whoever did has to :meth:`leave`."""
        passage.waited.discard(self)
        with self._lock:
            now = self._clock()
            if not self._line:
                self.pace.forget_old(now)
                if self._is_free(now):
                    self._let_in(passage)
                    return
            waiter = _Waiter(passage, asyncio.get_running_loop())
            heapq.heappush(self._line, (self._number(passage), next(self._arrivals), waiter))
            passage.waited.add(self)
        with time_limits_stand_still():
            await self._wait(waiter, sleep)

    def hold_to(self, places: int | None, most_per_second: float | None) -> None:
        """Let no more in than this, at once and in a second."""
        with self._lock:
            self._places = places
            if most_per_second != self.pace.most:
                self.pace = Pace(most_per_second)

    @property
    def waiting(self) -> int:
        """How many stand in line; asked with the lock."""
        return sum(not waiter.gone for _, _, waiter in self._line)

    def leave(self) -> None:
        """Give the place to the next."""
        with self._lock:
            self._inside -= 1
            if self._line:
                self._serve()

    # --- waiting ------------------------------------------------------------------------------------------------------

    async def _wait(self, waiter: _Waiter, sleep: Sleep) -> None:
        try:
            while not waiter.served:
                await self._watch_or_wait(waiter, sleep)
        except BaseException:
            self._give_up(waiter)
            raise

    async def _watch_or_wait(self, waiter: _Waiter, sleep: Sleep) -> None:
        with self._lock:
            seconds = self._watch(waiter)
        if seconds is not None:
            await sleep(seconds)
        else:
            await _called_within(waiter.called, _LOOK_UP_SECONDS)
        with self._lock:
            waiter.called.clear()
            self._serve()

    def _watch(self, waiter: _Waiter) -> float | None:
        """Seconds to sleep on watch; None: somebody else is, or only one who leaves can make room."""
        now = self._clock()
        if self.pace.free_at() - now > waiter.passage.patience:
            raise TooLongAPause(self.pace.free_at() - now)
        if self._on_watch not in (None, waiter) and self._watch_until + _LOOK_UP_SECONDS > now:
            return None
        self._on_watch = waiter
        self._waits_for_room = self._is_full()
        if self._waits_for_room:
            self._watch_until = now
            return None
        self._watch_until = max(now, self.pace.free_at())
        return self._watch_until - now

    def _give_up(self, waiter: _Waiter) -> None:
        with self._lock:
            waiter.gone = True
            if waiter.served:
                self._inside -= 1
            else:
                self._take_back_number(waiter.passage)
            self._serve()

    # --- serving, always with the lock --------------------------------------------------------------------------------

    def _serve(self) -> None:
        now = self._clock()
        while self._line and (self._line[0][2].gone or self._is_free(now)):
            waiter = heapq.heappop(self._line)[2]
            if not waiter.gone and waiter.call():
                waiter.served = True
                self._let_in(waiter.passage)
        if self._on_watch is None or self._on_watch.served or self._on_watch.gone:
            self._hand_on_the_watch()
        elif self._waits_for_room and not self._is_full():
            # There is room, but it is too early: from now on it is the pace that is waited for.
            self._waits_for_room = False
            if not self._on_watch.call():
                self._hand_on_the_watch()

    def _hand_on_the_watch(self) -> None:
        self._on_watch = None
        while self._line and not self._line[0][2].call():
            heapq.heappop(self._line)

    def _let_in(self, passage: Passage) -> None:
        now = passage.sent_at = self._clock()
        if self.pace.rate is not None or self._places is not None:
            self._serving = max(self._serving, self._number(passage))
        self._inside += 1
        self.pace.sent(now)

    def _is_free(self, now: float) -> bool:
        return not self._is_full() and self.pace.free_at() <= now + _MOMENT

    def _is_full(self) -> bool:
        return self._places is not None and self._inside >= self._places

    # --- whose turn it is ---------------------------------------------------------------------------------------------

    def _number(self, passage: Passage) -> int:
        if self not in passage.numbers:
            number = max(self._serving, self._last_numbers.get(passage.team, 0)) + 1
            passage.numbers[self] = self._last_numbers[passage.team] = number
            if len(self._last_numbers) > _MOST_TEAMS_KEPT + len(self._line):
                self._forget_teams()
        return passage.numbers[self]

    def _take_back_number(self, passage: Passage) -> None:
        number = passage.numbers.pop(self, None)
        if number is not None and self._last_numbers.get(passage.team) == number:
            self._last_numbers[passage.team] = number - 1

    def _forget_teams(self) -> None:
        """Those that have nothing ahead would get the same number without it."""
        self._last_numbers = {team: last for team, last in self._last_numbers.items() if last > self._serving}


async def _called_within(called: asyncio.Event, seconds: float) -> None:
    try:
        async with asyncio.timeout(seconds):
            await called.wait()
    except TimeoutError:
        pass


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None
