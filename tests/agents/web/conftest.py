"""A web for tests: a site, names that lead where a test wants, and sockets that all end on this machine."""

import asyncio
import gzip
import socket
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import Any

import pytest
from aiohttp import web
from aiohttp.abc import AbstractResolver, ResolveResult

from mixseek.agents.member.web.fetch import Limits, PageReader
from mixseek.agents.member.web.guard import AddrInfo, Guard
from mixseek.config.schema import WebFetchSettings

ARTICLE = """<html><head><title>Tides</title><script>alert(1)</script></head>
<body><h1>Tides</h1><p>The moon pulls the <a href="/sea">sea</a>.</p></body></html>"""


@dataclass
class Site:
    """A server on this machine that counts what arrives."""

    port: int = 0
    paths: Counter[str] = field(default_factory=Counter)
    answers: dict[str, web.Response | Callable[[web.Request], Any]] = field(default_factory=dict)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def host(self) -> str:
        return f"127.0.0.1:{self.port}"

    async def answer(self, request: web.Request) -> web.StreamResponse:
        self.paths[request.path] += 1
        answer = self.answers.get(request.path)
        if callable(answer):
            made: web.StreamResponse = await answer(request)
            return made
        if answer is None:
            return web.Response(text="secret credentials", content_type="text/plain")
        return web.Response(body=answer.body, status=answer.status, headers=answer.headers)

    def html(self, path: str, text: str) -> None:
        self.answers[path] = web.Response(text=text, content_type="text/html")

    def redirect(self, path: str, location: str, status: int = 302) -> None:
        self.answers[path] = web.Response(status=status, headers={"Location": location})


@pytest.fixture
async def site() -> AsyncIterator[Site]:
    """The server, on IPv4 and, where there is any, on IPv6."""
    made = Site()
    made.html("/article", ARTICLE)
    async with AsyncExitStack() as stack:
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", made.answer)
        runner = web.AppRunner(app)
        await runner.setup()
        stack.push_async_callback(runner.cleanup)
        four = socket.create_server(("127.0.0.1", 0))
        made.port = four.getsockname()[1]
        await web.SockSite(runner, four).start()
        if has_ipv6():
            six = socket.create_server(("::1", made.port), family=socket.AF_INET6)
            await web.SockSite(runner, six).start()
        yield made


def has_ipv6() -> bool:
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        return False
    return True


class Names(AbstractResolver):
    """A resolver that knows the names of a test; each question takes the next answer, the last one stays."""

    def __init__(self, names: Mapping[str, Sequence[Sequence[str]]]) -> None:
        self._names = {name: list(answers) for name, answers in names.items()}
        self.asked: Counter[str] = Counter()

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        self.asked[host] += 1
        answers = self._names.get(host.rstrip("."))
        if not answers:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        addresses = answers.pop(0) if len(answers) > 1 else answers[0]
        return [_resolved(host, address, port) for address in addresses]

    async def close(self) -> None:
        pass


def _resolved(host: str, address: str, port: int) -> ResolveResult:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    flags = socket.AI_NUMERICHOST | socket.AI_NUMERICSERV
    return ResolveResult(hostname=host, host=address, port=port, family=family, proto=0, flags=flags)


class Detour:
    """Makes sockets that connect to one port of this machine, wherever they are told to connect.

    So a request that should have been refused arrives, whatever address it was for, and is counted.
    """

    def __init__(self, port: int) -> None:
        self.port = port
        self.wanted: list[str] = []

    def __call__(self, info: AddrInfo) -> socket.socket:
        self.wanted.append(info[4][0])
        detour = ("::1", self.port) if info[0] == socket.AF_INET6 else ("127.0.0.1", self.port)

        class Diverted(socket.socket):
            def connect(self, address: Any) -> None:
                super().connect(detour)

        return Diverted(info[0], info[1], info[2])


@dataclass
class World:
    """A site, the names of a test, and readers that reach nothing else."""

    site: Site
    detour: Detour

    def reader(
        self,
        *,
        names: Mapping[str, Sequence[Sequence[str]]] | None = None,
        resolver: AbstractResolver | None = None,
        limits: Limits | None = None,
        **settings: Any,
    ) -> PageReader:
        return PageReader(
            Guard.of(WebFetchSettings(**settings)),
            limits=limits,
            resolver=resolver or Names(names or {}),
            make_socket=self.detour,
        )


@pytest.fixture
def world(site: Site, monkeypatch: pytest.MonkeyPatch) -> World:
    """Every address seems reachable, and none but this machine is."""
    monkeypatch.delenv("MIXSEEK_ONLY_LOOPBACK")
    return World(site, Detour(site.port))


async def slowly(request: web.Request) -> web.StreamResponse:
    """An answer that never ends."""
    response = web.StreamResponse(headers={"Content-Type": "text/plain"})
    await response.prepare(request)
    while True:
        await response.write(b".")
        await asyncio.sleep(0.05)


def bomb(size: int) -> bytes:
    """So many bytes in a thousandth of them."""
    return gzip.compress(b"A" * size)
