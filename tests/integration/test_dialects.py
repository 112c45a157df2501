"""Other vendors' protocols over real sockets: the audio is the native client's, and every limit of a session holds."""

import asyncio
import io
import json
from typing import Any

import av
import numpy as np
import pytest
import structlog
from websockets.exceptions import InvalidStatus

from tests.integration.http_client import post
from tests.integration.vendors import (
    ELEVENLABS,
    SINGLE,
    TEXT,
    VENDORS,
    Vendor,
    audio_of,
    bytes_of,
    closing,
    is_final,
    peer,
    request,
    turn,
)
from tests.integration.wire_client import Served, running, serving
from voicegate.engine.fake.engine import FakeEngine, Fault, FaultKind, Script
from voicegate.gateway.formats.encoder import StreamEncoder
from voicegate.protocol import messages as wire
from voicegate.protocol.formats import Coding, OutputFormat

AUDIO_MS = 60 * sum(map(str.isalnum, TEXT))  # as FakeEngine speaks


async def native_pcm(served: Served, text: str = TEXT) -> bytes:
    """As the first utterance of a server: they hum at different pitches."""
    async with served.client() as client:
        await client.speak("native", text, format=wire.Format(codec="pcm_s16le"))
        return b"".join((await client.until_done("native")).packets)


async def expected(output: OutputFormat, text: str = TEXT) -> bytes:
    async with serving() as served:
        pcm = await native_pcm(served, text)
    encoder = StreamEncoder(output, pre_skip_48k=0)
    return encoder.feed([pcm]) + encoder.finish(0)


# --- the same audio ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("vendor", "rate_hz"),
    [
        pytest.param(vendor, rate_hz, id=f"{name}-{rate_hz}")
        for name, vendor in VENDORS.items()
        if name != "elevenlabs"  # its flush fills a packet with silence
        for rate_hz in vendor.rates_hz
    ],
)
async def test_audio_is_the_native_clients(vendor: Vendor, rate_hz: int) -> None:
    async with serving() as served, peer(served.url, vendor.at(rate_hz)) as client:
        await client.send(*vendor.says(TEXT, rate_hz))
        heard = await client.until_its_end()
        if vendor.closes:
            heard += (await client.until_closed())[0]
            assert client.websocket.close_code == 1000
    assert vendor.audio_of(heard) == await expected(OutputFormat(vendor.coding, rate_hz))


@pytest.mark.parametrize(
    ("name", "output"),
    [
        ("ulaw_8000", OutputFormat(Coding.MULAW, 8_000)),
        ("mp3_22050_32", OutputFormat(Coding.MP3, 22_050, 32_000)),
    ],
)
async def test_elevenlabs_audio_is_coded_as_its_url_says(name: str, output: OutputFormat) -> None:
    async with serving() as served, peer(served.url, SINGLE.format(name)) as client:
        await client.send({"text": TEXT}, {"text": ""})
        heard, _ = await client.until_closed()
    assert audio_of(heard) == await expected(output)
    assert heard[-1]["isFinal"] is True


async def test_vllm_omni_audio_may_be_a_file() -> None:
    async with serving() as served, peer(served.url, "/v1/audio/speech/stream") as client:
        await client.send({"type": "session.config", "response_format": "wav"})
        await client.send({"type": "input.text", "text": TEXT}, {"type": "input.done"})
        heard = await client.until_its_end()
    assert bytes_of(heard) == await expected(OutputFormat(is_wav=True))


async def test_ogg_opus_is_the_engines_own_packets() -> None:
    async with serving() as served, peer(served.url, SINGLE.format("opus_48000_32")) as client:
        await client.send({"text": TEXT}, {"text": ""})
        heard, _ = await client.until_closed()
    with av.open(io.BytesIO(audio_of(heard))) as container:
        samples = np.concatenate([frame.to_ndarray()[0] for frame in container.decode(audio=0)])
    assert abs(len(samples) - len(await expected(OutputFormat()))) <= 960, "48 kHz samples: as many as bytes of PCM"


async def test_elevenlabs_alignment_is_all_text_and_all_time() -> None:
    async with serving() as served, peer(served.url, ELEVENLABS.format("pcm_24000")) as client:
        await client.send(*turn(), closing())
        heard = await client.until(is_final)
    alignments = [message["alignment"] for message in heard if message["alignment"]]
    assert "".join(char for alignment in alignments for char in alignment["chars"]) == f"{TEXT} "
    span_ms = sum(each["charStartTimesMs"][-1] + each["charDurationsMs"][-1] for each in alignments)
    assert abs(span_ms - len(audio_of(heard)) // 48) <= 20, "but for the silence that fills a packet at a flush"


async def test_cartesia_tells_all_words() -> None:
    async with serving() as served, peer(served.url, "/tts/websocket?cartesia_version=2026-03-01") as client:
        await client.send(request(TEXT, add_timestamps=True))
        heard = await client.until_its_end()
    times = [message["word_timestamps"] for message in heard if message["type"] == "timestamps"]
    words = [word for each in times for word in each["words"]]
    assert "".join(words).replace(" ", "") == TEXT.replace(" ", "")


# --- barge-in, neighbours, limits -------------------------------------------------------------------------


async def test_a_barge_in_stops_the_engine_and_the_socket_goes_on() -> None:
    async with (
        serving(Script(real_time_factor=1.0)) as served,
        peer(served.url, ELEVENLABS.format("pcm_24000")) as client,
    ):
        await client.send(*turn("a", "x" * 500), closing())
        await client.receive()
        await client.send(closing(), *turn("b", "hi "))
        await client.send(closing("b"))
        heard = await client.until(lambda message: is_final(message) and message["contextId"] == "b")
        assert [message["contextId"] for message in heard if is_final(message)] == ["a", "b"]
        first_end = next(index for index, message in enumerate(heard) if is_final(message))
        assert {message["contextId"] for message in heard[first_end + 1 :]} == {"b"}, "no audio of a after its end"
        assert len(served.engine.cancels) == 1
        assert served.engine.num_live == 0


async def test_nothing_of_a_turn_follows_its_clear() -> None:
    async with serving(Script(real_time_factor=1.0)) as served, peer(served.url, "/v1/speak") as client:
        await client.send({"type": "Speak", "text": "x" * 500}, {"type": "Flush"})
        await client.until(lambda frame: isinstance(frame, bytes))
        await client.send({"type": "Clear"}, {"type": "Flush"})
        heard = await client.until_type("Flushed")
        assert [frame["type"] for frame in heard if isinstance(frame, dict)] == ["Cleared", "Flushed"]
        assert isinstance(heard[-2], dict), "and no audio stands between the two"
        await served.until(lambda engine: engine.num_live == 0)


async def test_two_conversations_hear_their_own() -> None:
    async with (
        serving() as served,
        peer(served.url, "/v1/speak") as one,
        peer(served.url, ELEVENLABS.format("pcm_24000")) as other,
    ):
        await one.send({"type": "Speak", "text": TEXT}, {"type": "Close"})
        await other.send(*turn(), closing())
        (heard, _), others = await asyncio.gather(one.until_closed(), other.until(is_final))
    hums = {bytes_of(heard), audio_of(others)[: 48 * AUDIO_MS]}
    assert len(hums) == 2, "each hums at a pitch of its own"
    assert await expected(OutputFormat()) in hums


MANY: list[str] = [f"Number {number}. " for number in range(100)]
MANY_BYTES = 60 * sum(map(str.isalnum, "".join(MANY))) * 48


@pytest.mark.parametrize("path", [ELEVENLABS, ELEVENLABS + "&auto_mode=true", SINGLE])
async def test_elevenlabs_clients_flush_as_often_as_they_like(path: str) -> None:
    end: Any = {"text": ""} if path == SINGLE else closing()
    async with serving() as served, peer(served.url, path.format("pcm_24000")) as client:
        await client.send(*({"text": text, "context_id": "a", "flush": True} for text in MANY), end)
        heard = await client.until(is_final)
    assert not [message for message in heard if "error" in message]
    assert len(audio_of(heard)) == MANY_BYTES


async def test_cartesias_flushes_have_an_answer_each_however_many() -> None:
    async with serving() as served, peer(served.url, "/tts/websocket") as client:
        await client.send(*(request(text, flush=True, **{"continue": True}) for text in MANY))
        await client.send(request("", **{"continue": False}))
        heard = await client.until_type("done", "error")
    flushes = [message["flush_id"] for message in heard if message["type"] == "flush_done"]
    assert flushes == list(range(1, 101))
    assert heard[-1]["type"] == "done"
    assert len(audio_of(heard, "data")) == MANY_BYTES


async def test_cartesia_requests_of_one_name_are_heard_one_after_the_other() -> None:
    async with serving() as served, peer(served.url, "/tts/websocket") as client:
        await client.send(request("One two", language="en-GB"), request("three", language="tlh"))
        for text in ("One two", "three"):
            heard = await client.until_type("done", "error")
            assert heard[-1]["type"] == "done"
            assert len(audio_of(heard, "data")) == 60 * sum(map(str.isalnum, text)) * 48


async def test_no_room_is_told_by_context_and_the_socket_stays() -> None:
    async with (
        serving(Script(max_utterances=1, real_time_factor=1.0), waiting_s=0) as served,
        peer(served.url, ELEVENLABS.format("pcm_24000")) as client,
    ):
        await client.send(*turn("a", "x" * 500))
        await client.receive()
        await client.send(*turn("b"))
        heard = await client.until(lambda message: is_final(message) and message["contextId"] == "b")
        (refusal,) = [message for message in heard if "error" in message]
        assert (refusal["contextId"], refusal["error"], refusal["code"]) == ("b", "overloaded", 503)
        await client.send(closing(), closing())
        await client.until(lambda message: is_final(message) and message["contextId"] == "a")
        await client.send(*turn("c", "hi "), closing("c"))
        assert audio_of(await client.until(lambda message: is_final(message) and message["contextId"] == "c"))


async def test_a_context_too_many_is_told_and_the_socket_stays() -> None:
    async with serving(contexts_per_socket=2) as served, peer(served.url, ELEVENLABS.format("pcm_24000")) as client:
        await client.send(*({"text": " ", "context_id": name} for name in "abc"))
        (refusal, end) = await client.until(is_final)
        assert (refusal["error"], refusal["contextId"], end["contextId"]) == ("too_many_contexts", "c", "c")
        await client.send(closing())
        assert (await client.until(is_final))[-1]["contextId"] == "a"


@pytest.mark.parametrize(
    ("told", "settings"),
    [("&inactivity_timeout=1", {}), ("", {"context_idle_s": 1.0})],
    ids=["by its URL", "by the gateway"],
)
async def test_an_idle_context_ends_and_the_socket_stays(told: str, settings: dict[str, Any]) -> None:
    async with serving(**settings) as served, peer(served.url, ELEVENLABS.format("pcm_24000") + told) as client:
        await client.send(*turn())
        assert (await client.until(is_final))[-1]["contextId"] == "a"
        await served.until(lambda engine: engine.num_live == 0)
        await client.send(*turn(), closing())  # the name is free
        assert audio_of(await client.until(is_final))


async def test_an_utterance_that_fails_ends_its_context_alone() -> None:
    faults = {0: Fault(FaultKind.FAIL, after_ms=200)}
    async with serving(Script(faults=faults)) as served, peer(served.url, "/tts/websocket") as client:
        await client.send({"context_id": "a", "transcript": TEXT})
        refusal = (await client.until_type("error"))[-1]
        assert (refusal["context_id"], refusal["status_code"], refusal["done"]) == ("a", 500, False)
        await client.send({"context_id": "b", "transcript": TEXT})
        assert (await client.until_type("done"))[-1]["context_id"] == "b"


@pytest.mark.parametrize(
    ("path", "said", "last"),
    [
        (ELEVENLABS.format("pcm_24000"), [*turn(text="x" * 50), closing()], ("isFinal", True)),
        ("/v1/speak", [{"type": "Speak", "text": "x" * 50}, {"type": "Flush"}], ("type", "Flushed")),
    ],
)
async def test_a_drain_lets_dialects_finish(path: str, said: list[dict[str, Any]], last: tuple[str, Any]) -> None:
    engine = FakeEngine(Script(real_time_factor=0.1))
    async with running(engine, drain_s=60) as gateway, peer(gateway.gateway.url, path) as client:
        await client.send(*said)
        await client.receive()
        gateway.stop.set()
        heard, code = await client.until_closed()
        told = [message for message in heard if isinstance(message, dict)]
        assert (told[-1][last[0]], code) == (last[1], 1001)
        assert not [message for message in told if message.get("type") in ("Error", "Warning")]


async def test_a_flood_is_read_more_slowly_and_told() -> None:
    async with serving(messages_per_s=50) as served, peer(served.url, "/tts/websocket") as client:
        told = asyncio.create_task(client.until(lambda message: message.get("error_code") == "rate_limited"))
        while not told.done():  # however slowly a busy machine sends them
            await client.websocket.send("{}")
            await asyncio.sleep(0)
        assert (await told)[-1]["context_id"] is None


# --- the handshake ----------------------------------------------------------------------------------------


async def test_a_url_that_asks_amiss_is_refused_with_what_there_is() -> None:
    async with serving() as served:
        with pytest.raises(InvalidStatus) as caught:
            async with peer(served.url, "/v1/speak?encoding=speex"):
                pytest.fail("let in")
        assert caught.value.response.status_code == 400
        assert b"linear16" in caught.value.response.body


async def test_deepgram_names_its_requests() -> None:
    async with serving() as served:
        async with peer(served.url, "/v1/speak") as client:
            response = client.websocket.response
            assert response is not None
            assert response.headers["dg-request-id"] == (await client.receive())["request_id"]
            assert "dg-error" not in response.headers
        async with peer(served.url, "/tts/websocket") as client:
            assert client.websocket.response is not None
            assert "dg-request-id" not in client.websocket.response.headers
        with pytest.raises(InvalidStatus) as caught:
            async with peer(served.url, "/v1/speak?encoding=spé%C3%A9%0D%0Ax"):
                pytest.fail("let in")
        refused = caught.value.response.headers
        assert refused["dg-request-id"]
        assert "linear16" in refused["dg-error"]
        status, headers, _ = await post(served.url, "/v1/speak", {"text": "Hi."})
        assert (status, len(headers["dg-request-id"]), headers["x-request-id"]) == (200, 16, headers["dg-request-id"])
        status, headers, body = await post(served.url, "/v1/speak?encoding=speex", {"text": "Hi."})
        told = json.loads(body)
        assert (status, headers["dg-request-id"], headers["dg-error"]) == (400, told["request_id"], told["err_msg"])
    async with serving(api_key="a-secret-of-the-house") as served:
        with pytest.raises(InvalidStatus) as caught:
            async with peer(served.url, "/v1/speak"):
                pytest.fail("let in")
        assert "key" in caught.value.response.headers["dg-error"]
        status, headers, body = await post(served.url, "/v1/speak", {"text": "Hi."})
        told = json.loads(body)
        assert (status, headers["dg-request-id"], headers["dg-error"]) == (401, told["request_id"], told["err_msg"])


async def test_a_browser_may_name_its_key_as_a_subprotocol() -> None:
    async with serving() as served, peer(served.url, "/v1/speak", subprotocols=["token", "secret"]) as client:
        assert client.websocket.subprotocol == "token"


async def test_a_clients_tag_is_in_the_log() -> None:
    headers = {"X-Client-Tag": "kiosk-7"}
    with structlog.testing.capture_logs() as lines:
        async with serving() as served, peer(served.url, "/v1/speak", additional_headers=headers) as client:
            await client.send({"type": "Speak", "text": TEXT}, {"type": "Close"})
            await client.until_closed()
    tagged = [line["event"] for line in lines if line.get("tag") == "kiosk-7"]
    assert tagged == ["socket opened", "context done", "socket closed"]
