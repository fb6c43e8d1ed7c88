"""Every fault as a plain HTTP client meets it, and the choice of the calls it strikes."""

import asyncio
import json
import socket
import time
from collections.abc import Callable
from typing import Any

import aiohttp
import pytest

from mixseek.testing import FAULT_KINDS, ModelServer
from mixseek.testing.server.faults import FaultKind

STATUSES = (400, 401, 402, 403, 404, 408, 409, 413, 422, 429, 500, 502, 503, 504, 529)
ENDLESS = ("hang_before_headers", "hang_in_body", "drip")
VERDICT = {
    "type": "object",
    "properties": {"reason": {"type": "string"}, "score": {"type": "number"}},
    "required": ["reason", "score"],
}
TASK = {"type": "object", "properties": {"task": {"type": "string"}}, "required": ["task"]}


def chat(model: str = "m", **more: Any) -> dict[str, Any]:
    return {"model": model, "messages": [{"role": "user", "content": "Say something."}], **more}


def judge(**more: Any) -> dict[str, Any]:
    return chat(response_format={"type": "json_schema", "json_schema": {"name": "v", "schema": VERDICT}}, **more)


def lead(**more: Any) -> dict[str, Any]:
    return chat(tools=[{"type": "function", "function": {"name": "delegate", "parameters": TASK}}], **more)


def ask(
    http: aiohttp.ClientSession,
    server: ModelServer,
    body: dict[str, Any] | None = None,
    path: str = "/chat/completions",
) -> Any:
    return http.post(server.base_url + path, json=body or chat())


async def answer(http: aiohttp.ClientSession, server: ModelServer, body: dict[str, Any] | None = None) -> Any:
    async with ask(http, server, body) as response:
        assert response.status == 200
        return json.loads(await response.text())


async def text_of(http: aiohttp.ClientSession, server: ModelServer, body: dict[str, Any]) -> str:
    async with ask(http, server, body) as response:
        return str(await response.text())


async def outcomes(http: aiohttp.ClientSession, server: ModelServer, count: int, model: str = "m") -> list[int]:
    found = []
    for _ in range(count):
        async with ask(http, server, chat(model)) as response:
            found.append(response.status)
    return found


class Meeting:
    """What a client got before a response broke."""

    def __init__(self) -> None:
        self.status = 0
        self.received = b""

    async def read(self, asked: Any) -> None:
        async with asked as response:
            self.status = response.status
            async for piece in response.content.iter_any():
                self.received += piece


# --- bodies -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("status", STATUSES)
async def test_every_status_comes_with_an_error_body_and_is_no_answer(
    http: aiohttp.ClientSession, server: ModelServer, status: int
) -> None:
    server.fault(status)
    async with ask(http, server) as response:
        assert response.status == status
        assert (await response.json())["error"]["message"]
        assert response.headers.get("Retry-After") == ("1" if status == 429 else None)
    total = server.bill.total
    assert (total.requests, total.refused, total.answered, total.output_tokens) == (1, 1, 0, 0)


async def test_retry_after_is_sent_as_told(http: aiohttp.ClientSession, server: ModelServer) -> None:
    server.fault(503, retry_after=0.25)
    async with ask(http, server) as response:
        assert response.headers["Retry-After"] == "0.25"


async def test_a_spend_limit_is_a_429_that_says_so(http: aiohttp.ClientSession, server: ModelServer) -> None:
    server.fault("spend_limit")
    async with ask(http, server) as response:
        assert response.status == 429
        assert "Retry-After" not in response.headers
        assert (await response.json())["error"]["code"] == "insufficient_quota"


async def test_bodies_that_are_no_answer(http: aiohttp.ClientSession, server: ModelServer) -> None:
    for kind in ("empty_object", "error_in_200", "no_choices"):
        server.fault(kind, count=1)
    assert await answer(http, server) == {}
    assert list(await answer(http, server)) == ["error"]
    assert (await answer(http, server))["choices"] == []
    assert server.bill.total.refused == 3


async def test_an_html_page_in_place_of_an_answer(http: aiohttp.ClientSession, server: ModelServer) -> None:
    server.fault("html")
    async with ask(http, server) as response:
        assert (response.status, response.content_type) == (200, "text/html")
        assert (await response.text()).startswith("<!DOCTYPE html>")


# --- answers ----------------------------------------------------------------------------------------------------------


async def test_answers_without_content(http: aiohttp.ClientSession, server: ModelServer) -> None:
    server.fault("null_content", count=1)
    server.fault("empty_answer", count=1)
    found = [(await answer(http, server))["choices"][0]["message"]["content"] for _ in range(3)]
    assert found[:2] == [None, ""]
    assert found[2]


async def test_an_answer_may_miss_its_usage_and_is_then_not_billed(
    http: aiohttp.ClientSession, server: ModelServer
) -> None:
    server.fault("missing_usage")
    assert "usage" not in await answer(http, server)
    assert (server.bill.total.answered, server.bill.total.output_tokens) == (1, 0)


@pytest.mark.parametrize("reason", ["length", "content_filter"])
async def test_an_answer_may_be_cut_off_with_a_reason(
    http: aiohttp.ClientSession, server: ModelServer, reason: FaultKind
) -> None:
    server.on("m", ["0123456789"] * 2)
    server.fault(reason)
    choice = (await answer(http, server))["choices"][0]
    assert (choice["finish_reason"], choice["message"]["content"]) == (reason, "01234")
    async with ask(http, server, {"model": "m", "input": "?"}, "/responses") as response:
        body = await response.json()
    assert body["status"] == "incomplete"
    assert body["incomplete_details"]["reason"] == {"length": "max_output_tokens"}.get(reason, reason)


async def test_a_huge_answer_is_as_large_as_told_and_comes_streamed_too(
    http: aiohttp.ClientSession, server: ModelServer
) -> None:
    server.fault("huge_answer", count=1)
    server.fault("huge_answer", size=300_000)
    async with ask(http, server) as response:
        assert len(await response.read()) > 50 * 1024 * 1024
    assert (await text_of(http, server, chat(stream=True))).count("x") >= 300_000


async def test_a_wrong_tool_is_called_whether_tools_are_on_offer_or_not(
    http: aiohttp.ClientSession, server: ModelServer
) -> None:
    server.fault("wrong_tool")
    for body in (lead(), chat()):
        choice = (await answer(http, server, body))["choices"][0]
        assert choice["message"]["tool_calls"][0]["function"]["name"] == "no_such_tool"
        assert choice["finish_reason"] == "tool_calls"


async def test_malformed_arguments_are_no_json_in_tool_calls_and_values(
    http: aiohttp.ClientSession, server: ModelServer
) -> None:
    server.fault("malformed_arguments")
    call = (await answer(http, server, lead()))["choices"][0]["message"]["tool_calls"][0]
    value = (await answer(http, server, judge()))["choices"][0]["message"]["content"]
    for broken in (call["function"]["arguments"], value):
        with pytest.raises(json.JSONDecodeError):
            json.loads(broken)


async def test_scores_beyond_the_scale_and_values_of_wrong_types(
    http: aiohttp.ClientSession, server: ModelServer
) -> None:
    server.fault("score_150", count=1)
    server.fault("wrong_types", count=1)
    first, second = [
        json.loads((await answer(http, server, judge()))["choices"][0]["message"]["content"]) for _ in "12"
    ]
    assert first["score"] == 150
    assert isinstance(first["reason"], str)
    assert second == {"reason": 17, "score": "not of this type"}


async def test_a_fault_waits_for_an_answer_it_can_break(http: aiohttp.ClientSession, server: ModelServer) -> None:
    server.fault("score_150", count=1)
    await answer(http, server, chat())
    await answer(http, server, lead())
    assert [request.fault for request in server.requests] == [None, None]
    await answer(http, server, judge())
    assert server.requests[-1].fault == "score_150"


@pytest.mark.parametrize("path", ["/chat/completions", "/responses"])
async def test_a_stream_may_end_early_but_cleanly(http: aiohttp.ClientSession, server: ModelServer, path: str) -> None:
    server.fault("early_end", count=1)
    body = {**chat(stream=True, stream_options={"include_usage": True}), "input": "Say something."}
    async with ask(http, server, body, path) as response:
        early = await response.text()
    async with ask(http, server, body, path) as response:
        whole = await response.text()
    end = '"finish_reason":"stop"' if path == "/chat/completions" else "response.completed"
    assert end not in early
    assert ".done" not in early
    assert "usage" not in early or '"usage":null' in early
    assert end in whole
    assert server.bill.total.answered == 2
    assert server.bill.total.output_tokens == server.requests[1].usage.output_tokens  # type: ignore[union-attr]


async def test_an_answer_that_ends_early_names_no_finish_reason(
    http: aiohttp.ClientSession, server: ModelServer
) -> None:
    server.fault("early_end")
    assert (await answer(http, server))["choices"][0]["finish_reason"] is None


# --- wires ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("kind", ["reset_before_headers", "reset_after_headers", "reset_in_body"])
async def test_a_connection_is_reset_where_it_was_told_to(
    http: aiohttp.ClientSession, server: ModelServer, kind: FaultKind, stream: bool
) -> None:
    server.fault(kind)
    met = Meeting()
    with pytest.raises((aiohttp.ClientConnectionError, aiohttp.ClientPayloadError)):
        await met.read(ask(http, server, chat(stream=stream)))
    assert met.status == (0 if kind == "reset_before_headers" else 200)
    assert bool(met.received) is (kind == "reset_in_body")
    assert server.bill.total.aborted == 1


@pytest.mark.parametrize("kind", ["reset_before_headers", "reset_after_headers", "reset_in_body"])
def test_a_reset_is_a_reset_and_no_goodbye(kind: FaultKind, caplog: pytest.LogCaptureFixture) -> None:
    content = json.dumps(chat()).encode()
    head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: {len(content)}\r\n\r\n".encode()
    with ModelServer() as server, socket.create_connection(("127.0.0.1", server.port), timeout=30) as connection:
        server.fault(kind)
        connection.sendall(head + content)
        with pytest.raises(ConnectionResetError):
            _read_all(connection)
        assert server.bill.total.aborted == 1
    assert caplog.text == ""


def _read_all(connection: socket.socket) -> None:
    while connection.recv(65536):
        pass


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("kind", ["hang_before_headers", "hang_in_body"])
async def test_a_hang_lasts_until_the_client_leaves(
    http: aiohttp.ClientSession, server: ModelServer, kind: FaultKind, stream: bool
) -> None:
    server.fault(kind)
    met = Meeting()
    asking = asyncio.create_task(met.read(ask(http, server, chat(stream=stream))))
    await _until(lambda: bool(met.received if kind == "hang_in_body" else server.requests))
    await asyncio.sleep(0.05)
    assert not asking.done()
    assert met.status == (200 if kind == "hang_in_body" else 0)
    await _leave(asking)
    await _until(lambda: server.bill.total.waiting == 0)
    assert (server.bill.total.aborted, server.bill.total.answered) == (1, 0)


@pytest.mark.parametrize("stream", [False, True])
async def test_a_drip_goes_on_and_says_nothing(http: aiohttp.ClientSession, server: ModelServer, stream: bool) -> None:
    server.fault("drip")
    received = b""
    async with ask(http, server, chat(stream=stream)) as response:
        while len(received) < 3:
            received += await response.content.readany()
    assert received.replace(b": wait", b"").strip() == b""
    await _until(lambda: server.bill.total.waiting == 0)
    assert server.bill.total.aborted == 1


async def test_closing_the_server_ends_every_hang_drip_and_latency_at_once(http: aiohttp.ClientSession) -> None:
    server = ModelServer()
    await server.start()
    server.set_latency(60, model="slow")
    for kind in ("hang_before_headers", "hang_in_body", "drip"):
        server.fault(kind, model=kind)

    async def wait_for(model: str) -> None:
        async with ask(http, server, chat(model)) as response:
            await response.read()

    models = ["hang_before_headers", "hang_in_body", "drip", "slow"] * 5
    waiting = [asyncio.create_task(wait_for(model)) for model in models]
    await _until(lambda: server.bill.total.waiting == len(models))
    began = time.monotonic()
    await server.stop()
    ended = await asyncio.gather(*waiting, return_exceptions=True)
    assert time.monotonic() - began < 20
    assert all(isinstance(error, aiohttp.ClientError) for error in ended)
    assert server.bill.total.aborted == len(models)


async def test_cut_json_is_a_whole_response_with_half_an_answer(
    http: aiohttp.ClientSession, server: ModelServer
) -> None:
    server.fault("cut_json")
    async with ask(http, server) as response:
        assert response.content_type == "application/json"
        with pytest.raises(json.JSONDecodeError):
            json.loads(await response.text())
    lines = (await text_of(http, server, chat(stream=True))).strip().splitlines()
    with pytest.raises(json.JSONDecodeError):
        json.loads(lines[-1].removeprefix("data:"))
    assert server.bill.total.refused == 2


async def test_an_empty_body_and_a_wrong_content_type(http: aiohttp.ClientSession, server: ModelServer) -> None:
    server.fault("empty_body", count=1)
    server.fault("wrong_content_type")
    async with ask(http, server) as response:
        assert (response.status, await response.read()) == (200, b"")
    async with ask(http, server) as response:
        assert response.content_type == "text/plain"
        assert "choices" in json.loads(await response.text())


async def _until(so: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        while not so():  # noqa: ASYNC110  # the bill has no event to wait for
            await asyncio.sleep(0.005)


async def _leave(asking: asyncio.Task[None]) -> None:
    asking.cancel()
    await asyncio.gather(asking, return_exceptions=True)


# --- all of them ------------------------------------------------------------------------------------------------------


def test_there_are_more_than_thirty_kinds() -> None:
    assert len(set(FAULT_KINDS)) == len(FAULT_KINDS) >= 30
    assert {str(status) for status in STATUSES} < set(FAULT_KINDS)


@pytest.mark.parametrize("path", ["/chat/completions", "/responses"])
@pytest.mark.parametrize("stream", [False, True])
async def test_after_every_kind_of_fault_the_next_call_is_answered(
    http: aiohttp.ClientSession, server: ModelServer, path: str, stream: bool
) -> None:
    bodies = {**judge(stream=stream), "input": "Judge.", "text": {"format": {"type": "json_schema", "schema": VERDICT}}}
    for kind in FAULT_KINDS:
        server.reset()
        server.fault(kind, count=1, size=100_000)
        asking = asyncio.create_task(Meeting().read(ask(http, server, bodies, path)))
        await _until(lambda: bool(server.requests))
        if kind not in ENDLESS:
            await asyncio.wait([asking])
        await _leave(asking)
        async with ask(http, server, bodies, path) as response:
            content = await response.text()
        struck, spared = server.requests
        assert (struck.fault, spared.fault, spared.outcome) == (kind, None, "answered"), kind
        assert ("[DONE]" in content or "response.completed" in content) if stream else json.loads(content)


# --- which calls ------------------------------------------------------------------------------------------------------


async def test_a_fault_strikes_only_the_model_it_names(http: aiohttp.ClientSession, server: ModelServer) -> None:
    server.fault(500, model="leader-*")
    assert await outcomes(http, server, 1, "leader-a") == [500]
    assert await outcomes(http, server, 1, "judge") == [200]


async def test_a_fault_strikes_by_number_after_a_while_or_a_few_times(
    http: aiohttp.ClientSession, server: ModelServer
) -> None:
    server.fault(500, model="a", at=2)
    server.fault(500, model="b", at=[1, 3])
    server.fault(500, model="c", after=2)
    server.fault(500, model="d", count=2)
    server.fault(500, model="e", after=1, count=1)
    assert await outcomes(http, server, 3, "a") == [200, 500, 200]
    assert await outcomes(http, server, 3, "b") == [500, 200, 500]
    assert await outcomes(http, server, 4, "c") == [200, 200, 500, 500]
    assert await outcomes(http, server, 3, "d") == [500, 500, 200]
    assert await outcomes(http, server, 3, "e") == [200, 500, 200]


async def test_a_fault_strikes_a_share_of_the_calls_that_the_seed_decides(http: aiohttp.ClientSession) -> None:
    found = []
    for seed in (1, 1, 2):
        async with ModelServer(seed=seed) as server:
            server.fault(500, share=0.3)
            found.append(await outcomes(http, server, 60))
    assert found[0] == found[1] != found[2]
    assert 8 <= found[0].count(500) <= 30


async def test_a_fault_strikes_by_role_tool_output_and_text(http: aiohttp.ClientSession, server: ModelServer) -> None:
    for status, where in ((500, {"role": "leader"}), (502, {"output": "score"}), (503, {"contains": "Say"})):
        server.fault(status, **where)  # type: ignore[arg-type]
    found = []
    for body in (lead(), judge(), chat(), {"model": "m", "messages": [{"role": "user", "content": "Other"}]}):
        async with ask(http, server, body) as response:
            found.append(response.status)
    assert found == [500, 502, 503, 200]
    server.clear_faults()
    server.fault(504, tool="delegate")
    async with ask(http, server, lead()) as struck, ask(http, server, chat()) as spared:
        assert (struck.status, spared.status) == (504, 200)


async def test_a_call_that_fails_spends_no_scripted_answer(http: aiohttp.ClientSession, server: ModelServer) -> None:
    server.on("m", ["first", "second"])
    server.fault(500, at=1)
    server.fault("cut_json", at=1)
    texts = []
    for _ in range(4):
        async with ask(http, server) as response:
            body = await response.text()
            texts.append("first" if "first" in body else "second" if "second" in body else "")
    assert (texts[0], texts[2:]) == ("", ["first", "second"])


def test_an_unknown_fault_a_wrong_share_and_a_call_that_never_comes_are_refused_at_once() -> None:
    with pytest.raises(ValueError, match="unknown fault '418'"):
        ModelServer().fault(418)
    with pytest.raises(ValueError, match="share"):
        ModelServer().fault(500, share=30)
    with pytest.raises(ValueError, match="at counts calls from 1, and 0 is none of them"):
        ModelServer().fault(500, at=(2, 0))
