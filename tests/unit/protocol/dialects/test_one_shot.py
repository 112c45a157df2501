"""Requests for speech, as their vendors have them, and what a native client would have sent for them."""

from typing import Any

import orjson
import pytest

from voicegate.protocol import messages as wire
from voicegate.protocol.dialects.cartesia_speech import CartesiaSpeech
from voicegate.protocol.dialects.deepgram_speak import DeepgramSpeak
from voicegate.protocol.dialects.elevenlabs_speech import ElevenLabsSpeech
from voicegate.protocol.dialects.one_shot import OneShot, PlainAudio, Problem, RequestViolation
from voicegate.protocol.dialects.openai_speech import OpenAiSpeech
from voicegate.protocol.errors import ErrorCode, ProtocolViolation
from voicegate.protocol.formats import Coding, OutputFormat

PCM = OutputFormat()


def shot_of(text: str = "Hi.", **fields: Any) -> OneShot:
    return OneShot(text=text, output=PCM, framing=PlainAudio(PCM), **fields)


def read_openai(**fields: Any) -> OneShot:
    return OpenAiSpeech().read(orjson.dumps({"input": "Hi.", **fields}), {}, {})


def read_elevenlabs(body: dict[str, Any], **query: str) -> OneShot:
    return ElevenLabsSpeech().read(orjson.dumps(body), {"voice_id": "v"}, query)


def read_cartesia(**fields: Any) -> OneShot:
    return CartesiaSpeech().read(orjson.dumps({"transcript": "Hi.", **fields}), {}, {})


def test_cartesias_locale_and_language_both_count() -> None:
    asked = ({"locale": "en-GB"}, {"language": "en"}, {"locale": "tlh-KL", "language": "en"}, {})
    assert [read_cartesia(**fields).language for fields in asked] == ["en-GB", "en", "tlh-KL,en", None]


# --- what a native client would send ------------------------------------------------------------------------


def test_one_context_from_open_to_end() -> None:
    opening, *texts, end = shot_of("Hi.", speed=1.5, instruct="softly", seed=3).messages("anna", 1000)
    assert isinstance(opening, wire.Open)
    assert (opening.voice, opening.speed, opening.instruct, opening.seed) == ("anna", 1.5, "softly", 3)
    assert opening.format == wire.Format(codec="pcm_s16le")
    assert texts == [wire.Text(opening.context, "Hi.")]
    assert end == wire.End(opening.context)


@pytest.mark.parametrize("text", ["", "x", "é" * 999, "𝄞" * 50, "a𝄞" * 50])
def test_parts_are_as_small_as_messages_must_be(text: str) -> None:
    _, *texts, _ = shot_of(text).messages(None, 16)
    parts = [part.text for part in texts if isinstance(part, wire.Text)]
    assert "".join(parts) == text
    assert all(len(part.encode()) <= 16 for part in parts)


def test_speed_is_the_nearest_that_there_is() -> None:
    for asked, expected in ((0.25, 0.5), (0.7, 0.7), (4.0, 2.0)):
        opening = next(shot_of(speed=asked).messages(None, 100))
        assert isinstance(opening, wire.Open)
        assert opening.speed == expected


def test_what_no_client_may_send_is_refused() -> None:
    with pytest.raises(RequestViolation) as caught:
        list(shot_of(seed=-1).messages(None, 100))
    assert caught.value.field == "seed"


# --- vendors ----------------------------------------------------------------------------------------------


def test_openai() -> None:
    shot = read_openai()
    assert (shot.text, shot.voice, shot.output.coding) == ("Hi.", None, Coding.MP3)
    assert read_openai(voice={"id": "x"}, instructions=None, speed=None).voice == "x"
    assert read_openai(response_format="wav").framing.content_type == "audio/wav"


def test_openai_events() -> None:
    framing = read_openai(stream_format="sse").framing
    assert framing.audio(b"\x01") == b'data: {"type":"speech.audio.delta","audio":"AQ=="}\n\n'
    end = framing.end(wire.Done("a", 400, 20, wire.Timing()))
    assert end == (
        b'data: {"type":"speech.audio.done","usage":{"input_tokens":3,"output_tokens":10,"total_tokens":13}}\n\n'
        b"data: [DONE]\n\n"
    )


def test_elevenlabs() -> None:
    shot = read_elevenlabs({"text": "Hi.", "model_id": "m", "voice_settings": {"speed": 1.1, "style": 0}})
    assert (shot.voice, shot.speed) == ("v", 1.1)
    assert (shot.output.coding, shot.output.rate_hz, shot.output.bitrate_bps) == (Coding.MP3, 44_100, 128_000)
    assert read_elevenlabs({"text": "", "voice_settings": None}, output_format="pcm_16000").output.rate_hz == 16_000


def test_cartesia() -> None:
    shot = read_cartesia(
        voice={"mode": "id", "id": "x"},
        output_format={"container": "raw", "encoding": "pcm_mulaw", "sample_rate": 8000},
        generation_config={"speed": 1.2, "emotion": "buffered"},
        speed="normal",
    )
    assert (shot.voice, shot.speed, shot.output) == ("x", 1.2, OutputFormat(Coding.MULAW, 8000))
    assert read_cartesia(voice={"mode": "embedding", "embedding": [0.5]}).voice is None
    assert [read_cartesia(speed=speed).speed for speed in ("slow", "unheard of", 1.3)] == [0.8, None, 1.3]


@pytest.mark.parametrize(
    ("body", "field"),
    [
        (b"{", None),
        (b"[]", None),
        (b"{}", "input"),
        (b'{"input": "\xff"}', None),
        (b'{"input":"", "voice":7}', "voice"),
    ],
)
def test_a_bad_body_is_told_apart(body: bytes, field: str | None) -> None:
    with pytest.raises(ProtocolViolation) as caught:
        OpenAiSpeech().read(body, {}, {})
    assert isinstance(caught.value, RequestViolation)
    assert caught.value.field == field


def test_every_code_has_a_status_and_each_vendor_a_word() -> None:
    for code in ErrorCode:
        problem = Problem(code, "why")
        assert 400 <= problem.status < 600
        names = name_by_vendor(problem)
        assert all(name == code.value or (vendor, code.value) in OWN_NAMES for vendor, name in names.items())


# As their documents have them.
OWN_NAMES = {
    ("openai", "unauthorized"): "invalid_api_key",
    ("openai", "rate_limited"): "rate_limit_exceeded",
    ("openai", "too_many_contexts"): "rate_limit_exceeded",
    ("openai", "unknown_model"): "model_not_found",
    ("elevenlabs", "unauthorized"): "invalid_api_key",
    ("elevenlabs", "unknown_voice"): "voice_not_found",
    ("elevenlabs", "unknown_model"): "model_not_found",
    ("elevenlabs", "too_many_contexts"): "too_many_concurrent_requests",
    ("elevenlabs", "overloaded"): "system_busy",
    ("cartesia", "unknown_voice"): "voice_not_found",
    ("cartesia", "unknown_model"): "model_not_found",
    ("cartesia", "too_many_contexts"): "concurrency_limited",
    ("cartesia", "overloaded"): "concurrency_limited",
    ("deepgram", "unauthorized"): "INVALID_AUTH",
    ("deepgram", "bad_message"): "Bad Request",
    ("deepgram", "unsupported_format"): "UNSUPPORTED_AUDIO_FORMAT",
    ("deepgram", "rate_limited"): "TOO_MANY_REQUESTS",
    ("deepgram", "too_many_contexts"): "TOO_MANY_REQUESTS",
}


def name_by_vendor(problem: Problem) -> dict[str, str]:
    def body_of(vendor: Any) -> Any:
        body = vendor.error_body(problem, problem.status, "r1")
        assert b"why" in orjson.dumps(body)
        return body

    return {
        "openai": body_of(OpenAiSpeech())["error"]["code"],
        "elevenlabs": body_of(ElevenLabsSpeech())["detail"]["status"],
        "cartesia": body_of(CartesiaSpeech())["error_code"],
        "deepgram": body_of(DeepgramSpeak())["err_code"],
    }


@pytest.mark.parametrize(("vendor", "name"), OWN_NAMES)
def test_errors_have_the_names_that_the_vendor_has_for_them(vendor: str, name: str) -> None:
    code = next((code for code in ErrorCode if code.value == name), ErrorCode.BAD_MESSAGE)
    assert name_by_vendor(Problem(code, "why", own_name=name))[vendor] == OWN_NAMES[vendor, name]
