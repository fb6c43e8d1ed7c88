"""Whole competitions beside the time the models need and beside bare agents, every case in a process of its own.

Teams have no members, so a round is five calls, three of them one after the other: the leader, three judges at once,
and the judgment, which is asked after every round. The model server, in its own process, takes 100 ms for each. The
critical path is what the models alone need: 3 rounds x 3 calls x 100 ms. The bare agents make the same calls in the
same order, with prompts of the same size that are made beforehand: pydantic-ai agents, built once and reused, over
their default client. Every case plays one team unmeasured first, so that nobody is charged for imports, and is played
three times: times are those of the middle one, memory and callbacks those of the worst.

CPU and memory are those of the whole process. A callback is what the event loop runs without looking up. Every single
one is timed, by the wall clock and in CPU time of the loop's thread: what other threads and processes take of the core
is in the first only.
"""

import asyncio
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pydantic import BaseModel, Field
from pydantic_ai import Agent
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider

from bench.bare_stores import bare_stores
from bench.harness import Row, Timing, columns, table
from mixseek.agents.leader.agent import DEFAULT_LEADER_SYSTEM_INSTRUCTION
from mixseek.config.schema import PromptBuilderSettings
from mixseek.evaluator.metrics.clarity_coherence import ClarityCoherence
from mixseek.evaluator.metrics.coverage import Coverage
from mixseek.evaluator.metrics.relevance import Relevance
from mixseek.judgment import DEFAULT_JUDGMENT_SYSTEM_INSTRUCTION
from mixseek.orchestrator import Orchestrator, load_orchestrator_settings
from mixseek.prompt_builder import EvaluatorPromptContext, RoundPromptContext, UserPromptBuilder
from mixseek.records import EvaluationResult, MetricScore, RoundState

__all__ = ["CALLS_A_ROUND", "NO_JOURNAL", "STORED", "TASK", "Case", "case", "environ", "orchestrator", "run"]

TEAMS = (1, 10, 50, 200)
ROUNDS = 3
CALLS_IN_SEQUENCE = 3
CALLS_A_ROUND = 5
LATENCY_SECONDS = 0.1
REPEATS = 3
CRITICAL_PATH_SECONDS = ROUNDS * CALLS_IN_SEQUENCE * LATENCY_SECONDS

MEMORY, STORED, NO_JOURNAL, BARE = "save_db=False", "store and journal", "the store alone", "bare agents"
TASK = "日本の中小企業が生成AIを導入するときの手順を提案してください。"
SUBMISSION = "An answer of about the size that the model server gives when it has no script, in one line."
MEGABYTE = 1024 * 1024
LONGEST_CALLBACK_SECONDS = 0.05
MOST_MEGABYTES = 250


@dataclass(frozen=True)
class Case:
    """What one competition took."""

    wall: float
    cpu: float
    peak_bytes: int
    longest_callback: float
    longest_callback_cpu: float
    calls: int
    file_bytes: int | None = None
    """How much of what it holds at its end is pages of files, libraries for the most part: a machine counts more of
    them where they were written a moment ago."""


# --- ours -------------------------------------------------------------------------------------------------------------


async def _ours(address: str, teams: int, what: str) -> Case:
    save_db, journal = what != MEMORY, what == STORED
    with tempfile.TemporaryDirectory() as directory:
        first, measured = Path(directory) / "first", Path(directory) / "measured"
        await _play(orchestrator(first, address, 1, save_db=save_db, journal=journal))
        built = orchestrator(measured, address, teams, save_db=save_db, journal=journal)
        return await _measured(lambda: _play(built))


def orchestrator(
    workspace: Path, address: str, teams: int, *, rounds: int = ROUNDS, save_db: bool = True, journal: bool = True
) -> Orchestrator:
    """What plays a competition of so many teams, with its files in ``workspace``."""
    _write_files(workspace, address, teams, rounds)
    return Orchestrator(load_orchestrator_settings("configs/orchestrator.toml", workspace), save_db, journal=journal)


async def _play(built: Orchestrator) -> int:
    summary = await built.execute(TASK)
    if summary.failed_teams_info:
        raise RuntimeError(f"not every team finished: {summary.failed_teams_info}")
    return summary.usage.requests


def _write_files(workspace: Path, address: str, teams: int, rounds: int) -> None:
    configs = workspace / "configs"
    (configs / "agents").mkdir(parents=True)
    (configs / "providers.toml").write_text(f'[providers.loop]\nbase_url = "{address}"\napi = "chat"\n')
    (configs / "evaluator.toml").write_text('default_model = "loop:judge"\n')
    (configs / "judgment.toml").write_text('model = "loop:judgment"\njudge_on_final_round = true\n')
    files = [f"configs/agents/team-{number}.toml" for number in range(teams)]
    for number, file in enumerate(files):
        (workspace / file).write_text(
            f'[team]\nteam_id = "team-{number}"\nteam_name = "Team {number}"\n[team.leader]\nmodel = "loop:leader"\n'
        )
    listed = "".join(f'[[orchestrator.teams]]\nconfig = "{file}"\n' for file in files)
    limits = f"max_rounds = {rounds}\nmin_rounds = 1\nmax_concurrent_teams = {teams}\n"
    (configs / "orchestrator.toml").write_text(f"[orchestrator]\n{limits}{listed}")


# --- bare agents ------------------------------------------------------------------------------------------------------


class _Verdict(BaseModel):
    evaluator_comment: str
    score: float = Field(ge=0, le=100)


class _Opinion(BaseModel):
    reasoning: str
    should_continue: bool
    confidence_score: float = Field(ge=0, le=1)


@dataclass(frozen=True)
class _Prompts:
    """What is said in one round."""

    leader: str
    evaluator: str
    judgment: str


async def _bare(address: str, teams: int) -> Case:
    provider = OpenAIProvider(base_url=address, api_key="any")
    leader = Agent(OpenAIChatModel("leader", provider=provider), instructions=DEFAULT_LEADER_SYSTEM_INSTRUCTION)
    judges = [
        Agent(
            OpenAIChatModel("judge", provider=provider), output_type=_Verdict, instructions=metric().get_instruction()
        )
        for metric in (ClarityCoherence, Coverage, Relevance)
    ]
    judgment = Agent(
        OpenAIChatModel("judgment", provider=provider),
        output_type=_Opinion,
        instructions=DEFAULT_JUDGMENT_SYSTEM_INSTRUCTION,
    )
    rounds = await _prompts(teams)

    async def team() -> None:
        for said in rounds:
            await leader.run(said.leader)
            await asyncio.gather(*(judge.run(said.evaluator) for judge in judges))
            await judgment.run(said.judgment)

    async def play() -> int:
        await asyncio.gather(*(team() for _ in range(teams)))
        return teams * ROUNDS * CALLS_A_ROUND

    await team()
    return await _measured(play)


class _Board:
    """A ranking source that keeps the board in memory."""

    def __init__(self, teams: int) -> None:
        self._ranking = [
            {"team_id": f"team-{each}", "team_name": f"Team {each}", "max_score": 90 - each / 10, "total_rounds": 1}
            for each in range(teams)
        ]

    async def get_leader_board_ranking(self, execution_id: str) -> Sequence[dict[str, Any]]:
        del execution_id
        return self._ranking


async def _prompts(teams: int) -> list[_Prompts]:
    builder = UserPromptBuilder(settings=PromptBuilderSettings())
    judged = EvaluatorPromptContext(user_query=TASK, submission=SUBMISSION)
    states = [_state(number) for number in range(1, ROUNDS + 1)]

    async def of_round(number: int) -> _Prompts:
        before, after = (_context(number, states[:played], teams) for played in (number - 1, number))
        return _Prompts(
            await builder.build_team_prompt(before),
            builder.build_evaluator_prompt(judged),
            await builder.build_judgment_prompt(after),
        )

    return [await of_round(number) for number in range(1, ROUNDS + 1)]


def _context(number: int, history: list[RoundState], teams: int) -> RoundPromptContext:
    return RoundPromptContext(
        user_prompt=TASK,
        round_number=number,
        round_history=history,
        team_id="team-0",
        team_name="Team 0",
        execution_id="bench",
        store=_Board(teams),
    )


def _state(number: int) -> RoundState:
    names = ("ClarityCoherence", "Coverage", "Relevance")
    metrics = [MetricScore(metric_name=name, score=80.0, evaluator_comment="comment 0123456789") for name in names]
    details = EvaluationResult(metrics=metrics, overall_score=80.0).to_score_details()
    now = datetime.now(UTC)
    return RoundState(
        round_number=number,
        submission_content=SUBMISSION,
        evaluation_score=80.0,
        score_details=details,
        round_started_at=now,
        round_ended_at=now,
    )


# --- measuring one case, in a child process ---------------------------------------------------------------------------


async def _measured(play: Callable[[], Awaitable[int]]) -> Case:
    with _watched_callbacks() as longest:
        wall, cpu = time.perf_counter(), time.process_time()
        calls = await play()
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    return Case(wall, cpu, _peak_bytes(), longest.wall, longest.cpu, calls, file_bytes=_told_by_linux("RssFile:"))


@dataclass
class _Longest:
    """The longest callback so far, by the clock on the wall and by CPU time."""

    wall: float = 0.0
    cpu: float = 0.0


@contextmanager
def _watched_callbacks() -> Iterator[_Longest]:
    """Time every callback; asyncio's debug mode would tell of slow ones too, but slows everything down."""
    longest = _Longest()
    original = asyncio.Handle._run

    before = time.thread_time()

    def timed(handle: asyncio.Handle) -> None:
        nonlocal before
        wall = time.perf_counter()
        original(handle)
        longest.wall = max(longest.wall, time.perf_counter() - wall)
        # Asked once: it is a slow question on some machines. What the loop does in between is counted, too.
        after = time.thread_time()
        longest.cpu, before = max(longest.cpu, after - before), after

    asyncio.Handle._run = timed  # type: ignore[assignment,method-assign]
    try:
        yield longest
    finally:
        asyncio.Handle._run = original  # type: ignore[method-assign]


def _peak_bytes() -> int:
    """The most memory this program held; ``getrusage`` alone may tell that of the program which started it."""
    peak = _told_by_linux("VmHWM:")
    if peak is not None:
        return peak
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def _told_by_linux(name: str) -> int | None:
    """A size that Linux tells of this process."""
    status = Path("/proc/self/status")
    if not status.exists():
        return None
    line = next(line for line in status.read_text().splitlines() if line.startswith(name))
    return int(line.split()[1]) * 1024


def _child(what: str, address: str, teams: int) -> None:
    work = _bare(address, teams) if what == BARE else _ours(address, teams, what)
    print(json.dumps(asdict(asyncio.run(work))))


# --- all of it --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Field:
    """All cases of one number of teams."""

    teams: int
    memory: Case
    stored: Case
    bare: Case


def _field(teams: int) -> _Field:
    """The middle one of several, by time on the clock; the kinds take turns, so that a slow minute strikes all."""
    from mixseek.testing import ModelServerProcess  # here alone: what is measured needs no server of its own

    kinds = (MEMORY, STORED, BARE)
    with ModelServerProcess(latency=LATENCY_SECONDS, keep_bodies=False) as server:
        runs = [[case(what, server.base_url, teams) for what in kinds] for _ in range(REPEATS)]
    return _Field(teams, *(_middle(cases) for cases in zip(*runs, strict=True)))


def _middle(cases: Sequence[Case]) -> Case:
    """One case of typical time, with the worst that any of them held and waited for."""
    middle = sorted(cases, key=lambda case: case.wall)[len(cases) // 2]
    worst = max(cases, key=lambda case: case.longest_callback)
    return replace(
        middle,
        peak_bytes=max(case.peak_bytes for case in cases),
        longest_callback=worst.longest_callback,
        longest_callback_cpu=worst.longest_callback_cpu,
    )


def case(what: str, address: str, teams: int) -> Case:
    """One competition in a process of its own."""
    command = [sys.executable, "-c", _CHILD, what, address, str(teams)]
    ran = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=environ())
    return Case(**json.loads(ran.stdout))


# As most users have it: without Logfire, an extra that developers have, and that pydantic-ai loads wherever it is.
_CHILD = """
import runpy, sys
sys.modules["logfire"] = None
runpy.run_module("bench.competition", run_name="__main__", alter_sys=True)
"""


def environ() -> dict[str, str]:
    """What a user's process has: compiled once, not at every start."""
    own = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return {**own, "PYDANTIC_DISABLE_PLUGINS": "logfire-plugin"}


def _taken(fields: Sequence[_Field]) -> str:
    """What every case took."""
    head = ("teams", "what", "wall", "CPU", "CPU a call", "peak memory", "longest callback (CPU)")
    cells = [
        (
            str(field.teams),
            name,
            f"{case.wall:.2f} s",
            f"{case.cpu:.2f} s",
            f"{case.cpu / case.calls * 1e3:.2f} ms",
            f"{case.peak_bytes / MEGABYTE:.0f} MB",
            f"{case.longest_callback * 1e3:.0f} ms ({case.longest_callback_cpu * 1e3:.0f} ms)",
        )
        for field in fields
        for name, case in ((MEMORY, field.memory), (STORED, field.stored), (BARE, field.bare))
    ]
    return columns(
        "Competitions, 3 rounds x 3 metrics, 5 calls a round of 100 ms each", [head, *cells], {0, 2, 3, 4, 5, 6}
    )


def _beside(field: _Field) -> list[Row]:
    """Both of ours beside their limits; the aims are for the smallest and the largest competition."""
    smallest, largest = field.teams == min(TEAMS), field.teams == max(TEAMS)
    path = Timing(CRITICAL_PATH_SECONDS, CRITICAL_PATH_SECONDS)
    bare = Timing(field.bare.wall, field.bare.wall)
    found = []
    for name, case, share in ((MEMORY, field.memory, "<= 0.4x"), (STORED, field.stored, "<= 0.5x")):
        what = f"{field.teams} teams, {name}"
        found += [
            _row(what, case, "critical path", path, "<= 1.15x" if smallest else ""),
            _row(what, case, BARE, bare, share if largest else ""),
        ]
    return [*found, _beside_bare_stores(field)] if smallest else found


def _beside_bare_stores(field: _Field) -> Row:
    """Both stores beside the least that they could cost: what it takes without any, and DuckDB and SQLite alone."""
    from mixseek.testing import ModelServerProcess  # as above

    with ModelServerProcess(keep_bodies=False) as server, tempfile.TemporaryDirectory() as directory:
        workspace = Path(directory) / "played"
        asyncio.run(_play(orchestrator(workspace, server.base_url, 1)))
        least = field.memory.wall + bare_stores(workspace).median
    limit = Timing(least, least)
    return _row(f"{field.teams} teams, {STORED}", field.stored, f"{MEMORY} + bare stores", limit, "")


def _row(name: str, case: Case, limit_name: str, limit: Timing, aim: str) -> Row:
    return Row(name, case.wall, case.wall, limit_name, limit.median, case.wall / limit.median, aim)


def _bounds(field: _Field) -> str:
    """What must hold at the largest competition besides its time."""
    memory = max(case.peak_bytes for case in (field.memory, field.stored)) / MEGABYTE
    files = max(case.file_bytes or 0 for case in (field.memory, field.stored)) / MEGABYTE
    callback = max(case.longest_callback for case in (field.memory, field.stored))
    cpu = max(case.longest_callback_cpu for case in (field.memory, field.stored))
    return (
        f"  {field.teams} teams: peak memory {memory:.1f} MB ({files:.1f} MB of it pages of files),"
        f" aim <= {MOST_MEGABYTES} MB;"
        f" longest callback {callback * 1e3:.0f} ms ({cpu * 1e3:.0f} ms of CPU),"
        f" aim <= {LONGEST_CALLBACK_SECONDS * 1e3:.0f} ms"
    )


def run() -> str:
    """This part of the report."""
    fields = [_field(teams) for teams in TEAMS]
    beside = table(
        "Competitions, beside their limits in the same run", [row for each in fields for row in _beside(each)]
    )
    return "\n\n".join([_taken(fields), f"{beside}\n{_bounds(fields[-1])}"])


if __name__ == "__main__":
    if len(sys.argv) > 1:
        _child(sys.argv[1], sys.argv[2], int(sys.argv[3]))
    else:
        print(run())
