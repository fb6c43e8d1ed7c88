"""Kills competitions with a budget of money, resumes them, and looks at the money.

``python -m soak.budget`` kills at every crash point and at many moments; the tests a few times. A run is killed some
times, then played to its end. What the journal says was spent has to be at least what the server billed, the server's
bill must not be above the budget by more than what was in flight at the kills, and whoever had a finished round has an
answer.
"""

import argparse
import asyncio
import random
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from mixseek.crash_points import CRASH_POINTS
from mixseek.records import ExecutionSummary
from mixseek.storage.journal_records import CallSpend
from mixseek.testing import ModelServer
from soak.arena import Arena, Team
from soak.mortals import KILLED, begun_in, left_of, start, wait_until

__all__ = ["Outcome", "play_with_kills"]

WORDS = ("alpha", "beta", "gamma")
MODELS = (*(f"{role}-{word}" for word in WORDS for role in ("leader", "member")), "judge", "judgment")
INPUT_USD, OUTPUT_USD = 1.0, 2.0
BUDGET = 0.022
"""Dollars: enough for the first rounds of all teams, and not for all their rounds."""
LONGEST_SECONDS = 300.0
_DUST = 1e-9


@dataclass(frozen=True)
class Outcome:
    """What came of one run that was killed on its way."""

    kills: int
    billed: float
    """By the server, in dollars."""
    recorded: float
    """By the journal, at most."""
    in_flight: float
    """The most that calls could cost which were on their way at the kills."""
    finished_before: frozenset[str]
    """Teams that had a finished round at the last kill."""
    with_result: frozenset[str]

    @property
    def faults(self) -> Iterator[str]:
        """What must not be."""
        if not self.kills:
            yield "it was never killed"
        if self.recorded < self.billed - _DUST:
            yield f"the journal has {self.recorded:.6f} USD, the server billed {self.billed:.6f}"
        if self.billed > BUDGET + self.in_flight + _DUST:
            yield f"{self.billed:.6f} USD were billed with a budget of {BUDGET} and {self.in_flight:.6f} in flight"
        if missing := self.finished_before - self.with_result:
            yield f"no answer of {', '.join(sorted(missing))} although a round was finished"


def play_with_kills(kills: Sequence[int | str]) -> Outcome:
    """Kill a run at these crash points, or when so many more of its calls are answered, then let it end."""
    with tempfile.TemporaryDirectory() as directory, ModelServer(latency=0.005, jitter=0.02) as server:
        arena, in_flight, killed = _arena(Path(directory), server), 0.0, 0
        for kill in kills:
            if not _is_killed(arena.root, server, kill):
                break
            killed += 1
            in_flight = sum(_lost(call) for call in asyncio.run(_spending(arena)))
        finished, summary = asyncio.run(_finished(arena)), _played_to_its_end(arena)
        wait_until(lambda: server.bill.total.waiting == 0)
        total = server.bill.total
        return Outcome(
            kills=killed,
            billed=(total.input_tokens * INPUT_USD + total.output_tokens * OUTPUT_USD) / 1_000_000,
            recorded=sum((call.cost_usd or 0.0) + _lost(call) for call in asyncio.run(_spending(arena))),
            in_flight=in_flight,
            finished_before=finished,
            with_result=frozenset(entry.team_id for entry in summary.team_results),
        )


def _arena(root: Path, server: ModelServer) -> Arena:
    limits = "max_rounds = 4\nmin_rounds = 2\nmax_concurrent_teams = 3\n"
    prices = f"input_usd_per_million = {INPUT_USD}\noutput_usd_per_million = {OUTPUT_USD}\n"
    priced = "".join(f'[prices."loop:{model}"]\n{prices}' for model in MODELS)
    budget = f"[budget]\nmax_cost_usd = {BUDGET}\nmax_output_tokens = 300\n{priced}"
    teams = [Team(word, members=2) for word in WORDS]
    arena = Arena(root, server.base_url, teams, orchestrator=limits, storage=budget)
    arena.script(server)
    return arena


def _is_killed(root: Path, server: ModelServer, kill: int | str) -> bool:
    """Begin the run or go on with it; False if it comes to its end."""
    process = start(root, kill if isinstance(kill, str) else "")
    if isinstance(kill, int):
        enough = server.bill.total.answered + kill
        wait_until(lambda: server.bill.total.answered >= enough or not process.is_alive(), LONGEST_SECONDS)
        process.kill()
    process.join(LONGEST_SECONDS)
    left_of(root, server)
    if process.exitcode not in (0, KILLED):
        raise RuntimeError(f"the run ended with {process.exitcode}")
    return process.exitcode == KILLED


def _played_to_its_end(arena: Arena) -> ExecutionSummary:
    """What is told at the end of the run, which is played to there if it is not."""
    if (told := asyncio.run(_told_at_the_end(arena))) is not None:
        return told
    process = start(arena.root)
    process.join(LONGEST_SECONDS)
    if (told := asyncio.run(_told_at_the_end(arena))) is None:
        raise RuntimeError(f"the run does not come to its end: exit code {process.exitcode}")
    return told


async def _told_at_the_end(arena: Arena) -> ExecutionSummary | None:
    async with arena.journal() as journal:
        ended = await journal.events(kinds=("RunFinished",))
    if not ended:
        return None
    payload = ended[-1].payload
    assert isinstance(payload, dict)
    told = payload["summary"]
    assert isinstance(told, dict)
    computed = ExecutionSummary.model_computed_fields
    return ExecutionSummary.model_validate({name: value for name, value in told.items() if name not in computed})


async def _spending(arena: Arena) -> list[CallSpend]:
    begun = await begun_in(arena.root)
    async with arena.journal() as journal:
        return await journal.spending(begun) if begun else []


async def _finished(arena: Arena) -> frozenset[str]:
    async with arena.journal() as journal:
        events = await journal.events(kinds=("RoundFinished",))
    return frozenset(str(event.team_id) for event in events)


def _lost(call: CallSpend) -> float:
    return call.lost_usd or 0.0


# --- the large counts -------------------------------------------------------------------------------------------------


def _tell(what: str, outcome: Outcome) -> int:
    found = list(outcome.faults)
    told = f"{outcome.kills} kills, billed {outcome.billed:.6f}, recorded up to {outcome.recorded:.6f} USD"
    print(f"{what}: {told}: {'; '.join(found) or 'as it should be'}", flush=True)
    return len(found)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=50, help="that are killed at random moments")
    parser.add_argument("--seed", type=int, default=0)
    chosen = parser.parse_args()
    drawn, faults = random.Random(chosen.seed), 0
    for point in CRASH_POINTS:
        outcome = play_with_kills([f"{point}:{drawn.choice((2, 5))}", drawn.randrange(1, 20), point])
        if not outcome.kills:  # it is reached only once
            outcome = play_with_kills([point, drawn.randrange(1, 20), point])
        faults += _tell(point, outcome)
    for number in range(1, chosen.runs + 1):
        faults += _tell(
            f"run {number}", play_with_kills([drawn.randrange(1, 20) for _ in range(drawn.randrange(1, 4))])
        )
    print(f"{len(CRASH_POINTS)} crash points and {chosen.runs} runs with a budget of {BUDGET} USD, {faults} faults")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
