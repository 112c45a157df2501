"""How a listener begins, and ends without leaving behind what it had just accepted.

It must not know what it listens for.
"""

import asyncio
import socket
from collections.abc import Callable, Iterable
from typing import Final

from voicegate.gateway.server.errors import GatewayError

_EVERYWHERE: Final = "::"
_BACKLOG: Final = 100  # asyncio's own


async def listen(
    new_protocol: Callable[[], asyncio.BaseProtocol], host: str, port: int, *, backlog: int = _BACKLOG
) -> asyncio.Server:
    """At `::` by IPv4 too, as other servers on Linux do; asyncio would take IPv6 alone. Raises OSError."""
    loop = asyncio.get_running_loop()
    if host != _EVERYWHERE or not socket.has_dualstack_ipv6():
        return await loop.create_server(new_protocol, host, port, backlog=backlog)
    listening = socket.create_server((host, port), family=socket.AF_INET6, dualstack_ipv6=True)
    return await loop.create_server(new_protocol, sock=listening, backlog=backlog)


async def open_port(
    new_protocol: Callable[[], asyncio.BaseProtocol], host: str, port: int, *, purpose: str, setting: str
) -> tuple[asyncio.Server, int]:
    """A port beside the gateway's own, and its number. Raises GatewayError that names `purpose` and `setting`."""
    try:
        server = await listen(new_protocol, host, port)
    except OSError as error:
        reason = error.strerror or error
        raise GatewayError(
            f"cannot listen on {host}:{port} for {purpose}: {reason}; choose another {setting}"
        ) from error
    bound_port: int = server.sockets[0].getsockname()[1]
    return server, bound_port


async def stop_accepting(listening: Iterable[socket.socket]) -> None:
    """To be awaited before the server of these sockets is closed. Every connection that was accepted has been made.

    asyncio accepts in one turn of its loop, makes a transport in the next and tells the protocol in a third; a server
    that is closed between them leaves the connection open, known to no one (CPython's issue 109564). uvloop does all
    in one, and has no readers to remove.
    """
    loop = asyncio.get_running_loop()
    for each in listening:
        loop.remove_reader(each.fileno())
    for _ in range(2):
        await asyncio.sleep(0)
