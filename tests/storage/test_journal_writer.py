import asyncio
import gc
import logging
import multiprocessing
import os
import random
import resource
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pydantic import JsonValue

from mixseek.errors import DatabaseLockedError, DatabaseWriteError, UnstorableValueError
from mixseek.storage import journal_file, journal_writer
from mixseek.storage.journal import CallScope, Journal, JournalEvent, StartedCall
from mixseek.storage.pruning import drop_bodies
from soak import forked

NOW = datetime(2026, 11, 15, tzinfo=UTC)

# What every child process below begins with.
CHILD = """
import asyncio, json, os, sys
from datetime import UTC, datetime
from pathlib import Path
from mixseek.storage.journal import Journal, JournalEvent

NOW = datetime(2026, 11, 15, tzinfo=UTC)
path = Path(sys.argv[1])

def event(team, sequence, payload=None):
    return JournalEvent(execution_id="e", team_id=team, sequence=sequence, kind="k", at=NOW, payload=payload)

def say(*words):
    print(*words, flush=True)

"""


def an_event(sequence: int, *, team_id: str = "t", payload: JsonValue = None) -> JournalEvent:
    return JournalEvent(execution_id="e", team_id=team_id, sequence=sequence, kind="k", at=NOW, payload=payload)


def start_child(body: str, path: Path, *arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", CHILD + body, str(path), *arguments]
    return forked.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def finish(child: subprocess.Popen[str]) -> str:
    output, errors = child.communicate(timeout=60)
    assert (child.returncode, errors) == (0, "")
    return output


def kept(path: Path) -> list[tuple[str, int]]:
    db = sqlite3.connect(path)
    rows = db.execute("SELECT team_id, sequence FROM events ORDER BY position").fetchall()
    db.close()
    return rows


def commits_in_log(path: Path) -> int:
    """Frames of the write-ahead log that end a transaction carry the size of the database after it."""
    log = Path(f"{path}-wal").read_bytes()
    size = 24 + int.from_bytes(log[8:12])
    return sum(int.from_bytes(log[at + 4 : at + 8]) != 0 for at in range(32, len(log), size))


# --- shared commits ---------------------------------------------------------------------------------------------------


async def test_a_hundred_concurrent_writers_share_commits(tmp_path: Path) -> None:
    async with Journal(tmp_path / "journal.db") as journal:
        await journal.record_event(an_event(0))
        before = commits_in_log(journal.path)
        await asyncio.gather(*(journal.record_event(an_event(n, team_id=f"t{n}")) for n in range(1, 101)))
        shared = commits_in_log(journal.path) - before
        for number in range(200, 210):
            await journal.record_event(an_event(number))
        alone = commits_in_log(journal.path) - before - shared
    assert shared <= 20
    assert alone == 10
    assert len(kept(journal.path)) == 111


async def test_what_nobody_waits_for_goes_with_what_somebody_waits_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal_writer, "_UNHURRIED_SECONDS", 60)  # however slow the machine is
    async with Journal(tmp_path / "journal.db") as journal:
        await journal.record_event(an_event(0))
        before = commits_in_log(journal.path)
        journal.record_event_later(an_event(1))
        await asyncio.sleep(0.1)
        await journal.record_event(an_event(2))
        assert commits_in_log(journal.path) == before + 1
        assert kept(journal.path) == [("t", 0), ("t", 1), ("t", 2)]


async def test_what_nobody_waits_for_is_written_though_nothing_follows(tmp_path: Path) -> None:
    def wait_until_kept(count: int) -> None:
        while len(kept(tmp_path / "journal.db")) < count:
            time.sleep(0.01)

    async with Journal(tmp_path / "journal.db") as journal:
        await journal.record_event(an_event(0))
        journal.record_event_later(an_event(1))
        await asyncio.wait_for(asyncio.to_thread(wait_until_kept, 2), 60)
        assert kept(journal.path) == [("t", 0), ("t", 1)]


async def test_two_journals_of_one_file_share_one_writer(tmp_path: Path) -> None:
    gc.collect()  # whatever journals other tests left
    (tmp_path / "link.db").symlink_to(tmp_path / "journal.db")
    first, second = Journal(tmp_path / "journal.db"), Journal(tmp_path / "link.db")
    await asyncio.gather(first.record_event(an_event(1)), second.record_event(an_event(2)))
    assert [thread.name for thread in threading.enumerate()].count("mixseek-journal") == 1
    first.close()
    with pytest.raises(DatabaseWriteError, match="closed"):
        await first.record_event(an_event(3))
    await second.record_event(an_event(4))
    second.close()
    assert [sequence for _, sequence in kept(tmp_path / "journal.db")] == [1, 2, 4]
    assert "mixseek-journal" not in [thread.name for thread in threading.enumerate()]


async def test_the_records_of_one_caller_keep_their_order(tmp_path: Path) -> None:
    async with Journal(tmp_path / "journal.db") as journal:

        async def team(name: str) -> None:
            for sequence in range(20):
                await journal.record_event(an_event(sequence, team_id=name))

        await asyncio.gather(*(team(f"t{n}") for n in range(10)))
        events = await journal.events()
    for name in {event.team_id for event in events}:
        assert [event.sequence for event in events if event.team_id == name] == list(range(20))


async def test_the_event_loop_runs_on_while_a_large_record_is_written(tmp_path: Path) -> None:
    async with Journal(tmp_path / "journal.db") as journal:
        turns = 0

        async def turn() -> None:
            nonlocal turns
            while True:
                await asyncio.sleep(0)
                turns += 1

        turning = asyncio.create_task(turn())
        await journal.record_event(an_event(1, payload=["長い文" * 1000] * 1000))
        turning.cancel()
    assert turns > 10


# --- readers, other writers -------------------------------------------------------------------------------------------

READER = """
async def main():
    seen = 0
    async with Journal(path) as journal:
        say("ready")
        while seen < int(sys.argv[2]):
            events = await journal.events()
            # What one reader sees never shrinks and has no holes.
            assert len(events) >= seen
            assert sorted(e.sequence for e in events) == list(range(len(events)))
            seen = len(events)
            await asyncio.sleep(0.01)
    say("saw", seen)
asyncio.run(main())
"""


async def test_four_processes_read_while_one_writes(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    readers = [start_child(READER, path, "50") for _ in range(4)]
    for reader in readers:
        assert reader.stdout is not None
        assert await asyncio.to_thread(reader.stdout.readline) == "ready\n"
    async with Journal(path) as journal:
        for sequence in range(50):
            await journal.record_event(an_event(sequence, payload="x" * 1000))
    assert [await asyncio.to_thread(finish, reader) for reader in readers] == ["saw 50\n"] * 4


WRITER = """
async def main():
    async with Journal(path) as journal:
        for start in range(0, 60, 3):
            await asyncio.gather(*(journal.record_event(event(sys.argv[2], start + n)) for n in range(3)))
asyncio.run(main())
"""


def test_three_processes_begin_and_write_one_journal_together(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    for child in [start_child(WRITER, path, f"t{number}") for number in range(3)]:
        finish(child)
    assert sorted(kept(path)) == [(f"t{team}", sequence) for team in range(3) for sequence in range(60)]


def test_a_log_that_another_is_writing_is_not_called_torn(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "journal.db"
    journal_file.open_for_writing(path, 60).close()
    other = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    # So small a cache lets pages go to the log long before their commit.
    other.execute("PRAGMA cache_size = 1")
    other.execute("BEGIN IMMEDIATE")
    other.execute("CREATE TABLE own AS SELECT randomblob(1000000) AS one, randomblob(1000000) AS two")
    committing = threading.Timer(1.0, other.commit)
    committing.start()
    journal_file.open_for_writing(path, 60).close()
    committing.join()
    other.close()
    assert not list(tmp_path.glob("*.damaged-*"))
    assert caplog.messages == []


CHECKPOINTER = """
import fcntl, sys, time
with open(sys.argv[1] + "-shm", "r+b") as shared:
    fcntl.lockf(shared, fcntl.LOCK_EX, 1, 121)  # what SQLite holds while it copies the log into the file
    print("locked", flush=True)
    time.sleep(0.5)
"""


def test_a_log_that_another_is_copying_into_the_file_is_not_called_torn(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "journal.db"
    with closing(journal_file.open_for_writing(path, 60)) as writing:
        writing.execute("CREATE TABLE own AS SELECT 1 AS one")
        other = subprocess.Popen([sys.executable, "-c", CHECKPOINTER, str(path)], stdout=subprocess.PIPE, text=True)
        assert other.stdout is not None
        assert other.stdout.readline() == "locked\n"
        journal_file.open_for_writing(path, 60).close()
        other.communicate(timeout=60)
    assert not list(tmp_path.glob("*.damaged-*"))
    assert caplog.messages == []


async def test_a_file_held_too_long_is_an_error_that_names_the_holder(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    async with Journal(path, wait_seconds=0.2) as journal:
        await journal.record_event(an_event(1))
        holder = start_child(
            "import sqlite3\ndb = sqlite3.connect(path, isolation_level=None)\ndb.execute('BEGIN IMMEDIATE')\n"
            "say('held')\nimport time; time.sleep(60)\n",
            path,
        )
        assert holder.stdout is not None
        assert await asyncio.to_thread(holder.stdout.readline) == "held\n"
        expected = f"process {holder.pid}" if Path("/proc/locks").exists() else "another process"  # noqa: ASYNC240
        with pytest.raises(DatabaseLockedError, match=expected):
            await journal.record_event(an_event(2))
        assert len(await journal.events()) == 1
        holder.kill()
        await asyncio.to_thread(holder.communicate)
        await journal.record_event(an_event(3))
    assert kept(path) == [("t", 1), ("t", 3)]


WRITES: dict[str, Callable[[Journal], Coroutine[Any, Any, Any]]] = {
    "an event": lambda journal: journal.record_event(an_event(2)),
    "delete": lambda journal: journal.delete("another"),
    "prune": lambda journal: asyncio.to_thread(drop_bodies, journal.path, ["another"]),
}


@pytest.mark.parametrize("write", WRITES)
async def test_a_long_wait_for_another_writer_says_for_whom(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, write: str
) -> None:
    path = tmp_path / "journal.db"
    async with Journal(path) as journal:
        await journal.record_event(an_event(1))
        holder = start_child(
            "import sqlite3\ndb = sqlite3.connect(path, isolation_level=None)\ndb.execute('BEGIN IMMEDIATE')\n"
            "say('held')\nimport time; time.sleep(60)\n",
            path,
        )
        assert holder.stdout is not None
        assert await asyncio.to_thread(holder.stdout.readline) == "held\n"
        writing = asyncio.create_task(WRITES[write](journal))
        for _ in range(3000):
            if "waiting for" in caplog.text:
                break
            await asyncio.sleep(0.01)
        holder.kill()
        await asyncio.to_thread(holder.communicate)
        await writing
    expected = f"process {holder.pid} (" if Path("/proc/locks").exists() else "another process"  # noqa: ASYNC240
    assert f"waiting for {expected}" in caplog.text
    assert "which writes journal.db" in caplog.text
    assert kept(path) == [("t", 1), ("t", 2)][: 1 + (write == "an event")]


# --- sudden ends ------------------------------------------------------------------------------------------------------

KILLED = """
async def team(journal, name):
    for sequence in range(100_000):
        await journal.record_event(event(name, sequence, "x" * 500))
        say(name, sequence)

async def main():
    journal = Journal(path)
    await asyncio.gather(*(team(journal, f"t{n}") for n in range(5)))
asyncio.run(main())
"""


@pytest.mark.parametrize("after", [1, 40, 333])
def test_what_was_acknowledged_before_a_kill_is_there(tmp_path: Path, after: int) -> None:
    path = tmp_path / "journal.db"
    child = start_child(KILLED, path)
    assert child.stdout is not None
    told = [child.stdout.readline() for _ in range(after)]
    child.kill()
    # Not communicate(): what readline() has read ahead would be lost to it.
    told += child.stdout.readlines()
    child.communicate(timeout=60)
    acknowledged = {(line.split()[0], int(line.split()[1])) for line in told if line.endswith("\n")}
    assert len(acknowledged) >= after
    rows = kept(path)
    assert acknowledged <= set(rows)
    assert len(rows) <= len(acknowledged) + 10


IN_FLIGHT = """
from mixseek.storage.journal import CallScope, StartedCall
async def main():
    journal = Journal(path)
    scope = CallScope(execution_id="e", team_id="t", round_number=1, role="leader", agent_name="a")
    start = StartedCall(call_id="c", scope=scope, key="k", occurrence=0, model="m", started_at=NOW, reserved_usd=0.5)
    await journal.call_starts(start)
    os.kill(os.getpid(), 9)
asyncio.run(main())
"""


async def test_a_reservation_is_durable_before_its_request_leaves(tmp_path: Path) -> None:
    child = start_child(IN_FLIGHT, tmp_path / "journal.db")
    await asyncio.to_thread(child.communicate)
    assert child.returncode == -signal.SIGKILL
    async with Journal(tmp_path / "journal.db") as journal:
        (start,) = await journal.calls_in_flight("e")
    assert (start.call_id, start.reserved_usd) == ("c", 0.5)


def test_a_first_start_that_is_killed_can_be_repeated(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    for delay in (0, 0.001, 0.003, 0.01):
        child = start_child("say('go')\n" + WRITER, path, "t")
        assert child.stdout is not None
        child.stdout.readline()
        time.sleep(delay)
        child.kill()
        child.communicate(timeout=60)
    finish(start_child(WRITER, path, "last"))
    assert [row for row in kept(path) if row[0] == "last"] == [("last", sequence) for sequence in range(60)]


async def test_what_a_killed_first_start_left_behind_is_taken_away_later(tmp_path: Path) -> None:
    old, new = tmp_path / ".journal.db.0123.new", tmp_path / ".journal.db.4567.new"
    old.touch()
    new.touch()
    os.utime(old, (0, 0))
    async with Journal(tmp_path / "journal.db") as journal:
        await journal.record_event(an_event(1))
    # The new one may belong to a process that is starting now.
    assert (old.exists(), new.exists()) == (False, True)


LEFT_OPEN = """
async def main():
    journal = Journal(path)
    for sequence in range(500):
        asyncio.ensure_future(journal.record_event(event("t", sequence)))
    await asyncio.sleep(0)
    return journal
journal = asyncio.run(main())
say("loop closed")
"""


def test_what_is_queued_when_the_loop_closes_and_the_process_ends_is_written(tmp_path: Path) -> None:
    assert finish(start_child(LEFT_OPEN, tmp_path / "journal.db")) == "loop closed\n"
    assert len(kept(tmp_path / "journal.db")) == 500


async def test_a_record_whose_caller_is_cancelled_is_written(tmp_path: Path) -> None:
    async with Journal(tmp_path / "journal.db") as journal:
        task = asyncio.create_task(journal.record_event(an_event(1)))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await journal.record_event(an_event(2))
    assert kept(journal.path) == [("t", 1), ("t", 2)]


async def test_a_journal_nobody_holds_any_more_closes_itself(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "journal.db")
    await journal.record_event(an_event(1))
    del journal
    gc.collect()
    assert "mixseek-journal" not in [thread.name for thread in threading.enumerate()]
    assert not (tmp_path / "journal.db-wal").exists()


def _write_in_fork(journal: Journal, sequence: int) -> None:
    async def write() -> None:
        await journal.record_event(an_event(sequence, team_id="child"))
        assert len(await journal.events()) >= 2

    asyncio.run(write())


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
async def test_a_forked_child_writes_and_reads_with_connections_of_its_own(tmp_path: Path) -> None:
    async with Journal(tmp_path / "journal.db") as journal:
        await journal.record_event(an_event(1))
        assert len(await journal.events()) == 1
        children = [
            multiprocessing.get_context("fork").Process(target=_write_in_fork, args=(journal, number))
            for number in range(2)
        ]
        for child in children:
            child.start()
        for sequence in range(2, 20):
            await journal.record_event(an_event(sequence))
        for child in children:
            await asyncio.to_thread(child.join, 60)
            assert child.exitcode == 0
        await journal.record_event(an_event(20))
    rows = kept(journal.path)
    assert {sequence for team, sequence in rows if team == "child"} == {0, 1}
    assert [sequence for team, sequence in rows if team == "t"] == list(range(1, 21))


# --- disks ------------------------------------------------------------------------------------------------------------

LARGE = random.Random(0).randbytes(200_000).hex()
"""Large also when it is compressed."""


@contextmanager
def files_no_larger_than(size: int) -> Iterator[None]:
    """What a full disk does: writes beyond ``size`` fail."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


async def test_a_full_disk_is_an_error_that_names_the_file_and_the_journal_goes_on_afterwards(tmp_path: Path) -> None:
    async with Journal(tmp_path / "journal.db", retry_delays=(0.01,)) as journal:
        await journal.record_event(an_event(1))
        with files_no_larger_than(100_000):
            lost = [journal.record_event(an_event(n, payload=LARGE)) for n in (2, 3)]
            for error in await asyncio.gather(*lost, return_exceptions=True):
                assert isinstance(error, DatabaseWriteError)
                assert str(journal.path) in str(error)
            assert [event.sequence for event in await journal.events()] == [1]
        await journal.record_event(an_event(4))
    assert kept(journal.path) == [("t", 1), ("t", 4)]


async def test_a_disk_that_has_room_again_in_time_loses_nothing(tmp_path: Path) -> None:
    async with Journal(tmp_path / "journal.db", retry_delays=(0.01,) * 1000) as journal:
        await journal.record_event(an_event(1))
        with files_no_larger_than(100_000):
            writing = asyncio.create_task(journal.record_event(an_event(2, payload=LARGE)))
            await asyncio.sleep(0.1)
            assert not writing.done()
        await writing
    assert kept(journal.path) == [("t", 1), ("t", 2)]


async def test_a_record_nobody_waits_for_is_not_lost_in_silence(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    scope = CallScope(execution_id="e", team_id="t", round_number=1, role="leader", agent_name="a")
    start = StartedCall(scope=scope, key="k", occurrence=0, model="m", started_at=NOW)
    async with Journal(tmp_path / "journal.db") as journal:
        await journal.call_starts(start)
        with caplog.at_level(logging.ERROR):
            await journal.call_starts(start, durable=False)
            await journal.record_event(an_event(1))
    assert "lost a record nobody waited for" in caplog.text


async def test_a_record_of_a_team_that_was_lost_is_told_to_the_next_who_waits_for_one_of_the_team(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with Journal(tmp_path / "journal.db", retry_delays=()) as journal:
        await journal.record_event(an_event(1))
        journal.record_event_soon(an_event(1))  # the number is taken
        journal.record_event_soon(an_event(1, team_id="other"))
        await journal.record_event(an_event(2, team_id="other"))
        with pytest.raises(UnstorableValueError, match="refuses this row"):
            await journal.record_event(an_event(2))
        await journal.record_event(an_event(3))
    assert kept(journal.path) == [("t", 1), ("other", 1), ("other", 2), ("t", 2), ("t", 3)]
    assert caplog.text == ""


async def test_a_lost_record_of_a_team_nobody_asks_after_is_told_in_the_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with Journal(tmp_path / "journal.db") as journal:
        await journal.record_event(an_event(1))
        journal.record_event_soon(an_event(1))
    assert "lost a record nobody waited for" in caplog.text


async def test_a_journal_removed_during_a_run_is_begun_anew_with_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with Journal(tmp_path / "journal.db") as journal:
        await journal.record_event(an_event(1))
        assert len(await journal.events()) == 1
        for name in ("journal.db", "journal.db-wal", "journal.db-shm"):
            (tmp_path / name).unlink()
        await journal.record_event(an_event(2))
        assert [event.sequence for event in await journal.events()] == [2]
    assert "was removed while it was in use" in caplog.text
    assert kept(journal.path) == [("t", 2)]


async def test_a_journal_damaged_during_a_run_is_a_named_error_and_nothing_is_deleted(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    async with Journal(path) as journal:
        for sequence in range(50):
            await journal.record_event(an_event(sequence, payload="x" * 3000))
    content = path.read_bytes()
    damaged = content[:4096] + bytes(len(content) - 4096)
    path.write_bytes(damaged)
    async with Journal(path, retry_delays=()) as journal:
        with pytest.raises(DatabaseWriteError, match="is damaged"):
            await journal.record_event(an_event(1000))
    assert path.read_bytes()[4096:] == damaged[4096:]
