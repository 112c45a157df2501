"""The shell of one socket where the socket does not take what it is given."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest
from websockets.exceptions import ConnectionClosedOK
from websockets.protocol import State

from tests.support.patience import PATIENCE_S
from tests.unit.gateway.server.served import Served, serve
from voicegate.engine.interface import AudioReady, Cancelled, Done, UtteranceId
from voicegate.gateway.server.websocket.bounded_socket import Trouble
from voicegate.gateway.session.quota import NOBODY
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

    def __init__(self, *messages: wire.ClientMessage | str) -> None:
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


@asynccontextmanager
async def connected(websocket: StubWebsocket, dialect: Dialect | None = None) -> AsyncIterator[Served]:
    """Its client leaves at the end, unless it was sent away."""
    served = await serve(websocket, dialect)
    running = asyncio.create_task(served.connection.run())
    yield served
    websocket.messages.put_nowait(None)
    async with asyncio.timeout(PATIENCE_S):
        await running
    await served.engine.close()


@asynccontextmanager
async def speaking() -> AsyncIterator[tuple[StubWebsocket, Served, UtteranceId]]:
    """A context of which the engine has heard; no frame has gone out."""
    websocket = StubWebsocket(wire.Open(context="a"), wire.Text("a", "hi"))
    async with connected(websocket) as served:
        await served.engine.until(lambda: len(served.engine.requests) == 1)
        yield websocket, served, served.engine.requests[0].utterance_id


async def until_at_rest(websocket: StubWebsocket, num_frames: int) -> None:
    """They have gone out, and nothing keeps those that follow."""
    for _ in range(20):
        websocket.may_send.release()
    await websocket.until_frames(num_frames)
    for _ in range(5):
        await asyncio.sleep(0)  # gives way; the writer comes to rest
    websocket.takes_at_once = True


async def test_a_peer_that_reads_nothing_is_dropped() -> None:
    async with speaking() as (websocket, served, _):
        websocket.on_trouble(Trouble.STALLED)
        assert len(served.engine.cancels) == 1, "at once"
        websocket.on_trouble(Trouble.STALLED)
    assert (websocket.close_code, len(websocket.frames), len(served.engine.cancels)) == (1008, 1, 1)


async def test_too_many_messages_are_told_and_a_flood_is_closed() -> None:
    async with speaking() as (websocket, served, _):
        websocket.on_trouble(Trouble.OVER_RATE)
        websocket.on_trouble(Trouble.FLOODED)
        assert len(served.engine.cancels) == 1
        for _ in range(10):
            websocket.may_send.release()
    assert websocket.close_code == 1008
    errors = [codec.decode_server(frame) for frame in websocket.frames if b"rate_limited" in str(frame).encode()]
    assert [error.fatal for error in errors if isinstance(error, wire.Error)] == [False, True]


async def test_reading_stops_while_answers_wait() -> None:
    websocket = StubWebsocket(*(wire.Ping(n) for n in range(2000)))
    async with connected(websocket):
        await websocket.until_frames(1)
        for _ in range(2000):
            await asyncio.sleep(0)
        assert websocket.messages.qsize() > 1500
        websocket.on_trouble(Trouble.STALLED)


async def test_no_audio_is_ahead_of_a_cancel_but_what_was_written() -> None:
    async with speaking() as (websocket, served, utterance_id):
        conversation = served.connection.conversation
        for n in range(10):
            conversation.deliver(AudioReady(utterance_id, (b"x",), 960 * n))
        for _ in range(3):  # the greeting, `opened`, one audio message
            websocket.may_send.release()
        await websocket.until_frames(4)
        websocket.messages.put_nowait(wire.Cancel("a"))
        await served.engine.until(lambda: len(served.engine.cancels) == 1)
        conversation.deliver(Cancelled(utterance_id, 0, 0, "", ""))
        for _ in range(10):
            websocket.may_send.release()
        await websocket.until_frames(5)
    assert [type(frame) for frame in websocket.frames] == [str, str, bytes, bytes, str]


async def test_audio_that_waits_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("voicegate.gateway.server.conversations.outgoing._MAX_WAITING_EVENT_BYTES", 10 * (100 + 256))
    async with speaking() as (websocket, served, utterance_id):
        for _ in range(10):
            served.connection.conversation.deliver(AudioReady(utterance_id, (bytes(100),), 0))
        assert served.engine.cancels == []
        served.connection.conversation.deliver(AudioReady(utterance_id, (b"x",), 0))
        assert served.engine.cancels == [(utterance_id, None)], "at once, not when the stall is over"
    assert websocket.close_code == 1008


async def test_a_bug_ends_this_socket_with_1011(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("voicegate.engine.fake.engine.FakeEngine.push_text", lambda *_: 1 / 0)
    async with speaking() as (websocket, served, _):
        pass
    assert (websocket.close_code, len(served.engine.cancels)) == (1011, 1)


async def test_what_the_engine_makes_goes_out_at_once_and_keeps_its_place() -> None:
    async with speaking() as (websocket, served, utterance_id):
        await until_at_rest(websocket, 2)  # the greeting, `opened`
        deliver = served.connection.conversation.deliver
        deliver(AudioReady(utterance_id, (b"x",), 0))
        assert len(websocket.frames) == 3, "no task was waited for"
        websocket.takes_at_once = False
        deliver(AudioReady(utterance_id, (b"y",), 960))
        websocket.takes_at_once = True
        deliver(AudioReady(utterance_id, (b"z",), 1920))
        await websocket.until_frames(5)
        sequences = [audio_message.unpack(frame).sequence for frame in websocket.frames[2:] if isinstance(frame, bytes)]
        assert sequences == [0, 1, 2]


async def test_an_answer_goes_out_at_once_unless_another_waits() -> None:
    websocket = StubWebsocket(wire.Ping(0))
    async with connected(websocket) as served:
        await until_at_rest(websocket, 2)  # the greeting, `pong`
        receive = served.connection.conversation.receive
        receive(wire.Ping(1))
        assert len(websocket.frames) == 3, "no task was waited for"
        websocket.takes_at_once = False
        receive(wire.Ping(2))
        websocket.takes_at_once = True
        receive(wire.Ping(3))
        await websocket.until_frames(5)
        assert [codec.decode_server(frame) for frame in websocket.frames[1:]] == [wire.Pong(t=n) for n in range(4)]


async def test_a_bug_on_the_way_out_ends_this_socket_and_not_who_delivers(monkeypatch: pytest.MonkeyPatch) -> None:
    async with speaking() as (websocket, served, utterance_id):
        await until_at_rest(websocket, 2)
        monkeypatch.setattr("voicegate.protocol.audio_message.pack", lambda _: 1 / 0)
        served.connection.conversation.deliver(AudioReady(utterance_id, (b"x",), 0))
    assert websocket.close_code == 1011


async def test_who_lost_its_socket_is_taken_to_listen_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("voicegate.gateway.server.conversations.conversation._SLOW_AFTER_S", 0.0)
    told: asyncio.Queue[bool] = asyncio.Queue()
    async with speaking() as (_, served, _), asyncio.timeout(PATIENCE_S):
        monkeypatch.setattr(served.engine, "note_listener", lambda _, report: told.put_nowait(report.is_playing))
        served.connection.conversation.hold_up(True)
        assert await told.get() is False
        served.connection.conversation.lose_socket()
        assert await told.get() is True


async def test_what_a_message_brings_about_is_done_while_the_socket_takes_the_replies(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The client hears that its utterance is done, of which the next begins; it speaks on before it has heard all."""
    texts: list[str] = []
    config = {"type": "session.config", "response_format": "pcm", "stream_audio": True}
    first = [{"type": "input.text", "text": "One."}, {"type": "input.done"}, {"type": "input.text", "text": "Two "}]
    websocket = StubWebsocket(*map(json.dumps, (config, *first)))
    async with connected(websocket, VllmOmni(lambda _: None)) as served:
        engine, deliver = served.engine, served.connection.conversation.deliver
        monkeypatch.setattr(engine, "push_text", lambda _utterance_id, text: texts.append(text))
        await websocket.until_read()
        deliver(Done(engine.requests[0].utterance_id, 0, 0, 0))
        await websocket.until_frames(1)  # the first of three, which it does not take yet
        for message in ({"type": "input.text", "text": "three."}, {"type": "input.done"}):
            websocket.messages.put_nowait(json.dumps(message))
        await websocket.until_read()
        for _ in range(20):
            websocket.may_send.release()
        await websocket.until_frames(3)
        await engine.until(lambda: len(engine.requests) == 2)
        deliver(Done(engine.requests[1].utterance_id, 0, 0, 0))
        await websocket.until_frames(6)
    kinds = [json.loads(frame)["type"] for frame in websocket.frames]
    assert kinds == ["audio.start", "audio.done", "session.done"] * 2
    assert texts == ["One.", "Two ", "three."]
