"""Reading one web page for a member: every hop past the guard, bounded in time and size, as text.

What cannot be read is told in words, for the model to try something else.
"""

import asyncio
import importlib.util
import json
import os
import re
import socket
import sys
import zlib
from codecs import lookup
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import aiohttp
from aiohttp.abc import AbstractResolver
from yarl import URL

from mixseek.agents.member.web.guard import AddrInfo, Guard, RefusedError, plain_socket, readable_url
from mixseek.llm.per_loop import PerLoop

__all__ = ["Limits", "Page", "PageReader", "Unread", "html_parser_is_missing"]

_MOST_REDIRECTS = 5
_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_CHUNK_BYTES = 64 * 1024
_HEADERS = {
    "User-Agent": "MixSeek",
    "Accept": "text/html,application/xhtml+xml,text/*;q=0.9,application/json;q=0.9,application/xml;q=0.9",
    "Accept-Encoding": "gzip, deflate",
}
_HTML = frozenset({"text/html", "application/xhtml+xml"})
_TEXT = re.compile(r"text/[\w.+-]+|application/(?:[\w.-]+\+)?(?:json|xml)|application/(?:x-ndjson|yaml|toml)")

_CHARSET_IN_HTML = re.compile(rb"""<meta[^>]{0,200}?charset\s*=\s*["']?([\w:-]{1,40})""", re.IGNORECASE)
# Decoders that take time in proportion to the text; Python knows others.
_CHARSETS = re.compile(
    r"utf[-_]?(?:8|16|32)(?:[-_]?[bl]e)?|us-ascii|ascii|iso[-_]?8859[-_]\d+|iso[-_]?2022[-_]\w+|(?:windows-|cp)\d+|"
    r"(?:x-)?s(?:hift)?[-_]?jis|(?:x-)?euc[-_]?(?:jp|kr|cn)|gbk|gb2312|gb18030|big5(?:-hkscs)?|koi8-[ru]|tis-620|macintosh",
    re.IGNORECASE,
)
# What pages call by the first name they write in the second.
_WIDER = {"shift_jis": "cp932", "iso8859-1": "cp1252", "ascii": "cp1252", "gb2312": "gb18030", "euc_kr": "cp949"}

_CONVERTER = Path(__file__).with_name("markdown.py")


@dataclass(frozen=True)
class Limits:
    """How much one page may take."""

    seconds: float = 30
    """For all of it: names, redirects, the body, making text of it."""
    bytes: int = 5_000_000
    """Of the body, unpacked; the rest of a longer one is not read."""
    html_bytes: int = 2_000_000
    characters: int = 1_000_000
    convert_seconds: int = 10
    """Of processor time, for a page that is made to keep a parser busy."""
    convert_memory: int = 1 << 30


@dataclass(frozen=True)
class Page:
    """A page that was read."""

    url: str
    """Where it was found in the end."""
    title: str
    text: str
    whole: bool = True
    """Whether the text is all of it."""


@dataclass(frozen=True)
class Unread:
    """A page that was not read, and why."""

    url: str
    reason: str


def html_parser_is_missing() -> str | None:
    """What to install if pages cannot be read here."""
    if importlib.util.find_spec("lxml") is None:
        return 'reading web pages needs a package: pip install "mixseek[web]"'
    return None


class PageReader:
    """Reads pages that its guard lets through.

    ``resolver`` and ``make_socket`` are how names and connections are made; what they give is checked all the same.
    """

    def __init__(
        self,
        guard: Guard,
        *,
        limits: Limits | None = None,
        resolver: AbstractResolver | None = None,
        make_socket: Callable[[AddrInfo], socket.socket] = plain_socket,
    ) -> None:
        self._guard = guard
        self._limits = limits or Limits()
        self._resolver = resolver
        self._make_socket = make_socket

    async def read(self, url: str, *, characters: int | None = None, seconds: float | None = None) -> Page | Unread:
        """The text of a page, at most so many characters of it, within so many seconds."""
        most = min(characters or self._limits.characters, self._limits.characters)
        limit = self._limits.seconds if seconds is None else min(seconds, self._limits.seconds)
        try:
            async with asyncio.timeout(limit):
                return await self._follow(readable_url(url.strip()), most)
        except TimeoutError:
            return Unread(url, f"it did not come within {limit:.3g} seconds")
        except RefusedError as refused:
            return Unread(url, str(refused))
        except (aiohttp.ClientError, OSError, ValueError) as error:
            return Unread(url, f"it could not be reached: {_words(error)}")

    async def _follow(self, url: URL, most: int) -> Page:
        for _ in range(_MOST_REDIRECTS + 1):
            async with self._asked(url) as answer:
                if answer.status not in _REDIRECTS:
                    return await self._page(url, answer, most)
                url = _next(url, answer)
        raise RefusedError(f"it was redirected more than {_MOST_REDIRECTS} times")

    @asynccontextmanager
    async def _asked(self, url: URL) -> AsyncGenerator[aiohttp.ClientResponse]:
        """One request to a host that may be asked, over a connection to an address that was checked."""
        passage = self._guard.passage(url)
        connector = aiohttp.TCPConnector(
            resolver=passage.resolver(self._resolver or aiohttp.ThreadedResolver()),
            use_dns_cache=False,
            socket_factory=passage.socket_factory(self._make_socket),
            force_close=True,
        )
        # No cookies, no proxy, no .netrc: a request carries nothing of the user and goes where it was checked to go.
        session = aiohttp.ClientSession(
            connector=connector,
            cookie_jar=aiohttp.DummyCookieJar(),
            trust_env=False,
            auto_decompress=False,
            timeout=aiohttp.ClientTimeout(total=None),
        )
        async with session, session.get(url, allow_redirects=False, headers=_HEADERS) as answer:
            yield answer

    async def _page(self, url: URL, answer: aiohttp.ClientResponse, most: int) -> Page:
        if answer.status >= 400:
            raise RefusedError(f"the server answered HTTP {answer.status}")
        kind = _kind(answer)
        is_html = kind in _HTML
        body, whole = await _body(answer, self._limits.html_bytes if is_html else self._limits.bytes)
        text, title = _decoded(body, answer.charset, is_html=is_html), ""
        if is_html:
            title, text = await self._as_markdown(text, str(url), most)
        return Page(str(url), title, text[:most], whole=whole and len(text) < most)

    async def _as_markdown(self, html: str, url: str, most: int) -> tuple[str, str]:
        if missing := html_parser_is_missing():
            raise RefusedError(missing)
        async with _converters.get():
            return await _converted(html, url, most, self._limits)


def _next(url: URL, answer: aiohttp.ClientResponse) -> URL:
    location = answer.headers.get("Location")
    if not location:
        raise RefusedError(f"the server answered HTTP {answer.status} without saying where to go")
    try:
        return readable_url(location.strip(), url)
    except RefusedError as refused:
        raise RefusedError(f"it was redirected: {refused}") from refused


def _kind(answer: aiohttp.ClientResponse) -> str:
    named = answer.headers.get("Content-Type", "").partition(";")[0].strip().lower()
    if not named:
        raise RefusedError("the server does not say what it is; only text is read")
    if not _TEXT.fullmatch(named) and named not in _HTML:
        raise RefusedError(f"it is {named!r}; only text is read")
    return named


def _words(error: Exception) -> str:
    text = " ".join(str(error).split()) or type(error).__name__
    return text[:300]


# --- the body ---------------------------------------------------------------------------------------------------------


async def _body(answer: aiohttp.ClientResponse, most: int) -> tuple[bytes, bool]:
    """As much of the body as may be read, unpacked, and whether that is all; no more than that is ever held."""
    unpack = _unpacker(answer.headers.get("Content-Encoding", ""))
    body, packed = bytearray(), 0
    async for chunk in answer.content.iter_chunked(_CHUNK_BYTES):
        packed += len(chunk)
        body += unpack(chunk, most + 1 - len(body))
        if len(body) > most or packed > most:
            return bytes(body[:most]), False
    return bytes(body), True


def _unpacker(encoding: str) -> Callable[[bytes, int], bytes]:
    match encoding.strip().lower():
        case "" | "identity":
            return lambda chunk, most: chunk[:most]
        case "gzip" | "x-gzip":
            return _inflate(zlib.decompressobj(wbits=zlib.MAX_WBITS | 16))
        case "deflate":
            return _Deflate()
        case other:
            raise RefusedError(f"it is packed as {other!r}, which is not read")


def _inflate(stream: "zlib._Decompress") -> Callable[[bytes, int], bytes]:
    def unpack(chunk: bytes, most: int) -> bytes:
        try:
            return b"" if stream.eof else stream.decompress(chunk, most)
        except zlib.error as error:
            raise RefusedError("its packing is broken") from error

    return unpack


class _Deflate:
    """With or without zlib's header: servers send both under one name."""

    _unpack: Callable[[bytes, int], bytes] | None = None

    def __call__(self, chunk: bytes, most: int) -> bytes:
        if self._unpack is None:
            with_header = chunk[0] & 0x0F == zlib.DEFLATED
            self._unpack = _inflate(zlib.decompressobj(zlib.MAX_WBITS if with_header else -zlib.MAX_WBITS))
        return self._unpack(chunk, most)


# --- its text ---------------------------------------------------------------------------------------------------------


def _decoded(body: bytes, charset: str | None, *, is_html: bool) -> str:
    for mark, encoding in ((b"\xef\xbb\xbf", "utf-8-sig"), (b"\xff\xfe", "utf-16"), (b"\xfe\xff", "utf-16")):
        if body.startswith(mark):
            return body.decode(encoding, "replace")
    named = charset
    if named is None and is_html and (found := _CHARSET_IN_HTML.search(body[:4096])):
        named = found[1].decode("ascii")
    return body.decode(_codec(named), "replace")


def _codec(named: str | None) -> str:
    if not named or not _CHARSETS.fullmatch(named):
        return "utf-8"
    try:
        codec = lookup(named).name
    except LookupError:
        return "utf-8"
    return _WIDER.get(codec, codec)


# Making text of pages is work for processors: more at once than there are would only make all of them late.
_converters: PerLoop[asyncio.Semaphore] = PerLoop(lambda: asyncio.Semaphore(os.cpu_count() or 1))


async def _converted(html: str, url: str, most: int, limits: Limits) -> tuple[str, str]:
    """Title and Markdown of a page, made in a process that ends with its limits or with whoever waits for it."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-P", "-s", str(_CONVERTER), url),
        *map(str, (most, limits.convert_seconds, limits.convert_memory)),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        # Nothing of the user's environment but where packages are.
        env={"PYTHONPATH": os.pathsep.join(path for path in sys.path if path), "PYTHONDONTWRITEBYTECODE": "1"},
    )
    try:
        async with asyncio.timeout(limits.convert_seconds):
            written, _ = await process.communicate(html.encode("utf-8", "replace"))
    except TimeoutError:
        raise RefusedError("it is too involved to be made into text") from None
    finally:
        if process.returncode is None:
            with suppress(ProcessLookupError):
                process.kill()
            await process.wait()
    if process.returncode != 0:
        raise RefusedError("it could not be made into text")
    title, text = json.loads(written)
    return title, text
