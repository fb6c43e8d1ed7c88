"""Many teams on a server that takes only so many requests a second.

Every team makes the same calls, so all should end at about the same time, the server should be kept busy, and next to
nothing should be refused once its limit is known. ``python -m soak.rates`` plays the large case and prints the three
numbers.
"""

import argparse
import asyncio
import logging
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from mixseek.events import Event, TeamFinished
from mixseek.llm import Backoff
from mixseek.testing import ModelServer
from soak.arena import Arena, Team

__all__ = ["Busy", "compete"]

LEAST_USED: Final = 0.8
MOST_REFUSED: Final = 0.05
MOST_LATE: Final = 1.5


@dataclass(frozen=True)
class Busy:
    """How a limited server was used."""

    seconds: float
    used: float
    """The part of the allowed requests that were made while any team still played."""
    refused: float
    """The part of the requests after the warm-up that were refused."""
    latest: float
    """The finishing time of the last team, in medians."""
    failed: int

    def __str__(self) -> str:
        return (
            f"{self.seconds:.1f} s: {self.used:.1%} of the allowed rate used, {self.refused:.2%} refused after warm-up,"
            f" last team at {self.latest:.2f}x the median, {self.failed} failed"
        )

    @property
    def is_well(self) -> bool:
        return self.used >= LEAST_USED and self.refused < MOST_REFUSED and self.latest <= MOST_LATE and self.failed == 0


async def compete(
    teams: Sequence[Team],
    per_second: float,
    *,
    rounds: int = 2,
    retry_after: bool = True,
    orchestrators: int = 1,
    latency: float = 0.05,
    warm_up_seconds: float = 10.0,
    meanwhile: Callable[[ModelServer], Any] | None = None,
) -> Busy:
    """Let teams play, divided among some orchestrators that run at the same time, as two programs in one would."""
    finished: dict[str, float] = {}
    async with AsyncExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        server = await stack.enter_async_context(ModelServer(latency=latency, keep_bodies=False, log_size=100_000))
        server.set_rate_limit(per_second, retry_after=retry_after)

        def note(event: Event) -> None:
            if isinstance(event, TeamFinished) and event.team_id is not None:
                finished[event.team_id] = time.time()

        arenas = [_arena(directory / str(n), server, teams[n::orchestrators], rounds) for n in range(orchestrators)]
        if meanwhile is not None:
            task = asyncio.create_task(meanwhile(server))
            stack.callback(task.cancel)
        played = await asyncio.gather(
            *(arena.build(listeners=[note], backoff=Backoff(), save_db=False).execute("task") for arena in arenas)
        )
        failed = sum(len(summary.failed_teams_info) for summary in played)
        return _measured(server, finished, per_second, warm_up_seconds, failed)


def _arena(root: Path, server: ModelServer, teams: Sequence[Team], rounds: int) -> Arena:
    limits = f"max_rounds = {rounds}\nmin_rounds = 1\nmax_concurrent_teams = {len(teams)}\n"
    arena = Arena(root, server.base_url, teams, orchestrator=limits)
    arena.script(server)
    return arena


def _measured(
    server: ModelServer, finished: dict[str, float], per_second: float, warm_up_seconds: float, failed: int
) -> Busy:
    requests = server.requests
    began = requests[0].time
    took = [ended - began for ended in finished.values()]
    seconds = max(took)
    served = sum(request.fault != "rate_limit" for request in requests)
    warm = [request for request in requests if request.time - began >= warm_up_seconds]
    refused = sum(request.fault == "rate_limit" for request in warm)
    # The bucket is full at first.
    allowed = per_second * seconds + max(1, per_second)
    return Busy(seconds, served / allowed, refused / max(1, len(warm)), seconds / statistics.median(took), failed)


async def _all(teams: int, per_second: float) -> int:
    cases: list[tuple[str, dict[str, Any]]] = [
        ("with Retry-After", {}),
        ("without Retry-After", {"retry_after": False}),
        ("two orchestrators", {"orchestrators": 2}),
    ]
    wrong = 0
    for name, options in cases:
        busy = await compete([Team(f"team{n}") for n in range(teams)], per_second, **options)
        wrong += not busy.is_well
        print(f"{teams} teams, {per_second:g} requests a second, {name}: {busy}", flush=True)
    return wrong


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--teams", type=int, default=40)
    parser.add_argument("--per-second", type=float, default=5)
    given = parser.parse_args()
    logging.disable(logging.CRITICAL)
    sys.exit(1 if asyncio.run(_all(given.teams, given.per_second)) else 0)
