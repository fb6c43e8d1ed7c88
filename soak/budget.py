"""Kills a competition with a budget of money again and again, resumes it, and looks at the money.

``python -m soak.budget`` makes many runs; the tests make a few. A run is killed some times at random moments, then
played to its end. What the journal says was spent has to be at least what the server billed, the server's bill must not
be above the budget by more than what was in flight at the kills, and whoever had a finished round has an answer.
"""

import argparse
import asyncio
import random
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from mixseek.records import ExecutionSummary
from mixseek.storage.journal_records import CallSpend
from mixseek.testing import ModelServerProcess
from soak.arena import TASK, Arena, Team

__all__ = ["Outcome", "play_with_kills"]

ROOT = Path(__file__).resolve().parents[1]
EXECUTION = "poor"
WORDS = ("alpha", "beta", "gamma")
MODELS = (*(f"{role}-{word}" for word in WORDS for role in ("leader", "member")), "judge", "judgment")
INPUT_USD, OUTPUT_USD = 1.0, 2.0
BUDGET = 0.04
"""Dollars: enough for the first rounds of all teams, and not for all their rounds."""
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
        if self.recorded < self.billed - _DUST:
            yield f"the journal has {self.recorded:.6f} USD, the server billed {self.billed:.6f}"
        if self.billed > BUDGET + self.in_flight + _DUST:
            yield f"{self.billed:.6f} USD were billed with a budget of {BUDGET} and {self.in_flight:.6f} in flight"
        if missing := self.finished_before - self.with_result:
            yield f"no answer of {', '.join(sorted(missing))} although a round was finished"


def play_with_kills(moments: Sequence[int]) -> Outcome:
    """Kill a run each time so many more of its calls are answered, then let it end."""
    with tempfile.TemporaryDirectory() as directory, ModelServerProcess(latency=0.005, jitter=0.02) as server:
        root, in_flight, kills = Path(directory), 0.0, 0
        _arena(root, server.base_url)
        for moment in moments:
            kills += _killed(server, directory, moment)
            in_flight = sum(_lost(call) for call in asyncio.run(_spending(root)))
        finished = asyncio.run(_finished(root))
        summary = asyncio.run(_end(root))
        _wait_until(lambda: server.bill.total.waiting == 0)
        total = server.bill.total
        return Outcome(
            kills=kills,
            billed=(total.input_tokens * INPUT_USD + total.output_tokens * OUTPUT_USD) / 1_000_000,
            recorded=sum((call.cost_usd or 0.0) + _lost(call) for call in asyncio.run(_spending(root))),
            in_flight=in_flight,
            finished_before=finished,
            with_result=frozenset(entry.team_id for entry in summary.team_results),
        )


def _killed(server: ModelServerProcess, directory: str, after: int) -> bool:
    """Play until so many more calls are answered; whether it had not ended before."""
    enough = server.bill.total.answered + after
    child = subprocess.Popen([sys.executable, "-m", "soak.budget", "--play", directory], cwd=ROOT)
    try:
        _wait_until(lambda: server.bill.total.answered >= enough or child.poll() is not None)
    finally:
        child.kill()
        child.wait()
    _wait_until(lambda: server.bill.total.waiting == 0)
    return child.returncode != 0


def _arena(root: Path, base_url: str) -> Arena:
    limits = "max_rounds = 4\nmin_rounds = 2\nmax_concurrent_teams = 3\n"
    arena = Arena(root, base_url, [Team(word, members=2) for word in WORDS], orchestrator=limits)
    prices = f"input_usd_per_million = {INPUT_USD}\noutput_usd_per_million = {OUTPUT_USD}\n"
    priced = "".join(f'[prices."loop:{model}"]\n{prices}' for model in MODELS)
    file = root / "configs" / "orchestrator.toml"
    file.write_text(f"{file.read_text()}\n[budget]\nmax_cost_usd = {BUDGET}\nmax_output_tokens = 300\n{priced}")
    return arena


def _again(root: Path) -> Arena:
    base_url = re.search(r'base_url = "(.*)"', (root / "configs/providers.toml").read_text())
    assert base_url is not None
    return _arena(root, base_url[1])


async def _play(root: Path) -> ExecutionSummary:
    """Begin the run, or go on with it."""
    arena = _again(root)
    async with arena.journal() as journal:
        is_new = not await journal.events(EXECUTION, kinds=("RunStarted",), limit=1)
    built = arena.build()
    return await (built.execute(TASK, execution_id=EXECUTION) if is_new else built.resume(EXECUTION))


async def _end(root: Path) -> ExecutionSummary:
    """The summary of the run, played to its end if it has none yet."""
    arena = _again(root)
    async with arena.journal() as journal:
        ended = await journal.events(EXECUTION, kinds=("RunFinished",))
    if not ended:
        return await _play(root)
    payload = ended[-1].payload
    assert isinstance(payload, dict)
    told = payload["summary"]
    assert isinstance(told, dict)
    computed = ExecutionSummary.model_computed_fields
    return ExecutionSummary.model_validate({name: value for name, value in told.items() if name not in computed})


async def _spending(root: Path) -> list[CallSpend]:
    async with _again(root).journal() as journal:
        return await journal.spending(EXECUTION)


async def _finished(root: Path) -> frozenset[str]:
    async with _again(root).journal() as journal:
        events = await journal.events(EXECUTION, kinds=("RoundFinished",))
    return frozenset(str(event.team_id) for event in events)


def _lost(call: CallSpend) -> float:
    return call.lost_usd or 0.0


def _wait_until(holds: Callable[[], bool], seconds: float = 120.0) -> None:
    deadline = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > deadline:
            raise TimeoutError("the run did not come so far")
        time.sleep(0.005)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--play", type=Path)
    chosen = parser.parse_args()
    if chosen.play:
        asyncio.run(_play(chosen.play))
        sys.exit()
    drawn, faults = random.Random(chosen.seed), 0
    for number in range(1, chosen.runs + 1):
        outcome = play_with_kills([drawn.randrange(1, 20) for _ in range(drawn.randrange(1, 4))])
        found = list(outcome.faults)
        faults += len(found)
        told = f"{outcome.kills} kills, billed {outcome.billed:.6f}, recorded up to {outcome.recorded:.6f} USD"
        print(f"run {number}: {told}: {'; '.join(found) or 'as it should be'}", flush=True)
    print(f"{chosen.runs} runs with a budget of {BUDGET} USD, {faults} faults")
    sys.exit(1 if faults else 0)
