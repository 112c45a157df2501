"""What the shell of one socket does when the socket does not take what it is given."""

import asyncio
from typing import Any

import pytest
from websockets.exceptions import ConnectionClosedOK
from websockets.protocol import State

from voicegate.engine.fake.engine import FakeEngine
from voicegate.engine.interface import AudioReady, Cancelled, UtteranceId
from voicegate.gateway.server.connection import Connection
from voicegate.gateway.server.dispatch import Dispatcher
from voicegate.gateway.session.opening import SessionLimits
from voicegate.protocol import codec
from voicegate.protocol import messages as wire

pytestmark = pytest.mark.unit


class StubTransport:
    """Its buffer gives up `drains_bytes` for every stall that it is asked about."""

    def __init__(self, drains_bytes: int) -> None:
        self.drains_bytes = drains_bytes
        self.num_waiting = 0
        self.num_asked = 0

    def get_write_buffer_size(self) -> int:
        self.num_asked += 1
        if self.num_asked % 2 == 0:  # asked before a write, and after its stall
            self.num_waiting -= min(self.drains_bytes, self.num_waiting)
        return self.num_waiting

    def get_extra_info(self, _name: str) -> None:
        return None

    def abort(self) -> None:
        pytest.fail("nothing here needs force")


class StubWebsocket:
    """Takes every frame, and says that it went out as often as `may_send` is released."""

    remote_address = ("test", 1)
    state = State.OPEN
    close_code: int | None = None

    def __init__(self, messages: list[wire.ClientMessage], *, drains_bytes: int) -> None:
        self.transport = StubTransport(drains_bytes)
        self.frames: list[str | bytes] = []
        self.messages: asyncio.Queue[wire.ClientMessage | None] = asyncio.Queue()
        for message in messages:
            self.messages.put_nowait(message)
        self.may_send = asyncio.Semaphore(0)
        self._has_sent = asyncio.Event()

    async def recv(self) -> str:
        message = await self.messages.get()
        if message is None:
            raise ConnectionClosedOK(None, None)
        return codec.encode(message)

    async def send(self, frame: str | bytes) -> None:
        self.frames.append(frame)
        self.transport.num_waiting += len(frame)
        self._has_sent.set()
        await self.may_send.acquire()

    async def close(self, code: int, _reason: str) -> None:
        self.close_code = code
        self.messages.put_nowait(None)

    async def until_frames(self, num_frames: int) -> None:
        async with asyncio.timeout(5):
            while len(self.frames) < num_frames:
                self._has_sent.clear()
                await self._has_sent.wait()


async def new_connection(websocket: Any, engine: FakeEngine, write_stall_s: float = 0.01) -> Connection:
    await engine.start()
    return Connection(
        websocket,
        engine=engine,
        info=engine.info,
        dispatcher=Dispatcher(engine),
        limits=SessionLimits(),
        write_stall_s=write_stall_s,
    )


async def test_a_peer_that_reads_nothing_is_dropped() -> None:
    engine = FakeEngine()
    websocket = StubWebsocket([wire.Open(context="a")], drains_bytes=0)
    connection = await new_connection(websocket, engine)
    await connection.run()
    assert websocket.close_code == 1008
    assert len(websocket.frames) == 1
    assert len(engine.cancels) == 1
    await engine.close()


async def test_a_peer_that_reads_a_byte_at_a_time_is_not() -> None:
    engine = FakeEngine()
    websocket = StubWebsocket([wire.Ping(n) for n in range(4)], drains_bytes=1)
    connection = await new_connection(websocket, engine)
    running = asyncio.create_task(connection.run())
    await websocket.until_frames(5)  # the greeting and four pongs, each after a stall
    assert websocket.close_code is None
    websocket.transport.drains_bytes = 0
    await running
    assert websocket.close_code == 1008
    await engine.close()


async def test_reading_stops_while_answers_wait() -> None:
    engine = FakeEngine()
    websocket = StubWebsocket([wire.Ping(n) for n in range(2000)], drains_bytes=0)
    await (await new_connection(websocket, engine)).run()
    assert websocket.messages.qsize() > 1500
    await engine.close()


async def test_no_audio_is_ahead_of_a_cancel_but_what_was_written() -> None:
    engine = FakeEngine()
    websocket = StubWebsocket([wire.Open(context="a")], drains_bytes=0)
    connection = await new_connection(websocket, engine, write_stall_s=5.0)
    running = asyncio.create_task(connection.run())
    await engine.until(lambda: len(engine.requests) == 1)
    utterance_id = engine.requests[0].utterance_id
    for n in range(10):
        connection.deliver(AudioReady(utterance_id, (b"x",), 960 * n))
    for _ in range(3):  # the greeting, `opened`, one audio message
        websocket.may_send.release()
    await websocket.until_frames(4)
    websocket.messages.put_nowait(wire.Cancel("a"))
    await engine.until(lambda: len(engine.cancels) == 1)
    connection.deliver(Cancelled(utterance_id, 0, 0, "", ""))
    for _ in range(10):
        websocket.may_send.release()
    await websocket.until_frames(5)
    websocket.messages.put_nowait(None)
    await running
    assert [type(frame) for frame in websocket.frames] == [str, str, bytes, bytes, str]
    await engine.close()


async def test_audio_that_waits_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("voicegate.gateway.server.connection._MAX_WAITING_AUDIO_BYTES", 1000)
    engine = FakeEngine()
    websocket = StubWebsocket([wire.Open(context="a")], drains_bytes=0)
    connection = await new_connection(websocket, engine, write_stall_s=0.2)
    running = asyncio.create_task(connection.run())
    await engine.until(lambda: len(engine.requests) == 1)
    utterance_id = UtteranceId(engine.requests[0].utterance_id)
    for _ in range(10):
        connection.deliver(AudioReady(utterance_id, (bytes(100),), 0))
    assert engine.cancels == []
    connection.deliver(AudioReady(utterance_id, (b"x",), 0))
    assert engine.cancels == [(utterance_id, None)], "at once, not when the stall is over"
    await running
    assert websocket.close_code == 1008
    await engine.close()


async def test_a_bug_ends_this_socket_with_1011(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = FakeEngine()
    websocket = StubWebsocket([wire.Open(context="a"), wire.Text("a", "x ")], drains_bytes=0)

    def broken(*_: object) -> None:
        raise RuntimeError("a bug")

    monkeypatch.setattr(engine, "push_text", broken)
    await (await new_connection(websocket, engine)).run()
    assert websocket.close_code == 1011
    assert len(engine.cancels) == 1
    await engine.close()
