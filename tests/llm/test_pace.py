"""A pace that is learned from refusals, against the server's own bucket, on a clock that is only counted."""

import heapq

import pytest

from mixseek.llm.pace import Pace
from mixseek.testing.server.pace import RateLimit


class _Simulated:
    """Callers that always have something to ask, one pace, and a server with a limit."""

    def __init__(
        self, limit: RateLimit, *, callers: int = 40, pace: Pace | None = None, tells_when: bool = True
    ) -> None:
        self.limit = limit
        self.pace = pace or Pace()
        self.now = 0.0
        self._tells_when = tells_when
        self._callers = callers
        self._replies: list[tuple[float, float, float]] = []

    def run(self, seconds: float) -> tuple[int, int]:
        """How many were served and how many refused in the next seconds."""
        served, refused, until = 0, 0, self.now + seconds
        while self.now < until:
            self._hear()
            while self._callers and self.pace.free_at() <= self.now:
                wait = self._send()
                served, refused = served + (not wait), refused + bool(wait)
            coming = [reply[0] for reply in self._replies[:1]]
            self.now = min([*coming, max(self.pace.free_at(), self.now)] if self._callers else coming) + 0.001
        return served, refused

    def _send(self) -> float:
        self.pace.sent(self.now)
        wait = self.limit.seconds_to_wait(self.now)
        self._callers -= 1
        heapq.heappush(self._replies, (self.now + (0.005 if wait else 0.05), self.now, wait))
        return wait

    def _hear(self) -> None:
        while self._replies and self._replies[0][0] <= self.now:
            _, sent_at, wait = heapq.heappop(self._replies)
            self._callers += 1
            if wait:
                self.pace.refused(self.now, sent_at, wait if self._tells_when else None)
            else:
                self.pace.borne(waited=True)


@pytest.mark.parametrize("tells_when", [True, False])
@pytest.mark.parametrize(("per_second", "burst"), [(5, None), (5, 1), (50, None), (1, 60), (0.5, 1)])
def test_what_is_allowed_is_used_and_little_is_refused(per_second: float, burst: int | None, tells_when: bool) -> None:
    simulated = _Simulated(RateLimit(per_second, burst), tells_when=tells_when)
    simulated.run(60)
    served, refused = simulated.run(200)
    assert served >= 0.9 * 200 * per_second
    assert refused <= 0.05 * (served + refused)


@pytest.mark.parametrize(("before", "after"), [(5, 20), (20, 2)])
def test_a_limit_that_moves_is_found_again(before: float, after: float) -> None:
    simulated = _Simulated(RateLimit(before))
    simulated.run(60)
    simulated.limit = RateLimit(after)
    simulated.run(60)
    served, refused = simulated.run(60)
    assert served >= 0.85 * 60 * after
    assert refused <= 0.05 * (served + refused)


def test_nothing_is_limited_before_the_first_refusal() -> None:
    pace = Pace()
    for _ in range(1000):
        pace.sent(0.0)
        pace.borne(waited=False)
    assert (pace.rate, pace.free_at()) == (None, 0.0)


def test_a_refusal_stops_everybody_for_as_long_as_the_server_asks() -> None:
    pace = Pace()
    pace.sent(10.0)
    pace.refused(10.1, 10.0, 7.0)
    assert pace.free_at() == pytest.approx(17.1)


def test_refusals_of_calls_that_left_together_count_once() -> None:
    pace = Pace()
    for _ in range(100):
        pace.sent(10.0)
    assert [pace.refused(10.1, 10.0, None) for _ in range(3)] == [True, False, False]


class _Hiccup(RateLimit):
    """Refuses the first calls, and then none."""

    def __init__(self, refusals: int) -> None:
        super().__init__(1000)
        self._left = refusals

    def seconds_to_wait(self, now: float) -> float:
        self._left -= 1
        return 1.0 if self._left >= 0 else 0.0


@pytest.mark.parametrize("tells_when", [True, False])
@pytest.mark.parametrize(("refusals", "seconds"), [(6, 40), (10, 160)])
def test_refusals_one_after_another_make_the_pause_longer_and_not_the_rate_smaller(
    refusals: int, seconds: float, tells_when: bool
) -> None:
    simulated = _Simulated(_Hiccup(refusals), callers=3, tells_when=tells_when)
    served, refused = simulated.run(seconds)
    assert refused == refusals
    assert served > 42


def test_the_rate_does_not_grow_while_nobody_waits() -> None:
    pace = Pace(2.0)
    pace.sent(0.0)
    pace.refused(0.1, 0.0, 0.0)
    pace.sent(1.0)
    known = pace.rate
    assert known is not None
    assert known < 2
    for _ in range(100):
        pace.borne(waited=False)
    assert pace.rate == known


def test_a_rate_the_user_set_is_held_from_the_first_call_and_never_exceeded() -> None:
    simulated = _Simulated(RateLimit(100), pace=Pace(2.0))
    served, refused = simulated.run(60)
    assert refused == 0
    assert served == pytest.approx(120, abs=3)


def test_a_limit_is_forgotten_after_ten_quiet_minutes() -> None:
    pace = Pace()
    pace.sent(0.0)
    pace.refused(0.1, 0.0, None)
    pace.sent(2.0)
    pace.forget_old(500.0)
    assert pace.rate is not None
    pace.forget_old(601.0)
    assert pace.rate is None
