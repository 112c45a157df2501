"""Other vendors' protocols over real sockets: the audio is the native client's, and every limit of a session holds."""

import asyncio
import base64
import contextlib
import io
import json
from collections.abc import AsyncIterator, Callable
from typing import Any

import av
import msgspec
import numpy as np
import pytest
import structlog
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

from tests.integration.http_client import post
from tests.integration.wire_client import TIMEOUT_S, Served, running, serving
from voicegate.engine.fake.engine import FakeEngine, Fault, FaultKind, Script
from voicegate.gateway.formats.encoder import StreamEncoder
from voicegate.protocol import messages as wire
from voicegate.protocol.formats import Coding, OutputFormat

TEXT = "Hello there, this is speech"
AUDIO_MS = 60 * sum(map(str.isalnum, TEXT))  # as FakeEngine speaks
ELEVENLABS = "/v1/text-to-speech/hum/multi-stream-input?output_format={}"
SINGLE = "/v1/text-to-speech/hum/stream-input?output_format={}"


class Peer:
    """A client of any of these protocols: frames in JSON or as they are."""

    def __init__(self, websocket: ClientConnection) -> None:
        self.websocket = websocket

    async def send(self, *messages: dict[str, Any]) -> None:
        for message in messages:
            await self.websocket.send(json.dumps(message))

    async def receive(self) -> Any:
        async with asyncio.timeout(TIMEOUT_S):
            frame = await self.websocket.recv()
        return json.loads(frame) if isinstance(frame, str) else frame

    async def until(self, is_last: Callable[[Any], bool]) -> list[Any]:
        heard = []
        while not heard or not is_last(heard[-1]):
            heard.append(await self.receive())
        return heard

    async def until_closed(self) -> tuple[list[Any], int | None]:
        heard = []
        with contextlib.suppress(ConnectionClosed):
            while True:
                heard.append(await self.receive())
        return heard, self.websocket.close_code


@contextlib.asynccontextmanager
async def peer(url: str, path: str, **options: Any) -> AsyncIterator[Peer]:
    async with connect(url.removesuffix(wire.STREAM_PATH) + path, close_timeout=1, **options) as websocket:
        yield Peer(websocket)


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


def audio_of(heard: list[Any], key: str = "audio") -> bytes:
    return b"".join(base64.b64decode(message[key]) for message in heard if message.get(key))


def turn(name: str = "a", text: str = TEXT) -> list[dict[str, Any]]:
    return [{"text": " ", "context_id": name}, {"text": text, "context_id": name}, {"context_id": name, "flush": True}]


def is_final(message: Any) -> bool:
    return bool(message.get("isFinal"))


def request(transcript: str, **fields: Any) -> dict[str, Any]:
    """A request of Cartesia's."""
    output = {"container": "raw", "encoding": "pcm_s16le", "sample_rate": 24_000}
    return {"context_id": "c", "transcript": transcript, "output_format": output, **fields}


# --- idle contexts --------------------------------------------------------------------------------------------


async def test_an_elevenlabs_context_that_is_left_open_ends_when_its_url_says() -> None:
    path = "/v1/text-to-speech/hum/multi-stream-input?output_format=pcm_24000&inactivity_timeout=1"
    async with serving() as served, peer(served.url, path) as client:
        await client.send(*turn())
        heard = await client.until(is_final)
        assert heard[-1]["contextId"] == "a"
        await served.until(lambda engine: engine.num_live == 0)
        await client.send(*turn())  # the socket stays, and the name is free
        assert audio_of(await client.until(is_final))


# --- the same audio ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "output"),
    [
        ("pcm_24000", OutputFormat()),
        ("pcm_16000", OutputFormat(rate_hz=16_000)),
        ("ulaw_8000", OutputFormat(Coding.MULAW, 8_000)),
        ("mp3_22050_32", OutputFormat(Coding.MP3, 22_050, 32_000)),
    ],
)
async def test_elevenlabs_audio_is_the_native_clients(name: str, output: OutputFormat) -> None:
    async with serving() as served, peer(served.url, SINGLE.format(name)) as client:
        await client.send({"text": " "}, {"text": TEXT}, {"text": ""})
        heard, code = await client.until_closed()
    assert audio_of(heard) == await expected(output)
    assert (heard[-1]["isFinal"], code) == (True, 1000)


async def test_ogg_opus_is_the_engines_own_packets() -> None:
    async with serving() as served, peer(served.url, SINGLE.format("opus_48000_32")) as client:
        await client.send({"text": TEXT}, {"text": ""})
        heard, _ = await client.until_closed()
    with av.open(io.BytesIO(audio_of(heard))) as container:
        samples = np.concatenate([frame.to_ndarray()[0] for frame in container.decode(audio=0)])
    assert abs(len(samples) - len(await expected(OutputFormat()))) <= 960, "48 kHz samples: as many as bytes of PCM"


async def test_elevenlabs_alignment_is_all_text_and_all_time() -> None:
    async with serving() as served, peer(served.url, ELEVENLABS.format("pcm_24000")) as client:
        await client.send(*turn(), {"context_id": "a", "close_context": True})
        heard = await client.until(is_final)
    alignments = [message["alignment"] for message in heard if message["alignment"]]
    assert "".join(char for alignment in alignments for char in alignment["chars"]) == f"{TEXT} "
    span_ms = sum(each["charStartTimesMs"][-1] + each["charDurationsMs"][-1] for each in alignments)
    assert abs(span_ms - len(audio_of(heard)) // 48) <= 20, "but for the silence that fills a packet at a flush"


async def test_cartesia_audio_is_the_native_clients() -> None:
    asked = {"container": "raw", "encoding": "pcm_f32le", "sample_rate": 44_100}
    async with serving() as served, peer(served.url, "/tts/websocket?cartesia_version=2026-03-01") as client:
        await client.send({"context_id": "c", "transcript": TEXT, "output_format": asked, "add_timestamps": True})
        heard = await client.until(lambda message: message["type"] == "done")
    assert audio_of(heard, "data") == await expected(OutputFormat(Coding.PCM_F32LE, 44_100))
    times = [message["word_timestamps"] for message in heard if message["type"] == "timestamps"]
    words = [word for each in times for word in each["words"]]
    assert "".join(words).replace(" ", "") == TEXT.replace(" ", "")


async def test_deepgram_audio_is_the_native_clients() -> None:
    async with serving() as served, peer(served.url, "/v1/speak?encoding=linear16&sample_rate=8000") as client:
        await client.send({"type": "Speak", "text": TEXT}, {"type": "Close"})
        heard, code = await client.until_closed()
    assert heard[0]["type"] == "Metadata"
    assert b"".join(frame for frame in heard if isinstance(frame, bytes)) == await expected(OutputFormat(rate_hz=8_000))
    assert code == 1000


async def test_vllm_omni_audio_is_the_native_clients() -> None:
    async with serving() as served, peer(served.url, "/v1/audio/speech/stream") as client:
        await client.send({"type": "session.config", "response_format": "wav"})
        await client.send({"type": "input.text", "text": TEXT}, {"type": "input.done"})
        heard = await client.until(lambda message: isinstance(message, dict) and message["type"] == "session.done")
    assert b"".join(frame for frame in heard if isinstance(frame, bytes)) == await expected(OutputFormat(is_wav=True))


async def test_kyutai_audio_is_the_native_clients() -> None:
    async with serving() as served, peer(served.url, "/api/tts_streaming?format=PcmMessagePack") as client:
        for word in TEXT.split():
            await client.websocket.send(msgspec.msgpack.encode({"type": "Text", "text": word}))
        await client.websocket.send(b"\0")
        frames, code = await client.until_closed()
    heard = [msgspec.msgpack.decode(frame) for frame in frames]
    samples = np.array([sample for message in heard if message["type"] == "Audio" for sample in message["pcm"]], "<f4")
    assert samples.tobytes() == await expected(OutputFormat(Coding.PCM_F32LE))
    assert (heard[0], code) == ({"type": "Ready"}, 1000)


# --- barge-in, neighbours, limits -------------------------------------------------------------------------


async def test_a_barge_in_stops_the_engine_and_the_socket_goes_on() -> None:
    async with (
        serving(Script(real_time_factor=1.0)) as served,
        peer(served.url, ELEVENLABS.format("pcm_24000")) as client,
    ):
        await client.send(*turn("a", "x" * 500), {"context_id": "a", "close_context": True})
        await client.receive()
        await client.send({"context_id": "a", "close_context": True}, *turn("b", "hi "))
        await client.send({"context_id": "b", "close_context": True})
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
        heard = await client.until(lambda frame: isinstance(frame, dict) and frame["type"] == "Flushed")
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
        await other.send(*turn(), {"context_id": "a", "close_context": True})
        (heard, _), others = await asyncio.gather(one.until_closed(), other.until(is_final))
    hums = {b"".join(frame for frame in heard if isinstance(frame, bytes)), audio_of(others)[: 48 * AUDIO_MS]}
    assert len(hums) == 2, "each hums at a pitch of its own"
    assert await expected(OutputFormat()) in hums


MANY: list[str] = [f"Number {number}. " for number in range(100)]


@pytest.mark.parametrize("path", [ELEVENLABS, ELEVENLABS + "&auto_mode=true"])
async def test_elevenlabs_clients_flush_as_often_as_they_like(path: str) -> None:
    async with serving() as served, peer(served.url, path.format("pcm_24000")) as client:
        await client.send(*({"text": text, "context_id": "a", "flush": True} for text in MANY))
        await client.send({"context_id": "a", "close_context": True})
        heard = await client.until(is_final)
    assert not [message for message in heard if "error" in message]
    assert len(audio_of(heard)) == 60 * sum(map(str.isalnum, "".join(MANY))) * 48


async def test_a_stream_is_flushed_as_often_as_its_client_likes() -> None:
    async with serving() as served, peer(served.url, SINGLE.format("pcm_24000")) as client:
        await client.send(*({"text": text, "flush": True} for text in MANY), {"text": ""})
        heard, code = await client.until_closed()
    assert (len(audio_of(heard)), code) == (60 * sum(map(str.isalnum, "".join(MANY))) * 48, 1000)


async def test_cartesias_flushes_have_an_answer_each_however_many() -> None:
    async with serving() as served, peer(served.url, "/tts/websocket") as client:
        await client.send(*(request(text, flush=True, **{"continue": True}) for text in MANY))
        await client.send(request("", **{"continue": False}))
        heard = await client.until(lambda message: message["type"] in ("done", "error"))
    flushes = [message["flush_id"] for message in heard if message["type"] == "flush_done"]
    assert flushes == list(range(1, 101))
    assert heard[-1]["type"] == "done"
    assert len(audio_of(heard, "data")) == 60 * sum(map(str.isalnum, "".join(MANY))) * 48


async def test_cartesia_requests_of_one_name_are_heard_one_after_the_other() -> None:
    async with serving() as served, peer(served.url, "/tts/websocket") as client:
        await client.send(request("One two", language="en-GB"), request("three", language="tlh"))
        for text in ("One two", "three"):
            heard = await client.until(lambda message: message["type"] in ("done", "error"))
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
        await client.send({"context_id": "a", "close_context": True}, {"context_id": "a", "close_context": True})
        await client.until(lambda message: is_final(message) and message["contextId"] == "a")
        await client.send(*turn("c", "hi "), {"context_id": "c", "close_context": True})
        assert audio_of(await client.until(lambda message: is_final(message) and message["contextId"] == "c"))


async def test_a_context_too_many_is_told_and_the_socket_stays() -> None:
    async with serving(contexts_per_socket=2) as served, peer(served.url, ELEVENLABS.format("pcm_24000")) as client:
        await client.send(*({"text": " ", "context_id": name} for name in "abc"))
        (refusal, end) = await client.until(is_final)
        assert (refusal["error"], refusal["contextId"], end["contextId"]) == ("too_many_contexts", "c", "c")
        await client.send({"context_id": "a", "close_context": True})
        assert (await client.until(is_final))[-1]["contextId"] == "a"


async def test_an_idle_context_ends_and_the_socket_stays() -> None:
    async with serving(context_idle_s=1.0) as served, peer(served.url, ELEVENLABS.format("pcm_24000")) as client:
        await client.send({"text": " ", "context_id": "a"})
        (end,) = await client.until(is_final)
        assert end["contextId"] == "a"
        await client.send(*turn("b", "hi "), {"context_id": "b", "close_context": True})
        assert audio_of(await client.until(is_final))


async def test_an_utterance_that_fails_ends_its_context_alone() -> None:
    faults = {0: Fault(FaultKind.FAIL, after_ms=200)}
    async with serving(Script(faults=faults)) as served, peer(served.url, "/tts/websocket") as client:
        await client.send({"context_id": "a", "transcript": TEXT})
        refusal = (await client.until(lambda message: message["type"] == "error"))[-1]
        assert (refusal["context_id"], refusal["status_code"], refusal["done"]) == ("a", 500, False)
        await client.send({"context_id": "b", "transcript": TEXT})
        assert (await client.until(lambda message: message["type"] == "done"))[-1]["context_id"] == "b"


async def test_a_drain_lets_dialects_finish() -> None:
    engine = FakeEngine(Script(real_time_factor=0.1))
    async with running(engine, drain_s=60) as gateway:
        await gateway.gateway.settled.wait()
        async with peer(gateway.gateway.url, ELEVENLABS.format("pcm_24000")) as client:
            await client.send(*turn("a", "x" * 50), {"context_id": "a", "close_context": True})
            await client.receive()
            gateway.stop.set()
            heard, code = await client.until_closed()
            assert (is_final(heard[-1]), code) == (True, 1001)


async def test_a_turn_of_deepgrams_that_is_spoken_while_the_server_drains_has_not_failed() -> None:
    engine = FakeEngine(Script(real_time_factor=0.1))
    async with running(engine, drain_s=60) as gateway:
        await gateway.gateway.settled.wait()
        async with peer(gateway.gateway.url, "/v1/speak") as client:
            await client.send({"type": "Speak", "text": "x" * 50}, {"type": "Flush"})
            await client.receive()
            gateway.stop.set()
            heard, code = await client.until_closed()
            kinds = [message["type"] for message in heard if isinstance(message, dict)]
            assert (kinds, code) == (["Flushed"], 1001)


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
