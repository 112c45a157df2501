"""The shell of one socket where the socket does not take what it is given."""

import asyncio
import json
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from prometheus_client import CollectorRegistry
from websockets.exceptions import ConnectionClosedOK
from websockets.protocol import State

from tests.support.patience import PATIENCE_S
from voicegate.engine.fake.engine import FakeEngine
from voicegate.engine.interface import AudioReady, Cancelled, Done, UtteranceId
from voicegate.gateway.server.conversations.admission import Admission
from voicegate.gateway.server.conversations.binding import Binding
from voicegate.gateway.server.conversations.conversation import Conversation
from voicegate.gateway.server.conversations.dispatch import Dispatcher
from voicegate.gateway.server.conversations.resumption import Resumption
from voicegate.gateway.server.conversations.services import Services
from voicegate.gateway.server.conversations.translation import DialectTranslator
from voicegate.gateway.server.metrics.meters import Meters
from voicegate.gateway.server.websocket.bounded_socket import Trouble
from voicegate.gateway.server.websocket.connection import Connection
from voicegate.gateway.session.continuity import ResumeLimits
from voicegate.gateway.session.opening import SessionLimits
from voicegate.gateway.session.quota import NOBODY, Quotas
from voicegate.gateway.session.waiting import WaitingLimits
from voicegate.protocol import audio_message, codec
from voicegate.protocol import messages as wire
from voicegate.protocol.dialects.dialect import Dialect
from voicegate.protocol.dialects.vllm_omni import VllmOmni


class StubTransport:
    def abort(self) -> None:
        pytest.fail("nothing here needs force")


class StubWebsocket:
    """Takes every frame, and says that it went out as often as `may_send` is released."""

    peer = "test"
    state = State.OPEN
    close_code: int | None = None
    num_held_bytes = 0
    takes_at_once = False
    was_dropped = False
    owner = NOBODY
    on_trouble: Callable[[Trouble], None]

    def __init__(self, messages: Sequence[wire.ClientMessage | str]) -> None:
        self.transport = StubTransport()
        self.frames: list[str | bytes] = []
        self.messages: asyncio.Queue[wire.ClientMessage | str | None] = asyncio.Queue()
        for message in messages:
            self.messages.put_nowait(message)
        self.may_send = asyncio.Semaphore(0)
        self._has_sent, self._has_read = asyncio.Event(), asyncio.Event()

    async def recv(self) -> str:
        message = await self.messages.get()
        self._has_read.set()
        if message is None:
            raise ConnectionClosedOK(None, None)
        return message if isinstance(message, str) else codec.encode(message)

    def write_at_once(self, frame: str | bytes) -> None:
        self.frames.append(frame)
        self._has_sent.set()

    async def write(self, frame: str | bytes) -> None:
        self.frames.append(frame)
        self._has_sent.set()
        await self.may_send.acquire()

    async def close(self, code: int, _reason: str) -> None:
        self.close_code = code
        self.messages.put_nowait(None)

    async def until_frames(self, num_frames: int) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while len(self.frames) < num_frames:
                self._has_sent.clear()
                await self._has_sent.wait()

    async def until_read(self) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while self.messages.qsize():
                self._has_read.clear()
                await self._has_read.wait()


async def new_connection(websocket: Any, engine: FakeEngine, dialect: Dialect | None = None) -> Connection:
    """`dialect` None: the native protocol."""
    await engine.start()
    services = Services(
        engine,
        Dispatcher(engine),
        Admission(engine, WaitingLimits()),
        SessionLimits(),
        Quotas(),
        Meters(CollectorRegistry()),
    )
    resumption = Resumption(ResumeLimits(), services.quotas)

    def converse(token: str = "") -> Conversation:
        return Conversation(services, session_id="s", info=engine.info, owner=NOBODY, token=token)

    if dialect is None:
        binding = resumption.begin(converse)
    else:
        binding = Binding(converse(), DialectTranslator(dialect, lambda tag: tag))
    return Connection(websocket, binding, resumption)


async def test_a_peer_that_reads_nothing_is_dropped() -> None:
    engine = FakeEngine()
    websocket = StubWebsocket([wire.Open(context="a"), wire.Text("a", "hi")])
    running = asyncio.create_task((await new_connection(websocket, engine)).run())
    await engine.until(lambda: len(engine.requests) == 1)
    websocket.on_trouble(Trouble.STALLED)
    assert len(engine.cancels) == 1, "at once"
    websocket.on_trouble(Trouble.STALLED)
    await running
    assert websocket.close_code == 1008
    assert len(websocket.frames) == 1
    assert len(engine.cancels) == 1
    await engine.close()


async def test_too_many_messages_are_told_and_a_flood_is_closed() -> None:
    engine = FakeEngine()
    websocket = StubWebsocket([wire.Open(context="a"), wire.Text("a", "hi")])
    running = asyncio.create_task((await new_connection(websocket, engine)).run())
    await engine.until(lambda: len(engine.requests) == 1)
    websocket.on_trouble(Trouble.OVER_RATE)
    websocket.on_trouble(Trouble.FLOODED)
    assert len(engine.cancels) == 1
    for _ in range(10):
        websocket.may_send.release()
    await running
    assert websocket.close_code == 1008
    errors = [codec.decode_server(frame) for frame in websocket.frames if b"rate_limited" in str(frame).encode()]
    assert [error.fatal for error in errors if isinstance(error, wire.Error)] == [False, True]
    await engine.close()


async def test_reading_stops_while_answers_wait() -> None:
    engine = FakeEngine()
    websocket = StubWebsocket([wire.Ping(n) for n in range(2000)])
    running = asyncio.create_task((await new_connection(websocket, engine)).run())
    await websocket.until_frames(1)
    for _ in range(2000):
        await asyncio.sleep(0)
    assert websocket.messages.qsize() > 1500
    websocket.on_trouble(Trouble.STALLED)
    await running
    await engine.close()


async def test_no_audio_is_ahead_of_a_cancel_but_what_was_written() -> None:
    engine = FakeEngine()
    websocket = StubWebsocket([wire.Open(context="a"), wire.Text("a", "hi")])
    connection = await new_connection(websocket, engine)
    running = asyncio.create_task(connection.run())
    await engine.until(lambda: len(engine.requests) == 1)
    utterance_id = engine.requests[0].utterance_id
    for n in range(10):
        connection.conversation.deliver(AudioReady(utterance_id, (b"x",), 960 * n))
    for _ in range(3):  # the greeting, `opened`, one audio message
        websocket.may_send.release()
    await websocket.until_frames(4)
    websocket.messages.put_nowait(wire.Cancel("a"))
    await engine.until(lambda: len(engine.cancels) == 1)
    connection.conversation.deliver(Cancelled(utterance_id, 0, 0, "", ""))
    for _ in range(10):
        websocket.may_send.release()
    await websocket.until_frames(5)
    websocket.messages.put_nowait(None)
    await running
    assert [type(frame) for frame in websocket.frames] == [str, str, bytes, bytes, str]
    await engine.close()


async def test_audio_that_waits_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("voicegate.gateway.server.conversations.outgoing._MAX_WAITING_EVENT_BYTES", 10 * (100 + 256))
    engine = FakeEngine()
    websocket = StubWebsocket([wire.Open(context="a"), wire.Text("a", "hi")])
    connection = await new_connection(websocket, engine)
    running = asyncio.create_task(connection.run())
    await engine.until(lambda: len(engine.requests) == 1)
    utterance_id = UtteranceId(engine.requests[0].utterance_id)
    for _ in range(10):
        connection.conversation.deliver(AudioReady(utterance_id, (bytes(100),), 0))
    assert engine.cancels == []
    connection.conversation.deliver(AudioReady(utterance_id, (b"x",), 0))
    assert engine.cancels == [(utterance_id, None)], "at once, not when the stall is over"
    await running
    assert websocket.close_code == 1008
    await engine.close()


async def test_a_bug_ends_this_socket_with_1011(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = FakeEngine()
    websocket = StubWebsocket([wire.Open(context="a"), wire.Text("a", "x ")])

    def broken(*_: object) -> None:
        raise RuntimeError("a bug")

    monkeypatch.setattr(engine, "push_text", broken)
    await (await new_connection(websocket, engine)).run()
    assert websocket.close_code == 1011
    assert len(engine.cancels) == 1
    await engine.close()


async def test_what_the_engine_makes_goes_out_at_once_and_keeps_its_place() -> None:
    engine = FakeEngine()
    websocket = StubWebsocket([wire.Open(context="a"), wire.Text("a", "hi")])
    connection = await new_connection(websocket, engine)
    running = asyncio.create_task(connection.run())
    for _ in range(20):
        websocket.may_send.release()
    await engine.until(lambda: len(engine.requests) == 1)
    await websocket.until_frames(2)  # the greeting, `opened`
    for _ in range(5):
        await asyncio.sleep(0)  # gives way; the writer comes to rest
    websocket.takes_at_once = True
    utterance_id = engine.requests[0].utterance_id
    connection.conversation.deliver(AudioReady(utterance_id, (b"x",), 0))
    assert len(websocket.frames) == 3, "no task was waited for"
    websocket.takes_at_once = False
    connection.conversation.deliver(AudioReady(utterance_id, (b"y",), 960))
    websocket.takes_at_once = True
    connection.conversation.deliver(AudioReady(utterance_id, (b"z",), 1920))
    await websocket.until_frames(5)
    sequences = [audio_message.unpack(frame).sequence for frame in websocket.frames[2:] if isinstance(frame, bytes)]
    assert sequences == [0, 1, 2]
    websocket.messages.put_nowait(None)
    await running
    await engine.close()


async def test_an_answer_goes_out_at_once_unless_another_waits() -> None:
    engine = FakeEngine()
    websocket = StubWebsocket([wire.Ping(0)])
    connection = await new_connection(websocket, engine)
    running = asyncio.create_task(connection.run())
    for _ in range(20):
        websocket.may_send.release()
    await websocket.until_frames(2)  # the greeting, `pong`
    for _ in range(5):
        await asyncio.sleep(0)  # gives way; the writer comes to rest
    websocket.takes_at_once = True
    connection.conversation.receive(wire.Ping(1))
    assert len(websocket.frames) == 3, "no task was waited for"
    websocket.takes_at_once = False
    connection.conversation.receive(wire.Ping(2))
    websocket.takes_at_once = True
    connection.conversation.receive(wire.Ping(3))
    await websocket.until_frames(5)
    assert [codec.decode_server(frame) for frame in websocket.frames[1:]] == [wire.Pong(t=n) for n in range(4)]
    websocket.messages.put_nowait(None)
    await running
    await engine.close()


async def test_a_bug_on_the_way_out_ends_this_socket_and_not_who_delivers(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = FakeEngine()
    websocket = StubWebsocket([wire.Open(context="a"), wire.Text("a", "hi")])
    connection = await new_connection(websocket, engine)
    running = asyncio.create_task(connection.run())
    for _ in range(20):
        websocket.may_send.release()
    await engine.until(lambda: len(engine.requests) == 1)
    await websocket.until_frames(2)
    for _ in range(5):
        await asyncio.sleep(0)  # gives way; the writer comes to rest
    websocket.takes_at_once = True
    monkeypatch.setattr("voicegate.protocol.audio_message.pack", lambda _: 1 / 0)
    connection.conversation.deliver(AudioReady(engine.requests[0].utterance_id, (b"x",), 0))
    await running
    assert websocket.close_code == 1011
    await engine.close()


async def test_who_lost_its_socket_is_taken_to_listen_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("voicegate.gateway.server.conversations.conversation._SLOW_AFTER_S", 0.0)
    engine = FakeEngine()
    told: asyncio.Queue[bool] = asyncio.Queue()
    monkeypatch.setattr(engine, "note_listener", lambda _utterance_id, report: told.put_nowait(report.is_playing))
    websocket = StubWebsocket([wire.Open(context="a"), wire.Text("a", "hi")])
    connection = await new_connection(websocket, engine)
    running = asyncio.create_task(connection.run())
    await engine.until(lambda: len(engine.requests) == 1)
    async with asyncio.timeout(PATIENCE_S):
        connection.conversation.hold_up(True)
        assert await told.get() is False
        connection.conversation.lose_socket()
        assert await told.get() is True
    websocket.messages.put_nowait(None)
    await running
    await engine.close()


async def test_what_a_message_brings_about_is_done_while_the_socket_takes_the_replies(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The client hears that its utterance is done, of which the next begins; it speaks on before it has heard all."""
    engine = FakeEngine()
    texts: list[str] = []
    monkeypatch.setattr(engine, "push_text", lambda _utterance_id, text: texts.append(text))
    config = {"type": "session.config", "response_format": "pcm", "stream_audio": True}
    first = [{"type": "input.text", "text": "One."}, {"type": "input.done"}, {"type": "input.text", "text": "Two "}]
    websocket = StubWebsocket([json.dumps(message) for message in (config, *first)])
    connection = await new_connection(websocket, engine, VllmOmni(lambda _: None))
    running = asyncio.create_task(connection.run())
    await websocket.until_read()
    connection.conversation.deliver(Done(engine.requests[0].utterance_id, 0, 0, 0))
    await websocket.until_frames(1)  # the first of three, which it does not take yet
    for message in ({"type": "input.text", "text": "three."}, {"type": "input.done"}):
        websocket.messages.put_nowait(json.dumps(message))
    await websocket.until_read()
    for _ in range(20):
        websocket.may_send.release()
    await websocket.until_frames(3)
    await engine.until(lambda: len(engine.requests) == 2)
    connection.conversation.deliver(Done(engine.requests[1].utterance_id, 0, 0, 0))
    await websocket.until_frames(6)
    kinds = [json.loads(frame)["type"] for frame in websocket.frames]
    assert kinds == ["audio.start", "audio.done", "session.done"] * 2
    assert texts == ["One.", "Two ", "three."]
    websocket.messages.put_nowait(None)
    await running
    await engine.close()
