"""A model that is down is left alone, and found again."""

import asyncio
from contextlib import suppress
from itertools import pairwise
from typing import Any

import pytest
from pydantic_ai import ModelMessage, ModelRequest, ModelResponse, UserPromptPart
from pydantic_ai.models import Model, ModelRequestParameters

from mixseek.errors import ModelError, ModelMalformedError, ModelTimeoutError, ModelUnavailableError
from mixseek.llm import ModelHub
from mixseek.llm.breaker import FAILURES, LONGEST_PERIOD, SECONDS, Breaker, says_down
from mixseek.testing import FakeClock, ModelServer


async def say(model: Model, **settings: Any) -> ModelResponse:
    messages: list[ModelMessage] = [ModelRequest(parts=[UserPromptPart("hello")])]
    return await model.request(messages, settings, ModelRequestParameters())  # type: ignore[arg-type]


async def fail(model: Model, times: int) -> None:
    for _ in range(times):
        with pytest.raises(ModelUnavailableError):
            await say(model, max_retries=0)


async def take_down(hub: ModelHub, server: ModelServer, patience: FakeClock, model: str = "chat:m") -> None:
    """Let calls fail for long enough to open the breaker."""
    server.fault(503, model=model.partition(":")[2])
    await fail(hub.model(model), FAILURES - 1)
    patience.now += SECONDS
    await fail(hub.model(model), 1)


async def test_a_call_with_a_fallback_leaves_a_model_that_is_down_alone(
    hub: ModelHub, server: ModelServer, patience: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    await take_down(hub, server, patience)
    before, slept = server.bill.models["m"].requests, list(patience.slept)
    for _ in range(5):
        assert (await say(hub.model("chat:m", fallback_models=["chat:other"]))).model_name == "other"
    assert (server.bill.models["m"].requests, patience.slept) == (before, slept)
    assert [record.message.split(" is ")[0] for record in caplog.records if "left alone" in record.message] == [
        "chat:m"
    ]


async def test_one_call_in_a_growing_while_finds_out_whether_it_is_back(
    hub: ModelHub, server: ModelServer, patience: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    await take_down(hub, server, patience)
    model, asked, probes = hub.model("chat:m", fallback_models=["chat:other"]), FAILURES, [patience.now]
    while len(probes) < 7:
        patience.now += 0.5
        await say(model, max_retries=0)
        if server.bill.models["m"].requests > asked:
            asked += 1
            probes.append(patience.now)
    assert [after - before for before, after in pairwise(probes)] == [2, 4, 8, 16, 30, 30]
    server.clear_faults()
    patience.now += LONGEST_PERIOD
    assert (await say(model)).model_name == "m"
    assert (await say(model)).model_name == "m"
    assert [record.message for record in caplog.records if "again" in record.message] == ["chat:m answers again"]


async def test_a_call_without_a_fallback_waits_for_the_next_probe_and_is_answered_if_the_model_is_back(
    hub: ModelHub, server: ModelServer, patience: FakeClock
) -> None:
    await take_down(hub, server, patience)
    server.clear_faults()
    answers = await asyncio.gather(*(say(hub.model("chat:m"), max_retries=0) for _ in range(20)))
    assert all(answer.text for answer in answers)


async def test_those_who_wait_for_a_probe_that_fails_fail_with_it_without_being_sent(
    hub: ModelHub, server: ModelServer, patience: FakeClock
) -> None:
    await take_down(hub, server, patience)
    before = server.bill.total.requests
    found = await asyncio.gather(*(say(hub.model("chat:m"), max_retries=0) for _ in range(20)), return_exceptions=True)
    assert all(isinstance(error, ModelUnavailableError) for error in found)
    assert sum("it is down and left alone for a while: " in str(error) for error in found) == 19
    assert all("503" in str(error) for error in found)
    assert server.bill.total.requests == before + 1


@pytest.mark.parametrize("gap", [0.0, 7.0])
async def test_what_the_retries_of_calls_can_bridge_opens_nothing(
    hub: ModelHub, server: ModelServer, patience: FakeClock, caplog: pytest.LogCaptureFixture, gap: float
) -> None:
    patience.now += 1000  # long after the program was started
    server.fault(503, count=40)
    await asyncio.gather(*(say(hub.model("chat:m"), max_retries=0) for _ in range(39)), return_exceptions=True)
    patience.now += gap
    assert (await say(hub.model("chat:m"))).text
    assert server.bill.total.requests == 41
    assert "left alone" not in caplog.text


async def test_a_model_that_is_down_says_nothing_about_its_neighbours(
    hub: ModelHub, server: ModelServer, patience: FakeClock
) -> None:
    await take_down(hub, server, patience)
    began = patience.now
    assert (await say(hub.model("chat:neighbour"))).text
    assert patience.now == began


@pytest.mark.parametrize("kind", [400, 401, 404, 429, "html", "empty_object", "early_end", "spend_limit"])
async def test_a_reply_of_any_kind_shows_that_the_server_is_there(
    hub: ModelHub, server: ModelServer, patience: FakeClock, kind: Any
) -> None:
    server.fault(503, model="m", count=FAILURES - 1)
    await fail(hub.model("chat:m"), FAILURES - 1)
    server.fault(kind, model="m", count=1)
    with suppress(ModelError):
        await say(hub.model("chat:m"), max_retries=0)
    patience.now += SECONDS
    server.clear_faults()
    server.fault(503, model="m")
    await fail(hub.model("chat:m"), FAILURES - 1)
    assert not hub.model("chat:m")._breaker._open  # type: ignore[attr-defined]


def test_only_what_speaks_of_the_server_counts() -> None:
    down = [ModelUnavailableError("no connection"), ModelUnavailableError("", status=500), ModelTimeoutError("late")]
    there = [ModelUnavailableError("", status=409), ModelMalformedError("html")]
    assert [says_down(fault) for fault in [*down, *there]] == [True, True, True, False, False]


async def test_a_probe_that_is_cancelled_lets_another_one_try() -> None:
    clock = FakeClock()
    breaker = Breaker("m", lambda: clock.now)
    for _ in range(FAILURES):
        breaker.failed("first", ModelUnavailableError("no connection"))
        clock.now += SECONDS
    await breaker.enter("one", clock.sleep, has_alternative=True)
    with pytest.raises(ModelUnavailableError):
        await breaker.enter("two", clock.sleep, has_alternative=True)
    breaker.gave_up("one")
    await breaker.enter("two", clock.sleep, has_alternative=True)


async def test_a_server_that_is_gone_and_comes_back_is_found_again(
    hub: ModelHub, server: ModelServer, patience: FakeClock
) -> None:
    await say(hub.model("chat:m"))
    await server.stop()
    await fail(hub.model("chat:m"), FAILURES - 1)
    patience.now += SECONDS
    await fail(hub.model("chat:m"), 1)
    await server.start()
    assert (await say(hub.model("chat:m"))).text
