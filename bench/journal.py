"""The journal beside bare SQLite, and competitions with and without it.

A call has a request of 20 KB. Its limit is one INSERT of the same values into the same table of a copy of the file,
committed as durably: WAL and ``synchronous=FULL``. The competitions are those of :mod:`bench.competition`.
"""

import asyncio
import shutil
import sqlite3
import tempfile
from collections.abc import Sequence
from datetime import UTC, datetime
from itertools import count
from pathlib import Path

from bench.competition import NO_JOURNAL, STORED, Case, case
from bench.harness import Row, compare, interleave, table
from mixseek.records import Usage
from mixseek.storage.journal import Attempt, CallScope, Journal, ModelCall, StartedCall

__all__ = ["run"]

NOW = datetime(2026, 1, 1, tzinfo=UTC)
TOGETHER = 200
TEAMS = 200
REPEATS = 3
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


def _competition() -> Row:
    """The middle of several, by time on the clock; both take turns."""
    from mixseek.testing import ModelServerProcess  # here alone: what is measured needs no server of its own

    with ModelServerProcess(latency=0.1, keep_bodies=False) as server:
        runs = [[case(what, server.base_url, TEAMS) for what in (STORED, NO_JOURNAL)] for _ in range(REPEATS)]
    with_it, without = (_middle(cases) for cases in zip(*runs, strict=True))
    return Row(
        f"{TEAMS} teams, store and journal", with_it, with_it, NO_JOURNAL, without, with_it / without, "<= 1.10x"
    )


def _middle(cases: Sequence[Case]) -> float:
    return sorted(one.wall for one in cases)[len(cases) // 2]


# --- all of it --------------------------------------------------------------------------------------------------------


def run() -> str:
    """This part of the report."""
    with tempfile.TemporaryDirectory() as directory:
        records = asyncio.run(_records(Path(directory)))
    return table("The journal, beside its limits in the same run", [*records, _competition()])


if __name__ == "__main__":
    print(run())
