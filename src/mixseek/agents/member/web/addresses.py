"""Which addresses are out on the internet, and which lead back inside."""

import re
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network

__all__ = ["Address", "inward_kind", "literal_address", "opened_by_name"]

Address = IPv4Address | IPv6Address

# The first network that holds an address tells its kind; what no network holds is out on the internet.
_INWARD_4 = [
    (ip_network(network), kind)
    for network, kind in (
        # Services that hand out the credentials of the machine they are asked from.
        ("169.254.169.254/32", "metadata"),
        ("169.254.170.0/24", "metadata"),
        ("100.100.100.200/32", "metadata"),
        ("168.63.129.16/32", "metadata"),
        ("192.0.0.192/32", "metadata"),
        ("0.0.0.0/8", "unspecified"),
        ("10.0.0.0/8", "private"),
        ("172.16.0.0/12", "private"),
        ("192.168.0.0/16", "private"),
        ("100.64.0.0/10", "shared"),
        ("127.0.0.0/8", "loopback"),
        ("169.254.0.0/16", "link-local"),
        ("192.0.0.0/24", "reserved"),
        ("192.0.2.0/24", "reserved"),
        ("192.88.99.0/24", "reserved"),
        ("198.18.0.0/15", "reserved"),
        ("198.51.100.0/24", "reserved"),
        ("203.0.113.0/24", "reserved"),
        ("224.0.0.0/4", "multicast"),
        ("240.0.0.0/4", "reserved"),
    )
]
_INWARD_6 = [
    (ip_network(network), kind)
    for network, kind in (
        ("fd00:ec2::254/128", "metadata"),
        ("fd20:ce::254/128", "metadata"),
        ("::/128", "unspecified"),
        ("::1/128", "loopback"),
        ("fc00::/7", "private"),
        ("fe80::/10", "link-local"),
        ("ff00::/8", "multicast"),
        # Teredo and other special uses, documentation, 6to4: an address inside could be any other in disguise.
        ("2001::/23", "reserved"),
        ("2001:db8::/32", "reserved"),
        ("2002::/16", "reserved"),
        ("3fff::/20", "reserved"),
    )
]
_GLOBAL_UNICAST = ip_network("2000::/3")
# Networks without IPv4 of their own reach it through this prefix; the address behind it is what counts.
_NAT64 = ip_network("64:ff9b::/96")

# Kinds that are a network of somebody's own. A host that a user opens by name may be there, and nowhere else: a name
# that leads to a metadata service is refused whatever the settings say.
_OPENED_BY_NAME = frozenset({"private", "loopback", "shared"})

_ENDS_IN_A_NUMBER = re.compile(r"(?:^|\.)(?:\d+|0[xX][0-9a-fA-F]*)\.?$")


def inward_kind(address: Address) -> str | None:
    """What kind of address it is if it is not out on the internet.

    >>> inward_kind(ip_address("10.0.0.1")), inward_kind(ip_address("::ffff:127.0.0.1"))
    ('private', 'loopback')
    >>> inward_kind(ip_address("8.8.8.8")) is None
    True
    """
    if isinstance(address, IPv4Address):
        return next((kind for network, kind in _INWARD_4 if address in network), None)
    if address.scope_id:
        return "link-local"
    behind = _behind(address)
    if behind is not None:
        return inward_kind(behind)
    kind = next((kind for network, kind in _INWARD_6 if address in network), None)
    return kind or (None if address in _GLOBAL_UNICAST else "reserved")


def _behind(address: IPv6Address) -> IPv4Address | None:
    """The IPv4 address that a connection to this one ends at."""
    if address.ipv4_mapped is not None:
        return address.ipv4_mapped
    return IPv4Address(int(address) & 0xFFFF_FFFF) if address in _NAT64 else None


def opened_by_name(kind: str) -> bool:
    """Whether naming a host in the settings opens addresses of this kind."""
    return kind in _OPENED_BY_NAME


def literal_address(host: str) -> Address | None:
    """The address that ``host`` spells, None if it is a name.

    A ValueError for spellings that only some programs take for an address: octal, hexadecimal, one number, short forms.
    """
    if ":" not in host and not _ENDS_IN_A_NUMBER.search(host):
        return None
    try:
        return ip_address(host.rstrip("."))
    except ValueError:
        raise ValueError(f"{host!r} is an unusual spelling of an address") from None
