"""The server's life, its bill and log, its pace, and its controls."""

import asyncio
import json
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import aiohttp
import pytest

from mixseek.testing import Message, ModelBill, ModelCall, ModelServer, ModelServerProcess, ToolCall
from mixseek.testing.server.bill import Ledger
from mixseek.testing.server.pace import Latency, RateLimit
from mixseek.testing.server.wire import Usage


def chat(model: str = "m", content: str = "Say something.", **more: Any) -> dict[str, Any]:
    return {"model": model, "messages": [{"role": "user", "content": content}], **more}


async def post(http: aiohttp.ClientSession, server: ModelServer, body: Any, path: str = "/chat/completions") -> Any:
    async with http.post(server.base_url + path, json=body) as response:
        return response.status, response.headers, await response.text()


async def _until(so: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        while not so():  # noqa: ASYNC110  # the bill has no event to wait for
            await asyncio.sleep(0.005)


def post_sync(base_url: str, body: Any) -> Any:
    request = Request(f"{base_url}/chat/completions", data=json.dumps(body).encode(), method="POST")
    with urlopen(request, timeout=30) as response:
        return json.load(response)


# --- bill and log -----------------------------------------------------------------------------------------------------


async def test_the_bill_counts_for_each_model_and_in_total(http: aiohttp.ClientSession, server: ModelServer) -> None:
    server.fault(500, model="b", at=1)
    for model in ("a", "b", "b", "a"):
        await post(http, server, chat(model))
    bill = server.bill
    assert {model: (books.requests, books.answered, books.refused) for model, books in bill.models.items()} == {
        "a": (2, 2, 0),
        "b": (2, 1, 1),
    }
    assert bill.total == bill.models["a"] + bill.models["b"]
    assert bill.models["a"].input_tokens == 2 * bill.models["b"].input_tokens > 0


async def test_a_stream_that_did_not_ask_for_its_usage_is_not_told_and_not_billed(
    http: aiohttp.ClientSession, server: ModelServer
) -> None:
    _, _, content = await post(http, server, chat(stream=True))
    assert "usage" not in content
    assert server.bill.total == ModelBill(requests=1, answered=1)


async def test_a_client_that_leaves_before_its_answer_is_not_billed(
    http: aiohttp.ClientSession, server: ModelServer
) -> None:
    server.set_latency(60)
    asking = asyncio.create_task(post(http, server, chat()))
    await _until(lambda: server.bill.total.waiting == 1)
    asking.cancel()
    await _until(lambda: server.bill.total.waiting == 0)
    assert server.bill.total == ModelBill(requests=1, aborted=1)


def test_an_answer_that_broke_at_its_last_byte_is_taken_off_the_bill() -> None:
    ledger = Ledger(keep_bodies=True, log_size=10, log_bytes=1000)
    entry = ledger.open(ModelCall("m", (Message("user", "?"),)), b"{}")
    ledger.close(entry, "answered", Usage(10, 20))
    assert ledger.bill().total == ModelBill(requests=1, answered=1, input_tokens=10, output_tokens=20)
    ledger.close(entry, "aborted")
    assert ledger.bill().total == ModelBill(requests=1, aborted=1)


async def test_a_bill_already_given_does_not_change(http: aiohttp.ClientSession, server: ModelServer) -> None:
    await post(http, server, chat())
    before = server.bill
    await post(http, server, chat())
    assert before.total.requests == 1


async def test_the_log_keeps_the_newest_requests_with_their_bodies(http: aiohttp.ClientSession) -> None:
    began = time.time()
    async with ModelServer(log_size=2) as server:
        for model in ("a", "b", "c"):
            await post(http, server, chat(model, content=f"for {model}"))
        newest = server.requests
    assert [(request.number, request.model, request.call_number) for request in newest] == [(2, "b", 1), (3, "c", 1)]
    assert newest[1].body["messages"][0]["content"] == "for c"
    assert began - 1 <= newest[0].time <= newest[1].time <= time.time() + 1
    assert (newest[0].api, newest[0].role, newest[0].outcome) == ("chat", "member", "answered")


async def test_the_log_forgets_bodies_when_told_and_old_requests_when_they_grow_large(
    http: aiohttp.ClientSession,
) -> None:
    async with ModelServer(keep_bodies=False) as server:
        await post(http, server, chat())
        assert server.requests[0].body is None
    async with ModelServer(log_bytes=3500) as server:
        for _ in range(5):
            await post(http, server, chat(content="x" * 1000))
        assert [request.number for request in server.requests] == [3, 4, 5]
        assert server.bill.total.requests == 5


async def test_a_reset_forgets_scripts_faults_and_books_but_not_what_still_waits(
    http: aiohttp.ClientSession, server: ModelServer
) -> None:
    server.on("m", ["scripted"] * 2)
    server.set_latency(0.2, model="slow")
    waiting = asyncio.create_task(post(http, server, chat("slow")))
    await _until(lambda: bool(server.requests))
    server.fault(500, model="m")
    server.reset()
    status, _, content = await post(http, server, chat())
    assert status == 200
    assert "scripted" not in content
    assert (await waiting)[0] == 200
    assert server.bill.total == server.bill.models["m"]
    assert server.bill.total.requests == 1


# --- pace -------------------------------------------------------------------------------------------------------------


async def test_latency_is_for_the_models_it_names_and_waits_run_side_by_side(
    http: aiohttp.ClientSession, server: ModelServer
) -> None:
    server.set_latency(30, model="never")
    server.set_latency(0.2, model="slow-*")
    began = time.monotonic()
    await post(http, server, chat("fast"))
    await asyncio.gather(*(post(http, server, chat("slow-1")) for _ in range(20)))
    assert 0.2 <= time.monotonic() - began < 4


def test_jitter_follows_from_the_seed() -> None:
    def waits(seed: int) -> list[float]:
        latency = Latency(seed)
        latency.set("*", 1.0, 0.5)
        return [latency.of(ModelCall("m", (Message("user", "?"),), number=number)) for number in range(1, 40)]

    assert waits(1) == waits(1) != waits(2)
    assert 1.0 <= min(waits(1)) < 1.1 < 1.4 < max(waits(1)) <= 1.5


async def test_a_rate_limit_lets_a_burst_through_and_refuses_the_rest_with_the_time_to_wait(
    http: aiohttp.ClientSession,
) -> None:
    async with ModelServer(rate_limit=0.01, burst=3) as server:
        found = [await post(http, server, chat()) for _ in range(5)]
        assert [status for status, _, _ in found] == [200, 200, 200, 429, 429]
        assert found[3][1]["Retry-After"] == "100"
        assert 90_000 < int(found[3][1]["retry-after-ms"]) <= 100_000
        assert json.loads(found[3][2])["error"]["code"] == "rate_limit_exceeded"
        assert server.bill.total.refused == 2
        server.set_rate_limit(None)
        assert (await post(http, server, chat()))[0] == 200


async def test_a_rate_limit_may_keep_quiet_about_the_wait_and_its_refusals_are_counted_apart(
    http: aiohttp.ClientSession,
) -> None:
    async with ModelServer() as server:
        server.set_rate_limit(0.01, burst=1, retry_after=False)
        server.fault(400, count=1)
        found = [await post(http, server, chat()) for _ in range(4)]
        assert [status for status, _, _ in found] == [400, 429, 429, 429]
        assert not {"Retry-After", "retry-after-ms"} & set(found[1][1])
        total = server.bill.total
        assert (total.requests, total.refused, total.rate_limited) == (4, 4, 3)


def test_who_waits_as_told_is_served_and_five_a_second_are_five_a_second() -> None:
    limit = RateLimit(5)
    now, served = 100.0, 0
    while now < 110:
        wait = limit.seconds_to_wait(now)
        served += not wait
        now += wait + 1e-9
    assert 5 + 5 * 10 - 1 <= served <= 5 + 5 * 10 + 1


async def test_a_server_that_was_stopped_comes_back_at_the_same_address(http: aiohttp.ClientSession) -> None:
    server = ModelServer()
    await server.start()
    await post(http, server, chat())
    await server.stop()
    with pytest.raises(aiohttp.ClientConnectionError):
        await post(http, server, chat())
    async with server:
        assert (await post(http, server, chat()))[0] == 200
    assert server.bill.total.answered == 2


# --- what it says to the wrong request --------------------------------------------------------------------------------


async def test_what_is_no_request_is_refused_and_not_billed(http: aiohttp.ClientSession, server: ModelServer) -> None:
    async with http.post(f"{server.base_url}/chat/completions", data=b"{cut") as response:
        assert response.status == 400
    wrong: list[Any] = [[], {"messages": []}, {"model": "m"}]
    for body in wrong:
        assert (await post(http, server, body))[0] == 400
    assert (await post(http, server, {}, "/nowhere"))[0] == 404
    assert server.bill.total.requests == 0


async def test_a_script_that_raises_tells_the_client(
    http: aiohttp.ClientSession, server: ModelServer, caplog: pytest.LogCaptureFixture
) -> None:
    def raising(call: ModelCall) -> str:
        raise KeyError(call.model)

    server.on("m", raising)
    status, _, content = await post(http, server, chat())
    assert status == 500
    assert "the script for 'm' raised KeyError" in content
    assert "the script for 'm' raised" in caplog.text


# --- in a thread ------------------------------------------------------------------------------------------------------


def test_without_a_loop_it_runs_in_a_thread() -> None:
    with ModelServer() as server:
        server.on("m", lambda call: f"hello {call.number}")
        answers = [post_sync(server.base_url, chat())["choices"][0]["message"]["content"] for _ in "12"]
        assert answers == ["hello 1", "hello 2"]
        assert server.bill.total.answered == 2
        url = server.base_url
    with pytest.raises(OSError, match="refused"):
        post_sync(url, chat())


def test_a_port_in_use_is_told_and_leaves_no_thread() -> None:
    with ModelServer() as server:
        before = set(threading.enumerate())
        with pytest.raises(OSError, match="in use"):
            ModelServer(port=server.port).__enter__()
        assert set(threading.enumerate()) <= before


# --- as a process -----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def process() -> Any:
    with ModelServerProcess(seed=1) as server:
        yield server


@pytest.fixture
def remote(process: ModelServerProcess) -> ModelServerProcess:
    process.reset()
    return process


def test_a_process_is_scripted_and_read_over_its_controls(remote: ModelServerProcess) -> None:
    remote.on("m", ["hello", None, [ToolCall("t", {"task": "x"})], {"score": 3}], role="member")
    messages = [post_sync(remote.base_url, chat())["choices"][0]["message"] for _ in range(4)]
    assert messages[0]["content"] == "hello"
    assert "Say something." in messages[1]["content"]
    assert messages[2]["tool_calls"][0]["function"] == {"name": "t", "arguments": '{"task": "x"}'}
    assert json.loads(messages[3]["content"]) == {"score": 3}
    assert remote.bill.total.answered == 4
    assert remote.bill.models["m"].output_tokens > 0
    log = remote.requests
    assert [request.call_number for request in log] == [1, 2, 3, 4]
    assert log[0].body["messages"][0]["content"] == "Say something."
    assert sum(request.usage.output_tokens for request in log if request.usage) == remote.bill.total.output_tokens


def test_a_process_is_made_to_fail_over_its_controls(remote: ModelServerProcess) -> None:
    remote.fault(503, model="m", count=1, retry_after=2)
    with pytest.raises(HTTPError) as failed:
        post_sync(remote.base_url, chat())
    failed.value.close()
    assert failed.value.headers["Retry-After"] == "2"
    post_sync(remote.base_url, chat())
    remote.fault(500)
    remote.clear_faults()
    post_sync(remote.base_url, chat())
    assert [request.fault for request in remote.requests] == ["503", None, None]


def test_pace_is_set_over_the_controls(remote: ModelServerProcess) -> None:
    remote.set_rate_limit(0.01, burst=1)
    remote.set_latency(0.15)
    began = time.monotonic()
    post_sync(remote.base_url, chat())
    assert time.monotonic() - began >= 0.15
    with pytest.raises(HTTPError) as failed:
        post_sync(remote.base_url, chat())
    assert failed.value.headers["Retry-After"]
    failed.value.close()
    remote.set_rate_limit(0.01, burst=1, retry_after=False)
    post_sync(remote.base_url, chat())
    with pytest.raises(HTTPError) as failed:
        post_sync(remote.base_url, chat())
    assert not failed.value.headers["Retry-After"]
    failed.value.close()
    remote.set_rate_limit(None)
    remote.set_latency(0)


def test_wrong_orders_are_refused_with_a_reason(remote: ModelServerProcess) -> None:
    for order in ({"kind": "418"}, {"kind": "500", "modell": "m"}, {}):
        request = Request(f"{remote.url}/control/fault", data=json.dumps(order).encode(), method="POST")
        with pytest.raises(HTTPError) as failed:
            urlopen(request, timeout=30)
        assert failed.value.code == 400
        assert json.load(failed.value)["error"]["message"]
        failed.value.close()


def test_the_command_prints_its_address_as_one_line_and_ends_on_a_signal_even_with_a_hang(tmp_path: Path) -> None:
    command = [sys.executable, "-W", "error", "-m", "mixseek.testing.server", "--port", "0", "--latency", "60"]
    with (tmp_path / "err").open("wb") as errors:
        server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors)
        assert server.stdout is not None
        address = json.loads(server.stdout.readline())
        assert address["base_url"] == f"http://127.0.0.1:{address['port']}/v1"
        client = subprocess.Popen(
            [sys.executable, "-c", _ASK, address["base_url"]], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        _wait_for_a_request(address["url"])
        server.send_signal(signal.SIGTERM)
        rest, _ = server.communicate(timeout=30)
        assert client.wait(timeout=30) != 0
    assert (server.returncode, rest, (tmp_path / "err").read_text()) == (0, b"", "")


_ASK = """
import sys, urllib.request
body = b'{"model": "m", "messages": []}'
urllib.request.urlopen(urllib.request.Request(sys.argv[1] + "/chat/completions", data=body), timeout=30)
"""


def _wait_for_a_request(url: str) -> None:
    for _ in range(3000):
        with urlopen(f"{url}/control/bill", timeout=30) as response:
            if json.load(response)["total"]["requests"]:
                return
        time.sleep(0.01)
    raise AssertionError("no request came")


def test_a_process_ends_with_the_one_that_started_it() -> None:
    code = (
        "import os, sys, time; from mixseek.testing import ModelServerProcess; s = ModelServerProcess(); s.start();"
        "print(s.url, flush=True); os.kill(os.getpid(), 9)"
    )
    started = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, check=False)
    assert started.returncode == -9
    port = int(started.stdout.rpartition(b":")[2])
    assert any(_is_gone(port) for _ in range(3000)), "the server outlived its starter"


def _is_gone(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except ConnectionRefusedError:
        return True
    time.sleep(0.01)
    return False


def test_the_log_is_told_for_one_model_when_asked_so(remote: ModelServerProcess) -> None:
    for model in ("a", "b&c"):
        post_sync(remote.base_url, chat(model))
    with urlopen(f"{remote.url}/control/requests?model=b%26c", timeout=30) as response:
        assert [request["model"] for request in json.load(response)] == ["b&c"]
