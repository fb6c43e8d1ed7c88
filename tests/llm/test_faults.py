"""Every way a model can fail, over both protocols, streamed and not: one typed error, tried as often as it is worth."""

from collections.abc import Callable
from typing import Any

import pytest
from pydantic_ai import ModelMessage, ModelRequest, ModelResponse, ModelSettings, UserPromptPart
from pydantic_ai.exceptions import ModelHTTPError, UserError
from pydantic_ai.models import Model, ModelRequestParameters
from pydantic_ai.models.function import AgentInfo, FunctionModel

from mixseek.config.schema import ProvidersSettings
from mixseek.errors import (
    ModelError,
    ModelIncompleteError,
    ModelMalformedError,
    ModelRateLimitError,
    ModelRefusedError,
    ModelSpendLimitError,
    ModelTimeoutError,
    ModelTooLargeError,
    ModelUnavailableError,
)
from mixseek.llm import ModelHub
from mixseek.llm.faults import fault_of, is_remote
from mixseek.testing import FAULT_KINDS, FakeClock, ModelServer

Send = Callable[[Model, ModelSettings], Any]


async def whole(model: Model, settings: ModelSettings) -> ModelResponse:
    return await model.request([ModelRequest(parts=[UserPromptPart("hello")])], settings, ModelRequestParameters())


async def streamed(model: Model, settings: ModelSettings) -> ModelResponse:
    messages = [ModelRequest(parts=[UserPromptPart("hello")])]
    async with model.request_stream(list(messages), settings, ModelRequestParameters()) as stream:
        async for _ in stream:
            pass
        return stream.get()


TRIED_AGAIN: dict[str, type[ModelError] | tuple[type[ModelError], ...]] = {
    "408": ModelUnavailableError,
    "409": ModelUnavailableError,
    "500": ModelUnavailableError,
    "502": ModelUnavailableError,
    "503": ModelUnavailableError,
    "504": ModelUnavailableError,
    "529": ModelUnavailableError,
    "reset_before_headers": ModelUnavailableError,
    "reset_after_headers": ModelIncompleteError,
    "reset_in_body": ModelIncompleteError,
    "cut_json": (ModelMalformedError, ModelIncompleteError),
    "empty_body": ModelMalformedError,
    "empty_object": (ModelMalformedError, ModelIncompleteError),
    "error_in_200": (ModelMalformedError, ModelUnavailableError),
    "html": ModelMalformedError,
    "early_end": ModelIncompleteError,
}
NOT_TRIED_AGAIN: dict[str, type[ModelError]] = {
    "400": ModelRefusedError,
    "401": ModelRefusedError,
    "402": ModelSpendLimitError,
    "403": ModelRefusedError,
    "404": ModelRefusedError,
    "413": ModelRefusedError,
    "422": ModelRefusedError,
    "spend_limit": ModelSpendLimitError,
}
NEVER_ENDING = ("hang_before_headers", "hang_in_body", "drip")
HARMLESS = (
    # What these do to an answer is for the one who asked to see; as answers they are whole.
    "wrong_content_type",
    "null_content",
    "empty_answer",
    "missing_usage",
    "length",
    "content_filter",
    "wrong_tool",
    "malformed_arguments",
    "score_150",
    "wrong_types",
)
apis = pytest.mark.parametrize("api", ["chat", "responses"])
ways = pytest.mark.parametrize("send", [whole, streamed])


def test_every_fault_the_server_knows_is_tried_here() -> None:
    tried = {*TRIED_AGAIN, *NOT_TRIED_AGAIN, *NEVER_ENDING, *HARMLESS, "huge_answer", "no_choices", "429"}
    assert tried == set(FAULT_KINDS)


@ways
@apis
@pytest.mark.parametrize("kind", TRIED_AGAIN)
async def test_a_passing_fault_is_tried_again_and_then_told(
    kind: Any, api: str, send: Send, hub: ModelHub, server: ModelServer
) -> None:
    server.fault(kind)
    with pytest.raises(ModelError) as raised:
        await send(hub.model(f"{api}:m"), {"max_retries": 2})
    assert isinstance(raised.value, TRIED_AGAIN[kind])
    assert raised.value.attempts == server.bill.total.requests == 3
    assert (raised.value.model, raised.value.provider) == (f"{api}:m", api)


@apis
@pytest.mark.parametrize("kind", TRIED_AGAIN)
async def test_a_passing_fault_that_passes_leaves_an_answer(
    kind: Any, api: str, hub: ModelHub, server: ModelServer
) -> None:
    server.on("m", ["one", "two", "three"])
    server.fault(kind, count=2)
    answer = await whole(hub.model(f"{api}:m"), {"max_retries": 2})
    assert answer.text in ("one", "two", "three")
    assert server.bill.total.requests == 3


@ways
@apis
async def test_what_a_rate_limit_refuses_is_tried_again_whatever_the_number_of_retries_but_not_for_ever(
    api: str, send: Send, hub: ModelHub, server: ModelServer, patience: FakeClock
) -> None:
    server.fault(429, count=10)
    assert await send(hub.model(f"{api}:m"), {"max_retries": 0})
    assert server.bill.total.requests == 11
    server.fault(429)
    began = patience.now
    with pytest.raises(ModelRateLimitError):
        await send(hub.model(f"{api}:m"), {"timeout": 100})
    # Its turn, twice its time, and the turn it was waiting for when that was over.
    assert patience.now - began <= 60 + 200 + 60


@apis
async def test_nothing_of_a_stream_that_broke_off_is_in_the_next(api: str, hub: ModelHub, server: ModelServer) -> None:
    server.on("m", ["The first answer.", "The second answer."])
    server.fault("early_end", count=1)
    messages: list[ModelMessage] = [ModelRequest(parts=[UserPromptPart("hello")])]
    async with hub.model(f"{api}:m").request_stream(messages, {}, ModelRequestParameters()) as stream:
        kinds = [event.event_kind async for event in stream]
    assert stream.get().text == "The second answer."
    assert kinds.count("part_start") == 1


@apis
async def test_half_a_character_is_in_no_piece_of_a_streamed_answer(
    api: str, hub: ModelHub, server: ModelServer
) -> None:
    server.on("m", lambda _: "cut in the middle of an emoji \ud83d")
    messages: list[ModelMessage] = [ModelRequest(parts=[UserPromptPart("hello")])]
    async with hub.model(f"{api}:m").request_stream(messages, {}, ModelRequestParameters()) as stream:
        pieces = [str(event) async for event in stream]
    assert stream.get().text == "cut in the middle of an emoji \ufffd"
    assert "ufffd" in ascii(pieces)
    assert "ud83d" not in ascii(pieces)


@ways
@apis
@pytest.mark.parametrize("kind", NOT_TRIED_AGAIN)
async def test_a_fault_that_would_come_again_is_told_at_once(
    kind: Any, api: str, send: Send, hub: ModelHub, server: ModelServer
) -> None:
    server.fault(kind)
    with pytest.raises(NOT_TRIED_AGAIN[kind]) as raised:
        await send(hub.model(f"{api}:m"), {"max_retries": 5})
    assert server.bill.total.requests == 1
    assert raised.value.status == (429 if kind == "spend_limit" else int(kind))
    assert not raised.value.retryable


@ways
@apis
@pytest.mark.parametrize("kind", NEVER_ENDING)
async def test_an_answer_that_never_ends_is_a_time_out(
    kind: Any, api: str, send: Send, hub: ModelHub, server: ModelServer, patience: Any
) -> None:
    server.fault(kind)
    patience.jitter = 0.0
    with pytest.raises(ModelTimeoutError) as raised:
        await send(hub.model(f"{api}:m"), {"max_retries": 1, "timeout": 0.05})
    assert raised.value.attempts == 2


@ways
@apis
async def test_an_answer_beyond_the_size_is_refused_and_not_fetched_again(
    api: str, send: Send, providers: ProvidersSettings, server: ModelServer
) -> None:
    server.fault("huge_answer", size=200_000)
    async with ModelHub(providers, max_answer_bytes=100_000) as hub:
        with pytest.raises(ModelTooLargeError):
            await send(hub.model(f"{api}:m"), {"max_retries": 2})
    assert server.bill.total.requests == 1


async def test_an_answer_of_fifty_megabytes_is_too_large_for_anyone(hub: ModelHub, server: ModelServer) -> None:
    server.fault("huge_answer")
    with pytest.raises(ModelTooLargeError, match="33554432 bytes"):
        await whole(hub.model("chat:m"), {})


@pytest.mark.parametrize(("api", "send"), [("chat", whole), ("chat", streamed)])
async def test_a_reply_without_choices_is_no_answer(api: str, send: Send, hub: ModelHub, server: ModelServer) -> None:
    server.fault("no_choices")
    with pytest.raises((ModelMalformedError, ModelIncompleteError)):
        await send(hub.model(f"{api}:m"), {"max_retries": 0})


@ways
@apis
@pytest.mark.parametrize("kind", HARMLESS)
async def test_a_whole_answer_is_passed_on_whatever_it_says(
    kind: Any, api: str, send: Send, hub: ModelHub, server: ModelServer
) -> None:
    server.fault(kind)
    answer = await send(hub.model(f"{api}:m"), {"max_retries": 2})
    assert answer.finish_reason is not None
    assert server.bill.total.requests == 1


async def test_a_server_that_is_not_there_is_unavailable(hub: ModelHub, server: ModelServer) -> None:
    await server.stop()
    with pytest.raises(ModelUnavailableError) as raised:
        await whole(hub.model("chat:m"), {"max_retries": 1})
    assert raised.value.attempts == 2


async def test_what_is_computed_here_needs_no_finish_reason(hub: ModelHub) -> None:
    def answer(messages: list[Any], info: AgentInfo) -> ModelResponse:
        return ModelResponse(parts=[])

    watched = hub.watch(FunctionModel(answer), "function:f")
    assert (await whole(watched, {})).finish_reason is None


async def test_halves_of_characters_in_what_a_model_of_ones_own_raises_are_replaced(hub: ModelHub) -> None:
    def refuse(messages: list[Any], info: AgentInfo) -> ModelResponse:
        raise ModelRefusedError("cannot read \ud83d this")

    with pytest.raises(ModelRefusedError, match=r"^cannot read \ufffd this$"):
        await whole(hub.watch(FunctionModel(refuse), "function:f"), {})


async def test_a_model_that_does_not_know_its_address_is_remote(hub: ModelHub) -> None:
    class Lost(FunctionModel):
        @property
        def base_url(self) -> str:
            raise UserError("no address")

    def answer(messages: list[Any], info: AgentInfo) -> ModelResponse:
        return ModelResponse(parts=[])

    assert is_remote(Lost(answer))
    assert not is_remote(FunctionModel(answer))


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (IndexError("list index out of range"), ModelMalformedError),
        (ConnectionResetError("reset"), ModelUnavailableError),
        (ModelHTTPError(429, "m", {"message": "You have reached your monthly spend limit."}), ModelSpendLimitError),
        (ModelHTTPError(429, "m", {"message": "Slow down."}), ModelRateLimitError),
        (RuntimeError("an SDK gave up"), ModelRefusedError),
    ],
)
def test_what_an_adapter_lets_through_is_typed_as_well(error: Exception, kind: type[ModelError]) -> None:
    assert type(fault_of(error, "a:b")) is kind


def test_long_words_of_a_provider_are_cut() -> None:
    assert len(str(fault_of(ValueError("x" * 100_000), "a:b"))) < 600
