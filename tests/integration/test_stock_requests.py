"""Requests that other vendors' packages send by themselves are answered, whatever the model here can do.

Each row is what a client sends as its users set it up; the versions are those of docs/compatibility.md.
"""

from dataclasses import dataclass
from typing import Any

import orjson
import pytest
from structlog.testing import capture_logs

from tests.integration.http_client import audio_of_events, native_pcm, post
from tests.integration.vendors import audio_of, peer
from tests.integration.wire_client import serving
from voicegate.engine.fake.engine import Fault, FaultKind, Script
from voicegate.protocol.dialects.one_shot import LEAD_MS

TEXT = "Hello there."
# A model that follows no instructions and repeats nothing: what can be left out is left out.
PLAIN = Script(max_instruct_chars=0, is_reproducible=False)
AGENTS_SDK = (
    "You will receive partial sentences. Do not complete the sentence just read out the text, in a buffered and even "
    "voice that leaves the listener time to think about what was said, and never laugh, sing or change your accent."
)
EMBEDDING = {"mode": "embedding", "embedding": [0.1, 0.2], "__experimental_controls": {"speed": "normal"}}
RAW = {"container": "raw", "encoding": "pcm_s16le", "sample_rate": 24_000}
SPEECH = {"model": "gpt-4o-mini-tts", "voice": "ash", "input": TEXT, "response_format": "pcm"}
CARTESIA = {"model_id": "sonic-3", "transcript": TEXT, "output_format": RAW}
SETTINGS = {"stability": 0.5, "similarity_boost": 0.75, "style": 0.0, "use_speaker_boost": True, "speed": 1.0}


@dataclass(frozen=True)
class Stock:
    client: str
    path: str
    body: dict[str, Any]
    not_followed: str = ""


STOCK = [
    Stock("OpenAI Agents SDK", "/v1/audio/speech", {**SPEECH, "instructions": AGENTS_SDK}, "instructions"),
    Stock("RealtimeTTS", "/v1/audio/speech", {**SPEECH, "instructions": None}),
    Stock(
        "LiveKit openai.TTS",
        "/v1/audio/speech",
        {**SPEECH, "speed": 1.0, "instructions": "Be kind.", "stream_format": "audio"},
        "instructions",
    ),
    Stock("pipecat OpenAITTSService", "/v1/audio/speech", {**SPEECH, "instructions": "Be kind."}, "instructions"),
    Stock("wyoming-openai", "/v1/audio/speech", {**SPEECH, "instructions": "Be kind.", "speed": 1.0}, "instructions"),
    Stock("Open WebUI", "/v1/audio/speech", {**SPEECH, "user": "me"}),
    Stock("Kokoro-FastAPI's", "/v1/audio/speech", {**SPEECH, "lang_code": "a", "return_download_link": False}),
    Stock(
        "vLLM-Omni",
        "/v1/audio/speech",
        {**SPEECH, "language": "English", "seed": 42, "instructions": "Slowly.<|endofprompt|>", "max_new_tokens": 2048},
        "seed, instructions",
    ),
    Stock("vLLM-Omni, any language", "/v1/audio/speech", {**SPEECH, "language": "Auto"}),
    Stock("vLLM-Omni, another language", "/v1/audio/speech", {**SPEECH, "language": "Korean"}, "language"),
    Stock(
        "elevenlabs SDK",
        "/v1/text-to-speech/any/stream?output_format=pcm_24000",
        {"text": TEXT, "model_id": "eleven_flash_v2_5", "voice_settings": SETTINGS, "seed": 7},
        "seed",
    ),
    Stock(
        "pipecat ElevenLabsHttpTTSService",
        "/v1/text-to-speech/any/stream/with-timestamps?output_format=pcm_24000&optimize_streaming_latency=0",
        {"text": TEXT, "model_id": "eleven_flash_v2_5", "language_code": "en", "previous_text": "So."},
    ),
    Stock("LiveKit cartesia.TTS", "/tts/bytes", {**CARTESIA, "voice": {"mode": "id", "id": "x"}, "language": "en"}),
    Stock("LiveKit cartesia.TTS, embedding", "/tts/bytes", {**CARTESIA, "voice": EMBEDDING, "language": None}),
    Stock("deepgram-sdk", "/v1/speak?model=aura-2-thalia-en&encoding=linear16&container=none", {"text": TEXT}),
]


@pytest.mark.parametrize("stock", STOCK, ids=lambda stock: stock.client)
async def test_is_answered_and_told_what_was_left_out(stock: Stock) -> None:
    with capture_logs() as lines:
        async with serving(PLAIN) as served:
            status, headers, body = await post(served.url, stock.path, stock.body)
            (request,) = served.engine.requests
    assert (status, headers.get("x-not-followed", "")) == (200, stock.not_followed), body
    assert (request.instruct, request.seed) == (None, None)
    told = [line["fields"] for line in lines if line["event"] == "not followed"]
    assert told == ([stock.not_followed] if stock.not_followed else [])
    if "timestamps" not in stock.path:
        assert body == await native_pcm(TEXT)


async def test_instructions_are_followed_as_far_as_the_model_takes_them() -> None:
    async with serving() as served:
        _, headers, _ = await post(served.url, "/v1/audio/speech", {**SPEECH, "instructions": AGENTS_SDK})
        assert headers["x-not-followed"] == "instructions (shortened to 200 characters)"
        _, headers, _ = await post(
            served.url, "/v1/audio/speech", {**SPEECH, "instructions": "Slowly.<|endofprompt|>", "language": "English"}
        )
        assert "x-not-followed" not in headers
        cut, marked = served.engine.requests
    assert cut.instruct is not None
    assert AGENTS_SDK.startswith(f"{cut.instruct} ")
    assert 180 < len(cut.instruct) <= 200
    assert (marked.instruct, marked.language) == ("Slowly.", "en")


async def test_by_websocket_too() -> None:
    """vLLM-Omni's, which alone has words for these."""
    config = {"response_format": "pcm", "stream_audio": True, "instructions": "Be kind.", "seed": 1, "text": None}
    config |= {"language": "Chinese", "word_timestamps": None}
    with capture_logs() as lines:
        async with serving(PLAIN) as served, peer(served.url, "/v1/audio/speech/stream") as client:
            await client.send(
                {"type": "session.config", **config}, {"type": "input.text", "text": TEXT}, {"type": "input.done"}
            )
            heard = await client.until(lambda frame: isinstance(frame, dict) and frame["type"] == "session.done")
            (request,) = served.engine.requests
    assert b"".join(frame for frame in heard if isinstance(frame, bytes)) == await native_pcm(TEXT)
    assert (request.instruct, request.seed, request.language) == (None, None, "zh")
    assert [line["fields"] for line in lines if line["event"] == "not followed"] == ["seed, instructions"]


async def test_elevenlabs_settings_and_cartesias_embedding_by_websocket() -> None:
    async with serving(PLAIN) as served:
        async with peer(served.url, "/v1/text-to-speech/x/multi-stream-input?output_format=pcm_24000") as client:
            first = {"text": " ", "context_id": "a", "voice_settings": SETTINGS, "generation_config": None}
            await client.send(first, {"text": TEXT, "context_id": "a", "flush": True, "generator_config": {}})
            await client.send({"context_id": "a", "close_context": True})
            assert audio_of(await client.until(lambda frame: bool(frame.get("isFinal"))))
        async with peer(served.url, "/tts/websocket") as client:
            await client.send({**CARTESIA, "voice": EMBEDDING, "context_id": "a", "language": None, "speed": "normal"})
            assert audio_of(await client.until(lambda frame: frame["type"] == "done"), "data")


@pytest.mark.parametrize(
    ("asked", "is_in_events"),
    [
        ({"stream": True, "response_format": "pcm"}, True),
        ({"stream": True, "response_format": "wav"}, True),
        ({"stream": True, "stream_format": "sse", "response_format": "pcm"}, True),
        ({"stream": True, "stream_format": "audio", "response_format": "pcm"}, False),
        ({"stream": False, "response_format": "pcm"}, False),
        ({"stream": True, "response_format": "mp3"}, False),
        ({"stream": True}, False),
    ],
)
async def test_stream_is_answered_as_vllm_omni_does(asked: dict[str, Any], is_in_events: bool) -> None:
    """Formats that it streams: in events, unless these are declined."""
    async with serving() as served:
        status, headers, body = await post(served.url, "/v1/audio/speech", {"input": TEXT, **asked})
    assert status == 200
    assert (headers["content-type"].partition(";")[0] == "text/event-stream") is is_in_events
    if asked.get("response_format") == "pcm":
        assert (audio_of_events(body) if is_in_events else body) == await native_pcm(TEXT)


@pytest.mark.parametrize(("stream_audio", "lead_ms"), [(False, LEAD_MS), (True, None)])
async def test_a_file_of_vllm_omnis_is_not_paced(stream_audio: bool, lead_ms: int | None) -> None:
    """It is of use when it is whole, as an answer by HTTP is; what is streamed is heard as it comes."""
    async with (
        serving(Script(max_lead_ms=LEAD_MS)) as served,
        peer(served.url, "/v1/audio/speech/stream") as client,
    ):
        await client.send(
            {"type": "session.config", "response_format": "pcm", "stream_audio": stream_audio},
            {"type": "input.text", "text": TEXT},
            {"type": "input.done"},
        )
        heard = await client.until(lambda frame: isinstance(frame, dict) and frame["type"] == "session.done")
        assert b"".join(frame for frame in heard if isinstance(frame, bytes)) == await native_pcm(TEXT)
        assert [request.lead_ms for request in served.engine.requests] == [lead_ms]


async def test_its_events_have_its_form() -> None:
    asked = {"input": TEXT, "stream": True, "response_format": "pcm"}
    failing = Script(faults={1: Fault(FaultKind.FAIL, after_ms=200)})
    async with serving(failing) as served:
        _, _, whole = await post(served.url, "/v1/audio/speech", asked)
        _, _, broken = await post(served.url, "/v1/audio/speech", asked)
    for body, ends in ((whole, ["speech.audio.done"]), (broken, ["speech.audio.error"])):
        names, data = [], []
        for event in body.decode().strip().split("\n\n"):
            name, line = event.split("\n")
            names.append(name.removeprefix("event: "))
            data.append(orjson.loads(line.removeprefix("data: ")))
        assert names == [each["type"] for each in data]
        assert set(names[:-1]) == {"speech.audio.delta"}
        assert names[-1:] == ends
        assert data[0]["response_format"] == "pcm"
    assert data[-1]["error"]["type"] == "server_error"
