"""The end of a session, where the one who reads it is unlucky: nobody waits for ever."""

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest
from websockets.asyncio.client import ClientConnection
from websockets.exceptions import ConnectionClosedError

from tests.support.polling import until
from voicegate.clients.python import line as lines
from voicegate.clients.python.backoff import Backoff
from voicegate.clients.python.dialing import LinkOptions
from voicegate.clients.python.errors import ConnectionLost, ContextFailed
from voicegate.clients.python.line import Line
from voicegate.clients.python.link import Link
from voicegate.protocol import codec
from voicegate.protocol import messages as wire

LIMITS = wire.Limits(contexts=4, text_bytes=1000, context_text_bytes=1000, lead_ms=1, resume_seconds=30)
READY = wire.Ready("s", "token", "m", ("v",), "v", ("clause",), LIMITS)


class Socket:
    """A socket whose input a test puts in: frames, or errors that reading raises."""

    def __init__(self) -> None:
        self.protocol = SimpleNamespace(close_rcvd=None, close_sent=None)
        self.close_code, self.close_reason = 1006, ""
        self.frames: asyncio.Queue[str | Exception] = asyncio.Queue()
        self.sent: list[str | bytes] = []

    async def send(self, frame: str | bytes) -> None:
        self.sent.append(frame)

    async def recv(self) -> str:
        frame = await self.frames.get()
        if isinstance(frame, Exception):
            raise frame
        return frame

    async def close(self, *_: object) -> None:
        self.frames.put_nowait(ConnectionClosedError(None, None))


def link_on(socket: Socket, ready: wire.Ready = READY) -> Link:
    connection = cast(ClientConnection, socket)
    line = Line(connection, ready, url="ws://x", options=LinkOptions(), backoff=Backoff(first_s=0.0))
    return Link(line, max_unread_bytes=1)


async def test_whoever_closes_while_the_answer_to_resume_comes_does_not_hang(monkeypatch: pytest.MonkeyPatch) -> None:
    dropped, new = Socket(), Socket()

    async def dial(_url: str, _options: LinkOptions) -> Any:
        return new, READY

    monkeypatch.setattr(lines, "dial", dial)
    link = link_on(dropped)
    opening = asyncio.create_task(link.open(wire.Open(context="c")))
    await asyncio.sleep(0)
    dropped.frames.put_nowait(ConnectionClosedError(None, None))
    await until(lambda: bool(new.sent))  # it asks for its session
    closing = asyncio.create_task(link.close())
    new.frames.put_nowait(codec.encode(wire.Resumed("s", 0)))  # in the same turn
    async with asyncio.timeout(5):
        await closing
        with pytest.raises(ConnectionLost):
            await opening


async def test_whoever_closes_as_the_time_to_come_back_runs_out_does_so(monkeypatch: pytest.MonkeyPatch) -> None:
    dropped, closings = Socket(), list[asyncio.Task[None]]()

    async def dial(_url: str, _options: LinkOptions) -> Any:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            closings.append(asyncio.create_task(link.close()))
            await asyncio.sleep(0)
            raise

    monkeypatch.setattr(lines, "dial", dial)
    limits = msgspec.structs.replace(LIMITS, resume_seconds=0.05)
    link = link_on(dropped, msgspec.structs.replace(READY, limits=limits))
    opening = asyncio.create_task(link.open(wire.Open(context="c")))
    await asyncio.sleep(0)
    dropped.frames.put_nowait(ConnectionClosedError(None, None))
    async with asyncio.timeout(5):
        with pytest.raises(ConnectionLost):
            await opening
        await asyncio.gather(*closings)
    assert closings


async def test_a_refused_context_leaves_its_name_to_the_next() -> None:
    socket = Socket()
    link = link_on(socket)
    refused = asyncio.create_task(link.open(wire.Open(context="c")))
    await asyncio.sleep(0)
    socket.frames.put_nowait(codec.encode(wire.Error("overloaded", "no room", fatal=True, context="c")))
    await asyncio.sleep(0)  # it has been read, and who waits for it has not been told
    assert not link.has("c")
    opened = codec.encode(wire.Opened("c", 0, "v", wire.Format(), 24_000, 312))
    asyncio.get_running_loop().call_later(0.05, socket.frames.put_nowait, opened)
    async with asyncio.timeout(5):
        assert (await link.open(wire.Open(context="c"))).opened.handle == 0
    with pytest.raises(ContextFailed):
        await refused
    await link.close()


async def test_a_fault_of_the_reader_is_a_loss() -> None:
    socket = Socket()
    link = link_on(socket)
    opening = asyncio.create_task(link.open(wire.Open(context="c")))
    await asyncio.sleep(0)
    socket.frames.put_nowait(RuntimeError("nobody thought of that"))
    async with asyncio.timeout(5):
        with pytest.raises(ConnectionLost, match="nobody thought of that"):
            await opening
    assert not link.is_usable
