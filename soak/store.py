"""Many processes on one workspace: writers, readers, and kills at random moments; nothing acknowledged may be lost.

``python -m soak.store`` runs the large counts and prints a short report; the tests run the same scenario in small. A
writer is a team: it saves its rounds one after the other and notes each in a side file, synced to disk, only after the
store has acknowledged it. A reader asks for the ranking in a loop and fails if a read is not a whole and later state.
"""

import argparse
import asyncio
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mixseek.records import (
    LeaderBoardEntry,
    MemberSubmission,
    MemberSubmissionsRecord,
    ModelUsage,
    order_standings,
    utc_now,
)
from mixseek.storage.aggregation_store import AggregationStore
from mixseek.storage.lease import Connection

__all__ = ["Outcome", "Scenario", "play"]

EXECUTION = "soak"
ROOT = Path(__file__).resolve().parents[1]


@dataclass(frozen=True)
class Scenario:
    """How many of what; the seed decides whom the kills hit and when."""

    writers: int
    rounds: int
    readers: int
    kills: int = 0
    seed: int = 0
    deadline_seconds: float = 900.0


@dataclass
class Outcome:
    """What came of it: ``problems`` is empty if all went well."""

    seconds: float = 0.0
    kills: int = 0
    acknowledged: int = 0
    rows: int = 0
    reads: int = 0
    write_waits: list[float] = field(default_factory=list)
    read_waits: list[float] = field(default_factory=list)
    logs_kept: int = 0
    problems: list[str] = field(default_factory=list)


# --- the processes ----------------------------------------------------------------------------------------------------


def score_of(team: str, number: int) -> float:
    return random.Random(f"{team}/{number}").uniform(0, 100)


def content_of(team: str, number: int) -> str:
    return f"{team} round {number} 提出 " * 50


async def save_one_round(store: AggregationStore, team: str, number: int) -> None:
    score = score_of(team, number)
    member = MemberSubmission(agent_name="a", agent_type="plain", content="work", status="SUCCESS")
    record = MemberSubmissionsRecord(
        execution_id=EXECUTION, team_id=team, team_name=team, round_number=number, submissions=[member]
    )
    await store.save_aggregation(EXECUTION, record, [{"role": "user", "content": f"round {number}"}])
    entry = LeaderBoardEntry(
        execution_id=EXECUTION,
        team_id=team,
        team_name=team,
        round_number=number,
        submission_content=content_of(team, number),
        score=score,
        score_details={"overall_score": score, "metrics": []},
    )
    usage = [
        ModelUsage(
            execution_id=EXECUTION, team_id=team, round_number=number, role=role, agent_name="a", model="m", requests=1
        )
        for role in ("leader", "evaluator")
    ]
    await store.save_round(entry, round_started_at=utc_now(), round_ended_at=utc_now(), usage=usage)


async def write(workspace: Path, team: str, rounds: int, acknowledged: Path) -> None:
    done = {line["round"] for line in lines_of(acknowledged)}
    with acknowledged.open("a") as side:
        # A line that a kill cut short is ended, so that the next one stands alone.
        side.write("\n")
        async with AggregationStore(workspace) as store:
            for number in range(1, rounds + 1):
                if number not in done:
                    started = time.monotonic()
                    await save_one_round(store, team, number)
                    side.write(json.dumps({"round": number, "wait": time.monotonic() - started}) + "\n")
                    side.flush()
                    os.fsync(side.fileno())


async def read(workspace: Path, stop: Path, report: Path) -> None:
    seen: dict[str, tuple[int, float]] = {}
    async with AggregationStore(workspace) as store:
        while not stop.exists():  # noqa: ASYNC240 this process has nothing else to do
            started = time.monotonic()
            standings = await store.get_leaderboard_ranking_by_execution(EXECUTION)
            line: dict[str, Any] = {"wait": time.monotonic() - started}
            now = {standing.team_id: (standing.total_rounds, standing.best_score) for standing in standings}
            if standings != order_standings(standings):
                line["problem"] = "a ranking is out of order"
            if any(team not in now or now[team] < before for team, before in seen.items()):
                line["problem"] = f"a ranking went back: {seen} -> {now}"
            if halves := await store._read(unwhole_rounds):
                line["problem"] = f"{halves} rounds were seen in part"
            seen = now
            with report.open("a") as out:
                out.write(json.dumps(line) + "\n")


def unwhole_rounds(connection: Connection) -> int:
    """How many rounds are in some of their three tables only, or with a part of their usage, in one snapshot."""
    sql = """
        SELECT count(*) FROM (SELECT team_id, round_number FROM leader_board) b
        FULL JOIN (SELECT team_id, round_number FROM round_status) s USING (team_id, round_number)
        FULL JOIN (SELECT team_id, round_number, count(*) AS lines FROM model_usage GROUP BY ALL) u
            USING (team_id, round_number)
        WHERE b.team_id IS NULL OR s.team_id IS NULL OR u.lines IS DISTINCT FROM 2"""
    found = connection.execute(sql).fetchone()
    return int(found[0]) if found else -1


def lines_of(path: Path) -> list[dict[str, Any]]:
    """The whole lines of a side file; the last one may have been cut short by a kill."""
    lines = []
    for line in path.read_text().splitlines() if path.exists() else []:
        try:
            lines.append(json.loads(line))
        except ValueError:
            continue
    return lines


# --- the play ---------------------------------------------------------------------------------------------------------


class Troupe:
    """The processes of a scenario, started again when they are killed."""

    def __init__(self, scenario: Scenario, workspace: Path) -> None:
        self.workspace = workspace
        self.stop = workspace / "stop"
        self.teams = [f"team-{number}" for number in range(scenario.writers)]
        self.rounds = scenario.rounds
        self._seen_at_start: dict[str, int] = {}
        self.writers = {team: self.start_writer(team) for team in self.teams}
        self.readers = {number: self.start_reader(number) for number in range(scenario.readers)}

    def acknowledged(self, team: str) -> Path:
        return self.workspace / f"{team}.acknowledged"

    def report(self, number: int) -> Path:
        return self.workspace / f"reader-{number}.report"

    def start_writer(self, team: str) -> "subprocess.Popen[str]":
        return self._start("write", team, str(self.rounds), str(self.acknowledged(team)))

    def start_reader(self, number: int) -> "subprocess.Popen[str]":
        return self._start("read", str(self.stop), str(self.report(number)))

    def _start(self, part: str, *arguments: str) -> "subprocess.Popen[str]":
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        command = [sys.executable, "-m", "soak.store", part, str(self.workspace), *arguments]
        return subprocess.Popen(command, cwd=ROOT, env=environment, stderr=subprocess.PIPE, text=True)

    def kill_one(self, chance: random.Random) -> bool:
        """Kill a process in the middle of its work and start it again."""
        if self.readers and chance.random() < 0.2:
            number = chance.choice(sorted(self.readers))
            _kill(self.readers[number])
            self.readers[number] = self.start_reader(number)
            return True
        busy = [team for team, process in self.writers.items() if process.poll() is None and self._is_at_work(team)]
        if not busy:
            return False
        team = chance.choice(busy)
        _kill(self.writers[team])
        self.writers[team] = self.start_writer(team)
        self._seen_at_start[team] = self.acknowledged(team).stat().st_size
        return True

    def _is_at_work(self, team: str) -> bool:
        side = self.acknowledged(team)
        return side.exists() and side.stat().st_size > self._seen_at_start.get(team, 0) + 1

    def writing(self) -> bool:
        return any(process.poll() is None for process in self.writers.values())


def _kill(process: "subprocess.Popen[str]") -> None:
    process.send_signal(signal.SIGKILL)
    process.communicate()


def play(scenario: Scenario, workspace: Path) -> Outcome:
    """Run a scenario in an empty workspace and look at what is left."""
    outcome = Outcome()
    chance = random.Random(scenario.seed)
    started = time.monotonic()
    troupe = Troupe(scenario, workspace)
    while troupe.writing() and time.monotonic() - started < scenario.deadline_seconds:
        time.sleep(chance.uniform(0.02, 0.3))
        if outcome.kills < scenario.kills:
            outcome.kills += troupe.kill_one(chance)
    outcome.seconds = time.monotonic() - started
    troupe.stop.touch()
    for name, process in [*troupe.writers.items(), *troupe.readers.items()]:
        _collect(str(name), process, outcome)
    _inspect(troupe, outcome)
    asyncio.run(_compare(troupe, outcome))
    if outcome.kills < scenario.kills:
        outcome.problems.append(f"only {outcome.kills} of {scenario.kills} kills found a process at work")
    return outcome


def _collect(name: str, process: "subprocess.Popen[str]", outcome: Outcome) -> None:
    try:
        _, errors = process.communicate(timeout=120)
    except subprocess.TimeoutExpired:
        process.kill()
        _, errors = process.communicate()
        outcome.problems.append(f"{name} did not end")
    if process.returncode:
        outcome.problems.append(f"{name} ended with {process.returncode}: {errors[-2000:]}")


def _inspect(troupe: Troupe, outcome: Outcome) -> None:
    reads = [line for number in troupe.readers for line in lines_of(troupe.report(number))]
    outcome.reads = len(reads)
    outcome.read_waits = [line["wait"] for line in reads]
    outcome.problems += sorted({line["problem"] for line in reads if "problem" in line})
    outcome.logs_kept = len(list(troupe.workspace.glob("*.damaged-*")))


async def _compare(troupe: Troupe, outcome: Outcome) -> None:
    """Every acknowledged round has to be there, whole and as it was written."""
    async with AggregationStore(troupe.workspace) as store:
        if halves := await store._read(unwhole_rounds):
            outcome.problems.append(f"{halves} rounds are there in part")
        for team in troupe.teams:
            kept = {row.round_number: row for row in await store.get_team_submission_history(EXECUTION, team)}
            acknowledged = lines_of(troupe.acknowledged(team))
            outcome.rows += len(kept)
            outcome.acknowledged += len(acknowledged)
            outcome.write_waits += [line["wait"] for line in acknowledged]
            for number in {line["round"] for line in acknowledged}:
                row = kept.get(number)
                if row is None or (row.content, row.score) != (content_of(team, number), score_of(team, number)):
                    outcome.problems.append(f"{team} round {number} was acknowledged and is not there as written")
                record, messages = await store.load_round_history(EXECUTION, team, number)
                if record is None or messages != [{"role": "user", "content": f"round {number}"}]:
                    outcome.problems.append(f"{team} round {number} was acknowledged and has lost its history")
            if set(kept) != set(range(1, troupe.rounds + 1)):
                outcome.problems.append(f"{team} has {len(kept)} of {troupe.rounds} rounds")


# --- the report -------------------------------------------------------------------------------------------------------


def describe(scenario: Scenario, outcome: Outcome) -> str:
    return "\n".join(
        [
            f"{scenario.writers} writers x {scenario.rounds} rounds, {scenario.readers} readers, "
            f"{outcome.kills} SIGKILLs, seed {scenario.seed}: {'FAILED' if outcome.problems else 'passed'}",
            f"  {outcome.seconds:.1f} s; {outcome.acknowledged} rounds acknowledged, {outcome.rows} rows on the board, "
            f"{outcome.reads} reads; {outcome.logs_kept} write-ahead logs kept aside",
            f"  a round (two writes) waited {_waits(outcome.write_waits)}",
            f"  a ranking read waited      {_waits(outcome.read_waits)}",
            *(f"  problem: {problem}" for problem in outcome.problems[:20]),
        ]
    )


def _waits(waits: list[float]) -> str:
    if not waits:
        return "never"
    ordered = sorted(waits)
    p50, p95 = (ordered[int((len(ordered) - 1) * part)] for part in (0.5, 0.95))
    return f"p50 {p50 * 1e3:.0f} ms, p95 {p95 * 1e3:.0f} ms, max {ordered[-1] * 1e3:.0f} ms"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parts = parser.add_subparsers(dest="part")
    writer = parts.add_parser("write")
    for name, kind in (("workspace", Path), ("team", str), ("rounds", int), ("acknowledged", Path)):
        writer.add_argument(name, type=kind)
    reader = parts.add_parser("read")
    for name in ("workspace", "stop", "report"):
        reader.add_argument(name, type=Path)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**6))
    arguments = parser.parse_args()
    if arguments.part == "write":
        asyncio.run(write(arguments.workspace, arguments.team, arguments.rounds, arguments.acknowledged))
        return 0
    if arguments.part == "read":
        asyncio.run(read(arguments.workspace, arguments.stop, arguments.report))
        return 0
    return soak(arguments.seed)


def soak(seed: int) -> int:
    failures = 0
    for kills in (0, 50):
        scenario = Scenario(writers=8, rounds=200, readers=4, kills=kills, seed=seed)
        with tempfile.TemporaryDirectory() as directory:
            outcome = play(scenario, Path(directory))
        print(describe(scenario, outcome), flush=True)
        failures += bool(outcome.problems)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
