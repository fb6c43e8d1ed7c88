"""What the fetch refuses, and what it still reads; whatever socket it opens reaches a server that counts."""

import socket
from collections.abc import Sequence

import pytest
from yarl import URL

from mixseek.agents.member.web.fetch import Page, Unread
from mixseek.agents.member.web.guard import Guard, RefusedError, plain_socket

from .conftest import Names, World, has_ipv6

INSIDE = [
    "http://127.0.0.1/",
    "http://127.0.0.1:{port}/",
    "http://127.1/",
    "http://127.0.1/",
    "http://127.255.255.254/",
    "http://2130706433/",
    "http://0x7f000001/",
    "http://0x7f.0.0.1/",
    "http://0177.0.0.1/",
    "http://017700000001/",
    "http://0000127.0.0.1/",
    "http://127.0.0.1./",
    "http://１２７.０.０.１/",
    "http://①②⑦.⓪.⓪.①/",
    "http://127。0。0。1/",
    "http://0.0.0.0:{port}/",
    "http://0/",
    "http://10.0.0.1/",
    "http://172.16.0.1/",
    "http://172.31.255.255/",
    "http://192.168.0.1/",
    "http://100.64.0.1/",
    "http://100.100.100.200/latest/meta-data/",
    "http://169.254.169.254/latest/meta-data/iam/security-credentials/",
    "http://169.254.170.2/v2/credentials",
    "http://0xa9fea9fe/",
    "http://2852039166/",
    "http://168.63.129.16/",
    "http://192.0.0.192/opc/v2/instance/",
    "http://198.18.0.1/",
    "http://203.0.113.7/",
    "http://224.0.0.1/",
    "http://240.0.0.1/",
    "http://255.255.255.255/",
    "http://[::]/",
    "http://[::1]/",
    "http://[0:0:0:0:0:0:0:1]/",
    "http://[::1%25lo]/",
    "http://[::ffff:127.0.0.1]/",
    "http://[::ffff:7f00:1]/",
    "http://[::ffff:169.254.169.254]/",
    "http://[::127.0.0.1]/",
    "http://[64:ff9b::7f00:1]/",
    "http://[64:ff9b::a9fe:a9fe]/",
    "http://[64:ff9b:1::7f00:1]/",
    "http://[2002:7f00:1::]/",
    "http://[2001:0:7f00:1::]/",
    "http://[2001:db8::1]/",
    "http://[fe80::1]/",
    "http://[fe80::1%25eth0]/",
    "http://[fec0::1]/",
    "http://[fc00::1]/",
    "http://[fd00:ec2::254]/latest/meta-data/",
    "http://[fd20:ce::254]/computeMetadata/v1/",
    "http://[ff02::1]/",
    "http://localhost/",
    "http://LOCALHOST./",
    "http://localtest.example/",
    "http://intranet.example/",
    "http://metadata.google.internal/computeMetadata/v1/",
    "http://mapped.example/",
    "http://nat64.example/",
    "http://mixed.example/",
    "http://six.example/",
    "http://unspecified.example/",
    "http://user:password@public.example/",
    "http://public.example@127.0.0.1/",
    "http://127.0.0.1\\@public.example/",
    "http://public.example\\@127.0.0.1/",
    "http://public.example\t@127.0.0.1/",
    "http://127.0.0.1#@public.example/",
    "https://127.0.0.1/",
    "file:///etc/passwd",
    "ftp://public.example/",
    "gopher://127.0.0.1:{port}/_GET",
    "data:text/html,hello",
    "javascript:alert(1)",
]
WITHOUT_A_HOST = ["http:///etc/passwd", "http://", "", "public.example/article", "//public.example/article"]

NAMES: dict[str, Sequence[Sequence[str]]] = {
    "public.example": [["93.184.215.14"]],
    "localhost": [["127.0.0.1", "::1"]],
    "localtest.example": [["127.0.0.1"]],
    "intranet.example": [["10.1.2.3"]],
    "metadata.google.internal": [["169.254.169.254"]],
    "mapped.example": [["::ffff:10.0.0.1"]],
    "nat64.example": [["64:ff9b::a00:1"]],
    "mixed.example": [["93.184.215.14", "10.0.0.1"]],
    "six.example": [["fd12:3456::1"]],
    "unspecified.example": [["0.0.0.0"]],
}


@pytest.mark.parametrize("url", [*INSIDE, *WITHOUT_A_HOST])
async def test_an_address_inside_gets_no_request(url: str, world: World) -> None:
    read = await world.reader(names=NAMES).read(url.format(port=world.site.port))
    assert isinstance(read, Unread)
    assert read.reason
    assert world.site.paths.total() == 0
    assert world.detour.wanted == []


@pytest.mark.parametrize("url", INSIDE)
async def test_a_redirect_to_an_address_inside_is_not_followed(url: str, world: World) -> None:
    world.site.redirect("/away", url.format(port=world.site.port))
    reader = world.reader(names=NAMES | {"out.example": [["93.184.215.14"]]})
    read = await reader.read("http://out.example/away")
    assert isinstance(read, Unread)
    assert dict(world.site.paths) == {"/away": 1}
    assert world.detour.wanted == ["93.184.215.14"]


@pytest.mark.parametrize("host", ["127.1", "2130706433", "0x7f.1", "0177.0.0.1", "1.2.3.4.5", "8.8.2056", "a.0x"])
async def test_an_unusual_spelling_of_an_address_is_not_even_looked_up(host: str, world: World) -> None:
    names = Names({host: [["93.184.215.14"]]})
    read = await world.reader(resolver=names).read(f"http://{host}/article")
    assert isinstance(read, Unread)
    assert read.reason == f"{host!r} is an unusual spelling of an address; addresses are read only in their usual form"
    assert names.asked.total() == 0


def test_no_socket_is_made_for_an_address_that_was_not_checked(world: World) -> None:
    passage = Guard().passage(URL("http://93.184.215.14/"))
    made = passage.socket_factory(plain_socket)
    made((socket.AF_INET, socket.SOCK_STREAM, 0, "", ("93.184.215.14", 80))).close()
    with pytest.raises(RefusedError, match="was not checked"):
        made((socket.AF_INET, socket.SOCK_STREAM, 0, "", ("93.184.215.15", 80)))


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_the_last_of_several_redirects_is_checked_as_the_first(status: int, world: World) -> None:
    world.site.redirect("/1", "http://two.example/2", status)
    world.site.redirect("/2", "//three.example/3", status)
    world.site.redirect("/3", "http://metadata.google.internal/", status)
    away = {name: [["93.184.215.14"]] for name in ("one.example", "two.example", "three.example")}
    read = await world.reader(names=NAMES | away).read("http://one.example/1")
    assert isinstance(read, Unread)
    assert "'metadata.google.internal' leads to a metadata address" in read.reason
    assert dict(world.site.paths) == {"/1": 1, "/2": 1, "/3": 1}


async def test_a_name_that_changes_its_mind_is_connected_to_where_it_was_checked(world: World) -> None:
    names = Names({"rebind.example": [["93.184.215.14"], ["127.0.0.1"]]})
    reader = world.reader(resolver=names)
    assert isinstance(await reader.read("http://rebind.example/article"), Page)
    assert (names.asked["rebind.example"], world.detour.wanted) == (1, ["93.184.215.14"])
    assert isinstance(await reader.read("http://rebind.example/article"), Unread)
    assert world.site.paths["/article"] == 1


async def test_a_redirect_to_the_same_name_asks_for_its_address_again(world: World) -> None:
    world.site.redirect("/again", "/article")
    reader = world.reader(names={"rebind.example": [["93.184.215.14"], ["169.254.169.254"]]})
    read = await reader.read("http://rebind.example/again")
    assert isinstance(read, Unread)
    assert world.site.paths["/article"] == 0


@pytest.mark.parametrize(
    "url",
    [
        "http://93.184.215.14/article",
        "http://public.example/article",
        "HTTP://Public.Example./article",
        "http://public.example:8080/article#part",
        *(
            ["http://six.public.example/article", "http://[2606:2800:21f:cb07:6820:80da:af6b:8b2c]/article"]
            * has_ipv6()
        ),
    ],
)
async def test_a_public_address_is_read(url: str, world: World) -> None:
    read = await world.reader(names=NAMES | {"six.public.example": [["64:ff9b::5db8:d70e"]]}).read(url)
    assert isinstance(read, Page)
    assert "The moon pulls" in read.text


async def test_a_private_host_is_read_if_the_settings_name_it(world: World) -> None:
    for allowed in ("127.0.0.1", world.site.host):
        reader = world.reader(allowed_private_hosts=[allowed])
        assert isinstance(await reader.read(f"{world.site.url}/article"), Page)
    assert isinstance(
        await world.reader(names=NAMES, allowed_private_hosts=["Intranet.example."]).read(
            "http://intranet.example/article"
        ),
        Page,
    )


async def test_a_private_host_is_open_on_its_port_alone(world: World) -> None:
    reader = world.reader(names=NAMES, allowed_private_hosts=[world.site.host, "intranet.example:8080"])
    assert isinstance(await reader.read("http://127.0.0.1:1/article"), Unread)
    assert isinstance(await reader.read("http://intranet.example/article"), Unread)
    assert isinstance(await reader.read("http://localtest.example/article"), Unread)
    assert world.site.paths.total() == 0
    assert isinstance(await reader.read("http://intranet.example:8080/article"), Page)


@pytest.mark.parametrize("address", ["169.254.169.254", "fe80::1", "0.0.0.0", "224.0.0.1", "fd00:ec2::254"])
async def test_naming_a_host_opens_no_metadata_service(address: str, world: World) -> None:
    reader = world.reader(names={"trusted.example": [[address]]}, allowed_private_hosts=["trusted.example", address])
    assert isinstance(await reader.read("http://trusted.example/"), Unread)
    assert isinstance(await reader.read(f"http://[{address}]/" if ":" in address else f"http://{address}/"), Unread)
    assert world.site.paths.total() == 0


async def test_an_open_host_cannot_redirect_to_one_that_is_not(world: World) -> None:
    world.site.redirect("/away", f"http://localtest.example:{world.site.port}/article")
    read = await world.reader(names=NAMES, allowed_private_hosts=[world.site.host]).read(f"{world.site.url}/away")
    assert isinstance(read, Unread)
    assert "'localtest.example' leads to a loopback address, which is not read" in read.reason
    assert dict(world.site.paths) == {"/away": 1}


@pytest.mark.parametrize(
    ("url", "is_read"),
    [
        ("http://example.com/article", True),
        ("http://EXAMPLE.com.:8080/article", True),
        ("http://a.b.example.com/article", True),
        ("http://bücher.example/article", True),
        ("http://xn--bcher-kva.example/article", True),
        ("http://notexample.com/article", False),
        ("http://example.com.evil.example/article", False),
        ("http://example.org/article", False),
    ],
)
async def test_domains_count_with_their_subdomains_in_any_spelling(url: str, is_read: bool, world: World) -> None:
    hosts = ["example.com", "a.b.example.com", "xn--bcher-kva.example", "notexample.com", "example.org"]
    names = {host: [["93.184.215.14"]] for host in [*hosts, "example.com.evil.example"]}
    domains = ["Example.COM.", "*.bücher.example"]
    only = await world.reader(names=names, allowed_domains=domains).read(url)
    but = await world.reader(names=names, blocked_domains=domains).read(url)
    assert (isinstance(only, Page), isinstance(but, Page)) == (is_read, not is_read)
    assert world.site.paths["/article"] == 1


async def test_a_redirect_out_of_the_allowed_domains_is_not_followed(world: World) -> None:
    world.site.redirect("/away", "http://other.example/article")
    names = {"example.com": [["93.184.215.14"]], "other.example": [["93.184.215.14"]]}
    read = await world.reader(names=names, allowed_domains=["example.com"]).read("http://example.com/away")
    assert isinstance(read, Unread)
    assert "'other.example' is not among the allowed domains" in read.reason
    assert world.site.paths["/article"] == 0


async def test_while_only_this_machine_may_be_spoken_to_no_page_is_asked_for(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MIXSEEK_ONLY_LOOPBACK", "1")
    assert isinstance(await world.reader(names=NAMES).read("http://public.example/article"), Unread)
    reader = world.reader(allowed_private_hosts=[world.site.host])
    assert isinstance(await reader.read(f"{world.site.url}/article"), Page)


async def test_a_proxy_of_the_environment_is_not_used(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.setenv(variable, "http://127.0.0.1:9")
    read = await world.reader(names=NAMES).read("http://public.example/article")
    assert isinstance(read, Page)
    assert world.detour.wanted == ["93.184.215.14"]
