"""Kills a competition at random moments and looks for what it had learned: nothing that was used may be lost.

``python -m soak.kills`` makes many kills; the tests make a few. A call is in the journal before its answer is used, so
what a team asked later proves what it had heard before: of a team's answered calls only those nothing followed from may
be missing. A round is acknowledged when the hook is called for it; the child notes it in a side file, synced to disk.
"""

import argparse
import asyncio
import json
import os
import random
import re
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from hashlib import blake2b
from pathlib import Path
from typing import Any

from mixseek.records import MemberSubmission, RoundState
from mixseek.storage.aggregation_store import AggregationStore
from mixseek.storage.journal_records import JournalEvent
from mixseek.testing import LoggedRequest, ModelServerProcess
from soak import forked
from soak.arena import TASK, Arena, Team

__all__ = ["kill_one"]

ROOT = Path(__file__).resolve().parents[1]
EXECUTION = "killed"
WORDS = ("alpha", "beta", "gamma", "delta", "omega")
REQUESTS = len(WORDS) * 3 * 8
"""Leader twice, two members, three metrics and a judgment in each of three rounds."""
_ASKER = re.compile(r"(?:leader|member)-(\w+)")
_PARALLEL = frozenset({"member", "evaluator"})


def kill_one(after: int) -> list[str]:
    """Kill a run when so many of its calls are answered; returns what is missing that must not be."""
    with tempfile.TemporaryDirectory() as directory, ModelServerProcess(latency=0.005, jitter=0.02) as server:
        root = Path(directory)
        _arena(root, server.base_url)
        child = forked.Popen([sys.executable, "-m", "soak.kills", "--play", directory], cwd=ROOT)
        try:
            _wait_until(lambda: server.bill.total.answered >= after or child.poll() is not None)
        finally:
            child.kill()
            child.wait()
        _wait_until(lambda: server.bill.total.waiting == 0)
        return list(asyncio.run(_lost(root, server.requests)))


def _arena(root: Path, base_url: str) -> Arena:
    teams = [Team(word, members=2) for word in WORDS]
    limits = "max_rounds = 3\nmin_rounds = 1\nmax_concurrent_teams = 5\n"
    return Arena(root, base_url, teams, orchestrator=limits, evaluator="")


def _wait_until(holds: Any, seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > deadline:
            raise TimeoutError("the run did not come so far")
        time.sleep(0.005)


async def _play(root: Path) -> None:
    """The child: play, and note every acknowledged round."""
    with (root / "acknowledged.jsonl").open("a") as noted:

        async def note(state: RoundState, _: list[MemberSubmission]) -> None:
            noted.write(json.dumps([state.submission_content, state.round_number, state.evaluation_score]) + "\n")
            noted.flush()
            os.fsync(noted.fileno())

        base_url = re.search(r'base_url = "(.*)"', (root / "configs/providers.toml").read_text())
        assert base_url is not None
        await _arena(root, base_url[1]).build(on_round_complete=note).execute(TASK, execution_id=EXECUTION)


# --- looking for what was learned -------------------------------------------------------------------------------------


async def _lost(root: Path, requests: Sequence[LoggedRequest]) -> list[str]:
    async with _arena(root, "http://127.0.0.1:1/v1").journal() as journal:
        calls = await journal.calls(EXECUTION)
        prompts = {prompt.text for prompt in await journal.prompts(EXECUTION)}
        events = await journal.events(EXECUTION)
    answers = "\n".join(json.dumps(call.answer) for call in calls)
    noted = root / "acknowledged.jsonl"
    rounds = [json.loads(line) for line in noted.read_text().splitlines()] if noted.exists() else []
    lost = [*_lost_calls(requests, answers), *_lost_prompts(requests, prompts), *_lost_events(events, rounds)]
    async with AggregationStore(root) as store:
        kept = {row["submission_content"]: row["score"] for row in await store.get_leader_board(limit=None)}
        await store.get_leader_board_ranking(EXECUTION)
    lost += [f"round {number} of {text[:60]!r}" for text, number, score in rounds if kept.get(text) != score]
    return lost


def _lost_calls(requests: Sequence[LoggedRequest], answers: str) -> Iterator[str]:
    for request in requests:
        if request.outcome == "answered" and _identity(request) not in answers:
            followed = [later for later in requests if later.number > request.number and _follows(later, request)]
            if followed:
                yield f"answer {request.number} of {request.model}, used by {followed[0].number}"


def _identity(request: LoggedRequest) -> str:
    """What the server put into the id of its answer."""
    return blake2b(f"0|{request.number}".encode(), digest_size=12).hexdigest()


def _follows(later: LoggedRequest, request: LoggedRequest) -> bool:
    if _team(later) != _team(request):
        return False
    return later.role != request.role or request.role not in _PARALLEL


def _team(request: LoggedRequest) -> str:
    """Whose call it is: judges are shared, but what they judge tells who wrote it."""
    named = _ASKER.search(request.model) or _ASKER.search(_said(request))
    return named[1] if named else ""


def _said(request: LoggedRequest) -> str:
    return "\n".join(str(message["content"]) for message in request.body["messages"])


def _lost_prompts(requests: Sequence[LoggedRequest], prompts: set[str]) -> Iterator[str]:
    for request in requests:
        said = {str(message["content"]) for message in request.body["messages"] if message["role"] == "user"}
        if not request.model.startswith("member-") and not said & prompts:
            yield f"prompt of request {request.number} of {request.model}"


def _lost_events(events: Sequence[JournalEvent], rounds: Sequence[Any]) -> Iterator[str]:
    finished = {
        event.payload["state"]["submission_content"]  # type: ignore[index,call-overload]
        for event in events
        if event.kind == "RoundFinished"
    }
    yield from (f"event of round {number} of {text[:60]!r}" for text, number, _ in rounds if text not in finished)
    for word in WORDS:
        own = [event.sequence for event in events if event.team_id == word]
        if own != list(range(len(own))):
            yield f"events of {word} between others: {own}"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--play", type=Path)
    chosen = parser.parse_args()
    if chosen.play:
        asyncio.run(_play(chosen.play))
        sys.exit()
    drawn, found = random.Random(chosen.seed), 0
    for at in sorted(drawn.randrange(1, REQUESTS) for _ in range(chosen.kills)):
        missing = kill_one(at)
        found += len(missing)
        print(f"killed after {at} of {REQUESTS} calls: {'; '.join(missing) or 'nothing lost'}", flush=True)
    print(f"{chosen.kills} kills, {found} losses")
    sys.exit(1 if found else 0)
