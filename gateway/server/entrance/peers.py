"""Peers: the client's address, through proxies too, and the owner that it counts as. Pure."""

from collections.abc import Sequence
from functools import lru_cache
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from typing import Final

from voicegate.gateway.auth.keyring import Key
from voicegate.gateway.config import Networks
from voicegate.gateway.session.quota import Owner

IPAddress = IPv4Address | IPv6Address
# One line of a provider's customer: a holder of an IPv6 address has 2^64 of them.
_IPV6_PREFIX_BITS: Final = 64
# Those who come again and again, and proxies. Lower parses them anew, higher keeps strangers' addresses for longer.
_NUM_REMEMBERED: Final = 256
_ip_address: Final = lru_cache(maxsize=_NUM_REMEMBERED)(ip_address)


def client_address(peer: IPAddress, forwarded_for: Sequence[str], trusted: Networks) -> IPAddress:
    """The last address that no trusted proxy vouches for; `forwarded_for`: the X-Forwarded-For headers as they came.

    Anybody can write such a header, so it counts only as far as it was written by a trusted proxy.
    """
    address = peer
    for entry in reversed(",".join(forwarded_for).split(",")):
        if not _is_in(address, trusted):
            break
        said = _parse(entry)
        if said is None:
            break
        address = said
    return address


def owner_of(address: IPAddress, key: Key | None = None) -> Owner:
    if isinstance(address, IPv6Address):
        return Owner(str(ip_network((address, _IPV6_PREFIX_BITS), strict=False)), key)
    return Owner(str(address), key)


def parse_address(host: str) -> IPAddress:
    """`host` as a socket tells it; an IPv4 address inside an IPv6 one is the IPv4 address. Raises ValueError."""
    address = _ip_address(host.partition("%")[0])
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return mapped or address


def _parse(entry: str) -> IPAddress | None:
    """An entry of X-Forwarded-For, which may have a port; None for what is no address."""
    entry = entry.strip()
    if entry.startswith("["):
        entry, _, behind = entry[1:].partition("]")
        if behind and not behind.startswith(":"):
            return None
    elif entry.count(":") == 1:
        entry = entry.partition(":")[0]
    try:
        return parse_address(entry)
    except ValueError:
        return None


def _is_in(address: IPAddress, networks: Networks) -> bool:
    return any(address in network for network in networks)
