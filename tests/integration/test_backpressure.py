"""Peers that do not read, go away, or cancel what the network still owes them."""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import urlsplit

import pytest
from websockets.exceptions import ConnectionClosedError
from websockets.protocol import State

from tests.integration.wire_client import Served, WireClient, serving
from tests.support.patience import PATIENCE_S
from voicegate.engine.fake.engine import Fault, FaultKind, Script
from voicegate.protocol import messages as wire

PCM = wire.Format(codec="pcm_s16le")
# 60 s of PCM, 2.9 MB: far more than fits between the two ends.
LONG_TEXT = "x" * 1000


@contextlib.asynccontextmanager
async def narrow_client(served: Served, **options: Any) -> AsyncIterator[WireClient]:
    """A client that takes in very little until `receive` is called."""
    raw = socket.socket()
    raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    raw.setblocking(False)
    address = urlsplit(served.url)
    await asyncio.get_running_loop().sock_connect(raw, (address.hostname, address.port))
    async with served.client(sock=raw, max_queue=1, ping_interval=None, **options) as client:
        yield client


async def test_who_reads_nothing_is_closed_and_others_go_on() -> None:
    async with serving(write_stall_s=0.2) as served, narrow_client(served) as deaf, served.client() as other:
        await deaf.speak("deaf", LONG_TEXT, format=PCM)
        await deaf.send(wire.Open(context="idle"))
        await served.until(lambda engine: len(engine.requests) == 1)
        await other.speak("a", "meanwhile")
        assert (await other.until_done("a")).packets
        await served.until(lambda engine: len(engine.cancels) > 0)
        assert served.engine.num_live == 0
        with pytest.raises(ConnectionClosedError) as caught:
            await deaf.until(wire.Done)
        assert caught.value.rcvd is not None
        assert (caught.value.rcvd.code, caught.value.rcvd.reason) == (1008, "slow_consumer")
        await other.speak("b", "still here")
        assert (await other.until_done("b")).packets


async def test_who_reads_slowly_is_not_closed() -> None:
    async with serving(write_stall_s=5.0) as served, narrow_client(served) as client:
        await client.speak("a", LONG_TEXT, format=PCM)
        heard = await client.until_done("a")
        assert sum(map(len, heard.packets)) == 60_000 * 48


async def test_for_who_reads_nothing_no_more_is_made_until_it_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("voicegate.gateway.server.conversations.conversation._SLOW_AFTER_S", 0.05)
    script = Script(real_time_factor=0.01)
    async with serving(script, write_stall_s=30.0) as served, narrow_client(served) as client:
        await client.speak("a", LONG_TEXT, format=PCM)
        reports = served.engine.reports
        await served.until(lambda _: bool(reports) and not reports[-1][1].is_playing)
        num_before = len(reports)
        await client.until(wire.Alignment)
        while not any(report.is_playing for _, report in reports[num_before:]):
            await client.receive()
        await client.send(wire.Cancel("a"))
        assert (await client.until(wire.Cancelled)).audio_ms < 60_000


async def test_cancel_drops_what_the_socket_had_no_room_for() -> None:
    async with serving() as served, narrow_client(served) as client:
        await client.send(wire.Open(context="a", format=PCM), wire.Text("a", LONG_TEXT), wire.Flush("a"))
        await served.until(lambda engine: len(engine.requests) == 1)
        await client.send(wire.Cancel("a"))
        cancelled = await client.until(wire.Cancelled)
        heard = client.heard["a"][0]
        assert sum(map(len, heard.packets)) < 500_000
        assert not any(message.is_last for message in heard.audio)
        assert cancelled.spoken_text + cancelled.remaining_text == LONG_TEXT


async def test_end_that_crossed_a_cancel_is_done_without_more_audio(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "voicegate.gateway.server.conversations.conversation._SLOW_AFTER_S", 60.0
    )  # the engine is to finish
    async with serving() as served, narrow_client(served) as client:
        await client.speak("a", LONG_TEXT, format=PCM)
        await served.until(lambda engine: len(engine.requests) == 1 and engine.num_live == 0)
        await client.send(wire.Cancel("a"))
        await client.until(wire.Done)
        assert sum(map(len, client.heard["a"][0].packets)) < 500_000


async def test_answers_that_nobody_reads_stop_the_reading(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that sends and never reads costs bounded memory, and is dropped."""
    monkeypatch.setattr("voicegate.gateway.server.websocket.bounded_socket.CLOSE_TIMEOUT_S", 0.2)
    async with serving(write_stall_s=0.2) as served, narrow_client(served) as client:
        with contextlib.suppress(ConnectionClosedError):
            async with asyncio.timeout(PATIENCE_S):
                while True:
                    await client.send(wire.Ping("x" * 64))
        assert client.websocket.state is State.CLOSED


@pytest.mark.parametrize("politely", [True, False])
async def test_a_disconnect_cancels_at_once(politely: bool) -> None:
    script = Script(faults={n: Fault(FaultKind.STALL, after_ms=120) for n in range(2)})
    async with serving(script) as served, served.client() as other:
        async with served.client() as client:
            for context in ("a", "b"):
                await client.send(wire.Open(context=context), wire.Text(context, "mid stream "))
                await client.until(wire.Alignment, context)
            assert served.engine.num_live == 2
            if not politely:
                client.websocket.transport.abort()
        await served.until(lambda engine: engine.num_live == 0)
        assert len(served.engine.cancels) == 2
        await other.speak("a", "still here")
        assert (await other.until_done("a")).packets
