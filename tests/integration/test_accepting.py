"""A server that ends while somebody connects leaves no connection open that nobody knows."""

import asyncio
import gc
import socket
from contextlib import ExitStack, suppress
from urllib.parse import urlsplit

import pytest

from tests.integration.wire_client import running
from voicegate.engine.fake.engine import FakeEngine

pytestmark = pytest.mark.integration


@pytest.mark.parametrize("num_turns", range(5))
async def test_who_is_accepted_as_it_closes_is_cut(num_turns: int) -> None:
    """After as many turns of the loop: not accepted yet, accepted, with a transport, told to the protocol."""
    async with running(FakeEngine(), agent_port=0) as served:
        gateway = served.gateway
        await gateway.settled.wait()
        with ExitStack() as peers:
            arrived = [
                peers.enter_context(socket.create_connection(("127.0.0.1", port)))
                for port in (urlsplit(gateway.url).port, gateway.agent_port)
            ]
            for _ in range(num_turns):
                await asyncio.sleep(0)
            await gateway._agent.close()
            await gateway._listener.close()
            gc.collect()  # what is left open is an error here, and not in whichever test comes next
            for peer in arrived:
                peer.setblocking(False)
                with suppress(ConnectionError):
                    while peer.recv(100):
                        pass
