"""A port whose number has to be known before anybody listens there."""

import socket
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def reserved_port() -> Iterator[int]:
    """One of loopback that is given to nobody else meanwhile, and at which nobody listens who was not told of it.

    Linux lets a socket listen at a port that another one holds, as long as both have SO_REUSEADDR and the other does
    not listen; who asks for any port, or connects, is never given one that is held.
    """
    with socket.socket() as holder:
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        holder.bind(("127.0.0.1", 0))
        port: int = holder.getsockname()[1]
        yield port
