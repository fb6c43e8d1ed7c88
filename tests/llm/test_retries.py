"""How often and after what wait a call is tried again, on a clock that moves only when someone sleeps."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from pydantic_ai import ModelMessage, ModelRequest, ModelResponse, TextPart, UserPromptPart
from pydantic_ai.models import Model, ModelRequestParameters
from pydantic_ai.models.function import AgentInfo, FunctionModel

from mixseek.errors import ModelError, ModelRateLimitError, ModelTimeoutError, ModelUnavailableError
from mixseek.llm import Backoff, ModelHub
from mixseek.testing import ModelServer


async def say(model: Model, **settings: Any) -> ModelResponse:
    messages: list[ModelMessage] = [ModelRequest(parts=[UserPromptPart("hello")])]
    return await model.request(messages, settings, ModelRequestParameters())  # type: ignore[arg-type]


async def test_waits_grow_and_the_dice_decide_how_much_of_them_is_waited(
    hub: ModelHub, server: ModelServer, patience: Any
) -> None:
    patience.jitter = 0.5
    server.fault(500, count=3)
    await say(hub.model("chat:m"))
    assert patience.slept == [0.5, 1.0, 2.0]


def test_a_wait_has_an_upper_bound() -> None:
    assert Backoff(random=lambda: 1.0).seconds(30) == 60


async def test_no_wait_is_shorter_than_the_server_asks(hub: ModelHub, server: ModelServer, patience: Any) -> None:
    patience.jitter = 0.0
    server.fault(429, count=1, retry_after=7)
    server.fault(503, count=1, retry_after=3)
    await say(hub.model("chat:m"))
    assert patience.slept == [7, 3]


async def test_a_call_without_a_word_about_retries_is_tried_four_times(hub: ModelHub, server: ModelServer) -> None:
    server.fault(500)
    with pytest.raises(ModelUnavailableError, match=r"chat:m: HTTP 500: .* \(after 4 tries\)"):
        await say(hub.model("chat:m"))
    assert server.bill.total.requests == 4


async def test_zero_retries_are_one_try(hub: ModelHub, server: ModelServer, patience: Any) -> None:
    server.fault(500)
    with pytest.raises(ModelUnavailableError):
        await say(hub.model("chat:m"), max_retries=0)
    assert (server.bill.total.requests, patience.slept) == (1, [])


async def test_a_wait_beyond_the_deadline_is_not_waited(hub: ModelHub, server: ModelServer, patience: Any) -> None:
    server.fault(429, retry_after=21)
    with pytest.raises(ModelRateLimitError) as raised:
        await say(hub.model("chat:m"), timeout=10)
    assert raised.value.retry_after == 21
    assert (server.bill.total.requests, patience.slept) == (1, [])


async def test_all_tries_together_take_no_longer_than_twice_the_time_out(
    hub: ModelHub, server: ModelServer, patience: Any
) -> None:
    server.fault(500)
    with pytest.raises(ModelUnavailableError):
        await say(hub.model("chat:m"), timeout=10, max_retries=100)
    assert patience.slept == [1, 2, 4, 8]
    assert patience.now <= 20


async def test_waiting_for_a_place_does_not_use_up_the_time(
    hub: ModelHub, server: ModelServer, patience: Any, arrived: Callable[[int], Awaitable[None]]
) -> None:
    server.fault("hang_before_headers", model="hangs")
    hanging = [asyncio.create_task(say(hub.model("narrow:hangs"))) for _ in range(2)]
    await arrived(2)
    waiting = asyncio.create_task(say(hub.model("narrow:m"), timeout=10))
    for _ in range(5):
        await asyncio.sleep(0)
    patience.now += 1000
    for each in hanging:
        each.cancel()
    assert (await waiting).text


async def test_the_last_try_gets_only_the_time_that_is_left(hub: ModelHub, server: ModelServer, patience: Any) -> None:
    patience.jitter = 0.0
    server.fault(503, count=1, retry_after=5)
    server.fault("hang_before_headers")
    with pytest.raises(ModelTimeoutError, match=r"within 0\.01 seconds"):
        await say(hub.model("chat:m"), timeout=2.505, max_retries=1)


async def test_the_sdk_makes_no_tries_of_its_own(hub: ModelHub, server: ModelServer) -> None:
    server.fault(503)
    for api in ("chat", "responses"):
        with pytest.raises(ModelError):
            await say(hub.model(f"{api}:m"), max_retries=0)
    assert server.bill.total.requests == 2


async def test_what_this_layer_decides_is_not_sent_to_the_provider(hub: ModelHub) -> None:
    seen: list[Any] = []

    def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        seen.append(info.model_settings)
        return ModelResponse(parts=[TextPart("ok")])

    await say(hub.watch(FunctionModel(answer), "f:f"), temperature=0.5, timeout=5, max_retries=1)
    assert seen == [{"temperature": 0.5}]
