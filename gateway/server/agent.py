"""Answers HAProxy's agent-check: whether to send this server new sockets, and its share of them.

A line a connection, unasked: no HTTP, and no key. It must not know who connects.
"""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Final, cast

from voicegate.gateway.server.entrance.accepting import open_port, stop_accepting
from voicegate.gateway.server.status import Load, Status

# Share of a server that is free where its share of new sockets begins to fall. Higher -> sockets move to and fro by the
# chance of who speaks at the moment; lower -> a server that is full before others tells it by refusals. docs/adr/0025.
NEARLY_FULL: Final = 0.1


class Agent:
    def __init__(self, status: Callable[[], Status]) -> None:
        self._status = status
        self._server: asyncio.Server | None = None

    async def open(self, host: str, port: int) -> int:
        """Returns the port. Raises GatewayError."""
        make = partial(_Teller, self._status)
        self._server, bound_port = await open_port(make, host, port, purpose="agent-check", setting="--agent-port")
        return bound_port

    async def close(self) -> None:
        if self._server is not None:
            await stop_accepting(self._server.sockets)
            self._server.close()


class _Teller(asyncio.Protocol):
    def __init__(self, status: Callable[[], Status]) -> None:
        self._status = status

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        writable = cast(asyncio.WriteTransport, transport)  # uvloop's is none by its class
        writable.write(f"{agent_line(self._status())}\n".encode())
        writable.close()


def agent_line(status: Status) -> str:
    """`drain` sends no one new, leaves who is there, and lets in whom the balancer's own rule sends back."""
    if status.hang is not None:
        return "down"
    if status.refusal is not None:
        return "drain"
    return f"ready up {max(1, round(100 * min(1.0, free_share(status.load) / NEARLY_FULL)))}%"


def free_share(load: Load) -> float:
    """Free share of the scarcer one: places for speech, or sockets."""
    speech = load.room / (load.room + load.utterances) if load.room else 0.0
    return min(speech, 1 - load.sockets / load.max_sockets)
