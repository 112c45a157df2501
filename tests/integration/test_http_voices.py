"""Voices and models over the wire, asked by bare requests and by vendors' packages."""

import asyncio
import tempfile
from typing import Any

import httpx
import openai
import pytest
from elevenlabs.client import AsyncElevenLabs
from python_multipart.multipart import MultipartParser

from tests.integration.http_client import RawRequest, base_url
from tests.integration.raw_client import get
from tests.integration.wire_client import TIMEOUT_S, Served, serving
from voicegate.engine.interface import EngineStopped, NewVoice, Overloaded, Unsupported, VoiceConflict, VoiceInfo
from voicegate.protocol import messages as wire

WAV = b"RIFF and so on"
OF_ONE, OF_ANOTHER = {"X-Forwarded-For": "10.0.0.1"}, {"X-Forwarded-For": "10.0.0.2"}
PART = b'--b\r\nContent-Disposition: form-data; name="name"\r\n\r\nguest\r\n--b--\r\n'


def client_of(served: Served) -> httpx.AsyncClient:
    return httpx.AsyncClient(base_url=base_url(served.url))


def form(recording: bytes = WAV, **fields: str) -> dict[str, Any]:
    return {"files": {"recording": ("guest.wav", recording, "audio/wav")}, "data": {"name": "guest", **fields}}


async def names(client: httpx.AsyncClient) -> list[str]:
    return [voice["name"] for voice in (await client.get("/v1/voices")).json()["voices"]]


async def test_a_voice_comes_speaks_and_goes() -> None:
    async with serving(enrolment=True) as served, client_of(served) as http, served.client() as client:
        response = await http.post("/v1/voices", **form(transcript="Hello.", description="new"))
        assert response.status_code == 201
        assert response.json()["name"] == response.json()["voice_id"] == "guest"
        assert await names(http) == ["hum", "drone", "guest"]
        await client.speak("a", "hello", voice="guest")
        assert (await client.until_done("a")).packets
        speech = await http.post("/v1/audio/speech", json={"input": "hello", "voice": "guest"})
        assert speech.headers["x-voice"] == "guest"
        assert (await http.post("/v1/voices", **form())).status_code == 409
        assert (await http.post("/v1/voices", **form(replace="true", description="newer"))).status_code == 201
        assert (await http.get("/v1/voices/guest")).json()["description"] == "newer"
        assert (await http.delete("/v1/voices/guest")).json() == {"status": "ok"}
        assert (await http.delete("/v1/voices/guest")).status_code == 404
        await client.send(wire.Open(context="b", voice="guest"))
        assert (await client.until(wire.Error)).code == "unknown_voice"


@pytest.mark.parametrize(
    ("request_fields", "status", "part"),
    [
        ({"data": {"name": "guest"}}, 400, "no `recording`"),
        ({"content": b"x", "headers": {"Content-Type": "text/plain"}}, 400, "no `recording`"),
        ({"content": b"x"}, 400, "no `recording`"),
        ({"content": b"x", "headers": {"Content-Type": "multipart/form-data"}}, 400, "boundary"),
        ({"content": b"x", "headers": {"Content-Type": "multipart/form-data; boundary=b"}}, 400, ""),
        (
            {"content": PART, "headers": {"Content-Type": "multipart/form-data; boundary=b; charset=undefined"}},
            400,
            "charset",
        ),
        (form(name="no spaces"), 422, "cannot be a voice's name"),
        (form(name="../up"), 422, "cannot be a voice's name"),
        (form(b"not sound"), 422, "no sound file"),
        (form(bytes(13 * 1024 * 1024)), 413, "at most"),
        (form(transcript="x" * 20_000), 400, "maximum size"),
    ],
)
async def test_what_makes_no_voice(
    request_fields: dict[str, Any], status: int, part: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("voicegate.gateway.server.http.connection._DISCARDING_S", TIMEOUT_S)  # what a busy client sends
    async with serving(enrolment=True) as served, client_of(served) as http:
        response = await http.post("/v1/voices", **request_fields)
        assert response.status_code == status
        assert part in response.json()["error"]["message"]
        assert await names(http) == ["hum", "drone"]


def asked_of_the_engine(served: Served, monkeypatch: pytest.MonkeyPatch) -> list[NewVoice]:
    make, seen = served.engine.add_voice, list[NewVoice]()

    async def add_voice(voice: NewVoice) -> VoiceInfo:
        seen.append(voice)
        return await make(voice)

    monkeypatch.setattr(served.engine, "add_voice", add_voice)
    return seen


@pytest.mark.parametrize("transcript", ["transcript", "text", "ref_text"])
@pytest.mark.parametrize("recording", ["recording", "file", "files", "audio_sample"])
async def test_fields_by_the_names_that_others_give_them(
    transcript: str, recording: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with serving(enrolment=True) as served, client_of(served) as http:
        seen = asked_of_the_engine(served, monkeypatch)
        data = {"name": "guest", transcript: "Hello.", "labels": "{}", "remove_background_noise": "false"}
        response = await http.post("/v1/voices", files={recording: ("a.wav", WAV)}, data=data)
        assert response.status_code == 201
        assert (seen[0].transcript, seen[0].recording) == ("Hello.", WAV)


@pytest.mark.parametrize(
    ("fields", "part"),
    [
        (
            {"data": {"name": "guest", "transcirpt": "Hello."}},
            "'transcirpt', which is no field of it; there are recording",
        ),
        ({"data": {"name": "guest", "language": "en"}}, "'language', which is no field"),
        ({"data": {"name": "guest", "speaker_embedding": "[0.1]"}}, "'speaker_embedding', which is no field"),
        ({"data": {"name": "guest", "transcript": "a", "text": "b"}}, "transcript and text, which are the same"),
        ({"data": {"name": ["guest", "other"]}}, "'name' more than once"),
        ({"data": {"name": "guest", "replace": "perhaps"}}, "replace is 'perhaps'; it must be true or false"),
        ({"data": {"name": "guest", "recording": "anna.wav"}, "files": {}}, "came as text; send the file itself"),
        ({"files": {"transcript": ("a.txt", b"Hello.")}}, "transcript came as a file; send its text"),
    ],
)
async def test_a_field_that_would_be_lost_is_refused_by_name(fields: dict[str, Any], part: str) -> None:
    async with serving(enrolment=True) as served, client_of(served) as http:
        asked = {**form(), **fields}
        if asked["files"] == {}:  # httpx sends no form without one
            asked["files"] = {name: (None, value) for name, value in asked.pop("data").items()}
        response = await http.post("/v1/voices", **asked)
        assert (response.status_code, part in response.json()["error"]["message"]) == (400, True), response.text
        assert await names(http) == ["hum", "drone"]


async def test_voices_as_vllm_omni_takes_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """The fields and answers of its documents (docs/serving/speech_api.md)."""
    sample = {"audio_sample": ("voice_sample.wav", WAV, "audio/wav")}
    data = {
        "consent": "user_consent_id",
        "name": "custom_voice_1",
        "ref_text": "You are a helpful assistant.<|endofprompt|>What it says.",
        "speaker_description": "warm narrator",
    }
    async with serving(enrolment=True) as served, client_of(served) as http:
        seen = asked_of_the_engine(served, monkeypatch)
        response = await http.post("/v1/audio/voices", files=sample, data=data)
        answer = response.json()
        assert (response.status_code, answer["success"]) == (200, True)
        voice = answer["voice"]
        assert isinstance(voice.pop("created_at"), int)
        assert voice == {
            "name": "custom_voice_1",
            "consent": "user_consent_id",
            "mime_type": "audio/wav",
            "file_size": len(WAV),
            "ref_text": "What it says.",
            "speaker_description": "warm narrator",
            "remark": "",
        }
        assert (seen[0].transcript, seen[0].description) == ("What it says.", "warm narrator")
        listed = (await http.get("/v1/audio/voices")).json()
        assert [voice["id"] for voice in listed["voices"]] == ["hum", "drone", "custom_voice_1"]
        assert [(voice["name"], voice["consent"]) for voice in listed["uploaded_voices"]] == [
            ("custom_voice_1", "user_consent_id")
        ]
        speech = await http.post("/v1/audio/speech", json={"input": "hello", "voice": "custom_voice_1"})
        assert speech.headers["x-voice"] == "custom_voice_1"
        again = await http.post("/v1/audio/voices", files=sample, data={"name": "custom_voice_1", "consent": "x"})
        assert (again.status_code, seen[1].is_replacing) == (200, True), "there the same name is replaced"
        gone = await http.delete("/v1/audio/voices/custom_voice_1")
        assert (gone.status_code, gone.json()["success"]) == (200, True)
        assert gone.json()["message"] == "Voice 'custom_voice_1' deleted successfully"
        missing = await http.delete("/v1/audio/voices/unknown_voice")
        assert (missing.status_code, missing.json()) == (
            404,
            {"success": False, "error": "Voice 'unknown_voice' not found"},
        )
        assert (await http.get("/v1/audio/voices")).json()["uploaded_voices"] == []
        await http.post("/v1/audio/voices", files=sample, data={"name": "anna", "consent": "of the first Anna"})
        await http.delete("/v1/voices/anna")
        await http.post("/v1/voices", files={"recording": sample["audio_sample"]}, data={"name": "anna"})
        (anna,) = (await http.get("/v1/audio/voices")).json()["uploaded_voices"]
        assert (anna["name"], anna["consent"]) == ("anna", ""), "the other path knows of it, too"
        refused = await http.post("/v1/audio/voices", files={"audio_sample": ("a.txt", b"none")}, data=data)
        assert (refused.status_code, refused.json()["error"]["type"]) == (422, "invalid_request_error")


async def test_it_is_for_servers_that_allow_it() -> None:
    async with serving() as served, client_of(served) as http:
        for response in (
            await http.post("/v1/voices", **form()),
            await http.post("/v1/audio/voices", **form()),
            await http.delete("/v1/voices/drone"),
            await http.delete("/v1/audio/voices/drone"),
        ):
            assert response.status_code == 403
            assert "--enrolment" in response.json()["error"]["message"]
        assert await names(http) == ["hum", "drone"]


async def test_no_page_of_another_site_adds_voices() -> None:
    async with serving(enrolment=True) as served, client_of(served) as http:
        response = await http.post("/v1/voices", **form(), headers={"Origin": "https://evil.example"})
        assert response.status_code == 403
        assert await names(http) == ["hum", "drone"]


async def test_an_upload_that_breaks_off_is_no_fault_of_ours(caplog: pytest.LogCaptureFixture) -> None:
    async with serving(enrolment=True) as served:
        url = served.url
        kind = "Content-Type: multipart/form-data; boundary=b"
        request = await RawRequest.begin(url, "/v1/voices", 1000, kind)
        request.writer.write(b"--b\r\n")
        while '"sockets":1' not in (await get(url, "/v1/capacity"))[2]:
            pass
        await request.close()
        while '"sockets":0' not in (await get(url, "/v1/capacity"))[2]:
            pass
    assert [record for record in caplog.records if record.levelname == "ERROR"] == []


async def test_a_long_recording_needs_no_room_on_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", "/nowhere/to/write")
    async with serving(enrolment=True) as served, client_of(served) as http:
        assert (await http.post("/v1/voices", **form(WAV + bytes(4 * 1024 * 1024)))).status_code == 201


async def test_a_long_recording_is_read_in_turn_with_others(monkeypatch: pytest.MonkeyPatch) -> None:
    read, sizes = MultipartParser.write, []

    def note(parser: MultipartParser, data: bytes) -> int:
        sizes.append(len(data))
        return read(parser, data)

    monkeypatch.setattr(MultipartParser, "write", note)
    async with serving(enrolment=True) as served, client_of(served) as http:
        recording = WAV + bytes(1024 * 1024)
        assert (await http.post("/v1/voices", **form(recording))).status_code == 201
    assert max(sizes) <= 64 * 1024 < len(recording) < sum(sizes)


async def test_there_are_so_many() -> None:
    async with serving(enrolment=True, max_voices=3) as served, client_of(served) as http:
        assert (await http.post("/v1/voices", **form())).status_code == 201
        response = await http.post("/v1/voices", **form(name="another"))
        assert (response.status_code, "take one away" in response.text) == (409, True)
        assert (await http.post("/v1/voices", **form(replace="true"))).status_code == 201
        assert (await http.delete("/v1/voices/hum")).status_code == 422, "the default voice"


async def test_of_one_client_one_is_made_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that hangs does not hold up others' voices, and its own client is told before long."""
    may_end, has_begun = asyncio.Event(), asyncio.Event()

    async def slow(voice: NewVoice) -> VoiceInfo:
        has_begun.set()
        if voice.name == "slow":
            await may_end.wait()
        raise Unsupported("model 'fake' has fixed voices")

    async with serving(enrolment=True, trusted_proxies="127.0.0.1") as served, client_of(served) as http:
        monkeypatch.setattr(served.engine, "add_voice", slow)
        adding = asyncio.create_task(http.post("/v1/voices", **form(name="slow"), headers=OF_ONE))
        await has_begun.wait()
        assert (await http.post("/v1/voices", **form(), headers=OF_ANOTHER)).status_code == 501
        monkeypatch.setattr("voicegate.gateway.server.http.enrolment._WAIT_S", 0.05)
        response = await http.post("/v1/voices", **form(), headers=OF_ONE)
        assert (response.status_code, response.headers["Retry-After"]) == (503, "1")
        assert "voices are being made of yours" in response.json()["error"]["message"]
        monkeypatch.setattr("voicegate.gateway.server.http.enrolment._WAIT_S", TIMEOUT_S)
        waiting = asyncio.create_task(http.post("/v1/voices", **form(), headers=OF_ONE))
        may_end.set()
        assert (await adding).status_code == (await waiting).status_code == 501


async def test_slow_uploads_of_one_leave_room_for_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("voicegate.gateway.server.http.enrolment._MAX_UPLOADS_OF_ONE", 2)
    monkeypatch.setattr("voicegate.gateway.server.http.enrolment._MAX_UPLOADS", 3)
    monkeypatch.setattr("voicegate.gateway.server.http.enrolment._WAIT_S", 0.05)
    async with serving(enrolment=True, trusted_proxies="127.0.0.1") as served, client_of(served) as http:
        slow = [await begun_upload(served.url, address) for address in ("10.0.0.1", "10.0.0.1")]
        while '"sockets":2' not in (await get(served.url, "/v1/capacity"))[2]:
            pass
        for headers, name, status in ((OF_ONE, "one", 503), (OF_ANOTHER, "two", 201)):
            response = await http.post("/v1/voices", **form(name=name), headers=headers)
            assert (response.status_code, response.headers.get("Retry-After")) == (
                status,
                "1" if status == 503 else None,
            )
        slow.append(await begun_upload(served.url, "10.0.0.2"))
        while '"sockets":3' not in (await get(served.url, "/v1/capacity"))[2]:
            pass
        response = await http.post("/v1/voices", **form(), headers={"X-Forwarded-For": "10.0.0.3"})
        assert (response.status_code, "on their way of others" in response.text) == (503, True)
        for request in slow:
            await request.close()
        while '"sockets":0' not in (await get(served.url, "/v1/capacity"))[2]:
            pass
        assert (await http.post("/v1/voices", **form())).status_code == 201


async def begun_upload(url: str, address: str) -> RawRequest:
    kind = "Content-Type: multipart/form-data; boundary=b"
    return await RawRequest.begin(url, "/v1/voices", 1000, kind, f"X-Forwarded-For: {address}")


async def added_together(
    served: Served, monkeypatch: pytest.MonkeyPatch, *forms: dict[str, Any]
) -> list[tuple[int, dict[str, str]]]:
    """Status and error of each, from clients of their own: none is made before the engine, or a refusal, had all."""
    make, num_asked, may_end = served.engine.add_voice, 0, asyncio.Event()

    async def make_later(*args: Any, **options: Any) -> VoiceInfo:
        nonlocal num_asked
        num_asked += 1
        note_progress()
        await may_end.wait()
        return await make(*args, **options)

    def note_progress(*_: object) -> None:
        if num_asked + sum(task.done() for task in adding) == len(forms):
            may_end.set()

    monkeypatch.setattr(served.engine, "add_voice", make_later)
    async with client_of(served) as http:
        adding = [
            asyncio.create_task(http.post("/v1/voices", **each, headers={"X-Forwarded-For": f"10.0.0.{number}"}))
            for number, each in enumerate(forms)
        ]
        for task in adding:
            task.add_done_callback(note_progress)
        answers = await asyncio.gather(*adding)
    return [(answer.status_code, answer.json().get("error", {})) for answer in answers]


async def test_those_on_their_way_count(monkeypatch: pytest.MonkeyPatch) -> None:
    async with serving(enrolment=True, max_voices=3, trusted_proxies="127.0.0.1") as served, client_of(served) as http:
        new = [form(name=name) for name in ("one", "two", "three")]
        statuses = [status for status, _ in await added_together(served, monkeypatch, *new)]
        assert sorted(statuses) == [201, 409, 409]
        assert len(await names(http)) == 3
        again = [form(name=name, replace="true") for name in ("hum", "drone")]
        assert [status for status, _ in await added_together(served, monkeypatch, *again)] == [201, 201]


async def test_what_came_to_nothing_leaves_its_place_to_the_next() -> None:
    async with serving(enrolment=True, max_voices=3) as served, client_of(served) as http:
        assert (await http.post("/v1/voices", **form(b"not sound"))).status_code == 422
        assert (await http.post("/v1/voices", **form(name="next"))).status_code == 201


async def test_of_one_name_one_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    async with serving(enrolment=True, max_voices=3, trusted_proxies="127.0.0.1") as served, client_of(served) as http:
        answers = await added_together(served, monkeypatch, form(), form())
        assert sorted(status for status, _ in answers) == [201, 409]
        (error,) = [error for status, error in answers if status == 409]
        assert error == (await http.post("/v1/voices", **form())).json()["error"]


async def test_what_was_done_to_the_recording_is_told_once(monkeypatch: pytest.MonkeyPatch) -> None:
    async def add_voice(voice: NewVoice) -> VoiceInfo:
        return VoiceInfo(voice.name, "", remark="silence was left out: 1.20 s at the start")

    async with serving(enrolment=True) as served, client_of(served) as http:
        monkeypatch.setattr(served.engine, "add_voice", add_voice)
        response = await http.post("/v1/voices", **form())
        assert response.json()["remark"] == "silence was left out: 1.20 s at the start"
        assert "remark" not in (await http.get("/v1/voices/hum")).json()


async def test_a_full_engine_is_no_fault_of_the_recording(monkeypatch: pytest.MonkeyPatch) -> None:
    async def refuse(*_: object, **__: object) -> VoiceInfo:
        raise VoiceConflict("two voices fill the room")

    async with serving(enrolment=True) as served, client_of(served) as http:
        monkeypatch.setattr(served.engine, "add_voice", refuse)
        response = await http.post("/v1/voices", **form())
        assert (response.status_code, "fill the room" in response.text) == (409, True)


async def test_an_engine_that_is_full_for_now_says_when_to_come_again(monkeypatch: pytest.MonkeyPatch) -> None:
    async def refuse(*_: object, **__: object) -> VoiceInfo:
        raise Overloaded("full of speech", retry_after_ms=1_500)

    async with serving(enrolment=True) as served, client_of(served) as http:
        monkeypatch.setattr(served.engine, "add_voice", refuse)
        response = await http.post("/v1/voices", **form())
        assert (response.status_code, response.headers["Retry-After"]) == (503, "2")
        assert response.json()["error"]["code"] == "overloaded"


async def test_an_engine_that_does_not_run_says_when_to_come_again(monkeypatch: pytest.MonkeyPatch) -> None:
    async def refuse(_: str) -> None:
        raise EngineStopped("the engine has not been started")

    async with serving(enrolment=True) as served, client_of(served) as http:
        monkeypatch.setattr(served.engine, "remove_voice", refuse)
        response = await http.delete("/v1/voices/drone")
        assert (response.status_code, response.headers.get("Retry-After")) == (503, "1")


async def test_elevenlabs_voices() -> None:
    async with serving(enrolment=True) as served:
        client = AsyncElevenLabs(api_key="none", base_url=base_url(served.url))
        created = await client.voices.ivc.create(name="guest", files=[WAV], description="new")
        assert created.voice_id == "guest"
        found = await client.voices.search(search="OCTAVE")
        assert ([voice.voice_id for voice in found.voices], found.has_more) == (["drone"], False)
        voices = (await client.voices.get_all()).voices
        assert [(voice.voice_id, voice.name) for voice in voices] == [
            (name, name) for name in ("hum", "drone", "guest")
        ]
        assert (await client.voices.get("guest")).description == "new"
        assert (await client.voices.delete("guest")).status == "ok"


async def test_openai_errors_where_there_is_nothing() -> None:
    async with serving() as served, openai.AsyncOpenAI(api_key="x", base_url=f"{base_url(served.url)}/v1") as client:
        for asking in (
            client.audio.transcriptions.create(model="whisper-1", file=("a.wav", WAV)),
            client.chat.completions.create(model="gpt-4o", messages=[]),
        ):
            with pytest.raises(openai.NotFoundError) as caught:
                await asking
            assert caught.value.code == "unsupported"
            assert "nothing here" in str(caught.value)
