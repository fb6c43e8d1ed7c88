"""The journal beside bare SQLite, competitions with and without it, and how soon a resumed one makes its first call.

A call has a request of 20 KB. Its limit is one INSERT of the same values into the same table of a copy of the file,
committed as durably: WAL and ``synchronous=FULL``. The competitions are those of :mod:`bench.competition`, with store
and journal beside the store alone, on models as quick as there and on such as people ask.
"""

import asyncio
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

from bench.competition import CALLS_A_ROUND, NO_JOURNAL, STORED, TASK, case, environ, orchestrator
from bench.harness import Row, compare, interleave, table
from mixseek.orchestrator import Orchestrator, load_orchestrator_settings
from mixseek.records import Usage
from mixseek.storage.journal import JOURNAL_NAME, Attempt, CallScope, Journal, ModelCall, StartedCall

if TYPE_CHECKING:
    from mixseek.testing import ModelServerProcess

__all__ = ["run"]

NOW = datetime(2026, 1, 1, tzinfo=UTC)
TOGETHER = 200
TEAMS, ROUNDS = 200, 5
LONGEST_SECONDS = 5.0
PROMPT = "提出内容の一文です。 A sentence of the prompt.\n" * 350
numbers = count(1)


# --- one record -------------------------------------------------------------------------------------------------------


async def _keep(journal: Journal) -> None:
    """All that a run does with the journal for one call: its key, the mark that it starts, and the call itself."""
    number = next(numbers)
    scope = CallScope(
        execution_id="bench", team_id=f"team-{number % TEAMS}", round_number=1, role="leader", agent_name="leader"
    )
    request = journal.request(
        scope, model="loop:leader", settings={}, tools=[], messages=[{"content": f"{number}\n{PROMPT}"}]
    )
    call_id = f"call-{number}"
    started = StartedCall(
        call_id=call_id, scope=scope, key=request.key, occurrence=0, model="loop:leader", started_at=NOW
    )
    await journal.call_starts(started, durable=False)
    call = ModelCall(
        call_id=call_id,
        scope=scope,
        key=request.key,
        occurrence=0,
        model="loop:leader",
        request=request.text,
        answer={"parts": [{"content": f"An answer, the {number}th of them."}]},
        failure=None,
        usage=Usage(requests=1, input_tokens=5000, output_tokens=10),
        cost_usd=0.001,
        attempts=(Attempt(at=NOW, outcome="answered", status=None, seconds=0.1),),
        started_at=NOW,
        ended_at=NOW,
    )
    await journal.record_call(call)


async def _records(directory: Path) -> list[Row]:
    async with Journal(directory / "journal.db") as journal:
        await _keep(journal)
    shutil.copyfile(directory / "journal.db", directory / "bare.db")
    bare = sqlite3.connect(directory / "bare.db", isolation_level=None)
    bare.execute("PRAGMA journal_mode=WAL")
    bare.execute("PRAGMA synchronous=FULL")
    names, values = _a_row(bare)
    statement = f"INSERT INTO calls ({', '.join(names)}) VALUES ({', '.join('?' * len(names))})"
    place = names.index("call_id")

    def insert() -> None:
        values[place] = f"call-{next(numbers)}"
        bare.execute(statement, values)

    async with Journal(directory / "journal.db") as journal:
        alone = await compare(
            "a call, alone", lambda: _keep(journal), "bare INSERT, committed", insert, aim="", runs=200
        )
        together, one = await interleave(
            [lambda: asyncio.gather(*(_keep(journal) for _ in range(TOGETHER))), insert], runs=20
        )
    bare.close()
    each = together.median / TOGETHER
    name = f"a call, one of {TOGETHER} at once"
    return [
        alone,
        Row(name, each, together.p95 / TOGETHER, "bare INSERT, committed", one.median, each / one.median, "<= 1x"),
    ]


def _a_row(connection: sqlite3.Connection) -> tuple[list[str], list[object]]:
    found = connection.execute("SELECT * FROM calls LIMIT 1")
    columns = [(column[0], value) for column, value in zip(found.description, found.fetchone(), strict=True)]
    return [name for name, _ in columns if name != "id"], [value for name, value in columns if name != "id"]


# --- a whole competition ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Models:
    """How long the models of a comparison take for an answer, and how often it is played."""

    words: str
    seconds: float
    jitter: float
    repeats: int


QUICK = _Models("100 ms a call", 0.1, 0.0, 5)
"""So quick that the processor is busy all the time, and whatever is done besides takes its time from the teams."""
USUAL = _Models("1 to 3 s a call", 1.0, 2.0, 3)
"""As models on the web take for a short answer, each time another while."""


def _competition(models: _Models) -> list[Row]:
    """The middle of several, by time on the clock, and the quickest beside; both take turns.

    Where other machines share the processor two runs of one case differ by more than the two cases do: what runs there
    makes a run slower and never quicker. The aim is for the middle ones all the same.
    """
    from mixseek.testing import ModelServerProcess  # here alone: what is measured needs no server of its own

    with ModelServerProcess(latency=models.seconds, jitter=models.jitter, keep_bodies=False) as server:
        runs = [[case(what, server.base_url, TEAMS) for what in (STORED, NO_JOURNAL)] for _ in range(models.repeats)]
    with_it, without = (sorted(one.wall for one in cases) for cases in zip(*runs, strict=True))
    name, middle = f"{TEAMS} teams, {models.words}", models.repeats // 2
    return [
        _beside(f"{name}: middle of {models.repeats}", with_it[middle], without[middle], "<= 1.10x"),
        _beside(f"{name}: quickest of {models.repeats}", with_it[0], without[0], ""),
    ]


def _beside(name: str, with_it: float, without: float, aim: str) -> Row:
    return Row(name, with_it, with_it, NO_JOURNAL, without, with_it / without, aim)


# --- a resumed competition --------------------------------------------------------------------------------------------


def _resumed() -> list[Row]:
    """A competition that is killed in its last round, and the seconds until whoever resumes it asks a model anew."""
    from mixseek.testing import ModelServerProcess

    with ModelServerProcess(keep_bodies=False, log_size=10_000) as server, tempfile.TemporaryDirectory() as directory:
        orchestrator(Path(directory), server.base_url, TEAMS, rounds=ROUNDS)
        asked = _kill_in_the_last_round(directory, server)
        began = time.time()
        resumed = subprocess.run(
            _command("--resume", directory), check=True, stdout=subprocess.PIPE, text=True, env=environ()
        )
        first = next(request.time for request in server.requests if request.number > asked)
    called, whole = first - float(resumed.stdout), first - began
    name = f"{TEAMS} teams x {ROUNDS} rounds, resumed: first new call"
    return [
        Row(name, called, called, "aim", LONGEST_SECONDS, called / LONGEST_SECONDS, "<= 1x"),
        Row("the same from the start of the process", whole, whole, "aim", LONGEST_SECONDS, whole / LONGEST_SECONDS),
    ]


def _kill_in_the_last_round(directory: str, server: "ModelServerProcess") -> int:
    """How many requests were made until then."""
    play = subprocess.Popen(_command("--play", directory), env=environ())
    before_the_last = TEAMS * CALLS_A_ROUND * (ROUNDS - 1)
    while server.bill.total.answered < before_the_last + TEAMS and play.poll() is None:
        time.sleep(0.01)
    play.kill()
    play.wait()
    while (books := server.bill.total).waiting:
        time.sleep(0.01)
    return books.requests


def _command(what: str, directory: str) -> list[str]:
    return [sys.executable, "-m", "bench.journal", what, directory]


async def _play(root: Path) -> None:
    await Orchestrator(load_orchestrator_settings("configs/orchestrator.toml", root)).execute(TASK)


async def _resume(root: Path) -> None:
    """Prints when it was called."""
    async with Journal(root / JOURNAL_NAME) as journal:
        [begun] = await journal.started_runs()
    built = Orchestrator(load_orchestrator_settings("configs/orchestrator.toml", root))
    print(time.time())
    summary = await built.resume(begun.execution_id)
    if len(summary.team_results) != TEAMS:
        raise RuntimeError(f"not every team finished: {summary.failed_teams_info}")


# --- all of it --------------------------------------------------------------------------------------------------------


def run() -> str:
    """This part of the report."""
    with tempfile.TemporaryDirectory() as directory:
        records = asyncio.run(_records(Path(directory)))
    competitions = [row for models in (QUICK, USUAL) for row in _competition(models)]
    return table("The journal, beside its limits in the same run", [*records, *competitions, *_resumed()])


if __name__ == "__main__":
    if len(sys.argv) > 1:
        asyncio.run((_resume if sys.argv[1] == "--resume" else _play)(Path(sys.argv[2])))
    else:
        print(run())
