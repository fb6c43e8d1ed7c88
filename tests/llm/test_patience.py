"""Time limits that stand still while a call waits for its turn."""

import asyncio
import time

import pytest

from mixseek.llm import PatientTimeout
from mixseek.llm.patience import time_limits_stand_still


async def wait_for_turn(seconds: float) -> None:
    with time_limits_stand_still():
        await asyncio.sleep(seconds)


async def test_what_is_waited_for_ones_turn_does_not_count() -> None:
    async with PatientTimeout(0.2) as limit:
        await wait_for_turn(0.3)
        await wait_for_turn(0.3)
    assert limit.stood_still == pytest.approx(0.6, abs=0.2)


async def test_everything_else_counts() -> None:
    limit = PatientTimeout(0.1)

    async def work() -> None:
        async with limit:
            await wait_for_turn(0.2)
            await asyncio.sleep(10)

    with pytest.raises(TimeoutError):
        await work()
    assert limit.expired()


async def test_waits_at_the_same_time_count_once() -> None:
    async with PatientTimeout(0.5) as limit:
        await asyncio.gather(*(wait_for_turn(0.2) for _ in range(10)))
    assert limit.stood_still < 1.0


async def test_all_limits_around_stand_still() -> None:
    async with PatientTimeout(0.2) as outer, PatientTimeout(0.1) as inner:
        await wait_for_turn(0.4)
    assert outer.stood_still == pytest.approx(inner.stood_still, abs=0.05)


async def test_a_limit_grows_to_ten_times_its_length_and_no_further() -> None:
    async def wait_for_ever() -> None:
        async with PatientTimeout(0.05):
            while True:
                await wait_for_turn(0.1)

    began = time.monotonic()
    with pytest.raises(TimeoutError):
        await wait_for_ever()
    assert 0.45 <= time.monotonic() - began < 5


async def test_no_limit_stays_none() -> None:
    async with PatientTimeout(None) as limit:
        await wait_for_turn(0.01)
        await asyncio.sleep(0.01)
    assert not limit.expired()


async def test_a_task_that_outlives_the_limit_and_one_on_another_loop_do_not_touch_it() -> None:
    async with PatientTimeout(5) as limit:
        left_behind = asyncio.create_task(wait_for_turn(0.05))
        await asyncio.sleep(0)
        await asyncio.to_thread(lambda: asyncio.run(wait_for_turn(0.01)))
    await left_behind
    assert limit.stood_still == 0.0
    async with PatientTimeout(0.02) as next_one:
        await asyncio.sleep(0)
    assert not next_one.expired()


async def test_a_limit_that_runs_out_while_a_call_waits_ends_the_wait() -> None:
    began = time.monotonic()
    with pytest.raises(TimeoutError):
        async with PatientTimeout(0.01):
            await wait_for_turn(60)
    assert time.monotonic() - began < 5
