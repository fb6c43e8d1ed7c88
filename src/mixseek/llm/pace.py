"""How many calls a second someone bears, learned from what is refused.

Nothing is limited until the first refusal. It stops everything for as long as the server asks, and from then on calls
leave evenly spaced, at first at the rate that was borne so far. While calls wait, each one that is borne makes the rate
grow, and a refusal takes a tenth to a half of it away; one that follows another before anything is borne doubles the
pause instead. The rate grows slowly around the one that was refused last and faster far from it, since a limit that
moved should be found soon and one that stands should not be run into again and again.
"""

from collections import deque
from typing import Final

__all__ = ["Pace"]

_WINDOW_SECONDS: Final = 10.0
_FIRST_RATE: Final = 1.0
"""The least to begin with: a single refused call says nothing about the rate."""
_LEAST_RATE: Final = 1 / 60
_SMALLEST_CUT: Final = 0.9
_LARGEST_CUT: Final = 0.5
_LONGEST_OWN_PAUSE: Final = 30.0
_CATCH_UP_SECONDS: Final = 0.05
"""Timers come late; so much of it is made up for, or the rate would never quite be used."""
_FORGOTTEN_AFTER_SECONDS: Final = 600.0


class Pace:
    """The learned rate of one account or model; it reads no clock and is not safe for threads by itself."""

    def __init__(self, most: float | None = None) -> None:
        self.most = most
        """Never more than this; None: whatever is borne."""
        self.rate = most
        """Calls a second; None: no limit is known."""
        self._refused_at_rate: float | None = None
        self._free_at = 0.0
        self._paused_until = 0.0
        self._borne = _Tally()
        self._cut_at = float("-inf")
        self._to_cut = False
        self._refusals_in_a_row = 0

    def free_at(self) -> float:
        """When the next call may leave."""
        return max(self._free_at, self._paused_until)

    def sent(self, now: float) -> None:
        """A call leaves."""
        if self._to_cut:
            self._cut(now)
        self._borne.add(now, 1)
        if self.rate is not None:
            self._free_at = max(self._free_at, now - _CATCH_UP_SECONDS) + 1 / self.rate

    def borne(self, *, waited: bool) -> None:
        """A call was not refused; the rate grows only while it holds calls up."""
        self._refusals_in_a_row = 0
        if waited and self.rate is not None and not self._to_cut:
            self.rate *= 1 + self._growth(self.rate)
            self.rate = min(self.rate, self.most or self.rate)

    def refused(self, now: float, sent_at: float, retry_after: float | None) -> bool:
        """A call was refused that left at ``sent_at``; whether this is news."""
        self._borne.add(now, -1)
        # What left before the last refusal was known says nothing about the rate since.
        news = sent_at >= self._cut_at
        if news:
            self._refusals_in_a_row += 1
            # One right after another does not say that calls come too fast, but that the pause was too short.
            self._cut_at, self._to_cut = now, self._to_cut or self._refusals_in_a_row == 1
        is_enough = retry_after is not None and self._refusals_in_a_row <= 1
        pause = max(retry_after or 0.0, 0.0 if is_enough else self._own_pause())
        self._paused_until = max(self._paused_until, now + pause)
        return news

    def forget_old(self, now: float) -> None:
        """Be as at first if nothing was refused for a long time."""
        if self.rate is not None and self.most is None and now - self._cut_at > _FORGOTTEN_AFTER_SECONDS:
            self.rate = None

    def forget(self) -> None:
        """Be as at first: what was refused was not for coming too fast here."""
        self.rate = self.most
        self._to_cut = False

    def _cut(self, now: float) -> None:
        # Only now, after the pause: by this time the others that left too early have been refused as well.
        borne, self._to_cut = self._borne.rate(now), False
        if self.rate is None:
            # What was borne came at any pace, so this is a guess, and no rate that was refused.
            self.rate, self._refused_at_rate = max(borne, _FIRST_RATE), None
        else:
            self._refused_at_rate = self.rate
            kept = min(max(borne, _LARGEST_CUT * self.rate), _SMALLEST_CUT * self.rate)
            self.rate = max(kept, _LEAST_RATE)

    def _own_pause(self) -> float:
        base = 1 / (self.rate or _FIRST_RATE)
        return min(_LONGEST_OWN_PAUSE, base * 2.0 ** (self._refusals_in_a_row - 1))

    def _growth(self, rate: float) -> float:
        if self._refused_at_rate is None:
            # By half in a second at most: a server that was left in peace for a moment bears more than it will later.
            return min(0.1, 0.5 / rate)
        beside_refused = rate / self._refused_at_rate
        if 0.9 <= beside_refused <= 1.1:
            return 0.002
        return 0.01 if 1.1 < beside_refused <= 1.5 else 0.02


class _Tally:
    """Calls that were sent and not refused, of the last seconds."""

    def __init__(self) -> None:
        self._seconds: deque[list[float]] = deque()

    def add(self, now: float, count: int) -> None:
        seconds = self._seconds
        if not seconds or now - seconds[-1][0] >= 1.0:
            seconds.append([now, 0.0])
            while seconds[0][0] < now - _WINDOW_SECONDS:
                seconds.popleft()
        seconds[-1][1] += count

    def rate(self, now: float) -> float:
        recent = [second for second in self._seconds if second[0] >= now - _WINDOW_SECONDS]
        if not recent:
            return 0.0
        return max(0.0, sum(count for _, count in recent)) / max(1.0, now - recent[0][0])
