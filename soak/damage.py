"""Damages the files of a workspace whose run was killed, and looks whether anything is lost without a word.

``python -m soak.damage`` goes through the large counts; the tests through a few. A run is killed while both stores have
write-ahead logs. Of copies of what it left, one log is cut, zeroed or has a bit flipped at one place, or the DuckDB
file itself is broken or gone. Each copy is opened twice, in processes of their own that may die of it: the first
opening may complain, and at the end ``mixseek.db`` holds what the journal tells. Of a journal whose log is damaged a
beginning is left, and that something is missing was said.
"""

import argparse
import asyncio
import json
import logging
import os
import random
import resource
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mixseek.errors import MixSeekError
from mixseek.records import MemberSubmission, RoundState
from mixseek.storage.aggregation_store import AggregationStore
from mixseek.storage.journal import Journal
from mixseek.storage.journal_checks import check_journal
from mixseek.testing import ModelServer, ModelServerProcess
from soak import forked
from soak.arena import TASK, Arena, Team

__all__ = ["Case", "cases", "killed_workspace", "lost_by", "lost_by_a_full_disk"]

ROOT = Path(__file__).resolve().parents[1]
EXECUTION = "damaged"
_WORDS = ("alpha", "beta")
_ROUNDS_BEFORE_KILL = 3
_LARGEST_SECONDS = 120


# --- what is damaged --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Case:
    """One file and what is done to it."""

    file: str
    kind: str
    share: float
    """Where in the file, from 0 to 1."""
    bit: int = 0

    def __str__(self) -> str:
        return f"{self.file} {self.kind} at {self.share:.1%}"

    def damage(self, root: Path) -> None:
        path = root / self.file
        data = bytearray(path.read_bytes())
        at = min(int(len(data) * self.share), len(data) - 1)
        match self.kind:
            case "deleted":
                path.unlink()
                return
            case "cut":
                data = data[:at]
            case "zeroed":
                data[at : at + 512] = bytes(len(data[at : at + 512]))
            case "flipped":
                data[at] ^= 1 << self.bit
        path.write_bytes(bytes(data))


def cases(count: int, seed: int = 0) -> Iterator[Case]:
    """``count`` places in each log and in the DuckDB file, and the file deleted."""
    drawn = random.Random(seed)
    for number in range(count):
        for file in ("mixseek.db.wal", "journal.db-wal", "mixseek.db"):
            yield Case(file, ("cut", "zeroed", "flipped")[number % 3], drawn.random(), drawn.randrange(8))
    yield Case("mixseek.db", "deleted", 0)


# --- a run that was killed --------------------------------------------------------------------------------------------


def killed_workspace(root: Path) -> Path:
    """Play in a child that is killed after some rounds, when both stores have logs."""
    with ModelServerProcess() as server:
        child = [sys.executable, "-m", "soak.damage", "--play", str(root), server.base_url]
        forked.run(child, cwd=ROOT, check=False, timeout=_LARGEST_SECONDS)
    missing = [name for name in ("mixseek.db.wal", "journal.db-wal") if not (root / name).exists()]
    if missing:
        raise AssertionError(f"the killed run left no {', '.join(missing)}")
    # Shared memory holds nothing that is not in the log.
    (root / "journal.db-shm").unlink(missing_ok=True)
    return root


def _arena(root: Path, base_url: str) -> Arena:
    teams = [Team(word, members=2) for word in _WORDS]
    return Arena(root, base_url, teams, orchestrator="max_rounds = 3\nmin_rounds = 3\n")


async def _play(root: Path, base_url: str) -> None:
    """The child: an execution that ends, then one in the middle of which it kills itself."""
    arena, rounds = _arena(root, base_url), list[RoundState]()

    async def note(state: RoundState, _: list[MemberSubmission]) -> None:
        rounds.append(state)
        if len(rounds) == _ROUNDS_BEFORE_KILL:
            os.kill(os.getpid(), signal.SIGKILL)

    await arena.build().execute(TASK, execution_id="before")
    await arena.build(on_round_complete=note).execute(TASK, execution_id=EXECUTION)


# --- one case ---------------------------------------------------------------------------------------------------------


def lost_by(case: Case, killed: Path) -> list[str]:
    """What is wrong after this damage: a crash, an error without a name, or rows that are missing in silence."""
    with tempfile.TemporaryDirectory() as directory:
        root = Path(shutil.copytree(killed, Path(directory) / "copy"))
        known = _in_child(_open, Path(shutil.copytree(killed, Path(directory) / "whole")))
        case.damage(root)
        first, second = _in_child(_open, root), _in_child(_open, root)
        return [*_wrong(case, first, known), *(f"the second time: {each}" for each in _wrong(case, second, known))]


def _wrong(case: Case, seen: dict[str, Any], known: dict[str, Any]) -> Iterator[str]:
    """``known`` is what is found where nothing is damaged: what was about to be stored, only the journal has."""
    if "died" in seen:
        yield f"the process died: {seen['died']}"
    elif "error" in seen:
        if not seen["named"]:
            yield f"an error without a name: {seen['error']}"
        elif case.file != "journal.db-wal":
            # All that it held can be made anew.
            yield f"could not be opened: {seen['error']}"
    else:
        if seen["missing"] > known["missing"]:
            yield f"{seen['missing']} rows of the journal are not in mixseek.db"
        if seen["faults"]:
            yield f"the journal is not whole: {seen['faults'][0]}"
        if seen["events"] < known["events"] and not seen["copies"]:
            yield f"{known['events'] - seen['events']} events are gone without a word"


async def _open(root: Path) -> dict[str, Any]:
    """What whoever comes next finds: all rows of the journal, or a named error."""
    async with Journal(root / "journal.db") as journal:
        await journal.delete("of nobody")
    async with AggregationStore(root) as store:
        await store.get_leader_board(limit=None)
        missing = await store.rebuild()
    check = check_journal(root / "journal.db")
    copies = [file.name for file in root.iterdir() if ".damaged-" in file.name]  # noqa: ASYNC240 nothing else runs
    return {
        "missing": missing.added + missing.changed,
        "faults": check.faults,
        "events": check.events,
        "copies": copies,
    }


def _in_child(work: Callable[[Path], Any], root: Path) -> dict[str, Any]:
    """What ``work`` finds, in a process that may die of it."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(reading)
        os.write(writing, json.dumps(_attempted(work, root)).encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        told = pipe.read()
    _, status = os.waitpid(pid, 0)
    code = os.waitstatus_to_exitcode(status)
    found: dict[str, Any] = json.loads(told) if told and code == 0 else {"died": f"exit code {code}"}
    return found


def _attempted(work: Callable[[Path], Any], root: Path) -> dict[str, Any]:
    signal.alarm(_LARGEST_SECONDS)
    logging.disable(logging.CRITICAL)
    try:
        found: dict[str, Any] = asyncio.run(work(root))
    except MixSeekError as error:
        return {"error": str(error), "named": True}
    except BaseException as error:  # noqa: BLE001 whatever it is, it is told
        return {"error": f"{type(error).__name__}: {error}", "named": False}
    return found


# --- full disks -------------------------------------------------------------------------------------------------------


def lost_by_a_full_disk(size: int) -> list[str]:
    """Play where no file can grow beyond ``size`` bytes, then make room: nothing that was acknowledged is gone."""
    with tempfile.TemporaryDirectory() as directory:
        root = Path(directory)

        async def play(_: Path) -> dict[str, Any]:
            resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))
            done: list[list[Any]] = []

            async def note(state: RoundState, _: list[MemberSubmission]) -> None:
                done.append([state.submission_content, state.evaluation_score])

            error = None
            async with ModelServer() as server:
                arena = _arena(root, server.base_url)
                arena.script(server)
                arena.storage = ""
                try:
                    await arena.build(on_round_complete=note).execute(TASK, execution_id=EXECUTION)
                except MixSeekError as failure:
                    error = str(failure)
            return {"done": done, "error": error}

        played = _in_child(play, root)
        if "died" in played or not played.get("named", True):
            return [f"the run ended badly: {played}"]
        seen = _in_child(_open, root)
        if "error" in seen or "died" in seen:
            return [f"what a full disk left cannot be opened: {seen}"]
        kept = _in_child(_submissions, root)["kept"]
        lost = [content for content, score in played.get("done", ()) if [content, score] not in kept]
        return [*(f"a round is gone: {each!r}" for each in lost), *seen["faults"]]


async def _submissions(root: Path) -> dict[str, Any]:
    async with AggregationStore(root) as store:
        return {"kept": [[row["submission_content"], row["score"]] for row in await store.get_leader_board(limit=None)]}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--places", type=int, default=200, help="in each file")
    parser.add_argument("--disks", type=int, default=40, help="sizes at which a disk is full")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--play", nargs=2)
    chosen = parser.parse_args()
    if chosen.play:
        asyncio.run(_play(Path(chosen.play[0]), chosen.play[1]))
        return 0
    found = 0
    with tempfile.TemporaryDirectory() as directory:
        killed = killed_workspace(Path(directory))
        tried = list(cases(chosen.places, chosen.seed))
        for case in tried:
            wrong = lost_by(case, killed)
            found += len(wrong)
            for each in wrong:
                print(f"{case}: {each}", flush=True)
    print(f"{len(tried)} damaged files, {found} losses")
    for number in range(chosen.disks):
        size = 4096 * (1 + number * number // 2)
        wrong = lost_by_a_full_disk(size)
        found += len(wrong)
        for each in wrong:
            print(f"no file beyond {size} bytes: {each}", flush=True)
    print(f"{chosen.disks} full disks, {found} losses in all")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
