"""What a run and its teams may still spend.

There is one purse for the run and one for each team that has a budget of its own; a call is paid from both. Every
attempt of a call reserves the most it can cost before it leaves, and settles afterwards:

- an answer is counted as what it cost, also where that is more than the bound;
- what may have been billed although nobody knows (cut off, cancelled, timed out) stays spent at its bound, *lost*;
- a refusal that costs nothing gives everything back.

Bounds are several times what calls turn out to cost. So a call that does not fit waits while others are on their way,
for these will give back the most of what they reserved; it is refused when nothing is on its way any more. Where only
what is set aside for rounds of others is in its way, it waits for these too. Time limits stand still meanwhile.

Before a round a team *earmarks* what a round of its own costs, so that rounds are finished rather than broken off:
calls of others leave that much in the purse. A first round is played in any case; where the purse is small it waits
until the rounds of others are over, and what they really cost is known. What first rounds take is guessed before any is
known, and after that by how far the guesses were off. A team that has a finished round leaves as much for every team
that has none, and where that leaves nothing for itself, it waits for first rounds that are played or about to be.
"""

import asyncio
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import Final, Literal

from mixseek.amounts import amount_words, limit_words
from mixseek.config.schema import BudgetSettings
from mixseek.errors import BudgetExhaustedError
from mixseek.llm.patience import time_limits_stand_still
from mixseek.storage.journal_records import CallSpend

__all__ = [
    "DEFAULT_MAX_OUTPUT_TOKENS",
    "Limit",
    "LowPurse",
    "Purse",
    "Purses",
    "Reservation",
    "SetAsideError",
    "Spend",
    "known_and_lost",
    "spent_by_round",
]

DEFAULT_MAX_OUTPUT_TOKENS: Final = 8_192
_WARN_AT: Final = 0.8
# What sums of fractions leave of nothing.
_DUST: Final = 1e-9
# A prompt carries the rounds before it.
_GROWTH: Final = 1.5

Limit = Literal["max_cost_usd", "max_tokens", "max_requests", "max_seconds"]
_AMOUNTS: Final[tuple[Limit, ...]] = ("max_cost_usd", "max_tokens", "max_requests")


@dataclass(frozen=True, slots=True)
class Spend:
    """An amount in all that a budget counts but time."""

    usd: float = 0.0
    tokens: int = 0
    requests: int = 0

    def __add__(self, other: "Spend") -> "Spend":
        return Spend(self.usd + other.usd, self.tokens + other.tokens, self.requests + other.requests)

    def less(self, other: "Spend") -> "Spend":
        """What is left of it without ``other``, nowhere below nothing."""
        usd, tokens = self.usd - other.usd, self.tokens - other.tokens
        return Spend(max(0.0, usd), max(0, tokens), max(0, self.requests - other.requests))

    def at_least(self, other: "Spend") -> "Spend":
        """The larger of each amount."""
        return Spend(max(self.usd, other.usd), max(self.tokens, other.tokens), max(self.requests, other.requests))

    def grown(self) -> "Spend":
        """What the next round may take where this one took that."""
        return Spend(self.usd * _GROWTH, int(self.tokens * _GROWTH), self.requests)

    def of(self, limit: Limit) -> float:
        """The amount that ``limit`` is about."""
        return {"max_cost_usd": self.usd, "max_tokens": self.tokens, "max_requests": self.requests}[limit]


NOTHING: Final = Spend()


@dataclass(frozen=True, slots=True)
class LowPurse:
    """Most of what is allowed is used; ``team_id`` is None for the purse of the run."""

    team_id: str | None
    limit: Limit
    used: float
    allowed: float


class SetAsideError(BudgetExhaustedError):
    """There were room for a call but for what is set aside for rounds of others, which may be over soon."""

    def __init__(self, words: str, purse: "Purse", team_id: str) -> None:
        super().__init__(words)
        self._purse = purse
        self._team_id = team_id

    async def wait(self) -> None:
        """Wait until the call may be tried again, or raise that it never can be paid for."""
        await self._purse.wait_for_rounds(self._team_id, str(self))


@dataclass
class _Round:
    """What a team's round in play has earmarked, used and holds."""

    earmark: Spend
    began: float
    used: Spend = NOTHING
    held: Spend = NOTHING
    is_finished: bool = False

    @property
    def expected(self) -> Spend:
        """What it is still thought to use, calls on their way included."""
        return self.earmark.less(self.used)

    @property
    def set_aside(self) -> Spend:
        """What calls of others have to leave for it, beside what it holds."""
        return self.earmark.less(self.used + self.held)


@dataclass
class _Team:
    """What is known of a team."""

    is_expected: bool = False
    """Whether it plays, or will."""
    guess: Spend = NOTHING
    """What a first round of it may take, before anybody knows."""
    dearest: Spend | None = None
    """The most of each that one of its finished rounds took; None before the first."""
    longest: float = 0.0
    largest: Spend = NOTHING
    """The largest bound of any call so far, also of one that was refused; requests are left out."""
    largest_is: str = ""
    """What that one is for, in words."""
    begun: _Round | None = None
    """The round that comes next as far as it was played before, by another process or in a try that failed."""
    round: _Round | None = None
    learned: Spend = NOTHING
    """What the last round took that another process finished; its judgment may be still to come, and belongs to it."""
    waits_to_begin: bool = False
    """Whether its first round waits for the rounds of others."""

    @property
    def is_to_have_its_first(self) -> bool:
        """Whether it plays, or will, and has not begun a round."""
        return self.is_expected and self.round is None and self.dearest is None

    @property
    def is_at_its_first(self) -> bool:
        """Whether it plays its first round, or is about to."""
        return self.dearest is None and (self.round is not None or self.waits_to_begin)


@dataclass
class Purse:
    """One purse: of a run, or of one team."""

    limits: BudgetSettings
    tell: Callable[[LowPurse], None]
    team_id: str | None = None
    clock: Callable[[], float] = time.monotonic
    spent: Spend = NOTHING
    lost: Spend = NOTHING
    _held: Spend = NOTHING
    _on_their_way: int = 0
    _came_to: dict[Limit, float] = field(default_factory=dict)
    """How often what was guessed of it a first round took, at most."""
    _earmarked: Spend = NOTHING
    """All earmarks, used or not."""
    _teams: dict[str, _Team] = field(default_factory=dict)
    _line: deque[asyncio.Event] = field(default_factory=deque)
    _stuck: list[tuple[str, asyncio.Event]] = field(default_factory=list)
    """Teams with a call that waits for rounds of others to be over."""
    _beginners: deque[asyncio.Event] = field(default_factory=deque)
    _advanced: deque[asyncio.Event] = field(default_factory=deque)
    """Those who wait for first rounds of others to be over."""
    _told: set[Limit] = field(default_factory=set)
    _ends_at: float | None = None
    _timer: asyncio.TimerHandle | None = None

    @property
    def counts(self) -> bool:
        """Whether calls have to reserve."""
        return any(getattr(self.limits, limit) is not None for limit in _AMOUNTS)

    @property
    def used(self) -> Spend:
        """What is gone: spent, or lost at its bound."""
        return self.spent + self.lost

    # --- calls --------------------------------------------------------------------------------------------------------

    async def reserve(self, team_id: str, bound: Spend, why: str = "") -> None:
        """Take ``bound`` out of the purse, when it has as much; refused, and told ``why``, when it never will."""
        self.learn_bound(team_id, bound, why)
        if not self._line and self._takes(team_id, bound):
            return
        self._refuse_for_ever(bound, why)
        self._line.append(place := asyncio.Event())
        try:
            while not (self._line[0] is place and self._takes(team_id, bound)):
                if self._line[0] is place and not self._on_their_way:
                    self._refuse_for_ever(bound, why)
                    others = self._set_aside_for_others(team_id)
                    words = self._words(self.used + others + bound, "the next call", why, others)
                    raise SetAsideError(words, self, team_id)
                await self._woken(place)
        finally:
            self._line.remove(place)
            self._wake(self._line)

    async def wait_for_rounds(self, team_id: str, words: str) -> None:
        """Wait until a round of another team is over; refused in these words if all of them wait like this."""
        waiting = {one for one, place in self._stuck if not place.is_set()} | {team_id}
        in_the_way = (one.round.set_aside for name, one in self._teams.items() if one.round and name not in waiting)
        if all(set_aside == NOTHING for set_aside in in_the_way):
            raise BudgetExhaustedError(words)
        self._stuck.append(entry := (team_id, asyncio.Event()))
        try:
            await self._woken(entry[1])
        finally:
            self._stuck.remove(entry)

    def settle(self, team_id: str, bound: Spend, spent: Spend, lost: Spend) -> None:
        """Put ``bound`` back, and take out what came of it."""
        self._held, self._on_their_way = self._held.less(bound), self._on_their_way - 1
        if not self._on_their_way:
            self._held = NOTHING  # without the dust of sums of fractions
        self.count(team_id, spent, lost)
        current = self._round_of(team_id)
        if current is not None:
            current.held = current.held.less(bound)
        self._wake(self._line)

    def count(self, team_id: str, spent: Spend, lost: Spend) -> None:
        """Take out what is gone already."""
        self.spent, self.lost = self.spent + spent, self.lost + lost
        team = self._teams.get(team_id)
        if team is not None and team.round is not None:
            team.round.used += spent + lost
        elif team is not None:
            team.learned += spent + lost
        for limit in _AMOUNTS:
            self._warn(limit, self.used.of(limit))

    def _takes(self, team_id: str, bound: Spend) -> bool:
        # The first is quickly told, and enough while there is plenty.
        if not self._has_room_for(self.used + self._earmarked + self._held + bound) and not self._has_room_for(
            self.used + self._set_aside_for_others(team_id) + self._held + bound
        ):
            return False
        self._held, self._on_their_way = self._held + bound, self._on_their_way + 1
        current = self._round_of(team_id)
        if current is not None:
            current.held += bound
        return True

    def _set_aside_for_others(self, team_id: str) -> Spend:
        return _sum(one.round.set_aside for one in self._others(team_id) if one.round)

    def _refuse_for_ever(self, bound: Spend, why: str) -> None:
        if not self._has_room_for(self.used + bound):
            raise BudgetExhaustedError(self._words(self.used + bound, "the next call", why))

    # --- rounds -------------------------------------------------------------------------------------------------------

    def guess(self, team_id: str, guess: Spend) -> None:
        """What the first round of a team may take; to be told before anything is learned of it."""
        self._team(team_id).guess = guess

    def expect(self, team_id: str) -> None:
        """A team will play."""
        self._team(team_id).is_expected = True

    def leave(self, team_id: str) -> None:
        """A team plays no more."""
        self._set_round(team_id, None)
        self._teams.pop(team_id, None)
        self._wake_for_rounds()

    async def begin_round(self, team_id: str) -> None:
        """Earmark a round; refused to a team that has finished one, if the purse cannot pay for it."""
        self._finish_round(team_id)
        team = self._team(team_id)
        if team.dearest is None:
            await self._wait_for_others(team_id)
        else:
            await self._wait_for_first_rounds(team_id)
            words = self._short(team_id, self._others(team_id))
            if words is not None:
                raise BudgetExhaustedError(words)
        begun, team.begun = team.begun or _Round(NOTHING, self.clock()), None
        self._set_round(team_id, _Round(self._expects(team), begun.began, begun.used))

    def round_finished(self, team_id: str) -> None:
        """Learn from a round what the next one may take."""
        team = self._team(team_id)
        if team.round is not None:
            self._learn(team, team.round.used, self.clock() - team.round.began)
            # What was guessed of a first round stands in nobody's way any more; its judgment is still to come.
            self._set_round(team_id, replace(team.round, earmark=self._expects(team), is_finished=True))
            self._wake_for_rounds()

    def learn_of_beginning(self, team_id: str, used: Spend) -> None:
        """Another process used so much of a round of this team, and did not finish it."""
        self._team(team_id).begun = _Round(NOTHING, self.clock(), used)

    def learn_bound(self, team_id: str, bound: Spend, why: str = "") -> None:
        """A call of a team wants to reserve so much, or did so in another process."""
        team = self._team(team_id)
        if _size(bound) > _size(team.largest):
            team.largest_is = why
        team.largest = team.largest.at_least(Spend(bound.usd, bound.tokens))

    def learn(self, team_id: str, used: Spend, seconds: float) -> None:
        """A finished round that another process played; those of a team come in their order."""
        team = self._team(team_id)
        self._learn(team, used, seconds)
        team.learned = used

    def _learn(self, team: _Team, used: Spend, seconds: float) -> None:
        if team.dearest is None:
            self._learn_of_guess(team.guess, used)
        team.dearest = used.at_least(team.dearest or NOTHING)
        team.longest = max(team.longest, seconds)

    def shortage(self, team_id: str) -> str | None:
        """Why the purse cannot pay for another round of a team; None if it can, or may when first rounds are over."""
        return self._short(team_id, [one for one in self._others(team_id) if not one.is_at_its_first])

    def _short(self, team_id: str, others: Iterable[_Team]) -> str | None:
        """Why the purse cannot pay for a round of a team, and for what is expected of ``others``."""
        team, others = self._team(team_id), list(others)
        if self._ends_at is not None and self._seconds_left() < team.longest:
            return self._words_of_time(team.longest)
        for_others = _sum(one.round.expected for one in others if one.round)
        if team.dearest is not None:
            # Every team shall have a result before any has another round.
            for_others += _sum(self._expects(one) for one in others if one.is_to_have_its_first)
        # Room for the largest call of all that play beside it, once, since calls wait for each other.
        beside = [team, *(one for one in others if one.round or one.is_to_have_its_first)]
        largest = reduce(Spend.at_least, (one.largest for one in beside))
        needed = self.used + for_others + self._expects(team) + largest
        if self._has_room_for(needed):
            return None
        needing = max(beside, key=lambda one: _size(one.largest))
        whose = "" if needing is team or not needing.largest_is else ", which another team asks"
        return self._words(needed, "another round", f"{needing.largest_is}{whose}", for_others)

    def _finish_round(self, team_id: str) -> None:
        """What was used after a round was finished, by its judgment, belongs to it; one that failed is begun again."""
        team = self._team(team_id)
        if team.round is not None and not team.round.is_finished:
            team.begun = team.round
        elif team.dearest is not None:
            finished = team.learned if team.round is None else team.round.used
            team.dearest = finished.at_least(team.dearest)
        team.learned = NOTHING
        self._set_round(team_id, None)

    def _set_round(self, team_id: str, new: _Round | None) -> None:
        team = self._team(team_id)
        if team.round is not None:
            self._earmarked = self._earmarked.less(team.round.earmark)
        if new is not None:
            self._earmarked += new.earmark
        team.round = new
        for _, place in self._stuck:
            place.set()

    async def _wait_for_others(self, team_id: str) -> None:
        """A first round is played in any case, alone if there is not room for more."""
        team, line = self._team(team_id), self._beginners
        if not self._short(team_id, self._others(team_id)):
            return
        line.append(place := asyncio.Event())
        team.waits_to_begin = True
        try:
            while self._plays_for_others(team_id) and (
                line[0] is not place or self._short(team_id, self._others(team_id))
            ):
                await self._woken(place)
        finally:
            team.waits_to_begin = False
            line.remove(place)
            self._wake(line)

    def _plays_for_others(self, team_id: str) -> bool:
        return any(one.round is not None for one in self._others(team_id))

    async def _wait_for_first_rounds(self, team_id: str) -> None:
        """What is set aside for first rounds of others is a guess, and mostly more than they take."""
        self._advanced.append(place := asyncio.Event())
        try:
            while self._short(team_id, self._others(team_id)) and not self.shortage(team_id):
                self._wake(self._beginners)  # one of them may have waited for the round that is over now
                await self._woken(place)
        finally:
            self._advanced.remove(place)

    def _wake_for_rounds(self) -> None:
        self._wake(self._beginners)
        for place in self._advanced:
            place.set()

    @staticmethod
    async def _woken(place: asyncio.Event) -> None:
        place.clear()
        with time_limits_stand_still():
            await place.wait()

    def _expects(self, team: _Team) -> Spend:
        """What a round of this team may take; teams differ in size, so that of another says how good guesses are."""
        if team.dearest is not None:
            return team.dearest.grown()
        usd, tokens, requests = (team.guess.of(limit) * self._came_to.get(limit, 1.0) for limit in _AMOUNTS)
        return Spend(usd, round(tokens), round(requests))

    def _learn_of_guess(self, guess: Spend, used: Spend) -> None:
        for limit in _AMOUNTS:
            if guess.of(limit):
                self._came_to[limit] = max(self._came_to.get(limit, 0.0), used.of(limit) / guess.of(limit))
        for team_id, team in self._teams.items():
            if team.round is not None and team.dearest is None:
                earmark = team.round.earmark.at_least(self._expects(team))
                self._set_round(team_id, replace(team.round, earmark=earmark))

    def _others(self, team_id: str) -> list[_Team]:
        return [team for one, team in self._teams.items() if one != team_id]

    def _round_of(self, team_id: str) -> _Round | None:
        return self._teams[team_id].round if team_id in self._teams else None

    def _team(self, team_id: str) -> _Team:
        return self._teams.setdefault(team_id, _Team())

    # --- time ---------------------------------------------------------------------------------------------------------

    def start(self, played: float = 0.0) -> None:
        """Let the time run, of which ``played`` seconds are over."""
        if self.limits.max_seconds is None or self._ends_at is not None:
            return
        self._ends_at = self.clock() + self.limits.max_seconds - played
        warn_in = self._seconds_left() - self.limits.max_seconds * (1 - _WARN_AT)
        self._timer = asyncio.get_running_loop().call_later(max(0.0, warn_in), self._warn_of_time)

    def stop(self) -> None:
        """Let the time stand."""
        if self._timer is not None:
            self._timer.cancel()

    def seconds_left(self) -> float | None:
        """How long it still lasts; None: no limit, or the time does not run yet."""
        return None if self._ends_at is None else self._seconds_left()

    def _seconds_left(self) -> float:
        return (self._ends_at or 0.0) - self.clock()

    def _warn_of_time(self) -> None:
        self._warn("max_seconds", (self.limits.max_seconds or 0.0) - self._seconds_left())

    # --- words --------------------------------------------------------------------------------------------------------

    def out_of_time(self) -> BudgetExhaustedError:
        """What is raised when the time is over."""
        return BudgetExhaustedError(
            f"{self._owner} of {limit_words('max_seconds', self.limits.max_seconds or 0)} is used up "
            f"({self._key('max_seconds')})"
        )

    def _has_room_for(self, needed: Spend) -> bool:
        return self._scarce(needed) is None

    def _scarce(self, needed: Spend) -> Limit | None:
        for limit in _AMOUNTS:
            allowed = getattr(self.limits, limit)
            if allowed is not None and needed.of(limit) > allowed:
                return limit
        return None

    def _warn(self, limit: Limit, used: float) -> None:
        allowed = getattr(self.limits, limit)
        if allowed is not None and limit not in self._told and used >= _WARN_AT * allowed:
            self._told.add(limit)
            self.tell(LowPurse(self.team_id, limit, used, allowed))

    def _words(self, needed: Spend, what: str, why: str, for_others: Spend = NOTHING) -> str:
        limit = self._scarce(needed)
        if limit is None:
            return f"{self._owner} cannot pay for {what}"
        used, allowed = self.used.of(limit), getattr(self.limits, limit)
        more, theirs = max(0.0, needed.of(limit) - used), for_others.of(limit)
        are = "is" if allowed == 1 else "are"
        aside = f", {amount_words(limit, theirs)} of that for other teams" if theirs > _DUST * more else ""
        room = f", with {why}" if why and limit != "max_requests" else ""
        return (
            f"{self._owner} cannot pay for {what}: {limit_words(limit, allowed, used)} {are} used, "
            f"and up to {amount_words(limit, more)} would be needed{aside}{room} ({self._key(limit)})"
        )

    def _key(self, limit: Limit) -> str:
        """Where the limit stands."""
        return f"{limit} of {'[budget]' if self.team_id is None else '[team.budget]'}"

    def _words_of_time(self, seconds: float) -> str:
        left = max(0.0, self._seconds_left())
        return (
            f"{self._owner} cannot pay for another round: {left:.1f} seconds are left, and a round took {seconds:.1f} "
            f"({self._key('max_seconds')})"
        )

    @property
    def _owner(self) -> str:
        return "the run's budget" if self.team_id is None else "the team's budget"

    @staticmethod
    def _wake(line: deque[asyncio.Event]) -> None:
        if line:
            line[0].set()


@dataclass(frozen=True)
class Reservation:
    """What one attempt may cost, taken out of every purse that pays for it."""

    purses: tuple[Purse, ...]
    team_id: str
    bound: Spend

    def settle(self, spent: Spend, lost: Spend = NOTHING) -> None:
        """It cost ``spent``; of ``lost`` nobody knows, and it stays out of the purse."""
        for purse in self.purses:
            purse.settle(self.team_id, self.bound, spent, lost)

    def release(self) -> None:
        """It cost nothing."""
        self.settle(NOTHING)


class Purses:
    """The purse of a run and those of its teams; belongs to one event loop."""

    def __init__(
        self,
        run: BudgetSettings | None,
        tell: Callable[[LowPurse], None],
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._tell = tell
        self._clock = clock
        self._run = None if run is None else Purse(run, tell, clock=clock)
        self._teams: dict[str, Purse] = {}
        self.played: dict[str | None, float] = {}
        """Seconds that other processes played: a team, or with None all of them."""

    def __bool__(self) -> bool:
        return self._run is not None or bool(self._teams)

    @property
    def used(self) -> Spend:
        """What is gone from the purse of the run, if it has one."""
        return NOTHING if self._run is None else self._run.used

    @property
    def teams(self) -> Collection[str]:
        """Those that have a purse of their own."""
        return self._teams.keys()

    def open(self, team_id: str, limits: BudgetSettings | None) -> None:
        """Give a team a purse of its own, if it has a budget."""
        if limits is not None:
            self._teams[team_id] = Purse(limits, self._tell, team_id, self._clock)

    def of(self, team_id: str) -> tuple[Purse, ...]:
        """Those that pay for a team, its own first."""
        return tuple(purse for purse in (self._teams.get(team_id), self._run) if purse is not None)

    def counts(self, team_id: str) -> bool:
        """Whether calls of a team have to reserve."""
        return any(purse.counts for purse in self.of(team_id))

    def counts_money(self, team_id: str) -> bool:
        """Whether the models of a team have to have a price."""
        return any(purse.limits.max_cost_usd is not None for purse in self.of(team_id))

    def bounds_answers(self, team_id: str) -> bool:
        """Whether answers need a longest length."""
        limits = [purse.limits for purse in self.of(team_id)]
        return any(one.max_cost_usd is not None or one.max_tokens is not None for one in limits)

    def max_output_tokens(self, team_id: str) -> int:
        """The longest answer of a model whose settings do not bound it."""
        given = (purse.limits.max_output_tokens for purse in self.of(team_id))
        return next((one for one in given if one is not None), DEFAULT_MAX_OUTPUT_TOKENS)

    async def reserve(self, team_id: str, bound: Spend, why: str = "") -> Reservation:
        """Take ``bound`` out of all purses of a team, or out of none; see :meth:`Purse.reserve`."""
        taken: list[Purse] = []
        try:
            for purse in self.of(team_id):
                await purse.reserve(team_id, bound, why)
                taken.append(purse)
        except BaseException:
            Reservation(tuple(taken), team_id, bound).release()
            raise
        return Reservation(tuple(taken), team_id, bound)

    def count(self, team_id: str, spent: Spend, lost: Spend) -> None:
        """What another process of this execution spent."""
        for purse in self.of(team_id):
            purse.count(team_id, spent, lost)

    def guess(self, team_id: str, guess: Spend) -> None:
        """What the first round of a team may take."""
        for purse in self.of(team_id):
            purse.guess(team_id, guess)

    def expect(self, team_id: str) -> None:
        """A team will play."""
        for purse in self.of(team_id):
            purse.expect(team_id)

    def leave(self, team_id: str) -> None:
        """A team plays no more."""
        for purse in self.of(team_id):
            purse.leave(team_id)

    async def begin_round(self, team_id: str) -> None:
        """Earmark a round in all purses of a team."""
        for purse in self.of(team_id):
            await purse.begin_round(team_id)

    def round_finished(self, team_id: str) -> None:
        """Learn from a round."""
        for purse in self.of(team_id):
            purse.round_finished(team_id)

    def learn(self, team_id: str, used: Spend, seconds: float) -> None:
        """A finished round of a team that another process played."""
        for purse in self.of(team_id):
            purse.learn(team_id, used, seconds)

    def learn_of_beginning(self, team_id: str, used: Spend) -> None:
        """What another process used of a round of a team that it did not finish."""
        for purse in self.of(team_id):
            purse.learn_of_beginning(team_id, used)

    def learn_bound(self, team_id: str, bound: Spend) -> None:
        """The largest reservation of a team in another process."""
        for purse in self.of(team_id):
            purse.learn_bound(team_id, bound)

    def shortage(self, team_id: str) -> str | None:
        """Why another round of a team cannot be paid for; None if it can."""
        return next((words for purse in self.of(team_id) if (words := purse.shortage(team_id))), None)

    def soonest_end(self, team_id: str) -> Purse | None:
        """The purse of a team whose time is over first; None without a limit of time."""
        timed = [(left, purse) for purse in self.of(team_id) if (left := purse.seconds_left()) is not None]
        return min(timed, key=lambda each: each[0])[1] if timed else None

    def start(self, team_id: str | None = None) -> None:
        """Let the time of the run or of a team begin; it begins once."""
        purse = self._run if team_id is None else self._teams.get(team_id)
        if purse is not None:
            purse.start(self.played.get(team_id, 0.0))

    def stop(self) -> None:
        """Let all clocks stand."""
        for purse in (self._run, *self._teams.values()):
            if purse is not None:
                purse.stop()


def known_and_lost(call: CallSpend) -> tuple[Spend, Spend]:
    """What a call that the journal has is known to have cost, and what it may have cost beyond."""
    known = Spend(call.cost_usd or 0.0, call.usage.total_tokens, call.usage.requests)
    return known, Spend(call.lost_usd or 0.0, call.lost_tokens or 0, call.lost_requests)


def spent_by_round(calls: Iterable[CallSpend]) -> dict[tuple[str, int], Spend]:
    """What each round of each team took, lost attempts included."""
    rounds: dict[tuple[str, int], Spend] = {}
    for call in calls:
        place = call.scope.team_id, call.scope.round_number
        rounds[place] = rounds.get(place, NOTHING) + _sum(known_and_lost(call))
    return rounds


def _size(spend: Spend) -> tuple[float, int]:
    return spend.usd, spend.tokens


def _sum(spends: Iterable[Spend]) -> Spend:
    return sum(spends, start=NOTHING)
