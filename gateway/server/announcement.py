"""Announces the Wyoming port on the local network by Zeroconf (RFC 6762, RFC 6763), as Home Assistant looks for it."""

import ipaddress
import socket
from typing import Any, Final, Self

import ifaddr
from zeroconf import DNSQuestionType, Error, NonUniqueNameException
from zeroconf.asyncio import AsyncServiceInfo, AsyncZeroconf

from voicegate.gateway.server.errors import GatewayError

SERVICE: Final = "_wyoming._tcp.local."
# For an answer of another server that has the name already. None multicasts a record twice within a second.
_ANSWER_MS: Final = 2_000


class Announcement:
    """One name on the network, from `made` to `end`."""

    def __init__(self, zeroconf: AsyncZeroconf, service: AsyncServiceInfo) -> None:
        self._zeroconf = zeroconf
        self._service = service

    @classmethod
    async def made(cls, name: str, host: str, port: int) -> Self:
        """`host`: where the port listens. Takes three seconds. Raises GatewayError, also where the name is taken."""
        addresses = _addresses_of(host)
        is_everywhere = ipaddress.ip_address(addresses[0]).is_unspecified
        options: dict[str, Any] = {} if is_everywhere else {"interfaces": addresses}
        parsed = _own_addresses() if is_everywhere else addresses
        full_name = f"{name}.{SERVICE}"
        taken = GatewayError(f"--wyoming-zeroconf {name}: another server has that name; choose one")
        try:
            if await _is_taken(full_name, options):
                raise taken
            zeroconf = AsyncZeroconf(**options)
        except OSError as error:
            raise GatewayError(f"--wyoming-zeroconf: nothing can be announced from {host}: {error}") from error
        try:
            service = AsyncServiceInfo(SERVICE, full_name, port=port, parsed_addresses=parsed)
            await (await zeroconf.async_register_service(service))
        except (Error, OSError) as error:
            await zeroconf.async_close()
            if isinstance(error, NonUniqueNameException):
                raise taken from error
            raise GatewayError(f"--wyoming-zeroconf {name}: {type(error).__name__} {error}") from error
        return cls(zeroconf, service)

    async def end(self) -> None:
        """Tells the network that it has gone."""
        await (await self._zeroconf.async_unregister_service(self._service))
        await self._zeroconf.async_close()


async def _is_taken(full_name: str, options: dict[str, Any]) -> bool:
    """Asks for an answer to everyone, by multicast.

    The library asks too, before it registers, but for an answer to port 5353 of this machine. All of its servers share
    that port, and another one gets the answer.
    """
    async with AsyncZeroconf(**options) as asking:
        twin = AsyncServiceInfo(SERVICE, full_name)
        await twin.async_request(asking.zeroconf, _ANSWER_MS, DNSQuestionType.QM)
        return twin.port is not None


def _addresses_of(host: str) -> list[str]:
    return [str(found[4][0]) for found in socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)]


def _own_addresses() -> list[str]:
    """Addresses of this machine that others can reach."""
    known = [ip.ip for adapter in ifaddr.get_adapters() for ip in adapter.ips if isinstance(ip.ip, str)]
    return [address for address in known if not ipaddress.ip_address(address).is_loopback]
