import asyncio

import pytest

from mixseek.round_controller.uncut import beside, uncut


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
