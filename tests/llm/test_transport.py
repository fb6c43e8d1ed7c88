"""The HTTP transport: bounded, shared, and closed without a trace."""

import asyncio
import gzip
from collections.abc import AsyncIterator, Awaitable, Callable

import httpx2
import pytest
from aiohttp import web

from mixseek.llm.transport import AiohttpTransport, AnswerTooLarge, HostNotAllowed, _proxy, is_loopback

Handler = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]
Serve = Callable[[Handler], Awaitable[str]]


@pytest.fixture
async def serve() -> AsyncIterator[Serve]:
    runners: list[web.ServerRunner] = []

    async def start(handler: Handler) -> str:
        runner = web.ServerRunner(web.Server(handler, handler_cancellation=True), shutdown_timeout=0.1)
        await runner.setup()
        runners.append(runner)
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        return f"http://127.0.0.1:{runner.addresses[0][1]}/"

    yield start
    for runner in runners:
        await runner.cleanup()


@pytest.fixture
async def client() -> AsyncIterator[httpx2.AsyncClient]:
    async with httpx2.AsyncClient(transport=AiohttpTransport(max_answer_bytes=100_000), trust_env=False) as made:
        yield made


async def test_a_request_arrives_and_an_answer_comes_back_as_they_are(serve: Serve, client: httpx2.AsyncClient) -> None:
    async def echo(request: web.BaseRequest) -> web.StreamResponse:
        body = await request.read()
        return web.Response(body=body + request.headers["X-Mine"].encode(), status=418, headers={"X-Theirs": "yes"})

    answer = await client.post(await serve(echo), content="日本語", headers={"X-Mine": "!"})
    assert (answer.status_code, answer.text, answer.headers["X-Theirs"]) == (418, "日本語!", "yes")


async def test_a_packed_answer_is_unpacked(serve: Serve, client: httpx2.AsyncClient) -> None:
    async def packed(request: web.BaseRequest) -> web.StreamResponse:
        return web.Response(body=gzip.compress(b"plain"), headers={"Content-Encoding": "gzip"})

    assert (await client.get(await serve(packed))).text == "plain"


async def test_an_answer_that_says_it_is_too_large_is_not_read(serve: Serve, client: httpx2.AsyncClient) -> None:
    async def large(request: web.BaseRequest) -> web.StreamResponse:
        return web.Response(body=b"x" * 100_001)

    with pytest.raises(AnswerTooLarge):
        await client.get(await serve(large))


async def test_a_long_answer_is_read_no_further_than_allowed(serve: Serve, client: httpx2.AsyncClient) -> None:
    written = 0

    async def long(request: web.BaseRequest) -> web.StreamResponse:
        nonlocal written
        response = web.StreamResponse()
        await response.prepare(request)
        for _ in range(500):
            await response.write(b"x" * 10_000)
            written += 10_000
        return response

    with pytest.raises(AnswerTooLarge):
        await client.get(await serve(long))
    assert written < 5_000_000


async def test_what_grows_when_it_is_unpacked_is_bounded_as_well(serve: Serve, client: httpx2.AsyncClient) -> None:
    async def bomb(request: web.BaseRequest) -> web.StreamResponse:
        return web.Response(body=gzip.compress(b"0" * 20_000_000), headers={"Content-Encoding": "gzip"})

    with pytest.raises(AnswerTooLarge):
        await client.get(await serve(bomb))


async def test_a_server_that_falls_silent_is_a_read_time_out(serve: Serve, client: httpx2.AsyncClient) -> None:
    async def silent(request: web.BaseRequest) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(b"x")
        await asyncio.Event().wait()
        return response

    with pytest.raises(httpx2.ReadTimeout):
        await client.get(await serve(silent), timeout=httpx2.Timeout(5, read=0.05))


async def test_an_answer_that_breaks_off_is_a_protocol_error(serve: Serve, client: httpx2.AsyncClient) -> None:
    async def broken(request: web.BaseRequest) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Length": "100"})
        await response.prepare(request)
        await response.write(b"half")
        assert request.transport is not None
        request.transport.close()
        return response

    with pytest.raises(httpx2.RemoteProtocolError):
        await client.get(await serve(broken))


async def test_a_closed_port_is_a_connect_error(client: httpx2.AsyncClient) -> None:
    with pytest.raises(httpx2.ConnectError):
        await client.get("http://127.0.0.1:1/")


async def test_a_connection_is_used_again(serve: Serve, client: httpx2.AsyncClient) -> None:
    ports = set()

    async def note(request: web.BaseRequest) -> web.StreamResponse:
        assert request.transport is not None
        ports.add(request.transport.get_extra_info("peername"))
        return web.Response(text="ok")

    address = await serve(note)
    for _ in range(5):
        await client.get(address)
    assert len(ports) == 1


async def test_cookies_of_one_answer_do_not_go_into_the_next_request(serve: Serve) -> None:
    seen = []

    async def baker(request: web.BaseRequest) -> web.StreamResponse:
        seen.append(request.headers.get("Cookie"))
        return web.Response(text="ok", headers={"Set-Cookie": "team=a"})

    transport = AiohttpTransport()
    # By name: cookies of bare addresses are never kept.
    address = (await serve(baker)).replace("127.0.0.1", "localhost")
    for _ in range(2):
        answer = await transport.handle_async_request(httpx2.Request("GET", address))
        await answer.aread()
    await transport.aclose()
    assert seen == [None, None]


@pytest.mark.parametrize("address", ["http://example.com/", "http://127.0.0.1.example.com/", "http://10.0.0.1/"])
async def test_while_only_this_machine_is_allowed_other_hosts_are_refused(
    address: str, client: httpx2.AsyncClient
) -> None:
    with pytest.raises(HostNotAllowed):
        await client.get(address)


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST", "127.8.9.10", "::1", "[::1]"])
def test_this_machine_has_several_names(host: str) -> None:
    assert is_loopback(host)


def test_the_proxy_of_the_environment_is_used_but_not_for_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    _proxy.cache_clear()
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy:3128")
    monkeypatch.setenv("NO_PROXY", "inside.example.com")
    assert _proxy("https", "api.example.com") == "http://proxy:3128"
    assert _proxy("https", "inside.example.com") is None
    assert _proxy("https", "localhost") is None
    _proxy.cache_clear()
