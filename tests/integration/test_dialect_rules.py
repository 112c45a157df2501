"""Rules for clients of any vendor: messages that they can take, unknown fields that do no harm, pings."""

import contextlib

import pytest
from websockets.exceptions import ConnectionClosed

from tests.integration.raw_client import raw_peer
from tests.integration.vendors import (
    ELEVENLABS,
    TEXT,
    VENDORS,
    Frame,
    Vendor,
    audio_of,
    bytes_of,
    closing,
    peer,
    request,
    turn,
)
from tests.integration.wire_client import serving
from voicegate.engine.fake.engine import Script
from voicegate.protocol import messages as wire
from voicegate.protocol.formats import Coding

# An engine that makes all at once, and a client that hangs up at a message over 1 MiB, as this library's do.
AT_ONCE = Script(chunk_ms=60_000)
LONG_TEXT = "x" * 700
LARGEST = {
    name: (each.at(each.rates_hz[-1]), each.says(LONG_TEXT, each.rates_hz[-1])) for name, each in VENDORS.items()
}
OPENED = {"type": "open", "context": "a", "format": {"codec": "pcm_s16le"}}
LARGEST["native"] = (
    wire.STREAM_PATH,
    [OPENED, {"type": "text", "context": "a", "text": LONG_TEXT}, {"type": "end", "context": "a"}],
)
LARGEST["vllm-omni"][1][:1] = [
    {"type": "session.config", "response_format": "pcm", "stream_audio": True, "word_timestamps": True},
    *({"type": "input.text", "text": "\n" * 60_000} for _ in range(10)),
]


@pytest.mark.parametrize(("path", "said"), LARGEST.values(), ids=LARGEST)
async def test_no_message_is_larger_than_clients_take(path: str, said: list[Frame]) -> None:
    async with serving(AT_ONCE) as served, peer(served.url, path) as client:
        await client.send(*said)
        assert len(await client.until_its_end()) > 1


# One message with as much as the native protocol takes in many: other vendors' clients do not know of its limit.
WIDE_TEXT = "Hello" + " " * 200_000 + "there"


@pytest.mark.parametrize("vendor", [each for name, each in VENDORS.items() if name != "kyutai"])
async def test_a_long_text_may_come_in_one_message(vendor: Vendor) -> None:
    async with serving() as served, peer(served.url, vendor.at(24_000), max_size=None) as client:
        await client.send(*vendor.says(WIDE_TEXT, 24_000))
        heard = await client.until_its_end()
    num_bytes = len(vendor.audio_of(heard)) // (2 if vendor.coding is Coding.PCM_F32LE else 1)
    assert num_bytes == 60 * len("Hellothere") * 48  # ms of FakeEngine's


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
        await other.until_type("Flushed")


async def test_what_is_not_known_is_no_matter() -> None:
    more = {"unheard_of": {"deep": [1]}, "metadata": None}
    async with serving() as served:
        async with peer(served.url, ELEVENLABS.format("pcm_24000") + "&unheard_of=1&enable_logging=maybe") as client:
            await client.send(*({**message, **more} for message in turn()), closing())
            assert audio_of(await client.until_its_end())
        async with peer(served.url, "/v1/speak?unheard_of=1&mip_opt_out=maybe") as client:
            await client.send({"type": "Speak", "text": TEXT, **more}, {"type": "Flush", **more})
            assert bytes_of(await client.until_its_end())
        async with peer(served.url, "/tts/websocket?unheard_of=1") as client:
            await client.send({"context_id": "c", "transcript": TEXT, **more})
            assert audio_of(await client.until_its_end(), "data")


async def test_of_a_locale_and_a_language_of_cartesias_the_first_counts_that_the_model_speaks() -> None:
    asked = [{"locale": "en-GB"}, {"locale": "tlh-KL"}, {"locale": "??"}, {"language": "tlh", "locale": "tlh-KL"}]
    async with serving() as served, peer(served.url, "/tts/websocket") as client:
        await client.send(*(request("Hi.", **{"language": "en", **fields}) for fields in asked))
        for _ in asked:
            await client.until_type("done")
        assert [made.language for made in served.engine.requests] == ["en-GB", "en", "en", None]


async def test_sockets_are_pinged_by_the_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("voicegate.gateway.server.listener._PING_S", 0.05)
    async with serving() as served:
        for path in (*("/tts/websocket", "/v1/speak", "/v1/audio/speech/stream"), wire.STREAM_PATH):
            url = served.url.removesuffix(wire.STREAM_PATH) + path
            async with raw_peer(url) as client:
                await client.read_until(b"\x89\x04")  # a ping with four bytes of its own
