"""Speech with the voice of a recording that the request brings, as vLLM-Omni's CosyVoice3 examples ask for it."""

import asyncio
import base64
from collections.abc import AsyncIterator, Iterable
from pathlib import Path
from typing import Any

import httpx
import orjson
import pytest
from structlog.testing import capture_logs

from tests.integration.http_client import PCM, RawRequest, base_url, post
from tests.integration.raw_client import get
from tests.integration.wire_client import TIMEOUT_S, Served, serving
from voicegate.engine.fake.engine import Fault, FaultKind, Script
from voicegate.engine.interface import (
    EngineError,
    NewVoice,
    Overloaded,
    Unsupported,
    VoiceConflict,
    VoiceInfo,
    VoiceRefused,
)
from voicegate.protocol import messages as wire

SPEECH = "/v1/audio/speech"
WAV = b"RIFF and so on"
LIMIT_BYTES = 1024 * 1024  # of a body otherwise


def in_base64(recording: bytes) -> str:
    return base64.b64encode(recording).decode()


def asked(recording: bytes = WAV, **fields: Any) -> dict[str, Any]:
    """As cosyvoice3/speech_client.py of vLLM-Omni's examples."""
    return {
        "model": "FunAudioLLM/Fun-CosyVoice3-0.5B-2512",
        "input": "Hello there.",
        "ref_audio": f"data:audio/wav;base64,{in_base64(recording)}",
        "ref_text": "You are a helpful assistant.<|endofprompt|>What it says.",
        "response_format": "pcm",
        "stream": True,
        **fields,
    }


def watch(served: Served, monkeypatch: pytest.MonkeyPatch, *errors: EngineError) -> list[NewVoice]:
    """Note each voice that the engine is asked to make; the first ones fail with `errors`."""
    make, seen, left = served.engine.add_voice, list[NewVoice](), list(errors)

    async def add_voice(voice: NewVoice) -> VoiceInfo:
        seen.append(voice)
        if left:
            raise left.pop(0)
        return await make(voice)

    monkeypatch.setattr(served.engine, "add_voice", add_voice)
    return seen


async def test_it_speaks_with_the_recordings_voice_which_is_told_to_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    async with serving(enrolment=True) as served:
        made = watch(served, monkeypatch)
        status, headers, body = await post(served.url, SPEECH, asked(voice="drone"))
        assert (status, headers["x-voice"], len(body) > 10_000) == (200, "ref_audio", True)
        (clone,) = made
        assert (clone.recording, clone.transcript, clone.is_clone) == (WAV, "What it says.", True)
        (request,) = served.engine.requests
        assert request.voice == clone.name in served.engine.info.clones
        async with httpx.AsyncClient(base_url=base_url(served.url)) as http:
            for path in ("/v1/voices", "/v2/voices", "/v1/audio/voices", "/voices"):
                assert clone.name not in (await http.get(path)).text


async def in_chunks(parts: Iterable[bytes]) -> AsyncIterator[bytes]:
    for part in parts:
        yield part


async def test_each_recording_is_made_once(monkeypatch: pytest.MonkeyPatch) -> None:
    async with serving(enrolment=True) as served:
        made = watch(served, monkeypatch)
        together = [post(served.url, SPEECH, asked()) for _ in range(3)]
        assert [status for status, _, _ in await asyncio.gather(*together)] == [200] * 3
        await post(served.url, SPEECH, asked(ref_audio=in_base64(WAV)))  # without data:, and the same
        await post(served.url, SPEECH, asked(ref_audio=[in_base64(WAV)]))
        assert len(made) == 1
        await post(served.url, SPEECH, asked(ref_text="Something else."))
        await post(served.url, SPEECH, asked(b"RIFF of another"))
        assert len(made) == len({each.name for each in made}) == 3
        assert {request.voice for request in served.engine.requests} == {each.name for each in made}


async def test_sound_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    async with serving(enrolment=True) as served:
        made = watch(served, monkeypatch)
        await post(served.url, SPEECH, asked(x_vector_only_mode=True))
        await post(served.url, SPEECH, asked(ref_text=None))
        assert [each.transcript for each in made] == [""], "they are the same"


async def test_it_is_for_servers_and_clients_that_may_add_voices(tmp_path: Path) -> None:
    async with serving() as served:
        status, _, body = await post(served.url, SPEECH, asked())
        assert (status, b"--enrolment" in body) == (403, True)
        status, _, body = await post(served.url, SPEECH, asked(bytes(LIMIT_BYTES)))
        assert (status, b"Recordings (ref_audio) need --enrolment" in body) == (413, True)
        assert not served.engine.requests
    key = "k" * 20
    async with serving(enrolment=True, api_key=key) as served:
        async with httpx.AsyncClient(base_url=base_url(served.url)) as http:
            token = (await http.post("/v1/tokens", headers={"Authorization": f"Bearer {key}"})).json()["token"]
        status, _, body = await post(served.url, SPEECH, asked(), f"Authorization: Bearer {token}")
        assert (status, b"only a key" in body) == (403, True)
        assert (await post(served.url, SPEECH, asked(), f"Authorization: Bearer {key}"))[0] == 200


async def test_a_token_keeps_no_place_for_recordings_from_its_key() -> None:
    """It is refused before its body is read."""
    key = "a-key-of-16-chars"
    async with serving(enrolment=True, api_key=key) as served, httpx.AsyncClient(base_url=base_url(served.url)) as http:
        token = (await http.post("/v1/tokens", headers={"Authorization": f"Bearer {key}"})).json()["token"]
        with_token = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
        request = await RawRequest.begin(served.url, SPEECH, 2 * LIMIT_BYTES, f"Authorization: Bearer {token}")
        assert (await request.head())[0] == 403
        await request.close()
        spoken = in_chunks([b'{"input": ', b'"Hello."}'])
        assert (await http.post(SPEECH, content=spoken, headers=with_token)).status_code == 200
        too_long = in_chunks([b" " * LIMIT_BYTES, b" "])
        assert (await http.post(SPEECH, content=too_long, headers=with_token)).status_code == 413


async def test_a_recording_of_thirty_seconds_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    recording = WAV + bytes(30 * 48_000 * 2 * 3)  # stereo, 24 bit
    async with serving(enrolment=True) as served:
        made = watch(served, monkeypatch)
        assert (await post(served.url, SPEECH, asked(recording)))[0] == 200
        assert made[0].recording == recording
        body = orjson.dumps(asked(recording + b"!"))
        async with httpx.AsyncClient(base_url=base_url(served.url), timeout=TIMEOUT_S) as http:
            assert (await http.post(SPEECH, content=in_chunks([body]))).status_code == 200
        status, _, body = await post(served.url, SPEECH, {"input": "x" * 2 * LIMIT_BYTES})
        assert (status, b"a request takes" in body) == (400, True)
        monkeypatch.setattr("voicegate.gateway.server.http.connection._DISCARDING_S", 60)
        assert (await post(served.url, SPEECH, asked(bytes(16 * LIMIT_BYTES))))[0] == 413


@pytest.mark.parametrize(
    ("fields", "part", "field"),
    [
        ({"ref_audio": "https://example.com/a.wav"}, "this server fetches none", "ref_audio"),
        ({"ref_audio": "file:///etc/passwd"}, "this server fetches none", "ref_audio"),
        ({"ref_audio": "data:audio/wav,abc"}, "data URL without base64", "ref_audio"),
        ({"ref_audio": "RIFF and so on"}, "not in base64", "ref_audio"),
        ({"ref_audio": "QUJD*"}, "not in base64", "ref_audio"),
        ({"ref_audio": in_base64(b"<html>")}, "no sound file", "ref_audio"),
        ({"ref_audio": [in_base64(WAV)] * 2}, "has 2 recordings", "ref_audio"),
        ({"ref_audio": 5}, "ref_audio", "ref_audio"),
        ({"ref_audio": None}, "there is no ref_audio", "ref_text"),
        ({"ref_audio": ""}, "there is no ref_audio", "ref_text"),
        ({"speaker_embedding": [0.1, 0.2]}, "speaker_embedding is not supported", "speaker_embedding"),
        ({"references": [{"audio_path": "a.wav"}]}, "references is not supported", "references"),
    ],
)
async def test_what_brings_no_voice_is_refused_by_name(fields: dict[str, Any], part: str, field: str) -> None:
    async with serving(enrolment=True) as served, httpx.AsyncClient(base_url=base_url(served.url)) as http:
        response = await http.post(SPEECH, json=asked(**fields))
        error = response.json()["error"]
        assert (response.status_code, error["param"]) == (400, field)
        assert part in error["message"]
        assert not served.engine.requests


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (VoiceRefused("too short"), 400),
        (Unsupported("fixed voices"), 400),
        (Overloaded("full of speech"), 503),
        (VoiceConflict("two voices fill the room"), 503),
        (EngineError("its maker has ended"), 500),
    ],
)
async def test_what_cannot_be_made_is_told_and_may_be_asked_for_again(
    error: EngineError, status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with serving(enrolment=True) as served:
        watch(served, monkeypatch, error)
        answered, headers, body = await post(served.url, SPEECH, asked())
        assert (answered, str(error).encode() in body) == (status, True)
        assert ("retry-after" in headers) == (status == 503)
        assert (await post(served.url, SPEECH, asked()))[0] == 200


async def test_the_one_that_was_not_used_for_longest_makes_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("voicegate.gateway.server.http.clones._MAX_CLONES", 2)
    async with serving(enrolment=True) as served:
        made = watch(served, monkeypatch)
        for recording in (b"RIFF a", b"RIFF b", b"RIFF a", b"RIFF c"):
            assert (await post(served.url, SPEECH, asked(recording)))[0] == 200
        first, _second, third = (each.name for each in made)
        assert served.engine.info.clones == (first, third)
        assert (await post(served.url, SPEECH, asked(b"RIFF b")))[0] == 200
        assert len(made) == 4


async def test_it_makes_way_for_a_voice_that_is_to_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    async with serving(enrolment=True) as served, httpx.AsyncClient(base_url=base_url(served.url)) as http:
        await post(served.url, SPEECH, asked())
        watch(served, monkeypatch, VoiceConflict("two voices fill the room"))
        files = {"recording": ("guest.wav", WAV, "audio/wav")}
        assert (await http.post("/v1/voices", files=files, data={"name": "guest"})).status_code == 201
        assert served.engine.info.clones == ()


async def test_one_that_is_spoken_with_makes_way_for_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    script = Script(faults={0: Fault(FaultKind.STALL, after_ms=120)})
    async with serving(script, enrolment=True) as served:
        speaking = await RawRequest.post(served.url, SPEECH, asked())
        assert (await speaking.head())[0] == 200
        spoken_with = served.engine.info.clones
        watch(served, monkeypatch, VoiceConflict("one voice fills the room"), VoiceConflict("one voice fills the room"))
        status, headers, _ = await post(served.url, SPEECH, asked(b"RIFF of another"))
        assert (status, "retry-after" in headers, served.engine.info.clones) == (503, True, spoken_with)
        await speaking.close()
        await served.until(lambda engine: bool(engine.cancels))
        while '"sockets":0' not in (await get(served.url, "/v1/capacity"))[2]:
            pass
        assert (await post(served.url, SPEECH, asked(b"RIFF of another")))[0] == 200
        assert set(spoken_with).isdisjoint(served.engine.info.clones)


async def test_who_leaves_meanwhile_finds_it_made(monkeypatch: pytest.MonkeyPatch) -> None:
    asked_for, may_make = asyncio.Event(), asyncio.Event()
    async with serving(enrolment=True) as served:
        make, num_made = served.engine.add_voice, 0

        async def add_voice(voice: NewVoice) -> VoiceInfo:
            nonlocal num_made
            num_made += 1
            asked_for.set()
            await may_make.wait()
            return await make(voice)

        monkeypatch.setattr(served.engine, "add_voice", add_voice)
        leaving = asyncio.create_task(post(served.url, SPEECH, asked()))
        await asked_for.wait()
        leaving.cancel()
        await asyncio.wait({leaving})
        may_make.set()
        with capture_logs() as logs:
            assert (await post(served.url, SPEECH, asked()))[0] == 200
        assert num_made == 1
        assert not [entry for entry in logs if entry["log_level"] == "error"]


async def test_a_mix_of_voices_is_refused_by_name() -> None:
    async with serving(voice_aliases="nova=drone") as served, served.client() as client:
        for voice in ("hum+drone", "drone(2)+hum(1)", "nova+alloy", {"id": "hum+drone"}):
            status, _, body = await post(served.url, SPEECH, {"input": "Hello.", "voice": voice})
            assert (status, b"unknown_voice" in body) == (400, True)
        await client.send(wire.Open(context="a", voice="hum+drone", format=PCM))
        error = await client.until(wire.Error)
        assert error.message == "no voice 'hum+drone'; voices are not mixed, name one of hum, drone"
        assert not served.engine.requests
