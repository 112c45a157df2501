"""Peers that want to cost more than they may: memory, the event loop's time, other clients' first audio."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import pytest
from websockets.frames import Opcode

from tests.integration.raw_client import RawPeer, frame, raw_peer, text_frame
from tests.integration.wire_client import WireClient, connect_to, running
from voicegate.engine.fake.engine import FakeEngine
from voicegate.gateway.server.bounded_socket import BoundedSocket
from voicegate.protocol import messages as wire

pytestmark = pytest.mark.integration


@contextlib.asynccontextmanager
async def stranger(**settings: Any) -> AsyncIterator[tuple[RawPeer, BoundedSocket, WireClient]]:
    """A peer to misbehave as, the server's end of it, and a client beside it that must not suffer."""
    async with running(FakeEngine(), **settings) as served:
        await served.gateway.settled.wait()
        async with connect_to(served.gateway.url) as other:
            before = set(served.gateway._connections)
            async with raw_peer(served.gateway.url) as peer:
                (connection,) = served.gateway._connections - before
                yield peer, connection._websocket, other


async def test_pings_whose_pongs_nobody_reads() -> None:
    async with stranger(write_stall_s=0.3) as (peer, server_end, other):
        pings = frame(Opcode.PING, b"x" * 125) * 100
        most_held_bytes = 0
        with contextlib.suppress(OSError):
            while True:
                await peer.send(pings)
                most_held_bytes = max(most_held_bytes, server_end.num_held_bytes)
        assert most_held_bytes < 64 * 1024
        await other.speak("a", "meanwhile")
        assert (await other.until_done("a")).packets


@pytest.mark.parametrize(
    "cheap",
    [
        frame(Opcode.PING, b""),
        text_frame(wire.Ping()),
        text_frame(wire.Playback("flood", 0)),
        text_frame(wire.Text("flood", "")),
        text_frame(wire.Text("no such context", "")),
    ],
    ids=["ping frames", "pings", "playback", "empty text", "unknown context"],
)
async def test_a_flood_of_cheap_messages(cheap: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("voicegate.gateway.server.server._FLOOD_PATIENCE_S", 0.5)
    async with stranger(messages_per_s=1000) as (peer, server_end, other):
        await peer.send(text_frame(wire.Open(context="flood")))

        async def flood() -> None:
            with contextlib.suppress(OSError):
                while True:
                    await peer.send(cheap * 1000)

        flooding = asyncio.create_task(flood())
        answers = asyncio.create_task(peer.read_to_end())
        await other.speak("a", "meanwhile")
        assert (await other.until_done("a")).packets
        await flooding
        # Two seconds' worth at once, then a thousand a second; not all that it could be made to read.
        assert server_end._num_frames < 6000
        received = await answers
        assert received.count(b'"rate_limited"') == 2  # that it is slowed, that it is over
        assert received.endswith(b"rate_limited")  # the reason of the close
        await other.speak("b", "still here")
        assert (await other.until_done("b")).packets
