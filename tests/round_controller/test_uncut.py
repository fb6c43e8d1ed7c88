import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from mixseek.round_controller.uncut import Backlog, beside, uncut


def _never(given: object) -> None:
    raise AssertionError(f"nothing was cut, and yet {given!r} came")


async def test_work_comes_to_its_end_although_whoever_waits_is_cancelled() -> None:
    goes_on, done = asyncio.Event(), list[str]()

    async def work() -> str:
        await goes_on.wait()
        return "all of it"

    waiting = asyncio.create_task(uncut(work(), done.append))
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.sleep(0)
    assert not waiting.done()
    goes_on.set()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert done == ["all of it"]


async def test_a_second_cancellation_ends_the_work_too() -> None:
    before = asyncio.all_tasks()
    waiting = asyncio.create_task(uncut(asyncio.Event().wait(), _never))
    for _ in range(2):
        await asyncio.sleep(0)
        waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert asyncio.all_tasks() == before


async def test_what_work_gives_or_raises_reaches_whoever_waits() -> None:
    async def work(number: int) -> int:
        return 6 // number

    assert await uncut(work(2), _never) == 3
    with pytest.raises(ZeroDivisionError):
        await uncut(work(0), _never)


async def test_work_that_fails_during_a_cancellation_is_told_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    goes_on = asyncio.Event()

    async def work() -> None:
        await goes_on.wait()
        raise OSError("no space left")

    waiting = asyncio.create_task(uncut(work(), _never))
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.sleep(0)
    goes_on.set()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert "no space left" in caplog.text


async def test_what_is_written_beside_goes_on_during_the_work_and_is_over_after_it() -> None:
    begun, goes_on, done = asyncio.Event(), asyncio.Event(), list[str]()

    async def writing() -> None:
        begun.set()
        await goes_on.wait()
        done.append("written")

    async with beside(writing):
        await begun.wait()
        assert done == []
        goes_on.set()
    assert done == ["written"]


@pytest.mark.parametrize("end", [ValueError("the work failed"), asyncio.CancelledError()])
async def test_whatever_ends_the_work_is_told_when_what_is_beside_it_is_written(end: BaseException) -> None:
    done: list[str] = []

    async def writing() -> None:
        await asyncio.sleep(0.01)
        done.append("written")

    with pytest.raises(type(end)):
        async with beside(writing):
            raise end
    assert done == ["written"]


async def test_what_could_not_be_written_beside_is_raised_unless_the_work_failed_itself(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def writing() -> None:
        raise OSError("no space left")

    with pytest.raises(OSError, match="no space left"):
        async with beside(writing):
            await asyncio.sleep(0)
    assert caplog.text == ""
    with pytest.raises(ValueError, match="the work failed"):
        async with beside(writing):
            raise ValueError("the work failed")
    assert "no space left" in caplog.text


async def test_whoever_is_cancelled_twice_does_not_wait_for_what_is_beside() -> None:
    before = asyncio.all_tasks()

    async def work() -> None:
        async with beside(_for_ever):
            await asyncio.sleep(0)

    working = asyncio.create_task(work())
    for _ in range(3):
        await asyncio.sleep(0)
    for _ in range(2):
        working.cancel()
        await asyncio.sleep(0)
    with pytest.raises(asyncio.CancelledError):
        await working
    assert asyncio.all_tasks() == before


async def _for_ever() -> None:
    await asyncio.Event().wait()


# --- writes that may come later ---------------------------------------------------------------------------------------


class Writes:
    """Notes what is written, and fails as often as it is told to."""

    def __init__(self, failures: int = 0) -> None:
        self.done: list[str] = []
        self._failures = failures

    def of(self, name: str) -> Callable[[], Coroutine[Any, Any, None]]:
        async def write() -> None:
            await asyncio.sleep(0)
            if self._failures:
                self._failures -= 1
                raise OSError("no space left")
            self.done.append(name)

        return write


async def test_a_backlog_is_written_once_and_in_order_whoever_clears_it() -> None:
    backlog, writes = Backlog(), Writes()
    backlog.add(writes.of("first"))
    clearing = asyncio.create_task(backlog.clear())
    await asyncio.sleep(0)
    backlog.add(writes.of("second"))
    await asyncio.gather(clearing, backlog.clear())
    await backlog.clear()
    assert writes.done == ["first", "second"]


async def test_what_a_backlog_could_not_write_is_written_the_next_time() -> None:
    backlog, writes = Backlog(), Writes(failures=1)
    backlog.add(writes.of("first"))
    with pytest.raises(OSError, match="no space left"):
        await backlog.clear()
    backlog.add(writes.of("second"))
    await backlog.clear()
    assert writes.done == ["first", "second"]


async def test_what_is_added_after_a_moment_is_not_waited_for_by_whoever_clears_up_to_it() -> None:
    backlog, writes = Backlog(), Writes()
    backlog.add(writes.of("first"))
    up_to_here = backlog.so_far()
    backlog.add(writes.of("second"))
    await up_to_here()
    assert writes.done == ["first"]
    await up_to_here()
    assert writes.done == ["first"]
    await backlog.clear()
    assert writes.done == ["first", "second"]


async def _thrown_out(backlog: Backlog, error: BaseException) -> None:
    async with backlog.cleared_on_error():
        raise error


@pytest.mark.parametrize("error", [ValueError("a mistake"), asyncio.CancelledError()])
async def test_whoever_is_thrown_out_leaves_no_backlog(error: BaseException) -> None:
    backlog, writes = Backlog(), Writes()
    backlog.add(writes.of("first"))
    with pytest.raises(type(error)):
        await _thrown_out(backlog, error)
    assert writes.done == ["first"]


async def test_a_backlog_that_cannot_be_cleared_hides_no_error(caplog: pytest.LogCaptureFixture) -> None:
    backlog, writes = Backlog(), Writes(failures=1)
    backlog.add(writes.of("first"))
    with pytest.raises(ValueError, match="a mistake"):
        await _thrown_out(backlog, ValueError("a mistake"))
    assert "no space left" in caplog.text
