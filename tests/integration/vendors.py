"""Clients of other vendors' protocols, and a table of how each says one text: rules for all of them go over it."""

import asyncio
import base64
import contextlib
import json
from collections.abc import AsyncIterator, Callable
from functools import partial
from typing import Any, NamedTuple

import msgspec
import numpy as np
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed

from tests.integration.wire_client import TIMEOUT_S
from voicegate.protocol import messages as wire
from voicegate.protocol.formats import Coding

TEXT = "Hello there, this is speech"
ELEVENLABS = "/v1/text-to-speech/hum/multi-stream-input?output_format={}"
SINGLE = "/v1/text-to-speech/hum/stream-input?output_format={}"

Frame = dict[str, Any] | bytes


class Peer:
    """A client of any of these protocols: frames in JSON or as they are."""

    def __init__(self, websocket: ClientConnection) -> None:
        self.websocket = websocket

    async def send(self, *messages: Frame) -> None:
        for message in messages:
            await self.websocket.send(message if isinstance(message, bytes) else json.dumps(message))

    async def receive(self) -> Any:
        async with asyncio.timeout(TIMEOUT_S):
            frame = await self.websocket.recv()
        return json.loads(frame) if isinstance(frame, str) else frame

    async def until(self, is_last: Callable[[Any], bool]) -> list[Any]:
        heard = []
        while not heard or not is_last(heard[-1]):
            heard.append(await self.receive())
        return heard

    async def until_type(self, *kinds: str) -> list[Any]:
        return await self.until(lambda frame: isinstance(frame, dict) and frame.get("type") in kinds)

    async def until_closed(self) -> tuple[list[Any], int | None]:
        heard = []
        with contextlib.suppress(ConnectionClosed):
            while True:
                heard.append(await self.receive())
        return heard, self.websocket.close_code

    async def until_its_end(self) -> list[Any]:
        """All that comes until a speech has ended, or until the gateway closes in good order."""
        heard: list[Any] = []
        with contextlib.suppress(ConnectionClosed):
            while not heard or not is_end(heard[-1]):
                heard.append(await self.receive())
        assert self.websocket.close_code in (None, 1000)
        return heard


@contextlib.asynccontextmanager
async def peer(url: str, path: str, **options: Any) -> AsyncIterator[Peer]:
    async with connect(url.removesuffix(wire.STREAM_PATH) + path, close_timeout=1, **options) as websocket:
        yield Peer(websocket)


def is_final(message: Any) -> bool:
    return bool(message.get("isFinal"))


def is_end(frame: Any) -> bool:
    return isinstance(frame, dict) and (is_final(frame) or frame.get("type") in ("done", "Flushed", "session.done"))


def audio_of(heard: list[Any], key: str = "audio") -> bytes:
    return b"".join(base64.b64decode(message[key]) for message in heard if message.get(key))


def bytes_of(heard: list[Any]) -> bytes:
    return b"".join(frame for frame in heard if isinstance(frame, bytes))


def turn(name: str = "a", text: str = TEXT) -> list[Frame]:
    return [{"text": " ", "context_id": name}, {"text": text, "context_id": name}, {"context_id": name, "flush": True}]


def closing(name: str = "a") -> Frame:
    return {"context_id": name, "close_context": True}


def request(transcript: str, **fields: Any) -> Frame:
    """A request of Cartesia's."""
    output = {"container": "raw", "encoding": "pcm_s16le", "sample_rate": 24_000}
    return {"context_id": "c", "transcript": transcript, "output_format": output, **fields}


# --- one text, in each protocol -------------------------------------------------------------------------------


class Vendor(NamedTuple):
    """How a client of one protocol says a text and is done, and where it finds the audio."""

    path: str  # with the rate to ask for, where the URL says it
    says: Callable[[str, int], list[Frame]]
    audio_of: Callable[[list[Any]], bytes]
    rates_hz: tuple[int, ...] = (24_000,)
    coding: Coding = Coding.PCM_S16LE
    closes: bool = False

    def at(self, rate_hz: int) -> str:
        return self.path.format(rate_hz)


def says_cartesia(text: str, rate_hz: int) -> list[Frame]:
    output = {"container": "raw", "encoding": "pcm_f32le", "sample_rate": rate_hz}
    return [request(text, output_format=output)]


def says_vllm_omni(text: str, _: int) -> list[Frame]:
    config = {"type": "session.config", "response_format": "pcm", "stream_audio": True}
    return [config, {"type": "input.text", "text": text}, {"type": "input.done"}]


def says_kyutai(text: str, _: int) -> list[Frame]:
    words = [{"type": "Text", "text": word} for word in text.split()]
    return [msgspec.msgpack.encode(message) for message in (*words, {"type": "Eos"})]


def kyutai_audio(heard: list[Any]) -> bytes:
    messages = [msgspec.msgpack.decode(frame) for frame in heard]
    assert messages[0] == {"type": "Ready"}
    samples = [sample for message in messages if message["type"] == "Audio" for sample in message["pcm"]]
    return np.array(samples, "<f4").tobytes()


VENDORS = {
    "elevenlabs": Vendor(
        ELEVENLABS.format("pcm_{}"), lambda text, _: [*turn(text=text), closing()], audio_of, (24_000, 48_000)
    ),
    "elevenlabs-single": Vendor(
        SINGLE.format("pcm_{}"),
        lambda text, _: [{"text": " "}, {"text": text}, {"text": ""}],
        audio_of,
        (24_000, 16_000, 48_000),
        closes=True,
    ),
    "cartesia": Vendor(
        "/tts/websocket?cartesia_version=2026-03-01",
        says_cartesia,
        partial(audio_of, key="data"),
        (24_000, 44_100, 48_000),
        Coding.PCM_F32LE,
    ),
    "deepgram": Vendor(
        "/v1/speak?encoding=linear16&sample_rate={}",
        lambda text, _: [{"type": "Speak", "text": text}, {"type": "Close"}],
        bytes_of,
        (24_000, 8_000, 48_000),
        closes=True,
    ),
    "vllm-omni": Vendor("/v1/audio/speech/stream", says_vllm_omni, bytes_of),
    "kyutai": Vendor(
        "/api/tts_streaming?format=PcmMessagePack", says_kyutai, kyutai_audio, coding=Coding.PCM_F32LE, closes=True
    ),
}
