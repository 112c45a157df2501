"""A server that ends while somebody connects leaves no connection open that nobody knows."""

import asyncio
import gc
import socket
from contextlib import ExitStack, suppress
from urllib.parse import urlsplit

import pytest
from websockets.exceptions import InvalidStatus

from tests.integration.wire_client import connect_to, running
from voicegate.engine.fake.engine import FakeEngine


@pytest.mark.skipif(not socket.has_dualstack_ipv6(), reason="this machine has no IPv6")
async def test_all_addresses_are_those_of_ipv4_too() -> None:
    settings = {"host": "::", "agent_host": "::", "agent_port": 0, "metrics_host": "::", "metrics_port": 0}
    async with running(FakeEngine(), **settings, sockets_per_address=1, resume_s=0) as served:
        gateway = served.gateway
        port = urlsplit(gateway.url).port
        for each in (port, gateway.agent_port, urlsplit(gateway.metrics_url).port):
            for host in ("127.0.0.1", "::1"):
                socket.create_connection((host, each)).close()
        async with connect_to(f"ws://127.0.0.1:{port}/v1/stream"), connect_to(f"ws://[::1]:{port}/v1/stream"):
            with pytest.raises(InvalidStatus, match="429"):
                async with connect_to(f"ws://127.0.0.1:{port}/v1/stream"):
                    pass


@pytest.mark.parametrize("num_turns", range(5))
async def test_who_is_accepted_as_it_closes_is_cut(num_turns: int) -> None:
    """After as many turns of the loop: not accepted yet, accepted, with a transport, told to the protocol."""
    async with running(FakeEngine(), agent_port=0) as served:
        gateway = served.gateway
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
