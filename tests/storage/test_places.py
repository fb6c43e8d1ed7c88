"""Who may play an execution: taking a place, keeping it, leaving it, and losing it while one stands still."""

import asyncio
import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import duckdb
import pytest

from mixseek.errors import PlaceLostError, PlaceTakenError
from mixseek.records import utc_now
from mixseek.storage.aggregation_store import AggregationStore
from mixseek.storage.journal import Journal, JournalEvent
from mixseek.storage.places import HeldPlace
from soak import forked

ENVIRONMENT = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
FROZEN_SECONDS = 1.5

# Takes the place, then writes to the store that a line on standard input names, and says how it went.
PLAY = """
import asyncio, sys
from pathlib import Path
from mixseek.records import utc_now
from mixseek.storage.aggregation_store import AggregationStore
from mixseek.storage.journal import Journal, JournalEvent

async def play(root):
    store = AggregationStore(root)
    async with Journal(root / "journal.db") as journal:
        place = await journal.take_place("e", root / "mixseek.db")
        async with AggregationStore(root) as first:
            await first.save_to_leader_board("e", "a", "A", 1, "first", "md", 1.0, {})
        # The file is let go with it: a process that is stopped while it holds the file keeps everybody waiting.
        await store.go_by(place)
        print("ready", flush=True)
        number = 0
        while where := (await asyncio.to_thread(sys.stdin.readline)).strip():
            number += 1
            try:
                if where == "journal":
                    about = {"execution_id": "e", "team_id": "a", "sequence": number, "kind": "Late"}
                    await journal.record_event(JournalEvent(**about, at=utc_now(), payload={}))
                else:
                    await store.save_to_leader_board("e", "a", "A", 1 + number, "late", "md", 99.0, {})
                print("written", flush=True)
            except Exception as error:
                print(type(error).__name__, error, flush=True)

asyncio.run(play(Path(sys.argv[1])))
"""


@pytest.fixture
def child() -> Iterator[Callable[[Path], "subprocess.Popen[str]"]]:
    """Start a process that plays the execution "e"; it is ended with the test."""
    started: list[subprocess.Popen[str]] = []

    def start(root: Path) -> "subprocess.Popen[str]":
        command = [sys.executable, "-c", PLAY, str(root)]
        process = forked.Popen(command, env=ENVIRONMENT, stdout=subprocess.PIPE, stdin=subprocess.PIPE, text=True)
        started.append(process)
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


def ask(process: "subprocess.Popen[str]", what: str) -> str:
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(what + "\n")
    process.stdin.flush()
    return process.stdout.readline().strip()


async def take(journal: Journal, root: Path) -> HeldPlace:
    return await journal.take_place("e", root / "mixseek.db", frozen_seconds=FROZEN_SECONDS)


def event(number: int) -> JournalEvent:
    return JournalEvent(execution_id="e", team_id=None, sequence=number, kind="Seen", at=utc_now(), payload={})


def open_files(root: Path) -> list[str]:
    """Names of the files of a workspace that this process has open."""
    links = [os.path.realpath(link) for link in Path("/proc/self/fd").iterdir()]
    return sorted(Path(link).name for link in links if link.startswith(str(root)) and "journal" in link)


async def test_whoever_takes_a_place_writes_on_by_the_same_connection(tmp_path: Path) -> None:
    async with Journal(tmp_path / "journal.db") as journal:
        await journal.record_event(event(0))
    opened: list[str] = []
    sys.addaudithook(lambda name, given: opened.append(str(given[0])) if name == "sqlite3.connect" else None)
    async with Journal(tmp_path / "journal.db") as journal:
        await take(journal, tmp_path)
        await journal.record_event(event(1))
    assert opened == [str(tmp_path / "journal.db")]
    assert open_files(tmp_path) == []


async def test_a_journal_that_is_closed_as_soon_as_its_place_is_taken_leaves_nothing_open(tmp_path: Path) -> None:
    async with Journal(tmp_path / "journal.db") as journal:
        journal._writer.hold = lambda place: None  # type: ignore[method-assign]  # cancelled before it beats
        await take(journal, tmp_path)
        assert open_files(tmp_path) != []
    assert open_files(tmp_path) == []
    assert not (tmp_path / "journal.db-wal").exists()


async def test_a_living_holder_is_named_to_whoever_wants_its_place(
    tmp_path: Path, child: Callable[[Path], "subprocess.Popen[str]"]
) -> None:
    holder = child(tmp_path)
    async with Journal(tmp_path / "journal.db") as journal:
        with pytest.raises(PlaceTakenError, match=rf"'e' is being played by process {holder.pid} \(.*\) on .* since "):
            await take(journal, tmp_path)
    assert ask(holder, "journal") == "written"
    assert ask(holder, "store") == "written"


async def test_the_place_of_a_process_that_was_killed_is_free_at_once(
    tmp_path: Path, child: Callable[[Path], "subprocess.Popen[str]"]
) -> None:
    holder = child(tmp_path)
    holder.kill()
    holder.wait()
    async with Journal(tmp_path / "journal.db") as journal, asyncio.timeout(30):
        # So long that the test would notice if it was waited for.
        place = await journal.take_place("e", tmp_path / "mixseek.db", frozen_seconds=600)
        assert place.place.epoch == 2


async def test_a_frozen_holder_loses_its_place_and_can_write_nothing_when_it_wakes_up(
    tmp_path: Path, child: Callable[[Path], "subprocess.Popen[str]"], caplog: pytest.LogCaptureFixture
) -> None:
    holder = child(tmp_path)
    holder.send_signal(signal.SIGSTOP)
    async with Journal(tmp_path / "journal.db") as journal, AggregationStore(tmp_path) as store:
        place = await take(journal, tmp_path)
        await store.go_by(place)
        assert f"taken over from process {holder.pid}" in caplog.text
        holder.send_signal(signal.SIGCONT)
        for where in ("store", "journal", "store"):
            told = await asyncio.to_thread(ask, holder, where)
            assert told.startswith(f"PlaceLostError execution 'e' was taken over by process {os.getpid()} (")
        await journal.record_event(event(0))
        await store.save_to_leader_board("e", "b", "B", 1, "new", "md", 2.0, {})
        assert [each.kind for each in await journal.events("e")] == ["Seen"]
        assert {row["submission_content"] for row in await store.get_leader_board()} == {"first", "new"}


async def test_a_place_that_was_left_is_taken_without_a_wait(tmp_path: Path) -> None:
    for epoch in (1, 2, 3):
        async with Journal(tmp_path / "journal.db") as journal:
            place = await journal.take_place("e", tmp_path / "mixseek.db", frozen_seconds=600)
            assert place.place.epoch == epoch
            journal.record_event_later(event(epoch))
            await journal.leave_place()
    async with Journal(tmp_path / "journal.db") as journal:
        assert [each.sequence for each in await journal.events("e")] == [1, 2, 3]


async def test_of_many_who_want_a_place_at_once_one_gets_it(tmp_path: Path) -> None:
    journals = [Journal(tmp_path / "journal.db") for _ in range(6)]
    found = await asyncio.gather(*(take(each, tmp_path) for each in journals), return_exceptions=True)
    assert sorted(type(each).__name__ for each in found) == ["HeldPlace", *["PlaceTakenError"] * 5]
    for journal in journals:
        await journal.leave_place()
        await journal.aclose()


async def test_other_executions_are_not_touched_by_a_place_that_is_lost(tmp_path: Path) -> None:
    async with Journal(tmp_path / "journal.db") as lost, Journal(tmp_path / "journal.db") as other:
        place = await take(lost, tmp_path)
        await other.take_place("other", tmp_path / "mixseek.db")
        heard: list[bool] = []
        place.when_lost(lambda: heard.append(True))
        with sqlite3.connect(tmp_path / "journal.db", timeout=30) as db:
            db.execute("UPDATE places SET epoch = 7, holder = 'x', pid = 77 WHERE execution_id = 'e'")
        mine = event(1).model_copy(update={"execution_id": "other"})
        outcomes = await asyncio.gather(lost.record_event(event(1)), other.record_event(mine), return_exceptions=True)
        assert isinstance(outcomes[0], PlaceLostError)
        assert "process 77" in str(outcomes[0])
        assert outcomes[1] is None
        assert heard == [True]
        assert (await lost.events("e"), len(await other.events("other"))) == ([], 1)


async def test_a_lost_place_is_noticed_without_a_write(tmp_path: Path) -> None:
    async with Journal(tmp_path / "journal.db") as journal:
        place = await take(journal, tmp_path)
        heard = asyncio.Event()
        loop = asyncio.get_running_loop()
        place.when_lost(lambda: loop.call_soon_threadsafe(heard.set))
        with sqlite3.connect(tmp_path / "journal.db", timeout=30) as db:
            db.execute("UPDATE places SET epoch = 2, holder = 'x'")
        async with asyncio.timeout(30):
            await heard.wait()
        with pytest.raises(PlaceLostError):
            place.check()


async def test_a_journal_that_was_removed_in_a_run_knows_the_place_again(tmp_path: Path) -> None:
    async with Journal(tmp_path / "journal.db") as journal:
        await take(journal, tmp_path)
        for name in ("journal.db", "journal.db-wal", "journal.db-shm"):
            (tmp_path / name).unlink(missing_ok=True)
        await journal.record_event(event(1))
        async with Journal(tmp_path / "journal.db") as second:
            with pytest.raises(PlaceTakenError):
                await take(second, tmp_path)
        await journal.leave_place()


async def test_a_database_that_was_made_anew_knows_who_plays(tmp_path: Path) -> None:
    async with Journal(tmp_path / "journal.db") as journal, AggregationStore(tmp_path) as store:
        await take(journal, tmp_path)
        await journal.leave_place()
        await store.go_by(await take(journal, tmp_path))
        await store.close()
        (tmp_path / "mixseek.db").unlink()
        async with AggregationStore(tmp_path) as anew:
            await anew.go_by(store._place)  # type: ignore[arg-type]  # as a run has it that goes on
            await anew.save_to_leader_board("e", "a", "A", 1, "s", "md", 1.0, {})
        await journal.leave_place()
    with duckdb.connect(tmp_path / "mixseek.db") as db:
        assert db.execute("SELECT epoch FROM places").fetchall() == [(2,)]


async def test_the_clock_set_back_a_day_takes_nobodys_place(
    tmp_path: Path, child: Callable[[Path], "subprocess.Popen[str]"], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two processes whose clocks are a day apart: one is named by the other, and the beat alone decides."""
    holder = child(tmp_path)
    monkeypatch.setattr("mixseek.storage.places.utc_now", lambda: utc_now().replace(year=2020))
    async with Journal(tmp_path / "journal.db") as journal:
        with pytest.raises(PlaceTakenError):
            await take(journal, tmp_path)
        holder.send_signal(signal.SIGSTOP)
        assert (await take(journal, tmp_path)).place.taken_at.startswith("2020")
        await journal.leave_place()


async def test_deleting_an_execution_forgets_who_played_it(tmp_path: Path) -> None:
    async with Journal(tmp_path / "journal.db") as journal:
        await take(journal, tmp_path)
        await journal.leave_place()
        assert await journal.delete("e") == 1
        assert (await take(journal, tmp_path)).place.epoch == 1
        await journal.leave_place()
