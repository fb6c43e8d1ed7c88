"""Searching the web for a member, behind one small door."""

import importlib
import importlib.util
import json
from dataclasses import dataclass
from typing import Any, Protocol

import aiohttp
from yarl import URL

from mixseek.agents.member.threads import Threads
from mixseek.config.schema import WebSearchSettings
from mixseek.llm.transport import ONLY_LOOPBACK, is_loopback, only_loopback

__all__ = ["Found", "PublicSearch", "Search", "SearchError", "SearxngSearch", "search_is_missing", "search_of"]

_MOST_ANSWER_BYTES = 5_000_000


@dataclass(frozen=True)
class Found:
    """One result of a search."""

    title: str
    url: str
    snippet: str = ""


class SearchError(Exception):
    """Why a search has no answer, in words for the model that asked."""


class Search(Protocol):
    """Something that searches; :class:`SearchError` if it could not, TimeoutError if it was too late."""

    async def find(self, query: str, *, most: int, seconds: float) -> list[Found]:
        """At most so many results, the best first, within about so many seconds."""


def search_of(settings: WebSearchSettings) -> Search:
    """The search these settings name."""
    return PublicSearch() if settings.endpoint is None else SearxngSearch(settings.endpoint)


def search_is_missing(settings: WebSearchSettings) -> str | None:
    """What to install if the search these settings name needs it."""
    if settings.endpoint is None and importlib.util.find_spec("ddgs") is None:
        return 'searching the web needs a package: pip install "mixseek[web]"'
    return None


class PublicSearch:
    """Asks public search engines, none of which wants a key."""

    def __init__(self) -> None:
        self._threads = Threads()

    async def find(self, query: str, *, most: int, seconds: float) -> list[Found]:
        """See :class:`Search`."""
        if only_loopback():
            raise SearchError(f"public search engines are not this machine, and {ONLY_LOOPBACK} is set")
        try:
            rows = await self._threads.run(_asked_in_public, query, most, max(1, int(seconds)))
        except Exception as error:  # the package raises those of its HTTP client and its parsers too
            raise SearchError(_reason(error)) from error
        return _results(rows, address="href", snippet="body")


def _asked_in_public(query: str, most: int, seconds: int) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = importlib.import_module("ddgs").DDGS(timeout=seconds).text(query, max_results=most)
    return rows


class SearxngSearch:
    """Asks a server that answers as SearXNG does, ``GET …/search?q=…&format=json``, at an address the user trusts."""

    def __init__(self, endpoint: str) -> None:
        url = URL(endpoint)
        self._url = url if url.path not in ("", "/") else url.with_path("/search")

    async def find(self, query: str, *, most: int, seconds: float) -> list[Found]:
        """See :class:`Search`."""
        if only_loopback() and not is_loopback(self._url.host or ""):
            raise SearchError(f"{self._url.host!r} is not this machine, and {ONLY_LOOPBACK} is set")
        url = self._url.update_query(q=query, format="json")
        try:
            said = await self._asked(url, seconds)
        except TimeoutError:
            raise
        except (aiohttp.ClientError, OSError, ValueError) as error:
            raise SearchError(f"the search server gave no answer: {_reason(error)}") from error
        rows = said.get("results") if isinstance(said, dict) else None
        if not isinstance(rows, list):
            raise SearchError("the search server did not answer with a list of results")
        return _results(rows, address="url", snippet="content")

    async def _asked(self, url: URL, seconds: float) -> Any:
        limits = aiohttp.ClientTimeout(total=seconds)
        async with (
            aiohttp.ClientSession(timeout=limits, trust_env=False, cookie_jar=aiohttp.DummyCookieJar()) as session,
            session.get(url, allow_redirects=False, headers={"Accept": "application/json"}) as answer,
        ):
            if answer.status != 200:
                raise SearchError(f"the search server answered HTTP {answer.status}")
            return json.loads(await _bounded(answer))


async def _bounded(answer: aiohttp.ClientResponse) -> bytes:
    body = bytearray()
    async for chunk in answer.content.iter_any():
        body += chunk
        if len(body) > _MOST_ANSWER_BYTES:
            raise SearchError(f"the search server's answer is larger than {_MOST_ANSWER_BYTES} bytes")
    return bytes(body)


def _results(rows: list[Any], *, address: str, snippet: str) -> list[Found]:
    """The rows that are results; what search engines give is not trusted to be complete."""
    return [
        Found(_text(row.get("title")), row[address], _text(row.get(snippet)))
        for row in rows
        if isinstance(row, dict) and isinstance(row.get(address), str)
    ]


def _text(value: Any) -> str:
    return " ".join(value.split()) if isinstance(value, str) else ""


def _reason(error: Exception) -> str:
    """What went wrong, without the chains of causes that HTTP clients tell where nobody is there."""
    words = " ".join(str(error).split())
    if isinstance(error, aiohttp.ClientConnectorDNSError) or words.startswith("DNSError:"):
        return "the name of the server cannot be looked up; is this machine online?"
    if isinstance(error, aiohttp.ClientConnectorError) or words.startswith("ConnectError:"):
        return "the server cannot be reached"
    return words[:300] or type(error).__name__
