"""What may come out of the code of others."""

import asyncio

import pytest

from mixseek.strangers import alone, in_words


async def test_whoever_is_cancelled_again_does_not_blame_work_that_is_about_to_end(
    caplog: pytest.LogCaptureFixture,
) -> None:
    has_ended = asyncio.Event()

    async def work() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0.05)  # as a call that is noted in the journal
            has_ended.set()

    waiting = asyncio.create_task(alone(work, "metric 'Coverage'"))
    await asyncio.sleep(0)
    for _ in range(2):
        waiting.cancel()
        await asyncio.sleep(0.01)
    with pytest.raises(asyncio.CancelledError):
        await waiting
    await has_ended.wait()
    assert caplog.text == ""


def test_halves_of_characters_in_words_of_an_exception_are_replaced_for_nothing_could_keep_them() -> None:
    assert in_words(RuntimeError("cannot read \ud83d this")) == "RuntimeError: cannot read \ufffd this"
