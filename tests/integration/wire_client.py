"""A client for tests: one call per message, and every audio message held against the rules of docs/protocol.md."""

import asyncio
import contextlib
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import opuslib_next
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed
from websockets.protocol import State

from tests.support.patience import PATIENCE_S
from voicegate.engine.fake.engine import FakeEngine, Script
from voicegate.engine.interface import Engine
from voicegate.gateway.config import GatewayConfig
from voicegate.gateway.server.run import running_gateway
from voicegate.gateway.server.server import Gateway
from voicegate.protocol import audio_message, codec
from voicegate.protocol import messages as wire
from voicegate.protocol.audio_message import AudioMessage

TIMEOUT_S = PATIENCE_S
OPUS_CLOCK_HZ = 48_000

T = TypeVar("T")


@dataclass
class Heard:
    """Messages for one incarnation of a context."""

    opened: wire.Opened
    audio: list[AudioMessage] = field(default_factory=list)
    messages: list[Any] = field(default_factory=list)

    @property
    def packets(self) -> list[bytes]:
        return [packet for message in self.audio for packet in message.packets]

    def decode(self) -> npt.NDArray[np.float32]:
        """The Opus packets as a player would play them: without the pre-skip, cut at the exact end."""
        decoder = opuslib_next.Decoder(OPUS_CLOCK_HZ, 1)
        frame = self.opened.format.frame_ms * OPUS_CLOCK_HZ // 1000
        decoded = [np.frombuffer(decoder.decode_float(packet, frame), np.float32) for packet in self.packets]
        last = self.audio[-1]
        assert last.is_last
        return np.concatenate([*decoded, np.zeros(0, np.float32)])[self.opened.pre_skip : last.pts_48k]


class WireClient:
    def __init__(self, websocket: ClientConnection) -> None:
        self.websocket = websocket
        self.heard: dict[str, list[Heard]] = defaultdict(list)  # by context, one entry per incarnation
        self.live: dict[int, Heard] = {}  # by handle
        self.arrivals: list[int] = []  # handles of audio messages
        self.refusals: list[wire.Error] = []  # of an `open`: it ends nothing that was there

    async def send(self, *messages: wire.ClientMessage) -> None:
        for message in messages:
            await self.websocket.send(codec.encode(message))

    async def speak(self, context: str, text: str, **fields: Any) -> None:
        await self.send(wire.Open(context=context, **fields), wire.Text(context, text), wire.End(context))

    async def receive(self) -> wire.ServerMessage | AudioMessage:
        async with asyncio.timeout(TIMEOUT_S):
            raw = await self.websocket.recv()
        if isinstance(raw, str):
            message = codec.decode_server(raw)
            self._note(message)
            return message
        audio = audio_message.unpack(raw)
        heard = self.live[audio.handle]  # a KeyError here is audio outside of a context's life
        assert audio.sequence == len(heard.audio), "sequence numbers have no gaps"
        assert audio.is_first == (audio.sequence == 0)
        assert not (heard.audio and heard.audio[-1].is_last), "nothing follows the last message"
        assert audio.is_last == (not audio.packets)
        heard.audio.append(audio)
        self.arrivals.append(audio.handle)
        return audio

    async def until(self, kind: type[T], context: str | None = None) -> T:
        """The next message of this kind (of this context)."""
        while True:
            message = await self.receive()
            if isinstance(message, kind) and context in (None, getattr(message, "context", None)):
                return message

    async def until_done(self, context: str) -> Heard:
        await self.until(wire.Done, context)
        return self.heard[context][-1]

    def _note(self, message: wire.ServerMessage) -> None:
        context = getattr(message, "context", None)
        if isinstance(message, wire.Opened):
            heard = Heard(message)
            assert message.handle not in self.live
            self.live[message.handle] = heard
            self.heard[message.context].append(heard)
            return
        heard = self.heard[context][-1] if isinstance(context, str) and self.heard[context] else None
        is_live = heard is not None and self.live.get(heard.opened.handle) is heard
        is_fatal = isinstance(message, wire.Error) and message.fatal
        if isinstance(message, wire.Error) and message.fatal and not is_live:
            self.refusals.append(message)
        elif heard is not None:
            heard.messages.append(message)
            if is_fatal or isinstance(message, wire.Done | wire.Cancelled):
                self.live.pop(heard.opened.handle, None)


@dataclass
class Served:
    url: str
    engine: FakeEngine

    async def until(self, is_so: Callable[[FakeEngine], bool]) -> None:
        """Wait for what the engine should come to."""
        async with asyncio.timeout(TIMEOUT_S):
            await self.engine.until(lambda: is_so(self.engine))

    @contextlib.asynccontextmanager
    async def client(self, **options: Any) -> AsyncIterator[WireClient]:
        """Greeted; closed at exit however the test left it."""
        async with connect_to(self.url, **options) as client:
            yield client


@contextlib.asynccontextmanager
async def connect_to(url: str, **options: Any) -> AsyncIterator[WireClient]:
    websocket = await connect(url, **{"compression": None, "close_timeout": 1, **options})
    try:
        client = WireClient(websocket)
        assert isinstance(await client.receive(), wire.Ready)
        yield client
    finally:
        # Closing what the server cut while much was buffered trips over asyncio 3.11: `abort` of a lost transport.
        if websocket.state is not State.CLOSED:
            await websocket.close()


@contextlib.asynccontextmanager
async def serving(script: Script | None = None, **settings: Any) -> AsyncIterator[Served]:
    engine = FakeEngine(script)
    async with running_gateway(GatewayConfig(**settings), engine) as url:
        yield Served(url, engine)


async def native_turns(texts: Sequence[str]) -> list[bytes]:
    """A native client's messages, turn by turn, from a server without other clients."""
    async with serving() as served, served.client() as client:
        heard = []
        for number, text in enumerate(texts):
            await client.speak(f"turn-{number}", text, format=wire.Format(codec="pcm_s16le"))
            heard.append(b"".join((await client.until_done(f"turn-{number}")).packets))
        return heard


@dataclass
class Running:
    """A gateway that a test looks into, or ends."""

    gateway: Gateway
    stop: asyncio.Event
    exit_status: "asyncio.Task[int]"


@contextlib.asynccontextmanager
async def running(engine: Engine, *, waits_for_engine: bool = True, **settings: Any) -> AsyncIterator[Running]:
    """`waits_for_engine`: until it is ready, or never going to be."""
    gateway, stop = Gateway(GatewayConfig(port=0, **settings), engine), asyncio.Event()
    async with asyncio.timeout(TIMEOUT_S), asyncio.TaskGroup() as tasks:
        exit_status = tasks.create_task(gateway.serve_until(stop))
        await (gateway.settled if waits_for_engine else gateway.listening).wait()
        yield Running(gateway, stop, exit_status)
        stop.set()


async def closed_with(client: WireClient) -> int | None:
    with contextlib.suppress(ConnectionClosed):
        while True:
            await client.receive()
    return client.websocket.close_code


def pitch_hz(samples: npt.NDArray[np.float32]) -> float:
    """Loudest frequency of samples at 48 kHz."""
    spectrum = np.abs(np.fft.rfft(samples * np.hanning(len(samples))))
    return float(np.argmax(spectrum) * OPUS_CLOCK_HZ / len(samples))
