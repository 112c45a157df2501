"""Announces the Wyoming port on the local network by Zeroconf (RFC 6762, RFC 6763), as Home Assistant looks for it."""

import ipaddress
import socket
from typing import Any, Final, Self

import ifaddr
from zeroconf import Error
from zeroconf.asyncio import AsyncServiceInfo, AsyncZeroconf

from voicegate.gateway.server.errors import GatewayError

SERVICE: Final = "_wyoming._tcp.local."


class Announcement:
    """One name on the network, from `made` to `end`."""

    def __init__(self, zeroconf: AsyncZeroconf, service: AsyncServiceInfo) -> None:
        self._zeroconf = zeroconf
        self._service = service

    @classmethod
    async def made(cls, name: str, host: str, port: int) -> Self:
        """`host`: where the port listens. Takes a second. Raises GatewayError."""
        addresses = _addresses_of(host)
        is_everywhere = ipaddress.ip_address(addresses[0]).is_unspecified
        options: dict[str, Any] = {} if is_everywhere else {"interfaces": addresses}
        try:
            zeroconf = AsyncZeroconf(**options)
        except OSError as error:
            raise GatewayError(f"--wyoming-zeroconf: nothing can be announced from {host}: {error}") from error
        parsed = _own_addresses() if is_everywhere else addresses
        try:
            service = AsyncServiceInfo(SERVICE, f"{name}.{SERVICE}", port=port, parsed_addresses=parsed)
            await (await zeroconf.async_register_service(service))
        except (Error, OSError) as error:
            await zeroconf.async_close()
            raise GatewayError(f"--wyoming-zeroconf {name}: {type(error).__name__} {error}") from error
        return cls(zeroconf, service)

    async def end(self) -> None:
        """Tells the network that it has gone."""
        await (await self._zeroconf.async_unregister_service(self._service))
        await self._zeroconf.async_close()


def _addresses_of(host: str) -> list[str]:
    return [str(found[4][0]) for found in socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)]


def _own_addresses() -> list[str]:
    """Addresses of this machine that others can reach."""
    known = [ip.ip for adapter in ifaddr.get_adapters() for ip in adapter.ips if isinstance(ip.ip, str)]
    return [address for address in known if not ipaddress.ip_address(address).is_loopback]
