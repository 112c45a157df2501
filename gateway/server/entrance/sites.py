"""Which pages in browsers may use this server: a browser lets any page open a WebSocket to anywhere. Pure.

Clients that are no browsers send no Origin, and none of this concerns them.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Final

from voicegate.gateway.config import GatewayConfig, listed
from voicegate.gateway.config_fields import ConfigError

ANY: Final = "*"
_EXPOSED: Final = "Retry-After, X-Request-Id, Request-Id, X-Voice, X-Not-Followed, Character-Cost"
_DEFAULT_PORTS: Final = {"http": 80, "https": 443}
_ORIGIN: Final = re.compile(r"(?!https://.*:443$|http://.*:80$)[a-z][a-z0-9+.-]*://[^\s/?#@*]+")
_HOST: Final = re.compile(r"[^\s/?#@*:]+")
_HOST_AND_PORT: Final = re.compile(
    r"(?:\[(?P<address>[0-9a-f:.]+)\]|(?P<name>[^\s\[\]:/?#@\\]+))(?::(?P<port>[0-9]{0,5}))?"
)
_ECHO_CHARS: Final = 80


@dataclass(frozen=True, slots=True)
class Sites:
    origins: frozenset[str] = frozenset()  # whose pages are let in, as browsers write them; or ANY
    hosts: frozenset[str] = frozenset()  # names that this server has, lower case
    # Whether a name that is not among them is believed. A page at a name of an attacker's that resolves to a loopback
    # address (DNS rebinding) looks as if it were this server's own.
    takes_other_names: bool = False

    def refusal(self, origins: Sequence[str], hosts: Sequence[str]) -> str | None:
        """Why the page that sends these headers, `Origin` and `Host`, is not let in."""
        if not origins:
            return None
        if len(origins) == 1 and self._is_listed(origins[0]):
            return None
        if not _is_same(origins, hosts):
            shown = ", ".join(origins)[:_ECHO_CHARS]
            return f"pages of {shown} are not let in; --allowed-origins names those that are"
        return self._unknown_name(hosts[0])

    def refusal_to_read(self, origins: Sequence[str], hosts: Sequence[str]) -> str | None:
        """As `refusal`, of a GET, with which browsers send no `Origin` where they take it for the page's own site's.

        Another site's page is answered, and its browser keeps the answer from it.
        """
        is_listed = ANY in self.origins or (len(origins) == 1 and self._is_listed(origins[0]))
        return None if is_listed or not hosts else self._unknown_name(hosts[0])

    def cors_headers(self, origins: Sequence[str], hosts: Sequence[str]) -> dict[str, str]:
        """Headers that let a page of another site read an answer."""
        if not origins or self.refusal(origins, hosts) is not None:
            return {"Vary": "Origin"}
        return {
            "Vary": "Origin",
            "Access-Control-Allow-Origin": origins[0],
            "Access-Control-Expose-Headers": _EXPOSED,
        }

    def _is_listed(self, origin: str) -> bool:
        return ANY in self.origins or origin.lower() in self.origins

    def _unknown_name(self, host: str) -> str | None:
        try:
            name = _split_host(host)[0]
            if self._is_own_name(name):
                return None
        except ValueError:  # no one's name
            name = host
            if self.takes_other_names:
                return None
        return f"this server is not known as {name[:_ECHO_CHARS]}; --allowed-hosts names what it is known as"

    def _is_own_name(self, name: str) -> bool:
        return (
            self.takes_other_names
            or name in self.hosts
            or name == "localhost"
            or name.endswith(".localhost")  # RFC 6761: never anybody else's
            or _is_address(name)  # an attacker's page has a name
        )


def sites_of(config: GatewayConfig) -> Sites:
    """Raises ConfigError for what is not as browsers write it: it would let no one in, without a word."""
    origins, hosts = _lowered(config.allowed_origins), _lowered(config.allowed_hosts)
    for origin in origins - {ANY, "null"}:
        if not _ORIGIN.fullmatch(origin):
            raise ConfigError(
                f"allowed_origins has {origin!r}; a site is https://app.example or https://app.example:8443, "
                "with neither a path nor the usual port; or *, or null"
            )
    for host in hosts:
        if not _HOST.fullmatch(host):
            raise ConfigError(f"allowed_hosts has {host!r}; a name is gate.example, with neither scheme, port nor path")
    return Sites(
        origins=origins,
        hosts=hosts,
        takes_other_names=not hosts and not is_loopback(config.host),
    )


def _lowered(setting: str) -> frozenset[str]:
    return frozenset(item.lower() for item in listed(setting))


def _is_same(origins: Sequence[str], hosts: Sequence[str]) -> bool:
    """Whether a page comes from the very host and port that it asks."""
    if len(origins) != 1 or len(hosts) != 1:
        return False
    try:
        scheme, _, origin = origins[0].lower().partition("://")
        default_port = _DEFAULT_PORTS[scheme]
        (name, port), (page_name, page_port) = _split_host(hosts[0]), _split_host(origin)
        return (page_name, page_port or default_port) == (name, port or default_port)
    except (KeyError, ValueError):  # `null`, no web page's scheme, no port
        return False


def _split_host(host: str) -> tuple[str, int | None]:
    """A whole one (RFC 9110 section 7.2): of a part of it anybody's name looks like ours. Raises ValueError."""
    parts = _HOST_AND_PORT.fullmatch(host.lower())
    if parts is None:
        raise ValueError(f"{host[:_ECHO_CHARS]!r} is no host")
    if (address := parts["address"]) is not None:
        ip_address(address)  # raises
    return address or parts["name"], int(parts["port"]) if parts["port"] else None


def _is_address(name: str) -> bool:
    try:
        ip_address(name)
    except ValueError:
        return False
    return True


def is_loopback(host: str) -> bool:
    return host == "localhost" or (_is_address(host) and ip_address(host).is_loopback)
