"""Kills competitions wherever they are, lets others go on with them, and compares them with one nobody disturbed.

``python -m soak.resume`` makes the large counts; the tests make a few. Models answer by what they are asked, never by
the order in which they are asked, so a run that was killed has to end as the undisturbed one: the same rows, and the
same bill. What the server was asked more often than in the undisturbed run was paid for again; that may be, for every
kill, what was in flight then: what the server was asked and the journal has no answer of.
"""

import argparse
import asyncio
import json
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from mixseek.crash_points import CRASH_POINTS
from mixseek.storage.journal import JOURNAL_NAME
from mixseek.storage.journal_records import JournalEvent
from mixseek.storage.journal_records import ModelCall as JournalCall
from mixseek.testing import ModelServer
from soak.arena import Arena, Team
from soak.mortals import (
    KILLED,
    answers_kept,
    begun_in,
    kept,
    left_of,
    make_older_stores,
    processes,
    start,
    tokens_in_the_journal,
    wait_until,
)

__all__ = [
    "TWENTY_TEAMS",
    "TWO_TEAMS",
    "Course",
    "Field",
    "asked_the_same",
    "at_first_start",
    "at_point",
    "at_random",
    "field_of",
    "often",
    "strangers",
]

TIMES = (1, 2, 5, 11)
"""Which times of a crash point a run is killed at, as far as it gets there so often."""
LONGEST_SECONDS = 300.0
TWO_TEAMS = (Team("alpha", members=3), Team("beta", scores=(60, 65, 50), members=2))
EIGHT_ROUNDS = "max_rounds = 8\nmin_rounds = 8\nmax_concurrent_teams = 20\n"
TWENTY_TEAMS = tuple(Team(f"team{number}x", scores=(number, 50 + number, 10), members=1) for number in range(20))


# --- a field on which runs are compared -------------------------------------------------------------------------------


@dataclass
class Field:
    """Teams, their server, and what an undisturbed competition between them comes to."""

    server: ModelServer
    directory: Path
    teams: Sequence[Team]
    script: Callable[["Field", Arena], None]
    orchestrator: str = "max_rounds = 3\nmin_rounds = 1\nmax_concurrent_teams = 20\n"
    check: Callable[[Arena], list[str]] = lambda _: []
    expected: dict[str, Any] = field(default_factory=dict)
    requests: int = 0
    seconds: float = 0.0
    runs: int = 0

    def arena(self) -> Arena:
        """A fresh workspace, and a server with new books."""
        self.runs += 1
        root = self.directory / str(self.runs)
        root.mkdir()
        arena = Arena(root, self.server.base_url, self.teams, orchestrator=self.orchestrator, evaluator="")
        self.server.reset()
        self.script(self, arena)
        return arena

    def play_undisturbed(self) -> None:
        """Learn what there is to expect."""
        # The first process waits until all imports are done, which is no part of how long a competition takes.
        (idle := processes.Process(target=int)).start()
        idle.join()
        arena, began = self.arena(), time.monotonic()
        if _ended(start(arena.root)) != 0:
            raise RuntimeError("the competition that nobody disturbs does not end well")
        self.seconds = time.monotonic() - began
        self.expected, self.requests = kept(arena), self.server.bill.total.requests

    def wrong(self, arena: Arena, in_flight: int) -> list[str]:
        """How a competition that was killed, and is over, differs from the undisturbed one."""
        found = kept(arena)
        wrong = [
            f"{table}: {_difference(found[table], self.expected[table])}"
            for table in found
            if found[table] != self.expected[table]
        ]
        paid_again = self.server.bill.total.requests - self.requests
        if paid_again > in_flight:
            wrong.append(f"{paid_again} calls were made again, and only {in_flight} were in flight")
        billed = sum(row["input_tokens"] for row in arena.rows("model_usage"))
        if billed != (consumed := tokens_in_the_journal(arena.root)):
            wrong.append(f"{billed} tokens are on the bill, and {consumed} in the journal")
        return [*wrong, *_told_wrongly(_events(arena)), *self.check(arena)]


@contextmanager
def field_of(
    teams: Sequence[Team], script: Callable[[Field, Arena], None] | None = None, **settings: Any
) -> Iterator[Field]:
    """A field of these teams whose answers take a few milliseconds, sometimes more."""
    with (
        ModelServer(latency=0.002, jitter=0.02, keep_bodies=False) as server,
        tempfile.TemporaryDirectory() as directory,
    ):
        made = Field(server, Path(directory), teams, script or _usual, **settings)
        made.play_undisturbed()
        yield made


def _usual(made: Field, arena: Arena) -> None:
    arena.script(made.server)


def _ended(process: BaseProcess) -> int | None:
    """How a process ended; one that does not is killed, and has not."""
    process.join(LONGEST_SECONDS)
    if process.exitcode is None:
        process.kill()
        process.join()
        return None
    return int(process.exitcode)


def _told_wrongly(events: Sequence[JournalEvent]) -> list[str]:
    """What happened once and is told more often, and events that are missing between others."""
    once = Counter((event.kind, event.team_id, _round(event)) for event in events if event.kind in _ONCE)
    twice = [
        f"{kind} of {team} {number} was told {times} times" for (kind, team, number), times in once.items() if times > 1
    ]
    ends = [] if any(event.kind == "RunFinished" for event in events) else ["the end of the run was never told"]
    gaps = []
    for team in {event.team_id for event in events}:
        sequence = [event.sequence for event in events if event.team_id == team]
        if sequence != list(range(len(sequence))):
            gaps.append(f"events of {team} are numbered {sequence}")
    return [*twice, *ends, *gaps]


_ONCE = frozenset({"RunStarted", "RoundFinished", "RoundJudged", "TeamFinished", "RunFinished"})


def _round(event: JournalEvent) -> object:
    told = event.payload if isinstance(event.payload, dict) else {}
    state = told.get("state")
    return state.get("round_number") if isinstance(state, dict) else told.get("round_number")


def _events(arena: Arena) -> list[JournalEvent]:
    async def read() -> list[JournalEvent]:
        async with arena.journal() as journal:
            return await journal.events()

    return asyncio.run(read())


def _difference(found: Sequence[Any], expected: Sequence[Any]) -> str:
    if len(found) != len(expected):
        return f"{len(found)} rows instead of {len(expected)}"
    pairs = zip(found, expected, strict=True)
    return next(f"{one!r} instead of {other!r}" for one, other in pairs if one != other)[:600]


# --- killed at a named place ------------------------------------------------------------------------------------------


def at_point(made: Field, point: str, time_reached: int = 1) -> list[str] | None:
    """Kill a run at a crash point, kill whoever resumes it at the same one, and resume it again.

    Returns what is wrong then; None if the run did not get there so often.
    """
    arena = made.arena()
    if (ended := _ended(start(arena.root, f"{point}:{time_reached}"))) != KILLED:
        return None if ended == 0 else [f"the run ended with {ended} before it got there"]
    in_flight = left_of(arena.root, made.server).in_flight
    if (ended := _ended(start(arena.root, point))) == KILLED:
        in_flight = left_of(arena.root, made.server).in_flight
        ended = _ended(start(arena.root))
    return made.wrong(arena, in_flight) if ended == 0 else [f"the resumed run ended with {ended}"]


# --- killed at a moment -----------------------------------------------------------------------------------------------


def at_random(made: Field, answers: int) -> list[str]:
    """Kill a run when so many of its calls are answered, and resume it."""
    arena = made.arena()
    _kill_after(made, arena, answers)
    in_flight = left_of(arena.root, made.server).in_flight
    ended = _ended(start(arena.root))
    return made.wrong(arena, in_flight) if ended == 0 else [f"the resumed run ended with {ended}"]


@dataclass(frozen=True)
class Course:
    """What came of a run that was killed again and again."""

    wrong: list[str]
    in_flight: int
    repeated: int


def often(made: Field, kills: int, drawn: random.Random) -> Course:
    """Kill one run at so many moments at which it is at work, and let it come to its end then."""
    arena = made.arena()
    # Teams play side by side: when a kill strikes, more answers have come than were waited for.
    most = max(2, made.requests // (2 * kills))
    alive = [_kill_on_its_way(made, arena, drawn.randrange(1, most)) for _ in range(kills)]
    in_flight = left_of(arena.root, made.server).in_flight
    ended = _ended(start(arena.root))
    wrong = made.wrong(arena, in_flight) if ended == 0 else [f"the run ended with {ended}"]
    if not all(alive):
        wrong.append(f"only {sum(alive)} of {kills} kills found the run at work")
    return Course(wrong, in_flight, made.server.bill.total.requests - made.requests)


def _kill_on_its_way(made: Field, arena: Arena, answers: int) -> bool:
    """Start or resume a run and kill it when it has kept so many more answers; False if it was over by then."""
    wanted = left_of(arena.root, made.server).kept + answers
    process = start(arena.root)
    wait_until(lambda: answers_kept(arena.root) >= wanted or not process.is_alive(), LONGEST_SECONDS)
    return _kill(made, arena, process)


def _kill_after(made: Field, arena: Arena, answers: int) -> bool:
    """Start a run and kill it when the server has answered so many; False if it was over by then."""
    process = start(arena.root)
    wait_until(lambda: made.server.bill.total.answered >= answers or not process.is_alive(), LONGEST_SECONDS)
    return _kill(made, arena, process)


def _kill(made: Field, arena: Arena, process: BaseProcess) -> bool:
    was_alive = process.is_alive()
    process.kill()
    process.join()
    # Requests of the dead that the server still works on would be counted as those of whoever comes next.
    left_of(arena.root, made.server)
    return was_alive


# --- members side by side ---------------------------------------------------------------------------------------------


def asked_the_same(made: Field, arena: Arena) -> None:
    """Members are asked the very same at the same time, and hear something else each."""
    arena.script(made.server)
    # Of the same length all: whoever is answered later than in the undisturbed run costs the same.
    numbers = count(1001)
    made.server.on("member-*", lambda call: f"help for: {call.prompt}, number {next(numbers)}")


def strangers(arena: Arena) -> list[str]:
    """Members whose work is not what the journal has as the answer to a call of their own."""
    own: dict[tuple[str, int, str], str] = {}
    for call in _calls(arena):
        who = call.scope.team_id, call.scope.round_number, call.scope.agent_name
        own[who] = own.get(who, "") + json.dumps(call.answer, ensure_ascii=False)
    work = [
        ((row["team_id"], row["round_number"], each["agent_name"]), each["content"])
        for row in arena.rows("round_history")
        for each in row["member_submissions_record"]["submissions"]
    ]
    wrong = [f"{who} has {content!r}" for who, content in work if content not in own.get(who, "")]
    shared = [content for content, times in Counter(content for _, content in work).items() if times > 1]
    return [*wrong, *(f"several have {content!r}" for content in shared)]


def _calls(arena: Arena) -> list[JournalCall]:
    async def read() -> list[JournalCall]:
        async with arena.journal() as journal:
            execution_id = await begun_in(arena.root)
            return await journal.calls(execution_id or "")

    return asyncio.run(read())


# --- the first start --------------------------------------------------------------------------------------------------


def at_first_start(made: Field, seconds: float, *, older: bool = False) -> tuple[list[str], str]:
    """Kill the first run of a workspace so long after its beginning, and start again; with stores of older versions.

    Returns what is wrong then, and which files the kill left.
    """
    arena = made.arena()
    if older:
        make_older_stores(arena.root)
    process = start(arena.root)
    time.sleep(seconds)
    was_alive = _kill(made, arena, process)
    files = " and ".join(name for name in (JOURNAL_NAME, "mixseek.db") if (arena.root / name).exists()) or "nothing"
    in_flight = left_of(arena.root, made.server).in_flight
    if (ended := _ended(start(arena.root))) != 0:
        return [f"the second start ended with {ended}"], files
    over = [] if was_alive else [f"it was over {seconds:.2f} s after its beginning, before it could be killed"]
    return [*over, *made.wrong(arena, in_flight)], files


# --- the large counts -------------------------------------------------------------------------------------------------


def _at_every_point() -> int:
    print("killed at every crash point, whoever resumed it at the same one, and resumed again")
    wrong = 0
    with field_of(TWO_TEAMS) as made:
        for point in CRASH_POINTS:
            told = {time_reached: at_point(made, point, time_reached) for time_reached in TIMES}
            reached = [str(time_reached) for time_reached, found in told.items() if found is not None]
            found = [each for one in told.values() for each in one or ()]
            wrong += _tell(f"{point}, time {', '.join(reached)}", found if reached else ["never reached"])
    return wrong


def _tell(what: str, wrong: list[str]) -> int:
    print(f"  {what}: {'; '.join(wrong) or 'as undisturbed, and nothing answered was paid again'}", flush=True)
    return len(wrong)


def _members(kills: int, drawn: random.Random) -> int:
    print(f"three members that are asked the same at the same time, {kills} kills")
    wrong: list[str] = []
    with field_of((Team("solo", members=3),), asked_the_same, check=strangers) as made:
        for _ in range(kills):
            wrong += at_random(made, drawn.randrange(1, made.requests))
    return _tell(f"{kills} kills, {kills} resumes", wrong)


def _twenty_teams(kills: int, drawn: random.Random) -> int:
    print(f"one run of 20 teams, {kills} kills")
    with field_of(TWENTY_TEAMS, orchestrator=EIGHT_ROUNDS) as made:
        course = often(made, kills, drawn)
    counts = f"{made.requests} calls, {course.in_flight} in flight at the kills, {course.repeated} made again"
    return _tell(counts, course.wrong)


def _first_starts(kills: int, drawn: random.Random) -> int:
    print(f"first start killed {kills} times in its first second, and as often with stores of older versions")
    wrong = 0
    with field_of(TWO_TEAMS[1:], orchestrator=EIGHT_ROUNDS) as made:
        for what, older in (("new stores", False), ("older stores", True)):
            moments = [drawn.uniform(0, 1) for _ in range(kills)]
            found, files = zip(*(at_first_start(made, moment, older=older) for moment in moments), strict=True)
            left = ", ".join(f"{times} left {names}" for names, times in Counter(files).most_common())
            told = f"{what}, undisturbed {made.seconds:.1f} s: {left}; {kills} started again"
            wrong += _tell(told, [each for one in found for each in one])
    return wrong


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=100, help="of each kind; 20 teams are killed half as often")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", choices=("points", "members", "teams", "starts"))
    chosen = parser.parse_args()
    by_chance = random.Random(chosen.seed)
    parts: dict[str, Callable[[], int]] = {
        "points": _at_every_point,
        "members": lambda: _members(chosen.kills, by_chance),
        "teams": lambda: _twenty_teams(chosen.kills // 2, by_chance),
        "starts": lambda: _first_starts(chosen.kills, by_chance),
    }
    sys.exit(1 if sum(part() for name, part in parts.items() if chosen.only in (None, name)) else 0)
