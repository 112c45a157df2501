"""How a listener ends without leaving behind what it had just accepted. It must not know what it listens for."""

import asyncio
import socket
from collections.abc import Iterable


async def stop_accepting(listening: Iterable[socket.socket]) -> None:
    """To be awaited before the server of these sockets is closed. Every connection that was accepted has been made.

    asyncio accepts in one turn of its loop, makes a transport in the next and tells the protocol in a third; a server
    that is closed between them leaves the connection open, known to nobody (CPython's issue 109564). uvloop does all
    in one, and has no readers to remove.
    """
    loop = asyncio.get_running_loop()
    for each in listening:
        loop.remove_reader(each.fileno())
    for _ in range(2):
        await asyncio.sleep(0)
