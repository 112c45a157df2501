"""Peers that want to cost more than they may: memory, the event loop's time, other clients' first audio."""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import urlsplit

import pytest
from structlog.testing import capture_logs
from websockets.frames import Opcode

from tests.integration.raw_client import RawPeer, frame, get, raw_connection, raw_peer, text_frame
from tests.integration.wire_client import TIMEOUT_S, WireClient, connect_to, running, serving
from voicegate.engine.fake.engine import FakeEngine, Fault, FaultKind, Script
from voicegate.gateway.server.entrance.descriptors import SPARE_CONNECTIONS
from voicegate.gateway.server.websocket.bounded_socket import BoundedSocket
from voicegate.protocol import messages as wire

STALL = Fault(FaultKind.STALL)


@contextlib.asynccontextmanager
async def stranger(
    script: Script | None = None, **settings: Any
) -> AsyncIterator[tuple[RawPeer, BoundedSocket, WireClient]]:
    """A peer to misbehave as, the server's end of it, and a client beside it that must not suffer."""
    async with running(FakeEngine(script), **settings) as served, connect_to(served.gateway.url) as other:
        before = set(served.gateway.guests)
        async with raw_peer(served.gateway.url) as peer:
            (connection,) = set(served.gateway.guests) - before
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
    monkeypatch.setattr("voicegate.gateway.server.listener._FLOOD_PATIENCE_S", 0.5)
    async with stranger(messages_per_s=1000) as (peer, server_end, other):
        began_s = asyncio.get_running_loop().time()
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
        # Two seconds' worth at once, then a thousand a second.
        took_s = asyncio.get_running_loop().time() - began_s
        assert server_end._num_frames < 1000 * (2 + took_s) + 100
        received = await answers
        assert received.count(b'"rate_limited"') == 2  # that it is slowed, that it is over
        assert received.endswith(b"rate_limited")  # the reason of the close
        await other.speak("b", "still here")
        assert (await other.until_done("b")).packets


async def test_opened_contexts_take_no_room_from_those_who_speak() -> None:
    async with serving(Script(max_utterances=2), contexts_per_socket=64) as served, served.client() as idle:
        await idle.send(*(wire.Open(context=f"c{n}") for n in range(64)))
        for n in range(64):
            await idle.send(wire.Text(f"c{n}", " ... "), wire.Flush(f"c{n}"))
            await idle.until(wire.Flushed, f"c{n}")
        assert served.engine.num_live == 0
        async with served.client() as other:
            await other.speak("a", "I was next")
            assert (await other.until_done("a")).packets
        await idle.send(wire.Text("c7", "and I"), wire.End("c7"))
        assert (await idle.until(wire.Done, "c7")).audio_ms == 4 * 60
        await idle.send(wire.End("c8"), wire.Cancel("c9"))
        assert (await idle.until(wire.Done, "c8")).audio_ms == 0
        assert (await idle.until(wire.Cancelled, "c9")).remaining_text == " ... "


async def test_an_idle_context_ends_and_its_socket_stays() -> None:
    async with serving(context_idle_s=1.0) as served, served.client() as client:
        await client.send(wire.Open(context="forgotten"), wire.Text("forgotten", "hi "))
        await client.until(wire.Opened)
        error = await client.until(wire.Error)
        assert (error.code, error.context, error.fatal) == ("expired", "forgotten", True)
        await served.until(lambda engine: engine.num_live == 0)
        await client.speak("a", "still here")
        assert (await client.until_done("a")).packets


async def test_one_address_does_not_take_all() -> None:
    async with (
        serving(contexts_per_address=3, utterances_per_address=1, trusted_proxies="127.0.0.0/8") as served,
        served.client() as one,
        served.client() as same,
        served.client(additional_headers={"X-Forwarded-For": "203.0.113.7"}) as other,
    ):
        await one.send(wire.Open(context="a"), wire.Open(context="b"), wire.Text("a", "I speak"))
        await one.until(wire.Opened, "b")
        await same.send(wire.Open(context="c"), wire.Open(context="d"))
        error = await same.until(wire.Error)
        assert (error.code, error.context, error.fatal) == ("too_many_contexts", "d", True)
        await same.send(wire.Text("c", "me too"))
        error = await same.until(wire.Error)
        assert (error.code, error.context, error.fatal) == ("too_many_contexts", "c", True)
        await other.speak("a", "not from here")
        assert (await other.until_done("a")).packets
        await one.send(wire.End("a"))
        await one.until(wire.Done)
        await same.speak("e", "now I may")
        assert (await same.until_done("e")).packets


async def test_connections_that_send_nothing_leave_room_for_probes() -> None:
    async with serving(max_sockets=10) as served, contextlib.AsyncExitStack() as silent:
        for _ in range(10 + SPARE_CONNECTIONS):
            await silent.enter_async_context(raw_connection(served.url))
        with capture_logs() as lines:
            for _ in range(20):
                await silent.enter_async_context(raw_connection(served.url))
                assert (await get(served.url, "/readyz"))[0] == 200
        assert [line["event"] for line in lines] == ["too many connections without a request, the oldest is cut"]
        async with served.client() as client:
            await client.speak("a", "still here")
            assert (await client.until_done("a")).packets


async def test_a_flood_from_one_address_cuts_its_own_and_nobody_elses_handshake() -> None:
    async with serving(max_sockets=2) as served, contextlib.AsyncExitStack() as silent:
        address = urlsplit(served.url)
        reader, writer = await asyncio.open_connection(address.hostname, address.port, local_addr=("127.0.0.2", 0))
        writer.write(b"GET /readyz HTTP/1.1\r\n")  # over a bad line, from which the rest comes later
        for _ in range(3 * (2 + SPARE_CONNECTIONS)):
            await silent.enter_async_context(raw_connection(served.url))
        writer.write(f"Host: {address.netloc}\r\n\r\n".encode())
        async with asyncio.timeout(TIMEOUT_S):
            assert (await reader.read()).startswith(b"HTTP/1.1 200 ")
        writer.close()
        await writer.wait_closed()


@pytest.mark.parametrize("request_line", ["GET /v1/stream", "POST /v1/audio/speech"])
async def test_who_asks_and_goes_at_once_leaves_its_place(request_line: str) -> None:
    async with serving() as served:
        for _ in range(20):
            async with raw_connection(served.url) as peer:
                await peer.ask_and_go(f"{request_line} HTTP/1.1\r\nHost: x\r\n")
        async with served.client() as client:
            await client.speak("a", "still here")
            assert (await client.until_done("a")).packets
        async with asyncio.timeout(TIMEOUT_S):
            while '"sockets":0' not in (await get(served.url, "/v1/capacity"))[2]:
                pass


async def test_who_comes_while_the_loop_is_busy_is_kept_by_the_kernel() -> None:
    """Else their clients are told that they are connected, and find out otherwise after seconds."""
    async with serving() as served:
        address = urlsplit(served.url)
        with contextlib.ExitStack() as connected:
            for _ in range(200):  # nothing else runs on this loop meanwhile
                stranger = connected.enter_context(socket.socket())
                stranger.settimeout(0.9)  # less than the second after which the kernel would ask again
                stranger.connect((address.hostname, address.port))
        async with served.client() as client:
            await client.speak("a", "after them")
            assert (await client.until_done("a")).packets
