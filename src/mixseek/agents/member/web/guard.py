"""What a member may be led to read: pages of the internet, of the domains its settings allow, and nothing inside.

The text of a page, a search result or a task may name any address, so none is trusted. A host is judged three times,
each time by what the next step will use: the address as it is written, every address its name resolves to, and the
one the socket is about to connect to. The name is resolved once for each request, so that it cannot mean something
else between the check and the connection.
"""

import re
import socket
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from ipaddress import ip_address
from typing import Any, Self

from aiohttp.abc import AbstractResolver, ResolveResult
from yarl import URL

from mixseek.agents.member.web.addresses import Address, inward_kind, literal_address, opened_by_name
from mixseek.config.hosts import domain, host_and_port
from mixseek.config.schema import WebFetchSettings
from mixseek.llm.transport import ONLY_LOOPBACK, only_loopback

__all__ = ["AddrInfo", "Guard", "Passage", "RefusedError", "plain_socket", "readable_url"]

AddrInfo = tuple[socket.AddressFamily | int, socket.SocketKind | int, int, str, tuple[Any, ...]]

_LONGEST_URL = 8192
# Programs differ in what they make of these inside an address, and so in the host they see.
_AMBIGUOUS = re.compile(r"[\x00-\x20\x7f-\xa0\\\u2028\u2029\u3000]")


class RefusedError(Exception):
    """Why something is not read, in words for the model that asked for it."""


def plain_socket(info: AddrInfo) -> socket.socket:
    """The socket for one address."""
    return socket.socket(info[0], info[1], info[2])


def readable_url(text: str, base: URL | None = None) -> URL:
    """The address that ``text`` spells, relative to ``base`` if there is one; only web addresses are readable."""
    if len(text) > _LONGEST_URL:
        raise RefusedError(f"the address is longer than {_LONGEST_URL} characters")
    if _AMBIGUOUS.search(text):
        raise RefusedError("the address holds spaces, control characters or backslashes")
    try:
        url = URL(text) if base is None else base.join(URL(text))
        port = url.port
    except ValueError as error:
        raise RefusedError(f"the address cannot be read: {error}") from error
    if url.scheme not in ("http", "https"):
        raise RefusedError(f"only http and https can be read, not {url.scheme or 'an address without a scheme'}")
    if url.user is not None or url.password is not None:
        raise RefusedError("addresses with a user name or a password are not read")
    if not url.raw_host or not port:
        raise RefusedError("the address names no host")
    return url


@dataclass(frozen=True)
class Guard:
    """Domains and hosts that may be read."""

    allowed_domains: tuple[str, ...] = ()
    """Only these and their subdomains; empty: any."""
    blocked_domains: tuple[str, ...] = ()
    private_hosts: frozenset[tuple[str, int | None]] = frozenset()
    """Hosts that may be on a private network; without a port on any."""

    @classmethod
    def of(cls, settings: WebFetchSettings) -> Self:
        """The guard these settings ask for."""
        return cls(
            tuple(map(domain, settings.allowed_domains or ())),
            tuple(map(domain, settings.blocked_domains or ())),
            frozenset(map(host_and_port, settings.allowed_private_hosts)),
        )

    def passage(self, url: URL) -> "Passage":
        """Let one request through to this host, if it may be asked at all."""
        host = _host(url)
        if self.allowed_domains and not _within(host, self.allowed_domains):
            raise RefusedError(f"{host!r} is not among the allowed domains")
        if _within(host, self.blocked_domains):
            raise RefusedError(f"{host!r} is a blocked domain")
        port = url.port or 0
        return Passage(host, opened=bool({(host, port), (host, None)} & self.private_hosts))


def _host(url: URL) -> str:
    return (url.raw_host or "").lower().rstrip(".")


def _within(host: str, domains: Iterable[str]) -> bool:
    return any(host == one or host.endswith(f".{one}") for one in domains)


@dataclass
class Passage:
    """One request's way to its host: what it resolved to, and that it goes nowhere else."""

    host: str
    opened: bool
    """Whether the settings open this host although it may be private."""
    approved: set[Address] = field(default_factory=set)

    def __post_init__(self) -> None:
        try:
            literal = literal_address(self.host)
        except ValueError as error:
            raise RefusedError(f"{error}; addresses are read only in their usual form") from error
        if literal is not None:
            self.approve(literal)

    def approve(self, address: Address) -> None:
        """Take note of an address of the host, or refuse it."""
        kind = inward_kind(address)
        if kind is not None and not (self.opened and opened_by_name(kind)):
            raise RefusedError(f"{self.host!r} leads to a {kind} address, which is not read")
        if only_loopback() and kind != "loopback":
            raise RefusedError(f"{self.host!r} is not this machine, and {ONLY_LOOPBACK} is set")
        self.approved.add(address)

    def resolver(self, asked: AbstractResolver) -> AbstractResolver:
        """Gives what ``asked`` gives, if all of it may be connected to."""
        return _CheckedResolver(asked, self)

    def socket_factory(self, make: Callable[[AddrInfo], socket.socket]) -> Callable[[AddrInfo], socket.socket]:
        """Makes sockets for approved addresses only, whatever way an address took to get here."""

        def made(info: AddrInfo) -> socket.socket:
            if ip_address(info[4][0]) not in self.approved:
                raise RefusedError(f"{self.host!r} leads to an address that was not checked")
            return make(info)

        return made


class _CheckedResolver(AbstractResolver):
    def __init__(self, asked: AbstractResolver, passage: Passage) -> None:
        self._asked = asked
        self._passage = passage

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        found = await self._asked.resolve(host, port, family)
        if not found:
            raise OSError(f"{host!r} has no address")
        # All of them or none: a name with one private address among public ones is meant to be tried until it works.
        for one in found:
            self._passage.approve(ip_address(one["host"]))
        return found

    async def close(self) -> None:
        await self._asked.close()
