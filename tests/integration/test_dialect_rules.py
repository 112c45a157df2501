"""Rules for clients of any vendor: messages that they can take, unknown fields that do no harm, pings."""

import contextlib
from typing import Any

import msgspec
import pytest
from websockets.exceptions import ConnectionClosed

from tests.integration.raw_client import raw_peer
from tests.integration.test_dialects import ELEVENLABS, SINGLE, TEXT, audio_of, is_final, peer, request, turn
from tests.integration.wire_client import serving
from voicegate.engine.fake.engine import Script
from voicegate.protocol import messages as wire

# An engine that makes all at once, and a client that hangs up at a message over 1 MiB, as this library's do.
AT_ONCE = Script(chunk_ms=60_000)
LONG_TEXT = "x" * 700
CARTESIA_LARGEST = {"container": "raw", "encoding": "pcm_f32le", "sample_rate": 48_000}


def is_end(frame: Any) -> bool:
    ends = ("done", "Flushed", "session.done")
    return isinstance(frame, dict) and (bool(frame.get("isFinal")) or frame.get("type") in ends)


@pytest.mark.parametrize(
    ("path", "said"),
    [
        (ELEVENLABS.format("pcm_48000"), [*turn("a", LONG_TEXT), {"context_id": "a", "close_context": True}]),
        (SINGLE.format("pcm_48000"), [{"text": LONG_TEXT}, {"text": ""}]),
        ("/tts/websocket", [{"context_id": "c", "transcript": LONG_TEXT, "output_format": CARTESIA_LARGEST}]),
        ("/v1/speak?sample_rate=48000", [{"type": "Speak", "text": LONG_TEXT}, {"type": "Flush"}]),
        (
            "/v1/audio/speech/stream",
            [
                {"type": "session.config", "response_format": "pcm", "stream_audio": True, "word_timestamps": True},
                *({"type": "input.text", "text": "\n" * 60_000} for _ in range(10)),
                {"type": "input.text", "text": LONG_TEXT},
                {"type": "input.done"},
            ],
        ),
        ("/api/tts_streaming?format=PcmMessagePack", [{"type": "Text", "text": LONG_TEXT}, {"type": "Eos"}]),
        (
            wire.STREAM_PATH,
            [
                {"type": "open", "context": "a", "format": {"codec": "pcm_s16le"}},
                {"type": "text", "context": "a", "text": LONG_TEXT},
                {"type": "end", "context": "a"},
            ],
        ),
    ],
)
async def test_no_message_is_larger_than_clients_take(path: str, said: list[dict[str, Any]]) -> None:
    async with serving(AT_ONCE) as served, peer(served.url, path) as client:
        if "tts_streaming" in path:
            for message in said:
                await client.websocket.send(msgspec.msgpack.encode(message))
            heard, code = await client.until_closed()
            assert (len(heard) > 1, code) == (True, 1000)
        else:
            await client.send(*said)
            await client.until(is_end)
        assert client.websocket.close_code in (None, 1000)


# One message with as much as the native protocol takes in many: other vendors' clients do not know of its limit.
WIDE_TEXT = "Hello" + " " * 200_000 + "there"
CARTESIA_NATIVE = {"container": "raw", "encoding": "pcm_s16le", "sample_rate": 24_000}


@pytest.mark.parametrize(
    ("path", "said"),
    [
        (SINGLE.format("pcm_24000"), [{"text": WIDE_TEXT}, {"text": ""}]),
        (ELEVENLABS.format("pcm_24000"), [*turn("a", WIDE_TEXT), {"context_id": "a", "close_context": True}]),
        ("/tts/websocket", [{"context_id": "c", "transcript": WIDE_TEXT, "output_format": CARTESIA_NATIVE}]),
        ("/v1/speak", [{"type": "Speak", "text": WIDE_TEXT}, {"type": "Flush"}]),
        (
            "/v1/audio/speech/stream",
            [
                {"type": "session.config", "response_format": "pcm", "stream_audio": True},
                {"type": "input.text", "text": WIDE_TEXT},
                {"type": "input.done"},
            ],
        ),
    ],
)
async def test_a_long_text_may_come_in_one_message(path: str, said: list[dict[str, Any]]) -> None:
    async with serving() as served, peer(served.url, path, max_size=None) as client:
        await client.send(*said)
        heard = await client.until(is_end)
    raw = b"".join(frame for frame in heard if isinstance(frame, bytes))
    frames = [frame for frame in heard if isinstance(frame, dict)]
    assert len(raw or audio_of(frames) or audio_of(frames, "data")) == 60 * len("Hellothere") * 48  # ms of FakeEngine's


@pytest.mark.parametrize(
    "path",
    [ELEVENLABS.format("pcm_24000"), "/tts/websocket", "/v1/speak", "/v1/audio/speech/stream", "/api/tts_streaming"],
)
async def test_a_clients_message_is_bounded_and_others_speak_on(path: str) -> None:
    async with serving() as served, peer(served.url, path) as client, peer(served.url, "/v1/speak") as other:
        await other.send({"type": "Speak", "text": TEXT})
        with contextlib.suppress(ConnectionClosed):
            await client.websocket.send("x" * (1_048_576 + 1))
        assert (await client.until_closed())[1] == 1009
        await other.send({"type": "Flush"})
        await other.until(lambda frame: isinstance(frame, dict) and frame["type"] == "Flushed")


async def test_what_is_not_known_is_no_matter() -> None:
    more = {"unheard_of": {"deep": [1]}, "metadata": None}
    async with serving() as served:
        async with peer(served.url, ELEVENLABS.format("pcm_24000") + "&unheard_of=1&enable_logging=maybe") as client:
            await client.send(*({**message, **more} for message in turn()), {"context_id": "a", "close_context": True})
            assert audio_of(await client.until(is_final))
        async with peer(served.url, "/v1/speak?unheard_of=1&mip_opt_out=maybe") as client:
            await client.send({"type": "Speak", "text": TEXT, **more}, {"type": "Flush", **more})
            heard = await client.until(lambda frame: isinstance(frame, dict) and frame["type"] == "Flushed")
            assert any(isinstance(frame, bytes) for frame in heard)
        async with peer(served.url, "/tts/websocket?unheard_of=1") as client:
            await client.send({"context_id": "c", "transcript": TEXT, **more})
            assert audio_of(await client.until(lambda message: message["type"] == "done"), "data")


async def test_of_a_locale_and_a_language_of_cartesias_the_first_counts_that_the_model_speaks() -> None:
    asked = [{"locale": "en-GB"}, {"locale": "tlh-KL"}, {"locale": "??"}, {"language": "tlh", "locale": "tlh-KL"}]
    async with serving() as served, peer(served.url, "/tts/websocket") as client:
        await client.send(*(request("Hi.", **{"language": "en", **fields}) for fields in asked))
        for _ in asked:
            await client.until(lambda message: message["type"] == "done")
        assert [made.language for made in served.engine.requests] == ["en-GB", "en", "en", None]


async def test_sockets_are_pinged_by_the_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("voicegate.gateway.server.listener._PING_S", 0.05)
    async with serving() as served:
        for path in (*("/tts/websocket", "/v1/speak", "/v1/audio/speech/stream"), wire.STREAM_PATH):
            url = served.url.removesuffix(wire.STREAM_PATH) + path
            async with raw_peer(url) as client:
                await client.read_until(b"\x89\x04")  # a ping with four bytes of its own
