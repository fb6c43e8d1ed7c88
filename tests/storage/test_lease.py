"""One file, many users: tasks, threads, event loops, stores, processes and forks; and what happens when it is held."""

import asyncio
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import duckdb
import pytest

from mixseek.errors import DatabaseLockedError, DatabaseReadError, DatabaseWriteError, UnstorableValueError
from mixseek.storage.aggregation_store import AggregationStore
from mixseek.storage.lease import worker_for
from mixseek.storage.turn import Turn
from tests.waiting import until

ENVIRONMENT = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}


async def put(store: AggregationStore, number: int, team: str = "a", content: str = "s") -> None:
    await store.save_to_leader_board("e", team, team, number, content, "md", float(number), {})


async def rounds(store: AggregationStore, team: str = "a") -> list[int]:
    return [row.round_number for row in await store.get_team_submission_history("e", team)]


@pytest.fixture
def child() -> Iterator[Callable[..., "subprocess.Popen[str]"]]:
    """Start a Python child that prints a line when it is ready; it is ended with the test."""
    started: list[subprocess.Popen[str]] = []

    def start(code: str, *arguments: object) -> "subprocess.Popen[str]":
        command = [sys.executable, "-c", code, *map(str, arguments)]
        process = subprocess.Popen(command, env=ENVIRONMENT, stdout=subprocess.PIPE, stdin=subprocess.PIPE, text=True)
        started.append(process)
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


HOLD_WITH_DUCKDB = """
import duckdb, sys
connection = duckdb.connect(sys.argv[1])
print("ready", flush=True)
sys.stdin.readline()
connection.close()
"""
HOLD_THE_TURN = """
import sys, threading, time
from pathlib import Path
from mixseek.storage.turn import Turn
turn = Turn(Path(sys.argv[1]))
assert turn.take(time.monotonic() + 10, threading.Event())
print("ready", flush=True)
sys.stdin.readline()
turn.release()
"""


IS_LOCKED = """
import duckdb, sys
try:
    duckdb.connect(sys.argv[1])
except duckdb.IOException:
    print("still locked")
"""
COUNT_ROWS = """
import duckdb, sys, time
end = time.monotonic() + 10
while True:
    try:
        connection = duckdb.connect(sys.argv[1])
        break
    except duckdb.IOException:
        assert time.monotonic() < end
print(connection.execute("SELECT count(*) FROM leader_board").fetchone()[0])
"""


def output_of(code: str, *arguments: object) -> str:
    command = [sys.executable, "-c", code, *map(str, arguments)]
    return subprocess.run(command, env=ENVIRONMENT, stdout=subprocess.PIPE, text=True, timeout=120).stdout.strip()


# --- sharing in one process -------------------------------------------------------------------------------------------


async def test_many_tasks_share_commits_and_all_rows_arrive(tmp_path: Path) -> None:
    async with AggregationStore(tmp_path) as store:
        await asyncio.gather(*(put(store, number) for number in range(1, 101)))
        assert await rounds(store) == list(range(1, 101))


async def test_one_bad_value_does_not_fail_the_others_of_its_batch(tmp_path: Path) -> None:
    async with AggregationStore(tmp_path) as store:
        writes = [put(store, number, content="\ud800" if number == 7 else "s") for number in range(1, 21)]
        outcomes = await asyncio.gather(*writes, return_exceptions=True)
        assert [type(outcome) for outcome in outcomes if outcome is not None] == [UnstorableValueError]
        assert await rounds(store) == [number for number in range(1, 21) if number != 7]


async def test_a_row_the_database_refuses_does_not_fail_the_others_of_its_batch(tmp_path: Path) -> None:
    async with AggregationStore(tmp_path) as store:
        await store.get_leader_board()
    with duckdb.connect(str(tmp_path / "mixseek.db")) as connection:
        connection.execute("ALTER TABLE leader_board ADD COLUMN own INTEGER")
        connection.execute("CREATE UNIQUE INDEX own_rule ON leader_board (submission_content)")
    async with AggregationStore(tmp_path) as store:
        writes = [put(store, number, content=f"s{number % 9}") for number in range(1, 11)]
        outcomes = await asyncio.gather(*writes, return_exceptions=True)
        refused = [number for number, outcome in enumerate(outcomes, 1) if isinstance(outcome, DatabaseWriteError)]
        assert refused == [10]
        assert await rounds(store) == list(range(1, 10))


async def test_of_two_writes_of_one_round_in_a_batch_the_later_one_stays(tmp_path: Path) -> None:
    async with AggregationStore(tmp_path) as store:
        await asyncio.gather(*(put(store, 1, content=f"version {n}") for n in range(30)))
        (row,) = await store.get_leader_board()
    assert row["submission_content"] == "version 29"


def test_threads_with_their_own_event_loops_share_one_store(tmp_path: Path) -> None:
    store = AggregationStore(tmp_path)
    errors: list[BaseException] = []

    async def work(team: str) -> None:
        for number in range(1, 6):
            await put(store, number, team)
        assert await rounds(store, team) == [1, 2, 3, 4, 5]

    def run(team: str) -> None:
        try:
            asyncio.run(work(team))
        except BaseException as error:  # noqa: BLE001 shown below
            errors.append(error)

    threads = [threading.Thread(target=run, args=(f"t{n}",)) for n in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert len(asyncio.run(store.get_leader_board(limit=None))) == 100


async def test_stores_on_one_file_by_several_names_share_its_worker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    monkeypatch.chdir(tmp_path)
    stores = [
        AggregationStore(tmp_path / "real"),
        AggregationStore(tmp_path / "link"),
        AggregationStore(db_path="real/../link/mixseek.db"),
    ]
    await asyncio.gather(*(put(store, number) for number, store in enumerate(stores * 5, 1)))
    for store in stores:
        assert await rounds(store) == list(range(1, 16))
    assert len({id(store._worker) for store in stores}) == 1
    for store in stores:
        await store.close()


async def test_stores_on_different_files_do_not_mix(tmp_path: Path) -> None:
    async with AggregationStore(db_path=tmp_path / "a.db") as one, AggregationStore(db_path=tmp_path / "b.db") as two:
        await asyncio.gather(put(one, 1), put(two, 2))
        assert (await rounds(one), await rounds(two)) == ([1], [2])


async def test_a_file_that_this_process_has_open_itself_can_be_used_all_the_same(tmp_path: Path) -> None:
    async with AggregationStore(tmp_path) as store:
        await put(store, 1)
    with duckdb.connect(str(tmp_path / "mixseek.db")) as connection:
        async with AggregationStore(tmp_path) as store:
            await put(store, 2)
        assert connection.execute("SELECT count(*) FROM leader_board").fetchone() == (2,)
        assert await asyncio.to_thread(output_of, IS_LOCKED, tmp_path / "mixseek.db") == "still locked"


# --- letting go -------------------------------------------------------------------------------------------------------


async def test_the_file_is_let_go_soon_after_the_work(tmp_path: Path) -> None:
    store = AggregationStore(tmp_path)
    await put(store, 1)
    assert await asyncio.to_thread(output_of, COUNT_ROWS, tmp_path / "mixseek.db") == "1"
    await put(store, 2)
    assert await rounds(store) == [1, 2]


async def test_a_busy_store_lets_another_process_in(tmp_path: Path) -> None:
    code = """
import asyncio, sys
from mixseek.storage.aggregation_store import AggregationStore
print(len(asyncio.run(AggregationStore(sys.argv[1]).get_leader_board_ranking("e"))))
"""
    async with AggregationStore(tmp_path) as store:
        await put(store, 1)
        command = [sys.executable, "-c", code, str(tmp_path)]
        other = await asyncio.create_subprocess_exec(*command, env=ENVIRONMENT, stdout=asyncio.subprocess.PIPE)
        number = 1
        ended = asyncio.create_task(other.communicate())
        while not ended.done() and number < 50_000:
            number += 1
            await put(store, number)
        assert (await ended)[0].strip() == b"1"


# --- a file that is held ----------------------------------------------------------------------------------------------


async def test_waiting_for_a_program_without_turns_is_no_failure(tmp_path: Path, child: Any) -> None:
    async with AggregationStore(tmp_path) as store:
        await put(store, 1)
    holder = child(HOLD_WITH_DUCKDB, tmp_path / "mixseek.db")
    async with AggregationStore(tmp_path) as store:
        write = asyncio.create_task(put(store, 2))
        await asyncio.sleep(0.3)
        assert not write.done()
        holder.stdin.write("\n")
        holder.stdin.flush()
        await write
        assert await rounds(store) == [1, 2]


async def test_a_program_that_holds_the_file_too_long_is_named(tmp_path: Path, child: Any) -> None:
    async with AggregationStore(tmp_path) as store:
        await put(store, 1)
    holder = child(HOLD_WITH_DUCKDB, tmp_path / "mixseek.db")
    async with AggregationStore(tmp_path, lock_wait_seconds=0.2) as store:
        with pytest.raises(DatabaseLockedError, match=rf"mixseek\.db' is held by process {holder.pid} .*waited 0.2 s"):
            await put(store, 2)
        with pytest.raises(DatabaseReadError, match=rf"process {holder.pid}\b"):
            await store.get_leader_board()


async def test_a_long_wait_for_another_program_says_for_whom(
    tmp_path: Path, child: Any, caplog: pytest.LogCaptureFixture
) -> None:
    async with AggregationStore(tmp_path) as store:
        await put(store, 1)
        await store.close()
    holder = child(HOLD_WITH_DUCKDB, tmp_path / "mixseek.db")
    async with AggregationStore(tmp_path) as store:
        writing = asyncio.create_task(put(store, 2))
        await until(lambda: "waiting for" in caplog.text)
        holder.stdin.write("\n")
        holder.stdin.flush()
        await writing
        assert await rounds(store) == [1, 2]
    assert re.search(rf"waiting for process {holder.pid} \(\S+\), which holds mixseek\.db", caplog.text)
    assert caplog.text.count("waiting for") == 1


async def test_a_long_wait_for_a_stopped_process_says_what_lets_it_go_on(
    tmp_path: Path, child: Any, caplog: pytest.LogCaptureFixture
) -> None:
    holder = child(HOLD_THE_TURN, tmp_path / "mixseek.db.lock")
    holder.send_signal(signal.SIGSTOP)
    async with AggregationStore(tmp_path) as store:
        writing = asyncio.create_task(put(store, 1))
        await until(lambda: "waiting for" in caplog.text)
        holder.send_signal(signal.SIGCONT)
        holder.stdin.write("\n")
        holder.stdin.flush()
        await writing
    assert f"waiting for process {holder.pid} (python) since" in caplog.text
    assert f"which is stopped (`kill -CONT {holder.pid}` lets it go on)" in caplog.text


async def test_a_process_that_holds_the_turn_too_long_is_named(tmp_path: Path, child: Any) -> None:
    holder = child(HOLD_THE_TURN, tmp_path / "mixseek.db.lock")
    async with AggregationStore(tmp_path, lock_wait_seconds=0.2) as store:
        started = time.monotonic()
        outcomes = await asyncio.gather(*(put(store, number) for number in (1, 2, 3)), return_exceptions=True)
        assert time.monotonic() - started < 5
        assert [type(outcome) for outcome in outcomes] == [DatabaseLockedError] * 3
        assert f"held by process {holder.pid} (" in str(outcomes[0])
        holder.stdin.write("\n")
        holder.stdin.flush()
        await asyncio.to_thread(holder.wait)
        await put(store, 4)
        assert await rounds(store) == [4]


async def test_the_turn_of_a_killed_process_is_free(tmp_path: Path, child: Any) -> None:
    holder = child(HOLD_THE_TURN, tmp_path / "mixseek.db.lock")
    async with AggregationStore(tmp_path) as store:
        write = asyncio.create_task(put(store, 1))
        await asyncio.sleep(0.2)
        assert not write.done()
        holder.send_signal(signal.SIGKILL)
        await write


def test_turns_are_given_in_the_order_they_were_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    order: list[int] = []
    first, never = Turn(path), threading.Event()
    assert first.take(time.monotonic(), never)
    assert not first.contended()

    def wait(number: int) -> None:
        turn = Turn(path)
        assert turn.take(time.monotonic() + 20, never)
        order.append(number)
        turn.release()

    impatient = Turn(path)
    threads = []
    for number in range(6):
        threads.append(threading.Thread(target=wait, args=(number,)))
        before = path.read_bytes()[:20]
        threads[-1].start()
        while path.read_bytes()[:20] == before:
            time.sleep(0.001)
        if number == 2:
            assert not impatient.take(time.monotonic() + 0.05, never)
    assert first.contended()
    first.release()
    for thread in threads:
        thread.join()
    assert order == [0, 1, 2, 3, 4, 5]


# --- callers that go away ---------------------------------------------------------------------------------------------


async def test_a_cancelled_caller_leaves_the_store_usable(tmp_path: Path, child: Any) -> None:
    holder = child(HOLD_THE_TURN, tmp_path / "mixseek.db.lock")
    async with AggregationStore(tmp_path) as store:
        writes = [asyncio.create_task(put(store, number)) for number in range(1, 6)]
        await asyncio.sleep(0.1)
        for write in writes[1:4]:
            write.cancel()
        await asyncio.sleep(0.01)
        holder.stdin.write("\n")
        holder.stdin.flush()
        outcomes = await asyncio.gather(*writes, return_exceptions=True)
        assert [type(outcome) for outcome in outcomes[1:4]] == [asyncio.CancelledError] * 3
        assert await rounds(store) == [1, 5]


async def test_cancelling_at_any_moment_leaves_each_write_done_or_not_done(tmp_path: Path) -> None:
    async with AggregationStore(tmp_path) as store:
        for number in range(1, 31):
            write = asyncio.create_task(put(store, number))
            await asyncio.sleep(number * 0.0002)
            write.cancel()
        await put(store, 100)
        found = await rounds(store)
        assert found[-1] == 100
        assert len(found) == len(set(found))


def test_an_event_loop_that_is_gone_stops_nobody(tmp_path: Path) -> None:
    store = AggregationStore(tmp_path)

    async def leave() -> None:
        _ = [asyncio.create_task(put(store, number)) for number in range(1, 10)]
        await asyncio.sleep(0)

    asyncio.run(leave())
    asyncio.run(put(store, 50))
    assert 50 in asyncio.run(rounds(store))


# --- failures that may pass -------------------------------------------------------------------------------------------


FULL_DISK = """
import asyncio, logging, resource, signal, sys
from mixseek.errors import DatabaseWriteError
from mixseek.storage.aggregation_store import AggregationStore
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
def limit(size):
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))
class LiftTheLimit(logging.Handler):
    def emit(self, record):
        limit(resource.RLIM_INFINITY)
async def main():
    logging.basicConfig(level=logging.DEBUG)
    async with AggregationStore(sys.argv[1], retry_delays_seconds=(0.2, 0.1, 0.1)) as store:
        await store.save_to_leader_board("e", "a", "A", 1, "s", "md", 1.0, {})
        limit(4096)
        try:
            await store.save_to_leader_board("e", "a", "A", 2, "s" * 100_000, "md", 2.0, {})
        except DatabaseWriteError as error:
            print("failed", type(error).__name__)
        logging.getLogger("mixseek.storage").addHandler(LiftTheLimit())
        await store.save_to_leader_board("e", "a", "A", 3, "s" * 100_000, "md", 3.0, {})
        print([row.round_number for row in await store.get_team_submission_history("e", "a")])
asyncio.run(main())
"""


def test_a_write_that_fails_for_io_is_tried_again_and_then_reported_and_warned_of_once(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", FULL_DISK, tmp_path], env=ENVIRONMENT, capture_output=True, text=True)
    assert done.stdout.splitlines() == ["failed DatabaseWriteError", "[1, 3]"], done.stderr
    assert (done.stderr.count("again in 0.2 s"), done.stderr.count("again in 0.1 s")) == (2, 2)
    assert done.stderr.count("WARNING") == 2, done.stderr


# --- forks and the end of the process ---------------------------------------------------------------------------------


FORK = """
import asyncio, os, sys
from mixseek.storage.aggregation_store import AggregationStore
store = AggregationStore(sys.argv[1])
def put(number):
    return store.save_to_leader_board("e", "a", "A", number, "s", "md", 1.0, {})
asyncio.run(put(100))
child = os.fork()
if child == 0:
    asyncio.run(put(200))
    sys.exit(0)
assert os.waitpid(child, 0)[1] == 0
async def busy():
    writes = [asyncio.create_task(put(number)) for number in range(1, 20)]
    await asyncio.sleep(0.005)
    if (child := os.fork()) == 0:
        os._exit(0)
    await asyncio.gather(*writes)
    os.waitpid(child, 0)
asyncio.run(busy())
print(len(asyncio.run(store.get_leader_board(limit=None))))
"""


def test_a_forked_child_and_its_parent_can_both_go_on(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", FORK, tmp_path], env=ENVIRONMENT, capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stdout.strip()) == (0, "21"), done.stderr


def test_a_process_may_end_in_the_middle_of_work(tmp_path: Path) -> None:
    code = """
import asyncio, sys
from mixseek.storage.aggregation_store import AggregationStore
store = AggregationStore(sys.argv[1])
async def main():
    put = store.save_to_leader_board
    tasks = [asyncio.create_task(put("e", "a", "A", n, "s" * 10000, "md", 1.0, {})) for n in range(1, 500)]
    await asyncio.sleep(0.1)
asyncio.run(main())
"""
    done = subprocess.run(
        [sys.executable, "-c", code, tmp_path], env=ENVIRONMENT, capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert not (tmp_path / "mixseek.db.wal").exists()


async def test_an_idle_worker_ends_its_thread_and_starts_it_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mixseek.storage.lease._IDLE_THREAD_SECONDS", 0.05)
    store = AggregationStore(tmp_path)
    await put(store, 1)
    worker = worker_for(tmp_path / "mixseek.db")
    for _ in range(100):
        if worker._thread is None:
            break
        await asyncio.sleep(0.02)
    assert worker._thread is None
    await put(store, 2)
    assert await rounds(store) == [1, 2]
