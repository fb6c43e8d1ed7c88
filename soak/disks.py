"""Full, read-only and broken disks at each write of a competition: nothing that was answered is lost or paid twice.

``python -m soak.disks`` counts what a small competition writes below its workspace, and then plays it again and again.
Each of these writes fails once for want of space and once since the disk is read-only, and where a file is synced once
since the disk is broken; every other time all that follow fail, too. The command has to end by itself, whole or with a
named error. With the fault gone, ``mixseek resume`` has to bring the leader board of the undisturbed run, asking only
what nobody had kept an answer of.

The writes fail in a small library that is preloaded (``disk_faults.c``), so this needs a C compiler. Commands run in
processes that are forked from one that has imported everything.
"""

import argparse
import asyncio
import atexit
import ctypes
import errno
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module, reload
from pathlib import Path
from typing import Any, Final
from urllib.request import ProxyHandler, build_opener

from mixseek import crash_points
from mixseek.cli import main as mixseek
from mixseek.storage.aggregation_store import AggregationStore
from mixseek.storage.journal import Journal
from mixseek.testing import ModelServer
from soak.arena import TASK, Arena, Team
from soak.mortals import PRELOADED, answers_kept, kept

__all__ = ["compiler_is_missing", "run_preloaded"]

_SOURCE: Final = Path(__file__).with_name("disk_faults.c")
_LIBRARY: Final = "MIXSEEK_DISK_FAULTS"
_LONGEST_SECONDS: Final = 120
_AT_ONCE: Final = 4
_TEAMS: Final = (Team("alpha"), Team("beta", scores=(60, 65)))
ERRORS: Final = {errno.ENOSPC: "no space", errno.EROFS: "read-only", errno.EIO: "broken"}
COMMANDS: Final = (("show", "last"), ("export", "last", "-f", "md"), ("journal", "verify"))
"""What has to work when all is over."""


# --- faults -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Fault:
    """The write that fails, how, and whether all later ones do, too; without a number none does."""

    what: str = ""
    """A pattern that the write's words are like."""
    number: int = 0
    """Which of these writes, from 1."""
    error: int = 0
    lasts: bool = False

    def __str__(self) -> str:
        return f"{ERRORS[self.error]}{' from' * self.lasts}, {self.what}, {self.number}"

    def arm(self, root: Path, log: Path) -> None:
        """Let it happen in this process, below ``root``; what is written there is listed in ``log``."""
        listing = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND)
        place, what = os.fsencode(root), self.what.encode()
        _faults().disk_faults_arm(place, what, self.number, self.error, self.lasts, listing)


@dataclass(frozen=True)
class Write:
    """One call that changes a file of the workspace, as in "rename /mixseek.db"."""

    kind: int
    what: str
    is_hit: bool


_SYNC, _REMOVE, _REOPEN = 2, 5, 6
"""Kinds of writes in the library's numbers."""


def compiler_is_missing() -> str | None:
    """Why the library cannot be made here; None if it can."""
    return None if shutil.which("cc") else "there is no C compiler: apt-get install gcc libc6-dev"


@cache
def _faults() -> ctypes.CDLL:
    library = ctypes.CDLL(os.environ[_LIBRARY])
    text, number = ctypes.c_char_p, ctypes.c_int
    library.disk_faults_arm.argtypes = [text, text, ctypes.c_long, number, number, number]
    return library


def run_preloaded(arguments: Sequence[str]) -> int:
    """Run this module again in a process into which the library is loaded before everything else."""
    if reason := compiler_is_missing():
        raise SystemExit(reason)
    with tempfile.TemporaryDirectory() as directory:
        library = Path(directory) / "disk_faults.so"
        subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", library, _SOURCE, "-ldl"], check=True)
        environ = {**os.environ, "LD_PRELOAD": str(library), _LIBRARY: str(library)}
        return subprocess.run([sys.executable, "-m", "soak.disks", *arguments], env=environ, check=False).returncode


# --- processes that are forked ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Ran:
    """What became of a command."""

    code: int
    out: str
    err: str
    seconds: float

    @property
    def told(self) -> str:
        """What it said last on standard error."""
        return self.err.strip().rpartition("\n")[2]


def _import_everything() -> None:
    """What commands import when they are run, so that those that are forked need not."""
    for name in (
        "exec",
        "resume",
        "history",
        "show",
        "board",
        "export",
        "delete",
        "journal",
        "rebuild",
        "prune",
        "rejudge",
    ):
        import_module(f"mixseek.cli.{name}")
    for name in PRELOADED:
        import_module(name)


def _fork(work: Callable[[], object]) -> int:
    pid = os.fork()
    if pid:
        return pid
    code = 70
    try:
        work()
        code = 0
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else 71
    except BaseException:  # noqa: BLE001 it is told by whoever looks at the output
        sys.excepthook(*sys.exc_info())
    # As at the end of every process, threads are ended and what is open is closed in order.
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def _wait(pid: int, seconds: float = _LONGEST_SECONDS) -> int:
    """The exit code of a child; one that does not end is killed."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.005)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    return -signal.SIGALRM


def _told_by(work: Callable[[], Any]) -> Any:
    """What ``work`` gives in a process of its own."""
    reading, writing = os.pipe()

    def tell() -> None:
        os.close(reading)
        with os.fdopen(writing, "w") as pipe:
            json.dump(work(), pipe)

    pid = _fork(tell)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        told = pipe.read()
    code = _wait(pid)
    if code:
        raise RuntimeError(f"a process ended with {code}")
    return json.loads(told)


# --- one competition --------------------------------------------------------------------------------------------------


@dataclass
class Stage:
    """A workspace and its model server, in which commands are run with and without faults."""

    place: Path
    url: str
    arena: Arena = field(init=False)

    def __post_init__(self) -> None:
        self.arena = _arena(self.root, f"{self.url}/v1")

    @property
    def root(self) -> Path:
        return self.place / "workspace"

    def run(self, *arguments: str, fault: Fault | None = None, before: Callable[[], None] = lambda: None) -> Ran:
        """Run a command in a process of its own, in which ``before`` is called first."""
        out, err = self.place / "out", self.place / "err"

        def command() -> None:
            for descriptor, file in ((1, out), (2, err)):
                os.dup2(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), descriptor)
            os.environ["MIXSEEK_WORKSPACE"] = str(self.root)
            sys.argv = ["mixseek", *arguments]
            _hurry()
            before()
            (fault or Fault()).arm(self.root, self.place / "writes")
            mixseek(arguments)

        began = time.monotonic()
        code = _wait(_fork(command))
        return Ran(code, out.read_text(), err.read_text(), time.monotonic() - began)

    def writes(self) -> list[Write]:
        """What the last command wrote."""
        lines = (line.split(" ", 1) for line in (self.place / "writes").read_text().splitlines())
        return [Write(int(kind), what[:-2], what.endswith("1")) for kind, what in lines]

    def requests(self) -> int:
        """What the server was asked so far."""
        with build_opener(ProxyHandler({})).open(f"{self.url}/control/bill", timeout=10) as reply:
            return int(json.load(reply)["total"]["requests"])

    def answers(self) -> int:
        """How many answers the journal has."""
        return int(_told_by(lambda: answers_kept(self.root)))

    def kept(self) -> Any:
        """What ``mixseek.db`` has, without what differs between two runs."""
        return _told_by(lambda: json.loads(json.dumps(kept(self.arena), default=str)))


def _hurry() -> None:
    """Retries of writes without their seconds of waiting."""
    for kind, name in ((AggregationStore, "retry_delays_seconds"), (Journal, "retry_delays")):
        (kind.__init__.__kwdefaults__ or {})[name] = (0.01, 0.02, 0.04)


def _arena(root: Path, base_url: str) -> Arena:
    return Arena(root, base_url, _TEAMS, orchestrator="max_rounds = 2\nmin_rounds = 1\nmax_retries_per_team = 1\n")


@contextmanager
def stage() -> Iterator[Stage]:
    """A new workspace with a model server of its own."""
    # Not a TemporaryDirectory, which every process that is forked would remove at its end.
    directory = Path(tempfile.mkdtemp())
    reading, writing = os.pipe()
    server = _fork(lambda: asyncio.run(_serve(directory, writing)))
    os.close(writing)
    try:
        with os.fdopen(reading) as pipe:
            address = pipe.readline().strip()
        yield Stage(directory, address)
    finally:
        os.kill(server, signal.SIGKILL)
        os.waitpid(server, 0)
        shutil.rmtree(directory, ignore_errors=True)


async def _serve(directory: Path, address: int) -> None:
    async with ModelServer() as server:
        _arena(directory / "script", server.base_url).script(server)
        os.write(address, f"{server.base_url.removesuffix('/v1')}\n".encode())
        os.close(address)
        await asyncio.sleep(3600)


# --- what has to hold -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Usual:
    """The competition without a fault."""

    writes: list[Write]
    requests: int
    kept: Any


def undisturbed() -> Usual:
    """Play it once, and count."""
    with stage() as it:
        ran = it.run("exec", TASK)
        if ran.code:
            raise AssertionError(f"the competition does not work here: {ran.err}")
        return Usual(it.writes(), it.requests(), it.kept())


@dataclass(frozen=True)
class Outcome:
    """What one fault came to."""

    fault: Fault
    what: str = "nothing"
    """The write that failed."""
    code: int = 0
    told: str = ""
    unkept: int = 0
    """Answers that were paid for and could not be kept."""
    seconds: float = 0.0
    wrong: Sequence[str] = ()


def outcome_of(fault: Fault, usual: Usual) -> Outcome:
    """Play with this fault, go on without it, and look whether anything was lost."""
    with stage() as it:
        ran = it.run("exec", TASK, fault=fault)
        hit = next((write.what for write in it.writes() if write.is_hit), "nothing")
        unkept = it.requests() - it.answers()
        # The last writes of a run may fail and be told; its result stands, and whoever resumes it writes them.
        is_whole = ran.code == 0 and "could not be written" not in ran.err
        wrong = [*_wrong_with(ran, it, hit), *(_wrong_with_rows(it, usual) if is_whole else _wrong_after(it, usual))]
        if (again := it.requests() - usual.requests - unkept) > 0:
            wrong.append(f"{again} answers that were kept were paid for again")
        if unkept > len(_TEAMS):
            wrong.append(f"{unkept} answers were paid for that could not be kept")
        return Outcome(fault, hit, ran.code, ran.told, unkept, ran.seconds, wrong)


def _wrong_with(ran: Ran, it: Stage, hit: str) -> Iterator[str]:
    """Whether a command ended as commands do."""
    if ran.code not in (0, 1, 2):
        yield f"it ended with {ran.code}: {ran.told}"
    if "Traceback" in ran.err or "unexpected:" in ran.err or "this is a bug" in ran.err:
        yield f"it ended in a bug: {ran.told}"
    if ran.code and hit != "nothing" and str(it.root) not in ran.err:
        yield f"no file is named: {ran.told}"
    if ran.code == 2 and not any(word in ran.err for word in _REMEDIES):
        yield f"no remedy is named: {ran.told}"


_REMEDIES = ("make room", "writable", "another workspace", "mixseek rebuild", "mixseek resume", "move it", "the disk")


def _wrong_after(it: Stage, usual: Usual) -> Iterator[str]:
    """Go on without the fault."""
    known = it.run("history", "-f", "json")
    if known.code:
        yield f"history ended with {known.code}: {known.told}"
        return
    ids = [line["execution_id"] for line in json.loads(known.out)]
    went_on = it.run("resume", ids[0]) if ids else it.run("exec", TASK)
    if went_on.code and "is whole" not in went_on.err:
        yield f"resume ended with {went_on.code}: {went_on.told}"
        return
    yield from _wrong_with_rows(it, usual)


def _wrong_with_rows(it: Stage, usual: Usual) -> Iterator[str]:
    found = it.kept()
    for table, rows in usual.kept.items():
        if found[table] != rows:
            yield f"{table} is not what it is without the fault: {_difference(rows, found[table])}"
    for command in COMMANDS:
        ran = it.run(*command)
        if ran.code:
            yield f"{' '.join(command)} ended with {ran.code}: {ran.out.strip()[-200:]} {ran.told}"
        if "damaged" in ran.err or "Traceback" in ran.err:
            yield f"{' '.join(command)} complains: {ran.told}"


def _difference(usual: Sequence[Any], found: Sequence[Any]) -> str:
    missing = [row for row in usual if row not in found]
    more = [row for row in found if row not in usual]
    return f"missing {str(missing)[:300]}, instead {str(more)[:300]}"


# --- the sweep --------------------------------------------------------------------------------------------------------


def at_each(writes: Sequence[Write], *, both: bool = False) -> Iterator[Fault]:
    """Each write with each error that a disk has for it, by turns alone and with all that follow, or ``both``."""
    counted = Counter[str]()
    for place, write in enumerate(writes):
        what = _plain(write.what)
        counted[what] += 1
        for turn, error in enumerate(_errors_at(write), start=place):
            for lasts in (False, True) if both else (bool(turn % 2),):
                yield Fault(what, counted[what], error, lasts)


def _errors_at(write: Write) -> tuple[int, ...]:
    full = () if write.kind in (_REMOVE, _REOPEN) else (errno.ENOSPC,)
    broken = (errno.EIO,) if write.kind == _SYNC else ()
    return (*full, errno.EROFS, *broken)


def _plain(what: str) -> str:
    """As a pattern, without a name that is another one in each run."""
    return re.sub(r"(?<=/\.journal\.db\.)[0-9a-f]{32}.*", "*", what)


def named(words: str) -> Fault:
    """The fault that is meant by "no space, pwrite /journal.db-wal, 100", or "read-only from, rename *, 1"."""
    error, what, number = words.split(", ")
    code = next(code for code, name in ERRORS.items() if name == error.removesuffix(" from"))
    return Fault(what, int(number), code, error.endswith(" from"))


def sweep(faults: Sequence[Fault], usual: Usual, at_once: int) -> Iterator[Outcome]:
    """The outcomes of all faults, several at a time."""
    waiting, running = list(reversed(faults)), dict[int, tuple[Fault, int]]()
    while waiting or running:
        while waiting and len(running) < at_once:
            fault = waiting.pop()
            reading, writing = os.pipe()
            running[_fork(lambda: _tell(outcome_of(fault, usual), writing))] = (fault, reading)  # noqa: B023 it is forked here
            os.close(writing)
        pid, status = os.waitpid(-1, 0)
        fault, reading = running.pop(pid)
        with os.fdopen(reading) as pipe:
            told = pipe.read()
        yield _outcome(fault, told, os.waitstatus_to_exitcode(status))


def _tell(outcome: Outcome, to: int) -> None:
    values = (outcome.what, outcome.code, outcome.told, outcome.unkept, outcome.seconds, list(outcome.wrong))
    with os.fdopen(to, "w") as pipe:
        json.dump(values, pipe)


def _outcome(fault: Fault, told: str, code: int) -> Outcome:
    return Outcome(fault, *json.loads(told)) if told else Outcome(fault, wrong=[f"the trial itself ended with {code}"])


# --- disks that are read-only from the beginning ----------------------------------------------------------------------

_NEW_USER, _NEW_MOUNTS = 0x10000000, 0x00020000
_READ_ONLY, _REMOUNT, _BIND, _PRIVATE = 0x1, 0x20, 0x1000, 0x44000
_READING: Final = (
    "history",
    "show last",
    "board last",
    "board",
    "export last -f md",
    "journal tail last",
    "journal calls last",
    "journal verify",
    "whatif last --stop-rule max_rounds=1",
    "prune --dry-run",
)
_WRITING: Final = (
    "exec task",
    "resume last",
    "prune --older-than 0h",
    "rebuild",
    "delete last --yes",
    "rejudge last --evaluator configs/evaluator.toml",
    "export last",
)


def mount_read_only(root: Path) -> None:
    """Let this process, and no other, see ``root`` as on a disk that takes no writes."""
    system, path = ctypes.CDLL(None, use_errno=True), os.fsencode(root)
    steps = (
        system.unshare(_NEW_MOUNTS | (_NEW_USER if os.geteuid() else 0)),
        system.mount(b"none", b"/", None, _PRIVATE, None),
        system.mount(path, path, None, _BIND, None),
        system.mount(b"none", path, None, _REMOUNT | _BIND | _READ_ONLY, None),
    )
    if any(steps):
        raise OSError(ctypes.get_errno(), "a read-only mount cannot be made here")


def wrong_on_a_read_only_disk() -> Iterator[str]:
    """A workspace whose run has ended, and one whose run was killed: reading works, writing is refused and free."""
    with stage() as it:
        it.run("exec", TASK)
        yield from _wrong_where_nothing_is_written(it, (*_READING, *_WRITING))
        it.run("exec", TASK, before=_die_in_the_second_round)
        yield from _wrong_where_nothing_is_written(it, (*_READING, *_WRITING))
        (it.root / "journal.db-shm").unlink()
        found = it.run("journal", "verify", before=lambda: mount_read_only(it.root))
        if found.code != 2 or "copy the workspace" not in found.err:
            yield f"a log that cannot be read is not named: {found.code} {found.told}"


def _die_in_the_second_round() -> None:
    os.environ[crash_points.CRASH_AT] = "round.kept:2"
    # What other modules imported from it looks its choice up in the module, which this makes anew.
    reload(crash_points)


def _wrong_where_nothing_is_written(it: Stage, commands: Sequence[str]) -> Iterator[str]:
    for command in commands:
        before = it.requests()
        ran = it.run(*command.split(), before=lambda: mount_read_only(it.root))
        if it.requests() != before:
            yield f"{command}: asked a model whose answer cannot be kept"
        if command in _READING and (ran.code or _complaints(ran)):
            yield f"{command}: ended with {ran.code}: {ran.told}"
        remedies = (*_REMEDIES, "is whole", "Read-only file system; name another file")
        if command in _WRITING and (ran.code != 2 or not any(word in ran.err for word in remedies)):
            yield f"{command}: ended with {ran.code}, and says no remedy: {ran.told}"
        if "Traceback" in ran.err or "unexpected" in ran.err:
            yield f"{command}: ended in a bug: {ran.told}"


def _complaints(ran: Ran) -> str:
    """What a command says on standard error, but for what is no complaint: that it looked at a part."""
    return "".join(line for line in ran.err.splitlines() if "this goes by the rounds that it has so far" not in line)


def main() -> int:
    """Try every write; ends with exit code 1 if something was lost."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--all", action="store_true", help="each fault alone and with all that follow: twice as long")
    parser.add_argument("--fault", nargs="*", help='only these, as "no space, rename /mixseek.db, 1"')
    parser.add_argument("--every", type=int, default=1, help="only each so manieth fault")
    parser.add_argument("--at-once", type=int, default=_AT_ONCE)
    parser.add_argument("--verbose", action="store_true", help="tell every outcome")
    chosen = parser.parse_args()
    if _LIBRARY not in os.environ:
        return run_preloaded(sys.argv[1:])
    _import_everything()
    usual = undisturbed()
    print(f"{len(usual.writes)} writes, {usual.requests} requests: {_kinds(usual.writes)}", flush=True)
    found = list(wrong_on_a_read_only_disk())
    print(
        *found,
        f"{len(_READING) + len(_WRITING)} commands on a read-only disk, {len(found)} losses",
        sep="\n",
        flush=True,
    )
    if chosen.fault is not None:
        faults = [named(words) for words in chosen.fault]
    else:
        faults = list(at_each(usual.writes, both=chosen.all))[:: chosen.every]
    found += _told(sweep(faults, usual, chosen.at_once), verbose=chosen.verbose)
    return 1 if found else 0


def _told(outcomes: Iterator[Outcome], *, verbose: bool) -> list[str]:
    """Print what became of the faults; returns what was wrong."""
    codes, wrong, unkept, missed, longest = Counter[int](), list[str](), 0, 0, 0.0
    for outcome in outcomes:
        codes[outcome.code] += 1
        wrong += outcome.wrong
        unkept, longest = unkept + outcome.unkept, max(longest, outcome.seconds)
        missed += outcome.what == "nothing"
        if verbose or outcome.wrong:
            ended = f"{outcome.code} after {outcome.seconds:.1f} s: {outcome.told}"
            print(f"{outcome.fault}: {ended}", *outcome.wrong, sep="\n    ", flush=True)
    ended = ", ".join(f"{count} with exit code {code}" for code, count in sorted(codes.items()))
    print(f"{codes.total()} faults, {missed} of them at writes that these runs did not come to: {ended}")
    print(f"{unkept} answers could not be kept; the longest run took {longest:.1f} s")
    print(f"{len(wrong)} losses")
    return wrong


def _kinds(writes: Sequence[Write]) -> str:
    kinds = Counter(_plain(write.what) for write in writes)
    return ", ".join(f"{count} {what}" for what, count in kinds.most_common())


if __name__ == "__main__":
    sys.exit(main())
