"""Searching: what a server answers, and what goes wrong, in words."""

import socket
from typing import Any

import pytest
from aiohttp import web
from ddgs.exceptions import DDGSException

from mixseek.agents.member.web.search import Found, SearchError, SearxngSearch, search_of
from mixseek.config.schema import WebSearchSettings

from .conftest import Site


async def found(endpoint: str) -> list[Found]:
    return await SearxngSearch(endpoint).find("a query & more", most=10, seconds=10)


@pytest.mark.parametrize("path", ["", "/", "/search", "/deep/search?language=ja"])
async def test_a_server_is_asked_at_the_address_that_was_given(path: str, site: Site) -> None:
    async def answer(request: web.Request) -> web.Response:
        assert (request.query["q"], request.query["format"]) == ("a query & more", "json")
        assert request.query.get("language") == ("ja" if "language" in path else None)
        return web.json_response({"results": [{"url": "https://a.example/", "title": " A\n title ", "content": None}]})

    site.answers["/search"] = site.answers["/deep/search"] = answer
    assert await found(site.url + path) == [Found("A title", "https://a.example/", "")]


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (web.Response(status=403), "the search server answered HTTP 403"),
        (web.Response(status=302, headers={"Location": "/"}), "the search server answered HTTP 302"),
        (web.Response(text="<html>"), "the search server gave no answer"),
        (web.Response(text="[]"), "did not answer with a list of results"),
        (web.Response(text='{"results": 3}'), "did not answer with a list of results"),
        (web.Response(body=b" " * 6_000_000), "answer is larger than"),
    ],
)
async def test_a_server_that_does_not_answer_as_it_should_is_told(answer: web.Response, told: str, site: Site) -> None:
    site.answers["/search"] = answer
    with pytest.raises(SearchError, match=told):
        await found(site.url)


async def test_a_server_that_is_not_there_is_told(unused_tcp_port: int) -> None:
    with pytest.raises(SearchError, match=r"^the search server gave no answer: the server cannot be reached$"):
        await found(f"http://127.0.0.1:{unused_tcp_port}")


NO_NAME = "the name of the server cannot be looked up; is this machine online?"


async def test_a_name_that_cannot_be_looked_up_is_told_in_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    def nowhere(*_: Any, **__: Any) -> None:
        raise socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")

    monkeypatch.setattr(socket, "getaddrinfo", nowhere)
    monkeypatch.delenv("MIXSEEK_ONLY_LOOPBACK")
    with pytest.raises(SearchError) as told:
        await found("https://search.example")
    assert str(told.value) == f"the search server gave no answer: {NO_NAME}"


@pytest.mark.parametrize(
    ("raised", "words"),
    [
        ("DNSError: DNSError('error sending request for url (https://a.example/) > dns error > no records')", NO_NAME),
        ("ConnectError: ConnectError('error sending request > Connection refused')", "the server cannot be reached"),
    ],
)
async def test_public_engines_that_nobody_reaches_are_told_in_a_sentence(
    raised: str, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def text(self: Any, query: str, **options: Any) -> None:
        raise DDGSException(raised)

    monkeypatch.setattr("ddgs.ddgs.DDGS.text", text)
    monkeypatch.delenv("MIXSEEK_ONLY_LOOPBACK")
    with pytest.raises(SearchError) as told:
        await search_of(WebSearchSettings()).find("q", most=1, seconds=1)
    assert str(told.value) == words


async def test_a_server_elsewhere_is_not_asked_while_only_this_machine_may_be_spoken_to() -> None:
    with pytest.raises(SearchError, match="is not this machine"):
        await found("https://search.example")


async def test_a_package_that_raises_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def text(self: Any, query: str, **options: Any) -> None:
        raise RuntimeError("engines are\non strike")

    monkeypatch.setattr("ddgs.ddgs.DDGS.text", text)
    monkeypatch.delenv("MIXSEEK_ONLY_LOOPBACK")
    with pytest.raises(SearchError, match="engines are on strike"):
        await search_of(WebSearchSettings()).find("q", most=1, seconds=1)
