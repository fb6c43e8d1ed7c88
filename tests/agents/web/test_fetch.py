"""Reading a page: as text, within its limits, and in words where it fails."""

import asyncio
import gzip
import zlib
from contextlib import suppress
from pathlib import Path

import pytest
from aiohttp import web

from mixseek.agents.member.web import fetch
from mixseek.agents.member.web.fetch import Limits, Page, PageReader, Unread
from mixseek.agents.member.web.guard import Guard
from tests.processes import children_of

from .conftest import Site, bomb, slowly


def reader(site: Site, limits: Limits | None = None) -> PageReader:
    return PageReader(Guard(private_hosts=frozenset({("127.0.0.1", site.port)})), limits=limits)


async def page(site: Site, path: str, limits: Limits | None = None) -> Page:
    read = await reader(site, limits).read(site.url + path)
    assert isinstance(read, Page), read
    return read


async def reason(site: Site, path: str, limits: Limits | None = None) -> str:
    read = await reader(site, limits).read(site.url + path)
    assert isinstance(read, Unread), read
    return read.reason


def raw(body: bytes, **headers: str) -> web.Response:
    return web.Response(body=body, headers={name.replace("_", "-"): value for name, value in headers.items()})


async def test_a_page_becomes_markdown_with_whole_links(site: Site) -> None:
    assert await page(site, "/article") == Page(
        f"{site.url}/article", "Tides", f"# Tides\n\nThe moon pulls the [sea]({site.url}/sea)."
    )


async def test_a_redirected_page_tells_where_it_was_found(site: Site) -> None:
    site.redirect("/old", "article?x=1")
    assert (await page(site, "/old")).url == f"{site.url}/article?x=1"


async def test_other_text_is_left_as_it_is(site: Site) -> None:
    site.answers["/data"] = raw(b'{"a": "<b>"}', Content_Type="application/json; charset=utf-8")
    assert (await page(site, "/data")).text == '{"a": "<b>"}'


@pytest.mark.parametrize(
    ("charset", "declared", "in_html"),
    [
        ("shift_jis", "text/html; charset=Shift_JIS", ""),
        ("cp932", "text/html", '<meta charset="shift_jis">'),
        ("euc_jp", "text/html", '<meta http-equiv="Content-Type" content="text/html; charset=EUC-JP">'),
        ("utf-8", "text/html; charset=punycode", ""),
        ("utf-8", "text/html; charset=no-such", ""),
        ("utf-16", "text/html", ""),
    ],
)
async def test_japanese_is_read_in_the_encodings_it_is_written_in(
    charset: str, declared: str, in_html: str, site: Site
) -> None:
    site.answers["/ja"] = raw(f"<html>{in_html}<p>潮の満ち引き</p></html>".encode(charset), Content_Type=declared)
    assert (await page(site, "/ja")).text == "潮の満ち引き"


@pytest.mark.parametrize(
    ("encoding", "body"),
    [
        ("gzip", gzip.compress(b"packed text")),
        ("deflate", zlib.compress(b"packed text")),
        ("deflate", zlib.compress(b"packed text", wbits=-15)),
        ("identity", b"packed text"),
    ],
    ids=["gzip", "deflate", "bare deflate", "plain"],
)
async def test_packed_text_is_unpacked(encoding: str, body: bytes, site: Site) -> None:
    site.answers["/packed"] = raw(body, Content_Type="text/plain", Content_Encoding=encoding)
    assert (await page(site, "/packed")).text == "packed text"


async def test_no_more_than_the_limit_is_read_of_a_long_text(site: Site) -> None:
    site.answers["/long"] = raw(b"x" * 300_000, Content_Type="text/plain")
    read = await page(site, "/long", Limits(bytes=100_000))
    assert (len(read.text), read.whole) == (100_000, False)


@pytest.mark.parametrize(
    ("encoding", "body"),
    [("gzip", bomb(20_000_000)), ("deflate", zlib.compress(b"A" * 20_000_000))],
    ids=["gzip", "deflate"],
)
async def test_a_packed_bomb_is_unpacked_to_the_limit_only(encoding: str, body: bytes, site: Site) -> None:
    site.answers["/bomb"] = raw(body, Content_Type="text/plain", Content_Encoding=encoding)
    read = await page(site, "/bomb", Limits(bytes=100_000))
    assert (len(read.text), read.whole) == (100_000, False)


async def test_a_caller_may_take_less_of_a_page(site: Site) -> None:
    site.html("/long", "<p>" + "word " * 1000 + "</p>")
    read = await reader(site).read(f"{site.url}/long", characters=100)
    assert isinstance(read, Page)
    assert (len(read.text), read.whole) == (100, False)


@pytest.mark.parametrize(
    ("headers", "told"),
    [
        ({"Content-Type": "image/png"}, "it is 'image/png'; only text is read"),
        ({"Content-Type": "application/octet-stream"}, "only text is read"),
        ({"Content-Type": "application/pdf"}, "only text is read"),
        ({"Content-Type": "text/plain", "Content-Encoding": "br"}, "it is packed as 'br', which is not read"),
        ({"Content-Type": "text/plain", "Content-Encoding": "gzip"}, "its packing is broken"),
        ({"Content-Type": "text/plain", "Content-Encoding": "gzip, gzip"}, "it is packed as 'gzip, gzip'"),
    ],
)
async def test_what_is_no_readable_text_is_told(headers: dict[str, str], told: str, site: Site) -> None:
    site.answers["/it"] = web.Response(body=b"\x89PNG", headers=headers)
    assert told in await reason(site, "/it")


async def test_an_error_of_the_server_is_told(site: Site) -> None:
    site.answers["/gone"] = web.Response(status=404, text="no")
    site.answers["/lost"] = web.Response(status=302)
    assert await reason(site, "/gone") == "the server answered HTTP 404"
    assert await reason(site, "/lost") == "the server answered HTTP 302 without saying where to go"


async def test_redirects_end_after_a_few(site: Site) -> None:
    site.redirect("/round", "/round")
    assert await reason(site, "/round") == "it was redirected more than 5 times"
    assert site.paths["/round"] == 6


async def test_a_page_that_never_ends_is_given_up(site: Site) -> None:
    site.answers["/slow"] = slowly
    assert await reason(site, "/slow", Limits(seconds=0.3)) == "it did not come within 0.3 seconds"


async def test_a_server_that_is_not_there_is_told(site: Site, unused_tcp_port: int) -> None:
    read = await PageReader(Guard(private_hosts=frozenset({("127.0.0.1", None)}))).read(
        f"http://127.0.0.1:{unused_tcp_port}/"
    )
    assert isinstance(read, Unread)
    assert read.reason.startswith("it could not be reached: ")


async def test_a_page_made_to_keep_a_parser_busy_is_given_up(site: Site) -> None:
    site.html("/hard", "<p " + " ".join(f"a{number}=1" for number in range(200_000)) + ">x")
    told = await reason(site, "/hard", Limits(convert_seconds=1))
    assert told in ("it is too involved to be made into text", "it could not be made into text")
    assert children() == []


async def test_giving_up_on_a_page_leaves_no_process(site: Site) -> None:
    site.html("/hard", "<p " + " ".join(f"a{number}=1" for number in range(200_000)) + ">x")
    patient = Limits(seconds=120, convert_seconds=120)
    reading = asyncio.create_task(reader(site, patient).read(f"{site.url}/hard"))
    while not children():  # noqa: ASYNC110  # a process has no event for its start
        await asyncio.sleep(0.01)
    reading.cancel()
    with pytest.raises(asyncio.CancelledError):
        async with asyncio.timeout(60):
            await reading
    assert children() == []


def children() -> list[int]:
    """Processes of ours that make text of pages."""
    found = []
    for pid in children_of():
        with suppress(OSError):
            if fetch._CONVERTER.name.encode() in Path(f"/proc/{pid}/cmdline").read_bytes():
                found.append(pid)
    return found
