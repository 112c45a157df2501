"""Telephone calls by Twilio's Media Streams: the caller is answered by an LLM, and may interrupt by a key or by speech.

export OPENAI_BASE_URL=http://127.0.0.1:11434/v1 OPENAI_MODEL=llama3.2
python -m voicegate.clients.examples.telephone --port 8090

Twilio connects to it where a call's TwiML says `<Connect><Stream url="wss://your.host:8090/"/></Connect>` (behind a
proxy that ends TLS). Speech is mu-law of 8 kHz both ways; the extra `opus` decodes it. The caller hears a greeting, and
a key that is pressed is a question. For questions by voice give `Call` a recogniser of your choice.
Messages: https://www.twilio.com/docs/voice/media-streams/websocket-messages
"""

import argparse
import array
import asyncio
import base64
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress

import orjson
from websockets.asyncio.server import ServerConnection, serve
from websockets.exceptions import ConnectionClosed

from voicegate.clients.examples.assistant import Assistant, Player
from voicegate.clients.examples.chat import Llm, llm_of_environment
from voicegate.clients.python.audio import Audio
from voicegate.clients.python.client import Gate, connect
from voicegate.clients.python.decode import PcmDecoder
from voicegate.clients.python.errors import GateError
from voicegate.protocol import messages as wire

RATE_HZ = 8_000
GREETING = "Greet the caller in one sentence."
# A recogniser of a caller's audio (mu-law, 20 ms): its question, or None so far.
Recogniser = Callable[[bytes], str | None]


def mu_law(sample: int) -> int:
    """ITU-T G.711 of a 16-bit sample."""
    magnitude = min(abs(sample), 32_635) + 132
    exponent = magnitude.bit_length() - 8
    mantissa = (magnitude >> (exponent + 3)) & 0x0F
    return ~((0x80 if sample < 0 else 0) | exponent << 4 | mantissa) & 0xFF


_MU_LAW = bytes(mu_law(sample - 32_768) for sample in range(65_536))


def to_mu_law(samples: bytes) -> bytes:
    """Encode 16-bit PCM in this machine's byte order."""
    return bytes(_MU_LAW[sample + 32_768] for sample in array.array("h", samples))


class Call:
    """One call's socket. What is said to it leaves in order; it tells by marks how far it has played."""

    def __init__(self, socket: ServerConnection, *, recognise: Recogniser = lambda _audio: None) -> None:
        self._socket = socket
        self._recognise = recognise
        self._stream = ""
        self._outgoing: asyncio.Queue[dict[str, object]] = asyncio.Queue()
        self._speech: Speech | None = None

    async def run(self, gate: Gate, llm: Llm, *, voice: str | None) -> None:
        """Until the caller hangs up."""
        assistant = Assistant(gate, llm, self._open_player, voice=voice, on_failure=show_failure)
        writing = asyncio.create_task(self._write())
        try:
            with suppress(ConnectionClosed):  # callers' networks fail
                async for message in self._socket:
                    if (question := self._read(orjson.loads(message))) is not None:
                        await assistant.ask(question)
        finally:
            await assistant.interrupt()
            writing.cancel()

    def _read(self, message: dict[str, dict[str, str]]) -> str | None:
        """A question, where there is one now."""
        match message:
            case {"event": "start", "start": {"streamSid": stream}}:
                self._stream = str(stream)
                return GREETING
            case {"event": "media", "media": {"payload": payload}}:
                return self._recognise(base64.b64decode(payload))
            case {"event": "dtmf", "dtmf": {"digit": digit}}:
                return f"The caller pressed the key {digit}."
            case {"event": "mark", "mark": {"name": name}}:
                if self._speech is not None:
                    self._speech.note_played(name)
            case _:  # connected, stop, and what Twilio may add
                pass
        return None

    def send(self, event: str, **fields: object) -> None:
        """In order, and at once where nothing waits."""
        self._outgoing.put_nowait({"event": event, "streamSid": self._stream, **fields})

    async def _write(self) -> None:
        with suppress(ConnectionClosed):  # its reader learns of it too
            while True:
                await self._socket.send(orjson.dumps(await self._outgoing.get()).decode())

    @asynccontextmanager
    async def _open_player(self, opened: wire.Opened) -> AsyncIterator[Player]:
        self._speech = Speech(self, opened)
        try:
            yield self._speech
        finally:
            self._speech = None


class Speech:
    """The player of one answer: the telephone network plays, and returns a mark after each piece."""

    def __init__(self, call: Call, opened: wire.Opened) -> None:
        self._call = call
        self._decoder = PcmDecoder(opened, rate_hz=RATE_HZ)
        self._prefix = f"{opened.context}:"  # marks of an answer before this one come late
        self._sent_ms = 0
        self._played_ms = 0
        self._has_news = asyncio.Event()

    def play(self, audio: Audio) -> None:
        """Sends it, with a mark behind it whose name says how much it is."""
        samples = self._decoder.decode(audio)
        if samples:
            self._call.send("media", media={"payload": base64.b64encode(to_mu_law(samples)).decode()})
            self._sent_ms += len(samples) * 1000 // (2 * RATE_HZ)
            self._call.send("mark", mark={"name": f"{self._prefix}{self._sent_ms}"})

    def note_played(self, name: str) -> None:
        """A mark has come back."""
        if name.startswith(self._prefix):
            self._played_ms = int(name.removeprefix(self._prefix))
            self._has_news.set()

    def stop(self) -> int:
        """Marks that come back from here on are of what was dropped."""
        self._call.send("clear")
        self._prefix = "\0"
        return self._played_ms

    async def drained(self) -> None:
        """Returns when all was heard."""
        while self._played_ms < self._sent_ms:
            self._has_news.clear()
            await self._has_news.wait()


def show_failure(error: Exception) -> None:
    print(f"(no answer: {error})", file=sys.stderr)


async def answer_calls(url: str, host: str, port: int, *, voice: str | None) -> None:
    """Until it is interrupted."""
    async with connect(url) as gate:

        async def take(socket: ServerConnection) -> None:
            await Call(socket).run(gate, llm_of_environment(), voice=voice)

        async with serve(take, host, port) as server:
            print(f"calls are taken at ws://{host}:{port}/", flush=True)
            await server.serve_forever()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--url", default="ws://127.0.0.1:8080", help="of the gateway")
    parser.add_argument("--host", default="127.0.0.1", help="address to take calls on")
    parser.add_argument("--port", type=int, default=8090)
    parser.add_argument("--voice")
    options = parser.parse_args()
    try:
        asyncio.run(answer_calls(options.url, options.host, options.port, voice=options.voice))
    except (GateError, OSError) as error:
        print(f"telephone: {error}", file=sys.stderr)
        return 1
    except (KeyboardInterrupt, asyncio.CancelledError):  # the second where the loop was not running yet
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
