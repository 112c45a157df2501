"""The `openai`, `elevenlabs`, `deepgram-sdk` and `cartesia` packages by HTTP: they hear what a native client hears."""

import asyncio
import base64
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing

import cartesia
import elevenlabs
import numpy as np
import openai
import pytest
from cartesia import AsyncCartesia
from deepgram import AsyncDeepgramClient
from deepgram.environment import DeepgramClientEnvironment
from elevenlabs.client import AsyncElevenLabs
from elevenlabs.core.api_error import ApiError

from tests.integration.http_client import audio_of_events, base_url, native_pcm, post
from tests.integration.wire_client import Served, native_turns, serving
from voicegate.engine.fake.engine import Fault, FaultKind, Script
from voicegate.engine.interface import Overloaded

TEXT = "Hello there, and more."
STALL = Script(faults={0: Fault(FaultKind.STALL, after_ms=240)})


def openai_of(served: Served, max_retries: int = 0) -> openai.AsyncOpenAI:
    return openai.AsyncOpenAI(api_key="none", base_url=f"{base_url(served.url)}/v1", max_retries=max_retries)


def elevenlabs_of(served: Served) -> AsyncElevenLabs:
    return AsyncElevenLabs(api_key="none", base_url=base_url(served.url))


def cartesia_of(served: Served) -> AsyncCartesia:
    return AsyncCartesia(api_key="none", base_url=base_url(served.url), max_retries=0)


# --- openai -----------------------------------------------------------------------------------------------


async def test_openai_whole_and_streamed() -> None:
    expected = await native_pcm(TEXT)
    asked = {"model": "gpt-4o-mini-tts", "voice": "alloy", "input": TEXT, "response_format": "pcm"}
    async with serving() as served, openai_of(served) as client:
        response = await client.audio.speech.create(**asked, instructions="Softly.")
        assert response.content == expected
        assert served.engine.requests[0].instruct == "Softly."
        assert response.response.headers["character-cost"] == str(len(TEXT))
        own = {"pronunciations": {"Hello": "hi"}, "language": "fr", "normalize": False}
        await client.audio.speech.create(**asked, extra_body=own)
        request = served.engine.requests[1]
        assert (request.language, request.is_normalized, len(request.dictionaries)) == (None, False, 1)
        with pytest.raises(openai.BadRequestError, match="what is said for 'Hello' must be words"):
            await client.audio.speech.create(**asked, extra_body={"pronunciations": {"Hello": ""}})
    async with (
        serving() as served,
        openai_of(served) as client,
        client.audio.speech.with_streaming_response.create(**asked) as streamed,
    ):
        assert streamed.headers["content-type"] == "audio/pcm"
        assert b"".join([chunk async for chunk in streamed.iter_bytes()]) == expected
    async with (
        serving() as served,
        openai_of(served) as client,
        client.audio.speech.with_streaming_response.create(**asked, stream_format="sse") as streamed,
    ):
        assert audio_of_events(await streamed.read()) == expected


async def test_openai_errors_are_its_own() -> None:
    async with serving(Script(refusals={0: Overloaded("full", retry_after_ms=100)}), waiting_s=0.0) as served:
        async with openai_of(served, max_retries=1) as client:
            with pytest.raises(openai.BadRequestError, match="response_format is 'ogg'"):
                await client.audio.speech.create(model="m", voice="v", input=TEXT, response_format="ogg")  # type: ignore[arg-type]
            speech = await client.audio.speech.create(model="m", voice="v", input=TEXT)  # comes back by itself
            assert speech.content
        assert len(served.engine.requests) == 1


# --- elevenlabs -------------------------------------------------------------------------------------------


async def test_elevenlabs_convert_and_stream() -> None:
    expected = await native_pcm(TEXT)
    async with serving() as served:
        parts = elevenlabs_of(served).text_to_speech.convert("any", text=TEXT, output_format="pcm_24000")
        assert b"".join([part async for part in parts]) == expected
    async with serving(voice_aliases="21m00Tcm4TlvDq8ikWAM=drone") as served:
        settings = elevenlabs.VoiceSettings(speed=1.1)
        parts = elevenlabs_of(served).text_to_speech.stream(
            "21m00Tcm4TlvDq8ikWAM",
            text=TEXT,
            output_format="ulaw_8000",
            model_id="m",
            voice_settings=settings,
            seed=3,
            language_code="en",
            apply_text_normalization="off",
        )
        heard = b"".join([part async for part in parts])
        (request,) = served.engine.requests
        assert (request.voice, request.speed, request.seed) == ("drone", 1.1, 3)
        assert (request.language, request.is_normalized) == ("en", False)
    assert len(heard) == len(expected) // 6


async def test_elevenlabs_errors_are_its_own() -> None:
    async with serving() as served:
        async with elevenlabs_of(served).text_to_speech.with_raw_response.convert("any", text=TEXT) as response:
            assert response.headers["request-id"] == response.headers["x-request-id"]
            assert [part async for part in response.data]
        parts = elevenlabs_of(served).text_to_speech.convert("any", text=TEXT, output_format="pcm_1")
        with pytest.raises(ApiError) as caught:
            await anext(aiter(parts))
        assert caught.value.status_code == 400
        assert "pcm_24000" in caught.value.body["detail"]["message"]


async def test_elevenlabs_times_of_characters() -> None:
    text = f"{TEXT}   {TEXT} \n"
    expected = await native_pcm(text)
    async with serving() as served:
        speech = elevenlabs_of(served).text_to_speech
        whole = await speech.convert_with_timestamps("any", text=text, output_format="pcm_24000")
    async with serving() as served:
        speech = elevenlabs_of(served).text_to_speech
        parts = [part async for part in speech.stream_with_timestamps("any", text=text, output_format="pcm_24000")]
    assert base64.b64decode(whole.audio_base_64) == expected
    assert b"".join(base64.b64decode(part.audio_base_64) for part in parts) == expected
    times = whole.alignment
    assert times is not None
    assert "".join(times.characters) == text.replace("\n", " "), "an index of the one is an index of the other"
    assert times.character_start_times_seconds == sorted(times.character_start_times_seconds)
    assert times.character_end_times_seconds[-1] == pytest.approx(len(expected) / 48_000, abs=0.01)
    alignments = [part.alignment for part in parts if part.alignment is not None]
    assert all(alignment.characters for alignment in alignments), "none at all where nothing begins"
    assert [char for alignment in alignments for char in alignment.characters] == times.characters
    starts_s = [start_s for alignment in alignments for start_s in alignment.character_start_times_seconds]
    assert starts_s == times.character_start_times_seconds


# --- deepgram ---------------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:websockets:DeprecationWarning")  # of what the package uses
async def test_deepgram_speak() -> None:
    expected = await native_pcm(TEXT)
    async with serving(voice_aliases="aura-2-thalia-en=drone") as served:
        url = base_url(served.url)
        environment = DeepgramClientEnvironment(base=url, production=url, agent=url, agent_rest=url)
        client = AsyncDeepgramClient(api_key="none", environment=environment)
        parts = client.speak.v1.audio.generate(
            text=TEXT, encoding="linear16", container="none", sample_rate=24_000, model="aura-2-thalia-en", speed=1.2
        )
        heard = b"".join([part async for part in parts])
        (request,) = served.engine.requests
    assert (request.voice, request.speed, len(heard)) == ("drone", 1.2, len(expected))
    async with serving() as served:
        assert (await post(served.url, "/v1/speak?encoding=linear16&container=none", {"text": TEXT}))[2] == expected
        for encoding in ("linear16", "mulaw", "alaw"):
            assert (await post(served.url, f"/v1/speak?encoding={encoding}", {"text": TEXT}))[2].startswith(b"RIFF")
        status, _, answer = await post(served.url, "/v1/speak?callback=https%3A%2F%2Fapp.example", {"text": TEXT})
        assert (status, b"there is no callback here" in answer) == (400, True), "nobody waits for one in vain"
        status, _, answer = await post(served.url, "/v1/speak?encoding=tin+cans", {"text": TEXT})
        assert (status, b"err_msg" in answer) == (400, True)


# --- cartesia ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("encoding", "dtype", "scale"), [("pcm_s16le", "<i2", 1), ("pcm_f32le", "<f4", 32768)])
async def test_cartesia_bytes(encoding: str, dtype: str, scale: int) -> None:
    expected = np.frombuffer(await native_pcm(TEXT), "<i2")
    async with serving() as served, cartesia_of(served) as client:
        response = await client.tts.generate(
            model_id="sonic-3",
            transcript=TEXT,
            voice={"mode": "id", "id": "any"},
            output_format={"container": "raw", "encoding": encoding, "sample_rate": 24000},
            generation_config={"speed": 1.0},
        )
        heard = np.frombuffer(await response.read(), dtype) * scale
    assert np.array_equal(heard, expected)


async def test_cartesia_events() -> None:
    expected = await native_pcm(TEXT)
    raw = {"container": "raw", "encoding": "pcm_s16le", "sample_rate": 24000}
    asked = {"model_id": "sonic-3", "transcript": TEXT, "voice": {"mode": "id", "id": "any"}, "output_format": raw}
    async with serving() as served, cartesia_of(served) as client:
        events = await client.tts.generate_sse(
            **asked, add_timestamps=True, context_id="c", language="zh", normalization="off"
        )
        heard = [event async for event in events]
        (request,) = served.engine.requests
    assert (request.language, request.is_normalized) == ("zh", False)
    assert {event.context_id for event in heard} == {"c"}
    assert b"".join(event.audio for event in heard if event.type == "chunk") == expected
    times = [event.word_timestamps for event in heard if event.type == "timestamps"]
    assert "".join(word for told in times for word in told.words).replace(" ", "") == TEXT.replace(" ", "")
    assert [start for told in times for start in told.start] == sorted(start for told in times for start in told.start)
    assert [event.type for event in heard if event.done] == ["done"]
    async with serving() as served, cartesia_of(served) as client:
        with pytest.raises(cartesia.BadRequestError, match="container is raw"):
            await client.tts.generate_sse(**{**asked, "output_format": {"container": "wav"}})


async def test_cartesia_events_that_break_off_say_why() -> None:
    raw = {"container": "raw", "encoding": "pcm_s16le", "sample_rate": 24000}
    script = Script(faults={0: Fault(FaultKind.FAIL, after_ms=240)})
    async with serving(script) as served, cartesia_of(served) as client:
        events = await client.tts.generate_sse(model_id="m", transcript=TEXT, voice="any", output_format=raw)
        last = [event async for event in events][-1]
        assert (last.type, last.done, last.message) == ("error", True, "scripted failure")


async def test_cartesia_errors_are_its_own() -> None:
    async with serving() as served, cartesia_of(served) as client:
        with pytest.raises(cartesia.BadRequestError, match=r"output_format\.sample_rate is '1'"):
            await client.tts.generate(
                model_id="sonic-3",
                transcript=TEXT,
                voice={"mode": "id", "id": "any"},
                output_format={"container": "wav", "encoding": "pcm_s16le", "sample_rate": 1},
            )


# --- conversations ----------------------------------------------------------------------------------------

TURNS = (TEXT, "A second turn.", "The third.")
LONG = "word " * 100


async def openai_hearing(served: Served, text: str) -> AsyncIterator[bytes]:
    asked = {"model": "tts-1", "voice": "v", "input": text, "response_format": "pcm"}
    async with openai_of(served) as client, client.audio.speech.with_streaming_response.create(**asked) as streamed:
        async for part in streamed.iter_bytes():
            yield part


async def elevenlabs_hearing(served: Served, text: str) -> AsyncIterator[bytes]:
    parts = elevenlabs_of(served).text_to_speech.stream("v", text=text, output_format="pcm_24000")
    async with aclosing(parts):
        async for part in parts:
            yield part


async def cartesia_hearing(served: Served, text: str) -> AsyncIterator[bytes]:
    raw = {"container": "raw", "encoding": "pcm_s16le", "sample_rate": 24000}
    asked = {"model_id": "m", "transcript": text, "voice": {"mode": "id", "id": "v"}, "output_format": raw}
    async with cartesia_of(served) as client, client.tts.with_streaming_response.generate(**asked) as streamed:
        async for part in streamed.iter_bytes():
            yield part


async def deepgram_hearing(served: Served, text: str) -> AsyncIterator[bytes]:
    url = base_url(served.url)
    environment = DeepgramClientEnvironment(base=url, production=url, agent=url, agent_rest=url)
    client = AsyncDeepgramClient(api_key="none", environment=environment)
    parts = client.speak.v1.audio.generate(text=text, encoding="linear16", container="none")
    async with aclosing(parts):
        async for part in parts:
            yield part


@pytest.mark.filterwarnings("ignore:websockets:DeprecationWarning")  # of what Deepgram's uses
@pytest.mark.parametrize("hearing", [openai_hearing, elevenlabs_hearing, cartesia_hearing, deepgram_hearing])
async def test_turns_an_interruption_and_two_at_once(hearing: Callable[[Served, str], AsyncIterator[bytes]]) -> None:
    async with serving() as served:
        assert [await _joined(hearing(served, text)) for text in TURNS] == await native_turns(TURNS)
    async with serving(Script(real_time_factor=1.0)) as served:
        async with aclosing(hearing(served, LONG)) as parts:
            assert await anext(parts)
        await served.until(lambda engine: engine.num_live == 0 and len(engine.cancels) == 1)
        assert await _joined(hearing(served, TURNS[1])) == (await native_turns(TURNS))[1]
    async with serving() as served:
        heard = await asyncio.gather(*(_joined(hearing(served, TEXT)) for _ in range(2)))
    assert set(heard) == set(await native_turns([TEXT, TEXT]))


async def _joined(parts: object) -> bytes:
    return b"".join([part async for part in parts])  # type: ignore[attr-defined]
