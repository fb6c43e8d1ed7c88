"""Hosts as settings name them: in one spelling, whatever spelling a file uses."""

import re
from ipaddress import ip_address, ip_network

__all__ = ["domain", "host_and_port"]

_NO_NAME = re.compile(r"[\s/:@?#%*\\\[\]]")


def domain(text: str) -> str:
    """A domain without its variants: lower case, no final dot, other scripts as they stand in the DNS.

    >>> domain("*.Bücher.Example.")
    'xn--bcher-kva.example'
    """
    name = text.strip().removeprefix("*.").rstrip(".")
    if not name or _NO_NAME.search(name):
        raise ValueError(f'{text!r} is no domain: write it as in "example.com", without scheme, port and path')
    return _ascii(name, text)


def host_and_port(text: str) -> tuple[str, int | None]:
    """A host and, if one is named, its port.

    >>> host_and_port("Intranet.example:8080"), host_and_port("[::1]:80"), host_and_port("10.0.0.7")
    (('intranet.example', 8080), ('::1', 80), ('10.0.0.7', None))
    """
    bare = _address(text.strip())
    if bare is not None:
        return bare, None
    if _is_network(text.strip()):
        raise ValueError(f'{text!r} is a network: name each host of it, as "host" or "host:port"')
    named = re.fullmatch(r"(\[[^\]]+\]|[^:\[\]]+)(?::(\d{1,5}))?", text.strip())
    if named is None or (named[2] and not 1 <= int(named[2]) <= 65535):
        raise ValueError(f'{text!r} is no host: write "host" or "host:port"')
    host = _address(named[1].strip("[]")) or domain(named[1])
    return host, int(named[2]) if named[2] else None


def _is_network(text: str) -> bool:
    try:
        ip_network(text, strict=False)
    except ValueError:
        return False
    return True


def _address(text: str) -> str | None:
    try:
        return str(ip_address(text))
    except ValueError:
        return None


def _ascii(name: str, text: str) -> str:
    if name.isascii():
        return name.lower()
    import idna  # only names in other scripts need its tables

    try:
        return idna.encode(name, uts46=True).decode("ascii").lower()
    except idna.IDNAError as error:
        raise ValueError(f"{text!r} is no domain: {error}") from error
