import asyncio

import pytest

from mixseek.round_controller.uncut import uncut


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
