"""HTTP for models: aiohttp behind the transport interface of the SDKs' HTTP client.

The default connection pool scans all its connections for every request, which costs more than everything else
together when hundreds of teams play at once; aiohttp looks a free connection up. What is read here is bounded: no
answer may be larger than ``max_answer_bytes``, counted after decompression, and no more than that is ever held.

With the environment variable ``MIXSEEK_ONLY_LOOPBACK`` set to anything but "" or "0", only this machine is spoken to:
tests can run against a server of their own and never reach a real one.
"""

import asyncio
import os
import urllib.request
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from functools import lru_cache
from ipaddress import ip_address
from typing import Any

import aiohttp
import httpx2

from mixseek.crash_points import is_chosen, reach
from mixseek.llm.per_loop import PerLoop
from mixseek.llm.tracing import traced_request

__all__ = [
    "MAX_ANSWER_BYTES",
    "ONLY_LOOPBACK",
    "AiohttpTransport",
    "AnswerTooLarge",
    "HostNotAllowed",
    "is_loopback",
    "only_loopback",
]

MAX_ANSWER_BYTES = 32 * 1024 * 1024
ONLY_LOOPBACK = "MIXSEEK_ONLY_LOOPBACK"

_KEEP_ALIVE_SECONDS = 30
# A time-out given as one number is meant for the answer; a server that cannot be reached is known much sooner.
_MOST_CONNECT_SECONDS = 10.0
# aiohttp decompresses these; what it gives on is plain, so the headers that describe the packing are left out.
_ENCODINGS = "gzip, deflate"
_NOT_PASSED_ON = frozenset({b"content-encoding", b"content-length", b"transfer-encoding"})
_NOT_SENT = frozenset({"accept-encoding", "connection", "host"})


class AnswerTooLarge(httpx2.TransportError):
    """An answer beyond the size that is read."""


class HostNotAllowed(httpx2.TransportError):
    """A host other than this machine while only this machine is allowed."""


def only_loopback(environ: Mapping[str, str] = os.environ) -> bool:
    """Whether only this machine may be spoken to."""
    return environ.get(ONLY_LOOPBACK, "") not in ("", "0")


def is_loopback(host: str) -> bool:
    """Whether ``host`` is this machine.

    >>> is_loopback("127.0.0.1"), is_loopback("::1"), is_loopback("localhost"), is_loopback("127.0.0.1.example.com")
    (True, True, True, False)
    """
    try:
        return ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host.lower() == "localhost"


class AiohttpTransport(httpx2.AsyncBaseTransport):
    """Sends the requests of any number of SDK clients over one aiohttp session for each event loop."""

    def __init__(self, *, max_answer_bytes: int = MAX_ANSWER_BYTES) -> None:
        self._max_answer_bytes = max_answer_bytes
        self._sessions: PerLoop[_Session] = PerLoop(_Session)

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send one request; the answer is read as it is asked for."""
        if only_loopback() and not is_loopback(request.url.host):
            raise HostNotAllowed(f"{request.url.host!r} is not this machine, and {ONLY_LOOPBACK} is set")
        try:
            with traced_request(request.method, str(request.url)) as answered:
                answer = await self._send(request)
                answered(answer.status)
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise _translated(error) from error
        headers = [(name, value) for name, value in answer.raw_headers if name.lower() not in _NOT_PASSED_ON]
        return httpx2.Response(answer.status, headers=headers, stream=_Body(answer, self._max_answer_bytes))

    async def _send(self, request: httpx2.Request) -> aiohttp.ClientResponse:
        session = await self._sessions.get().opened()
        return await session.request(
            request.method,
            str(request.url),
            headers=_headers(request),
            data=await request.aread() or None,
            timeout=_timeout(request),
            allow_redirects=False,
            proxy=_proxy(request.url.scheme, request.url.host),
            skip_auto_headers=("Accept", "Content-Type", "User-Agent"),
        )

    async def aclose(self) -> None:
        """Close the connections of the running loop; those of other loops are closed as their loops end."""
        session = self._sessions.pop()
        if session is not None:
            await session.close()


class _Session:
    """An aiohttp session that is closed with its event loop, if nobody closes it before.

    A loop that is shut down in an orderly manner finishes the asynchronous generators that were begun on it: this one
    does nothing but wait for that.
    """

    def __init__(self) -> None:
        self._session: aiohttp.ClientSession | None = None
        self._keeper: AsyncGenerator[None] | None = None

    async def opened(self) -> aiohttp.ClientSession:
        if self._session is None:
            # How many calls go out at once is decided above this; a limit here would make calls wait unseen.
            connector = aiohttp.TCPConnector(limit=0, keepalive_timeout=_KEEP_ALIVE_SECONDS)
            cookies = aiohttp.DummyCookieJar()
            self._session = aiohttp.ClientSession(connector=connector, cookie_jar=cookies, trace_configs=_traces())
            self._keeper = _close_at_the_end(self._session)
            await anext(self._keeper)
        return self._session

    async def close(self) -> None:
        if self._keeper is not None:
            await self._keeper.aclose()


def _traces() -> list[aiohttp.TraceConfig]:
    """What tells of bytes that are sent, where a process is to die just then: asking for it costs every request."""
    if not is_chosen("call.request_sent"):
        return []

    async def sending(*_: Any) -> None:
        # Told before the bytes are handed over, which happens before the loop looks up again.
        asyncio.get_running_loop().call_soon(reach, "call.request_sent")

    trace = aiohttp.TraceConfig()
    trace.on_request_chunk_sent.append(sending)
    return [trace]


async def _close_at_the_end(session: aiohttp.ClientSession) -> AsyncGenerator[None]:
    try:
        yield
    finally:
        await session.close()


class _Body(httpx2.AsyncByteStream):
    """The bytes of an answer, as many as are allowed."""

    def __init__(self, answer: aiohttp.ClientResponse, max_bytes: int) -> None:
        self._answer = answer
        self._max_bytes = max_bytes

    async def __aiter__(self) -> AsyncIterator[bytes]:
        self._refuse_beyond(self._answer.content_length or 0)
        read = 0
        try:
            async for chunk in self._answer.content.iter_any():
                read += len(chunk)
                self._refuse_beyond(read)
                yield chunk
        # A RuntimeError is aiohttp's word for a connection that was closed between two reads.
        except (aiohttp.ClientError, TimeoutError, OSError, RuntimeError) as error:
            raise _translated(error) from error

    def _refuse_beyond(self, size: int) -> None:
        if size > self._max_bytes:
            raise AnswerTooLarge(f"the answer is larger than {self._max_bytes} bytes")

    async def aclose(self) -> None:
        # An answer that was read to its end has given its connection back already; any other connection is dropped.
        self._answer.close()


def _headers(request: httpx2.Request) -> list[tuple[str, str]]:
    kept = [(name, value) for name, value in request.headers.multi_items() if name.lower() not in _NOT_SENT]
    return [*kept, ("Accept-Encoding", _ENCODINGS)]


def _timeout(request: httpx2.Request) -> aiohttp.ClientTimeout:
    limits = request.extensions.get("timeout", {})
    connect = min(limits.get("connect") or _MOST_CONNECT_SECONDS, _MOST_CONNECT_SECONDS)
    return aiohttp.ClientTimeout(total=None, sock_connect=connect, sock_read=limits.get("read"))


@lru_cache(maxsize=256)
def _proxy(scheme: str, host: str) -> str | None:
    """The proxy the environment names for a host; aiohttp's own reading of it would also send passwords of .netrc."""
    if is_loopback(host) or urllib.request.proxy_bypass(host):
        return None
    proxies = urllib.request.getproxies()
    return proxies.get(scheme) or proxies.get("all")


def _translated(error: Exception) -> httpx2.TransportError:
    text = str(error) or type(error).__name__
    match error:
        case aiohttp.ConnectionTimeoutError():
            return httpx2.ConnectTimeout(text)
        case aiohttp.ServerTimeoutError() | asyncio.TimeoutError():
            return httpx2.ReadTimeout(text)
        case aiohttp.ClientConnectorError():
            # asyncio's own words repeat the address in a form for programs.
            number = error.os_error.errno
            why = os.strerror(number) if number and number > 0 else error.os_error.strerror or text
            return httpx2.ConnectError(f"cannot connect to {error.host}:{error.port}: {why}")
        case aiohttp.ClientPayloadError():
            return httpx2.RemoteProtocolError(text)
        case _:
            return httpx2.ReadError(text)
