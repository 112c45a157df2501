"""The `cartesia`, `deepgram-sdk` and `elevenlabs` packages by WebSocket: they hear what a native client hears."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from typing import Any

import pytest
from cartesia import AsyncCartesia, Cartesia
from deepgram import AsyncDeepgramClient, DeepgramClientEnvironment
from deepgram.speak.v1 import SpeakV1Text
from elevenlabs.client import ElevenLabs
from elevenlabs.core.api_error import ApiError

from tests.integration.wire_client import TIMEOUT_S, Served, native_turns, serving
from voicegate.engine.fake.engine import Script
from voicegate.engine.interface import Overloaded
from voicegate.protocol import messages as wire

# These packages call what websockets and pydantic have deprecated.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")

TURNS = ("Hello there, and more.", "A second turn.", "The third.")
LONG = "word " * 100
SLOW = Script(real_time_factor=1.0)
PCM = {"container": "raw", "encoding": "pcm_s16le", "sample_rate": 24_000}


def ws_base(served: Served) -> str:
    return served.url.removesuffix(wire.STREAM_PATH)


def http_base(served: Served) -> str:
    return ws_base(served).replace("ws://", "http://")


# --- what each package does ---------------------------------------------------------------------------------


@asynccontextmanager
async def cartesia_socket(served: Served) -> AsyncIterator[Any]:
    client = AsyncCartesia(api_key="none", base_url=http_base(served), websocket_base_url=ws_base(served))
    async with client, client.tts.websocket_connect() as connection:
        yield connection


def cartesia_context(connection: Any, **fields: Any) -> Any:
    return connection.context(model_id="sonic-3", voice={"mode": "id", "id": "any"}, output_format=PCM, **fields)


async def cartesia_turn(connection: Any, text: str) -> bytes:
    context = cartesia_context(connection)
    half = len(text) // 2
    await context.push(text[:half])
    await context.push(text[half:])
    await context.no_more_inputs()
    return b"".join([event.audio async for event in context.receive() if event.type == "chunk"])


async def cartesia_interrupted(connection: Any) -> None:
    context = cartesia_context(connection)
    await context.push(LONG)
    async for event in context.receive():
        if event.type == "chunk":
            break
    await context.cancel()


@asynccontextmanager
async def deepgram_socket(served: Served) -> AsyncIterator[Any]:
    base = http_base(served)
    environment = DeepgramClientEnvironment(base=base, production=ws_base(served), agent=base, agent_rest=base)
    client = AsyncDeepgramClient(api_key="none", environment=environment)
    asked = {"model": "aura-2-thalia-en", "encoding": "linear16", "sample_rate": "24000"}
    async with client.speak.v1.connect(**asked) as connection:
        assert (await connection.recv()).type == "Metadata"
        yield connection
        await connection.send_close()


async def deepgram_until(connection: Any, kind: str) -> list[Any]:
    heard: list[Any] = []
    while not heard or getattr(heard[-1], "type", None) != kind:
        heard.append(await connection.recv())
    return heard


async def deepgram_turn(connection: Any, text: str) -> bytes:
    for word in text.split(" "):
        await connection.send_text(SpeakV1Text(type="Speak", text=f"{word} "))
    await connection.send_flush()
    return b"".join(frame for frame in await deepgram_until(connection, "Flushed") if isinstance(frame, bytes))


async def deepgram_interrupted(connection: Any) -> None:
    await connection.send_text(SpeakV1Text(type="Speak", text=LONG))
    await connection.send_flush()
    while not isinstance(await connection.recv(), bytes):
        pass
    await connection.send_clear()
    await deepgram_until(connection, "Cleared")


@asynccontextmanager
async def elevenlabs_socket(served: Served) -> AsyncIterator[Any]:
    """A client: the package makes a socket for each turn."""
    client = ElevenLabs(api_key="none", base_url=http_base(served))
    client.text_to_speech._ws_base_url = ws_base(served)  # the package itself speaks TLS only
    yield client


def elevenlabs_hearing(client: Any, text: str) -> Any:
    words = (f"{word} " for word in text.split(" "))
    return client.text_to_speech.convert_realtime("any", text=words, output_format="pcm_24000")


async def elevenlabs_turn(client: Any, text: str) -> bytes:
    return await asyncio.to_thread(lambda: b"".join(elevenlabs_hearing(client, text)))


async def elevenlabs_interrupted(client: Any) -> None:
    await asyncio.to_thread(lambda: next(iter(elevenlabs_hearing(client, LONG))))


@dataclass(frozen=True)
class Package:
    socket: Callable[[Served], AbstractAsyncContextManager[Any]]
    turn: Callable[[Any, str], Awaitable[bytes]]
    interrupted: Callable[[Any], Awaitable[None]]  # after some audio of `LONG`


PACKAGES = {
    "cartesia": Package(cartesia_socket, cartesia_turn, cartesia_interrupted),
    "deepgram": Package(deepgram_socket, deepgram_turn, deepgram_interrupted),
    "elevenlabs": Package(elevenlabs_socket, elevenlabs_turn, elevenlabs_interrupted),
}


# --- what each of them hears --------------------------------------------------------------------------------


@pytest.mark.parametrize("package", PACKAGES.values(), ids=PACKAGES)
async def test_turns_an_interruption_and_two_at_once(package: Package) -> None:
    async with asyncio.timeout(TIMEOUT_S), serving() as served, package.socket(served) as connection:
        assert [await package.turn(connection, text) for text in TURNS] == await native_turns(TURNS)
    async with asyncio.timeout(TIMEOUT_S), serving(SLOW) as served, package.socket(served) as connection:
        await package.interrupted(connection)
        await served.until(lambda engine: engine.num_live == 0 and len(engine.cancels) == 1)
        assert await package.turn(connection, TURNS[1]) == (await native_turns(TURNS))[1]
    async with asyncio.timeout(TIMEOUT_S), serving() as served:
        async with package.socket(served) as one, package.socket(served) as other:
            heard = await asyncio.gather(package.turn(one, TURNS[0]), package.turn(other, TURNS[0]))
        assert set(heard) == set(await native_turns([TURNS[0], TURNS[0]]))


async def test_cartesia_times_and_flushes() -> None:
    async with asyncio.timeout(TIMEOUT_S), serving() as served, cartesia_socket(served) as connection:
        context = cartesia_context(connection, add_timestamps=True)
        await context.push("Hello there ", flush=True)
        await context.no_more_inputs()
        events = [event async for event in context.receive()]
    assert [event.type for event in events if event.type in ("flush_done", "done")] == ["flush_done", "done"]
    times = [event.word_timestamps for event in events if event.type == "timestamps"]
    assert "".join(word for each in times for word in each.words).replace(" ", "") == "Hellothere"
    assert times[-1].end[-1] == pytest.approx(0.6)


async def test_cartesia_without_async() -> None:
    def interrupt_and_hear(served: Served) -> tuple[list[str], bytes]:
        client = Cartesia(api_key="none", base_url=http_base(served), websocket_base_url=ws_base(served))
        with client, client.tts.websocket_connect() as connection:
            context = cartesia_context(connection)
            context.push(LONG)
            kinds = []
            for event in context.receive():
                if not kinds:
                    context.cancel()
                kinds.append(event.type)
            context = cartesia_context(connection)
            context.push(TURNS[1], continue_=False)
            return kinds, b"".join(event.audio for event in context.receive() if event.type == "chunk")

    async with asyncio.timeout(TIMEOUT_S), serving(SLOW) as served:
        kinds, heard = await asyncio.to_thread(interrupt_and_hear, served)
    assert kinds[-1] == "done"
    assert heard == (await native_turns(TURNS))[1]


# --- refused ------------------------------------------------------------------------------------------------

FULL = Script(refusals={0: Overloaded("full", retry_after_ms=100)})


async def test_cartesia_refused() -> None:
    async with (
        asyncio.timeout(TIMEOUT_S),
        serving(FULL, waiting_s=0) as served,
        cartesia_socket(served) as connection,
    ):
        context = cartesia_context(connection)
        await context.push(TURNS[0], continue_=False)
        (refusal,) = [event async for event in context.receive()]
        assert (refusal.type, refusal.error_code) == ("error", "concurrency_limited")
        assert await cartesia_turn(connection, TURNS[1]), "and the socket stays"


async def test_elevenlabs_refused() -> None:
    async with asyncio.timeout(TIMEOUT_S), serving(FULL, waiting_s=0) as served, elevenlabs_socket(served) as client:
        with pytest.raises(ApiError) as caught:
            await elevenlabs_turn(client, TURNS[0])
    assert "overloaded" in str(caught.value.body), "the message, or the reason of the close"
    assert caught.value.status_code == 1008
