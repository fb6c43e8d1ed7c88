"""Many processes in one workspace: runs, a resume, a reader and a DuckDB shell; nothing fails, nothing is lost.

``python -m soak.together`` plays it large; the tests play it small. An execution was killed before. Then runs begin, a
process resumes the killed one, another reads both stores as fast as it can, and a program that takes no turns holds the
file for seconds, again and again. All come to their end; whoever had to wait long has said for whom.
"""

import argparse
import asyncio
import json
import os
import re
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import duckdb

from mixseek.report.reading import list_executions, load_execution
from mixseek.storage.journal import Journal, JournalEvent
from mixseek.testing import ModelServerProcess, write_workspace
from mixseek.workspace import Workspace
from soak import forked

__all__ = ["Outcome", "Scenario", "play"]

ROOT = Path(__file__).resolve().parents[1]
_WAITED = re.compile(r"waiting for process (\d+) \(.*\).*, which (?:holds|writes) \S+")
_WENT_WRONG = re.compile(r"Traceback|\bERROR\b|\bCRITICAL\b")


@dataclass(frozen=True)
class Scenario:
    """How many of what."""

    runs: int = 2
    teams: int = 3
    rounds: int = 3
    holds: int = 3
    """How often the shell takes the file."""
    hold_seconds: float = 4.0
    latency: float = 0.1
    deadline_seconds: float = 300.0


@dataclass
class Outcome:
    """What came of it: ``problems`` is empty if all went well."""

    seconds: float = 0.0
    reads: int = 0
    rounds: int = 0
    calls: int = 0
    waits: list[str] = field(default_factory=list)
    """What was said of waiting."""
    problems: list[str] = field(default_factory=list)


def play(scenario: Scenario) -> Outcome:
    """Play it, and look at everything that is left."""
    outcome, began = Outcome(), time.monotonic()
    with tempfile.TemporaryDirectory() as directory, ExitStack() as stack:
        server = stack.enter_context(ModelServerProcess(latency=scenario.latency, jitter=scenario.latency))
        root = Path(directory)
        limits = f"min_rounds = {scenario.rounds}\n"
        write_workspace(
            root,
            teams=scenario.teams,
            members=2,
            max_rounds=scenario.rounds,
            base_url=server.base_url,
            orchestrator=limits,
        )
        lost = _killed_run(root, server, scenario)
        children = _start_all(root, scenario, stack)
        _wait_for_all(root, children, scenario, outcome)
        asyncio.run(_look(root, scenario, outcome))
        _compare_with_bill(server, lost, scenario, outcome)
    outcome.seconds = time.monotonic() - began
    return outcome


# --- the processes ----------------------------------------------------------------------------------------------------


@dataclass
class _Child:
    name: str
    process: "subprocess.Popen[str]"
    out: Path
    err: Path


def _killed_run(root: Path, server: ModelServerProcess, scenario: Scenario) -> int:
    """Leave an execution unfinished; how many of its answers were on their way into the journal then."""
    with ExitStack() as stack:
        child = _start(root, stack, "killed", "mixseek", "exec", "the killed one", *_WHERE)
        half = scenario.teams * scenario.rounds * 2
        _wait_until(lambda: server.bill.total.answered >= half or child.process.poll() is not None)
        # A shell that came before the file would make one of its own.
        _wait_until(lambda: (root / "mixseek.db").exists() or child.process.poll() is not None)
        child.process.kill()
        child.process.wait()
    _wait_until(lambda: server.bill.total.waiting == 0)
    with closing(sqlite3.connect(root / "journal.db", timeout=30)) as db:
        (kept,) = db.execute("SELECT count(*) FROM calls WHERE answer IS NOT NULL").fetchone()
    return server.bill.total.answered - int(kept)


_WHERE = ("-c", "configs/orchestrator.toml", "-w", ".")


def _start_all(root: Path, scenario: Scenario, stack: ExitStack) -> list[_Child]:
    own = [
        ("resume", "soak.together", "--resume", str(root)),
        ("reader", "soak.together", "--read", str(root)),
        ("shell", "soak.together", "--hold", str(root), str(scenario.holds), str(scenario.hold_seconds)),
    ]
    runs = [(f"run {number}", "mixseek", "exec", f"run {number}", *_WHERE) for number in range(1, scenario.runs + 1)]
    return [_start(root, stack, *each) for each in (*runs, *own)]


def _start(root: Path, stack: ExitStack, name: str, *module: str) -> _Child:
    out, err = root / f"{name}.out", root / f"{name}.err"
    paths = os.pathsep.join([str(ROOT), *filter(None, sys.path)])
    process = forked.Popen(
        [sys.executable, "-m", *module],
        cwd=root,
        env={**os.environ, "PYTHONPATH": paths, "MIXSEEK_ONLY_LOOPBACK": "1"},
        stdout=stack.enter_context(out.open("w")),
        stderr=stack.enter_context(err.open("w")),
        text=True,
    )
    stack.callback(_end, process)
    return _Child(name, process, out, err)


def _end(process: "subprocess.Popen[str]") -> None:
    process.kill()
    process.wait()


def _wait_until(holds: Callable[[], bool], seconds: float = 120.0) -> None:
    deadline = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > deadline:
            raise TimeoutError("it did not come to that")
        time.sleep(0.01)


def _wait_for_all(root: Path, children: Sequence[_Child], scenario: Scenario, outcome: Outcome) -> None:
    *working, reader, shell = children
    deadline = time.monotonic() + scenario.deadline_seconds
    for child in (*working, shell):
        try:
            child.process.wait(timeout=max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            outcome.problems.append(f"{child.name} did not come to its end in {scenario.deadline_seconds:g} s")
    (root / "stop").touch()
    reader.process.wait(timeout=60)
    for child in children:
        outcome.problems += _problems_of(child)
        outcome.waits += [line for line in child.err.read_text().splitlines() if _WAITED.search(line)]
    told = json.loads(reader.out.read_text() or "{}")
    outcome.reads = told.get("reads", 0)
    outcome.problems += told.get("problems", ["the reader read nothing"])
    waited_for = {int(pid) for line in outcome.waits for pid in _WAITED.findall(line)}
    if scenario.holds and shell.process.pid not in waited_for:
        outcome.problems.append("nobody said that it waits for the shell")


def _problems_of(child: _Child) -> Iterator[str]:
    said = child.err.read_text()
    if child.process.returncode != 0:
        yield f"{child.name} ended with {child.process.returncode}: {said[-2000:]}"
    elif wrong := _WENT_WRONG.search(said):
        yield f"{child.name} said {said[wrong.start() :][:2000]!r}"


async def _resume(root: Path) -> None:
    from mixseek.orchestrator import Orchestrator, load_orchestrator_settings

    async with Journal(root / "journal.db") as journal:
        (killed,) = [run for run in await journal.started_runs() if run.user_prompt == "the killed one"]
    settings = load_orchestrator_settings("configs/orchestrator.toml", root)
    summary = await Orchestrator(settings).resume(killed.execution_id)
    if summary.failed_teams_info:
        sys.exit(str(summary.failed_teams_info))


async def _read(root: Path) -> None:
    """Read all that there is of everything, again and again: what was there stays there."""
    workspace, seen, reads, problems = Workspace(root), Counter[str](), 0, list[str]()
    while not (root / "stop").exists():
        for line in await list_executions(workspace):
            record = await load_execution(workspace, line.execution_id)
            async with Journal(workspace.journal) as journal:
                events = len(await journal.events(line.execution_id))
            now = {"events": events, "rounds": sum(len(team.rounds) for team in record.teams)}
            for name, count in now.items():
                key = f"{name} of {line.user_prompt}"
                if count < seen[key]:
                    problems.append(f"there were {seen[key]} {key}, then {count}")
                seen[key] = count
            reads += 1
    sys.stdout.write(json.dumps({"reads": reads, "problems": problems}))


def _hold(root: Path, times: int, seconds: float) -> None:
    """A shell as people leave it open: it asks until it gets the file, and keeps it for a while."""
    for _ in range(times):
        connection = _opened(root / "mixseek.db")
        time.sleep(seconds)
        connection.close()
        time.sleep(1.0)


def _opened(path: Path) -> duckdb.DuckDBPyConnection:
    deadline = time.monotonic() + 120
    while True:
        try:
            return duckdb.connect(str(path))
        except duckdb.IOException:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.005)


# --- what is left -----------------------------------------------------------------------------------------------------


async def _look(root: Path, scenario: Scenario, outcome: Outcome) -> None:
    async with Journal(root / "journal.db") as journal:
        for run in await journal.started_runs():
            told = await journal.events(run.execution_id)
            outcome.calls += len([call for call in await journal.calls(run.execution_id) if call.answer is not None])
            outcome.problems += _differences(root, run.execution_id, told, scenario, outcome)
    with duckdb.connect(str(root / "mixseek.db"), read_only=True) as db:
        stored = db.execute("SELECT status FROM execution_summary").fetchall()
    if stored != [("completed",)] * (scenario.runs + 1):
        outcome.problems.append(f"of {scenario.runs + 1} executions there are the summaries {stored}")


def _differences(
    root: Path, execution_id: str, told: Sequence[JournalEvent], scenario: Scenario, outcome: Outcome
) -> Iterator[str]:
    """Where the two stores say different things of an execution, or less than was played."""
    payloads: list[Any] = [event.payload for event in told if event.kind == "RoundFinished"]
    finished = {(each["entry"]["team_id"], each["entry"]["round_number"]): each["entry"]["score"] for each in payloads}
    with duckdb.connect(str(root / "mixseek.db"), read_only=True) as db:
        sql = "SELECT team_id, round_number, score, final_submission FROM leader_board WHERE execution_id = ?"
        board = db.execute(sql, [execution_id]).fetchall()
    outcome.rounds += len(board)
    if {(team_id, number): score for team_id, number, score, _ in board} != finished:
        yield f"{execution_id}: the leader board has {sorted(board)}, the journal {sorted(finished.items())}"
    if len(finished) != scenario.teams * scenario.rounds:
        yield f"{execution_id}: {len(finished)} rounds were finished, not {scenario.teams * scenario.rounds}"
    finals = [team_id for team_id, _, _, is_final in board if is_final]
    if len(finals) != scenario.teams or len(set(finals)) != scenario.teams:
        yield f"{execution_id}: the final submissions are those of {sorted(finals)}"


def _compare_with_bill(server: ModelServerProcess, lost: int, scenario: Scenario, outcome: Outcome) -> None:
    """Only what was on its way at the kill may be missing: of each team at most one call of each metric."""
    if lost > 3 * scenario.teams:
        outcome.problems.append(f"{lost} answers were lost with the kill")
    answered = server.bill.total.answered
    if answered - outcome.calls != lost:
        outcome.problems.append(f"{answered} calls were answered, {lost} lost with the kill, {outcome.calls} are kept")


def _report(outcome: Outcome) -> int:
    lines = [
        f"{outcome.seconds:.0f} s, {outcome.rounds} rounds, {outcome.calls} calls, {outcome.reads} reads of everything",
        *(f"  {line}" for line in outcome.waits),
        f"{len(outcome.problems)} problems",
        *outcome.problems,
    ]
    sys.stdout.write("\n".join(lines) + "\n")
    return 1 if outcome.problems else 0


def main() -> None:
    """Play, or be one of the processes."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=2)
    parser.add_argument("--teams", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--holds", type=int, default=5)
    parser.add_argument("--resume", type=Path)
    parser.add_argument("--read", type=Path)
    parser.add_argument("--hold", nargs=3)
    given = parser.parse_args()
    if given.resume:
        asyncio.run(_resume(given.resume))
    elif given.read:
        asyncio.run(_read(given.read))
    elif given.hold is not None and isinstance(given.hold, list):
        _hold(Path(given.hold[0]), int(given.hold[1]), float(given.hold[2]))
    else:
        sys.exit(_report(play(Scenario(given.runs, given.teams, given.rounds, given.holds))))


if __name__ == "__main__":
    main()
