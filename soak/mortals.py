"""Competitions in processes of their own that are killed at any moment, and what is left of them.

A process that has imported everything forks them, so that one begins in milliseconds: hundreds of kills are minutes.
"""

import asyncio
import importlib
import logging
import multiprocessing
import os
import re
import sqlite3
import time
from collections.abc import Callable, Mapping
from contextlib import closing, suppress
from dataclasses import dataclass
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from mixseek import crash_points
from mixseek.errors import NotResumableError
from mixseek.orchestrator import Orchestrator, load_orchestrator_settings
from mixseek.storage import journal_file
from mixseek.storage.database import open_database
from mixseek.storage.journal import JOURNAL_NAME, Journal
from mixseek.storage.migrations import MIGRATIONS
from mixseek.testing import ModelServer
from soak.arena import TASK, Arena, at_once

__all__ = [
    "KILLED",
    "PRELOADED",
    "Left",
    "answers_kept",
    "begun_in",
    "go_on",
    "kept",
    "left_of",
    "make_older_stores",
    "processes",
    "start",
    "tokens_in_the_journal",
    "wait_until",
]

KILLED = -9
"""The exit code of a process that was killed."""
PRELOADED = (
    "mixseek.cli.exec",
    "pydantic_ai.models.openai",
    "genai_prices.data",
    "rapidfuzz.process",
    "anyio._backends._asyncio",
    "aiohttp",
)
"""What a competition imports on its way."""
processes = multiprocessing.get_context("forkserver")
processes.set_forkserver_preload(["soak.mortals", *PRELOADED])


# --- living and dying -------------------------------------------------------------------------------------------------


def start(root: Path, crash_at: str = "", **orchestrator: Any) -> BaseProcess:
    """Begin the competition of a workspace, or go on with the one that was begun there, in a process of its own."""
    process = processes.Process(target=_live, args=(root, crash_at, orchestrator), daemon=True)
    process.start()
    return process


def _live(root: Path, crash_at: str, orchestrator: Mapping[str, Any]) -> None:
    logging.disable(logging.CRITICAL)
    os.environ[crash_points.CRASH_AT] = crash_at
    # What other modules imported from it looks its choice up in the module, which this makes anew.
    importlib.reload(crash_points)
    asyncio.run(go_on(root, **orchestrator))


async def go_on(root: Path, **orchestrator: Any) -> None:
    """What whoever finds a killed run does: resume it, or begin it when nothing of it was kept."""
    settings = load_orchestrator_settings("configs/orchestrator.toml", root)
    built = Orchestrator(settings, **{"backoff": at_once, **orchestrator})
    begun = await begun_in(root)
    try:
        await (built.resume(begun) if begun else built.execute(TASK))
    except NotResumableError as error:
        # Who is killed on the way out leaves a run that is over.
        if not any(words in str(error) for words in ("is whole", "ended at its budget")):
            raise


async def begun_in(root: Path) -> str | None:
    """The execution of a workspace in which one was begun."""
    async with Journal(root / JOURNAL_NAME) as journal:
        begun = await journal.started_runs()
    return begun[0].execution_id if begun else None


def make_older_stores(root: Path) -> None:
    """Give a workspace both stores as their first versions had them."""
    process = processes.Process(target=_make_older_stores, args=(root,))
    process.start()
    process.join()


def _make_older_stores(root: Path) -> None:
    journal_file._MIGRATIONS = journal_file._MIGRATIONS[:1]
    journal_file.open_for_writing(root / JOURNAL_NAME, 1).close()
    open_database(root / "mixseek.db", MIGRATIONS[:1]).close()


def wait_until(holds: Callable[[], bool], seconds: float = 60.0) -> None:
    """Look again and again, and not for ever."""
    deadline = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > deadline:
            raise TimeoutError("it did not come so far")
        time.sleep(0.005)


# --- what is left -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Left:
    """What a killed process leaves: what the server was asked, and of how much of it the journal has the answer."""

    asked: int
    kept: int

    @property
    def in_flight(self) -> int:
        """Requests whose answers nobody has kept: these, and no others, may be made again."""
        return self.asked - self.kept


def left_of(root: Path, server: ModelServer) -> Left:
    """What is left when the server has given up on the dead."""
    wait_until(lambda: server.bill.total.waiting == 0)
    return Left(server.bill.total.requests, answers_kept(root))


def answers_kept(root: Path) -> int:
    """How many answers the journal of a workspace has."""
    return _number(root / JOURNAL_NAME, "SELECT count(*) FROM calls WHERE answer IS NOT NULL")


def tokens_in_the_journal(root: Path) -> int:
    """What all calls of a workspace consumed."""
    return _number(root / JOURNAL_NAME, "SELECT sum(usage ->> 'input_tokens') FROM calls")


def _number(path: Path, statement: str) -> int:
    if not path.exists():
        return 0
    # A journal that was being made may have no tables yet.
    with closing(sqlite3.connect(path)) as connection, suppress(sqlite3.OperationalError):
        return int(connection.execute(statement).fetchone()[0] or 0)
    return 0


_PASSING = frozenset(
    {
        "id",
        "execution_id",
        "created_at",
        "updated_at",
        "completed_at",
        "round_started_at",
        "round_ended_at",
        "total_execution_time_seconds",
        "execution_time_seconds",
        "timestamp",
        "started_at",
        "ended_at",
        "input_tokens",
    }
)
"""What differs between two runs with the same answers."""


def kept(arena: Arena) -> dict[str, list[Any]]:
    """All that is kept of the one competition of a workspace, without times and ids.

    Of the bill it is who asked how often: how long a prompt is goes by who was on the leader board already.
    """
    tables = ("leader_board", "round_status", "model_usage", "execution_summary")
    found: dict[str, list[Any]] = {table: _lasting(arena.rows(table)) for table in tables}
    found["members"] = [
        (row["team_id"], row["round_number"], each["agent_name"], _NUMBER.sub("", each["content"]), each["status"])
        for row in arena.rows("round_history")
        for each in sorted(row["member_submissions_record"]["submissions"], key=lambda each: str(each["agent_name"]))
    ]
    return found


_NUMBER = re.compile(r", number \d+$")
"""What a member says besides, if each of its answers is to be another one."""


def _lasting(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _lasting(part) for name, part in value.items() if name not in _PASSING}
    return [_lasting(part) for part in value] if isinstance(value, list) else value
