"""Teams of random sizes at purses of random depth: no budget is exceeded, nobody waits for ever, nothing stays taken.

Teams do with the purses what a run does with them: they wait for their place, begin rounds, ask leaders, members and
judges, some of them at once, fail and try again, are cancelled, and stop where they are told to. Nothing else is real:
a call is a few turns of the event loop, so that thousands of runs take seconds. ``python -m soak.purses`` plays many.
"""

import argparse
import asyncio
import random
import sys
from collections.abc import Sequence
from typing import Final

from mixseek.config.schema import BudgetSettings
from mixseek.errors import BudgetExhaustedError
from mixseek.llm.purse import NOTHING, Limit, Purse, Purses, Reservation, SetAsideError, Spend

__all__ = ["faults_of"]

UNIT: Final[dict[Limit, float]] = {"max_cost_usd": 0.05, "max_tokens": 5_000, "max_requests": 12}
"""About what a round of a small team takes."""
LONGEST_SECONDS: Final = 10.0
TRIES: Final = 3


async def faults_of(seed: int) -> list[str]:
    """What went wrong in the run of this number."""
    field = _Field(seed)
    teams = [asyncio.create_task(field.play(name)) for name in field.sizes]
    if field.chance(0.1):
        await field.pause()
        field.random.choice(teams).cancel()
    ended, waiting = await asyncio.wait(teams, timeout=LONGEST_SECONDS)
    for team in waiting:
        team.cancel()
    await asyncio.gather(*teams, return_exceptions=True)
    broken = [repr(team.exception()) for team in ended if not team.cancelled() and team.exception()]
    hanging = [f"{len(waiting)} of {len(teams)} teams wait for ever"] if waiting else []
    return [*broken, *hanging, *(fault for purse in field.all_purses() for fault in _left_wrong(purse))]


def _left_wrong(purse: Purse) -> list[str]:
    """What must not be so when all teams have left."""
    whose = purse.team_id or "the run"
    limits = {limit: getattr(purse.limits, limit) for limit in UNIT}
    exceeded = [
        f"{whose} used {purse.used.of(limit)} of {allowed} ({limit})"
        for limit, allowed in limits.items()
        if allowed is not None and purse.used.of(limit) > allowed * (1 + 1e-9)
    ]
    taken = purse._held != NOTHING or purse._on_their_way or any(purse._earmarked.of(limit) > 1e-9 for limit in UNIT)
    lines = (purse._line, purse._stuck, purse._beginners, purse._advanced)
    kept = [f"something stays taken out of the purse of {whose}"] if taken else []
    return [*exceeded, *kept, *([f"somebody stands in a line at the purse of {whose}"] if any(lines) else [])]


class _CallFailedError(Exception):
    """A provider refused, or nobody knows what came of a call."""


class _Field:
    """One run: its teams, their purses, and the dice."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)  # dice, not secrets
        count = self.random.randrange(1, 7)
        self.sizes = {f"team-{number}": self.random.choice([1, 1, 3, 10]) for number in range(count)}
        self._rounds = self.random.randrange(1, 5)
        self._limits = self.random.sample(list(UNIT), self.random.randrange(1, 4))
        self._places = asyncio.Semaphore(self.random.randrange(1, count + 1))
        self.purses = Purses(self._budget(self.random.uniform(0.3, count * 2.5)), lambda _: None)
        for name, size in self.sizes.items():
            self.purses.open(name, self._budget(self.random.uniform(0.5, 4)) if self.chance(0.25) else None)
            if self.chance(0.9):
                off = self.random.uniform(0.3, 3)
                self.purses.guess(name, Spend(0.01 * size * off, int(1_000 * size * off), self.random.randrange(3, 9)))

    def _budget(self, units: float) -> BudgetSettings:
        limits = {limit: UNIT[limit] * units for limit in self._limits}
        whole = {limit: limits[limit] if limit == "max_cost_usd" else max(1, int(limits[limit])) for limit in limits}
        return BudgetSettings.model_validate(whole)

    def all_purses(self) -> list[Purse]:
        """The run's and those of teams."""
        return list({id(purse): purse for name in self.sizes for purse in self.purses.of(name)}.values())

    def chance(self, of: float) -> bool:
        """Whether the dice say so."""
        return self.random.random() < of

    async def pause(self) -> None:
        """Let others go on."""
        for _ in range(self.random.randrange(1, 8)):
            await asyncio.sleep(0)

    async def play(self, name: str) -> None:
        """All rounds of a team, as its controller plays them."""
        self.purses.expect(name)
        async with self._places:
            try:
                await self._play_rounds(name)
            except Exception as error:
                if not _is_only(error, (BudgetExhaustedError, _CallFailedError)):
                    raise
            finally:
                self.purses.leave(name)

    async def _play_rounds(self, name: str) -> None:
        finished = failed = 0
        while not finished or (finished < self._rounds and self.purses.shortage(name) is None):
            if finished and self.chance(0.8):
                await self._call(name)  # the judgment of the round before
            await self.purses.begin_round(name)
            try:
                await self._ask_all(name)
            except Exception as error:
                failed += 1
                if failed == TRIES or not _is_only(error, (_CallFailedError,)):
                    raise
            else:
                self.purses.round_finished(name)
                finished += 1

    async def _ask_all(self, name: str) -> None:
        await self._call(name)
        if members := self.random.randrange(4):
            await self._call_together(name, members)
            await self._call(name)
        await self._call_together(name, self.random.randrange(1, 4))

    async def _call_together(self, name: str, count: int) -> None:
        async with asyncio.TaskGroup() as group:
            for _ in range(count):
                group.create_task(self._call(name))

    async def _call(self, name: str) -> None:
        size = self.sizes[name] * self.random.uniform(0.5, 2)
        bound = Spend(0.005 * size, int(500 * size), 1)
        reservation = await self._reserved(name, bound)
        try:
            await self.pause()
        except asyncio.CancelledError:
            reservation.settle(NOTHING, bound)
            raise
        if self.chance(0.03):
            reservation.release()
            raise _CallFailedError
        if self.chance(0.03):
            reservation.settle(NOTHING, bound)
            raise _CallFailedError
        part = self.random.uniform(0.1, 1)
        reservation.settle(Spend(bound.usd * part, int(bound.tokens * part), 1))

    async def _reserved(self, name: str, bound: Spend) -> Reservation:
        while True:
            try:
                return await self.purses.reserve(name, bound)
            except SetAsideError as refusal:
                await refusal.wait()


def _is_only(error: BaseException, kinds: tuple[type[BaseException], ...]) -> bool:
    if isinstance(error, BaseExceptionGroup):
        return all(_is_only(each, kinds) for each in error.exceptions)
    return isinstance(error, kinds)


def main(arguments: Sequence[str] | None = None) -> int:
    """Play many runs and tell what went wrong; the exit code."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--runs", type=int, default=100_000)
    runs = parser.parse_args(arguments).runs
    faults = [(seed, fault) for seed in range(runs) for fault in asyncio.run(faults_of(seed))]
    for seed, fault in faults[:10]:
        print(f"run {seed}: {fault}")
    print(f"{runs} runs of up to 6 teams at purses of random depth: {len(faults)} faults")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
