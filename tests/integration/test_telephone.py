"""The telephone of the examples, called by a stand-in that speaks Twilio's documented messages in real time."""

import asyncio
import base64
import gc
import logging
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import av
import numpy as np
import orjson
import pytest
from websockets.asyncio.client import ClientConnection
from websockets.asyncio.client import connect as dial
from websockets.asyncio.server import ServerConnection, serve
from websockets.exceptions import ConnectionClosed

from tests.integration.stub_llm import StubLlm
from tests.integration.wire_client import Served, serving
from tests.support.polling import until
from voicegate.clients.examples.chat import Llm
from voicegate.clients.examples.telephone import GREETING, Call, mu_law, to_mu_law
from voicegate.clients.python.client import connect
from voicegate.engine.fake.engine import Script

STREAM = "MZ18ad3ab5a668481ce02b83e7395059f0"
STORY = "Once upon a time there was a telephone. " + "word " * 100
MS_PER_LETTER = 60  # FakeEngine's


pytestmark = pytest.mark.usefixtures("no_hang")


class Twilio:
    """The other end of the socket: plays what comes in order, at its pace, and returns marks when they are reached."""

    def __init__(self, socket: ClientConnection) -> None:
        self._socket = socket
        self.played = b""
        self.buffered: list[dict[str, Any]] = []
        self.events: list[str] = []
        self.has_sound = asyncio.Event()
        self.is_silent = asyncio.Event()

    async def tell(self, event: str, **fields: object) -> None:
        with suppress(ConnectionClosed):  # after `vanish`, that is
            await self._socket.send(orjson.dumps({"event": event, "streamSid": STREAM, **fields}).decode())

    async def begin(self) -> None:
        await self._socket.send('{"event": "connected", "protocol": "Call", "version": "1.0.0"}')
        media = {"encoding": "audio/x-mulaw", "sampleRate": 8000, "channels": 1}
        await self.tell("start", start={"streamSid": STREAM, "callSid": "CA1", "mediaFormat": media})
        await self.tell("media", media={"track": "inbound", "payload": base64.b64encode(b"\xff" * 160).decode()})

    def vanish(self) -> None:
        """Without a close frame."""
        self._socket.transport.abort()

    async def listen(self) -> None:
        with suppress(ConnectionClosed):
            await self._listen()

    async def _listen(self) -> None:
        async for text in self._socket:
            message = orjson.loads(text)
            assert message["streamSid"] == STREAM
            self.events.append(message["event"])
            if message["event"] == "clear":
                buffered, self.buffered = self.buffered, []
                for each in buffered:  # "any outstanding marks are sent back"
                    if each["event"] == "mark":
                        await self.tell("mark", mark=each["mark"])
            else:
                self.buffered.append(message)
                self.has_sound.set()

    async def play(self) -> None:
        next_s = time.monotonic()
        while True:
            if not self.buffered:
                self.is_silent.set()
                await asyncio.sleep(0.01)
                next_s = time.monotonic()
                continue
            self.is_silent.clear()
            message = self.buffered.pop(0)
            if message["event"] == "mark":
                await self.tell("mark", mark=message["mark"])
                continue
            audio = base64.b64decode(message["media"]["payload"])
            self.played += audio
            next_s += len(audio) / 8000
            await asyncio.sleep(max(0.0, next_s - time.monotonic()))


@asynccontextmanager
async def calling(served: Served, stub: StubLlm) -> AsyncIterator[Twilio]:
    async with connect(served.url) as gate:

        async def take(socket: ServerConnection) -> None:
            await Call(socket).run(gate, Llm(stub.base_url, "stub"), voice=None)

        async with serve(take, "127.0.0.1", 0) as server, asyncio.TaskGroup() as tasks:
            port = next(iter(server.sockets)).getsockname()[1]
            async with dial(f"ws://127.0.0.1:{port}/") as socket:
                twilio = Twilio(socket)
                work = [tasks.create_task(twilio.listen()), tasks.create_task(twilio.play())]
                await twilio.begin()
                yield twilio
                for task in work:
                    task.cancel()


def test_mu_law_is_that_of_ffmpeg() -> None:
    samples = np.arange(-32_768, 32_768, dtype=np.int16)
    codec = av.AudioCodecContext.create("pcm_mulaw", "w")
    codec.sample_rate, codec.layout, codec.format = 8000, "mono", "s16"  # type: ignore[assignment]
    frame = av.AudioFrame.from_ndarray(samples[None], format="s16", layout="mono")
    frame.sample_rate = 8000
    expected = b"".join(bytes(packet) for packet in [*codec.encode(frame), *codec.encode(None)])
    ours = to_mu_law(samples.tobytes())
    # At the border of two steps ffmpeg's table takes the other one.
    assert all(abs(one - two) <= 1 for one, two in zip(ours, expected, strict=True))
    assert sum(one != two for one, two in zip(ours, expected, strict=True)) < 0.02 * len(ours)
    assert mu_law(0) == 0xFF


async def test_a_caller_is_greeted_and_interrupts_by_a_key() -> None:
    with StubLlm(["Hello caller."], [STORY], ["Yes."]).serving() as stub:
        stub.may_go_on.set()
        async with serving(Script(real_time_factor=0.05)) as served, calling(served, stub) as twilio:
            await twilio.has_sound.wait()
            await until(lambda: len(twilio.played) >= 8 * MS_PER_LETTER * len("Hellocaller"))
            await twilio.tell("dtmf", dtmf={"track": "inbound_track", "digit": "1"})
            start = len(twilio.played)
            await until(lambda: len(twilio.played) >= start + 8 * 600)
            heard = (len(twilio.played) - start) / 8 / MS_PER_LETTER
            await twilio.tell("dtmf", dtmf={"track": "inbound_track", "digit": "2"})
            await until(lambda: len(stub.conversations) == 3 and "clear" in twilio.events)
            await served.until(lambda engine: engine.num_live == 0)
        told = stub.conversations[2]
    assert [who for who, _ in told[1:]] == ["user", "assistant", "user", "assistant", "user"]
    assert (told[1][1], told[5][1]) == (GREETING, "The caller pressed the key 2.")
    assert "Hello caller.".startswith(told[2][1])
    remembered = told[4][1]
    assert STORY.startswith(remembered)
    assert 0 < sum(map(str.isalnum, remembered)) <= heard + 10, "what was played, and what had been sent is dropped"


async def test_a_caller_whose_network_fails_is_no_error(caplog: pytest.LogCaptureFixture) -> None:
    """In the middle of speech: the call reads and writes then."""
    with StubLlm([STORY]).serving() as stub:
        stub.may_go_on.set()
        async with serving(Script(real_time_factor=0.05)) as served, calling(served, stub) as twilio:
            await twilio.has_sound.wait()
            twilio.vanish()
            await served.until(lambda engine: engine.num_live == 0)
    gc.collect()  # a task whose error nothing asks for tells it when it goes
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR] == []
