"""What an `open` may ask for, and how it reads in the engine's words."""

from typing import Any

import pytest

from voicegate.engine.interface import AudioFormat, Codec, EngineInfo, SpeakingMode, UtteranceId, VoiceInfo
from voicegate.gateway.session.opening import build_request, effective_format, find_refusal
from voicegate.protocol.errors import ErrorCode
from voicegate.protocol.messages import Format, Open, Pace

pytestmark = pytest.mark.unit

INFO = EngineInfo(
    model="m",
    voices=(VoiceInfo("anna", ""), VoiceInfo("ben", "")),
    default_voice="anna",
    modes=(SpeakingMode.AUTO, SpeakingMode.CLAUSE),
    pre_skip_48k=312,
    max_utterances=8,
    max_lead_ms=3000,
    max_instruct_chars=10,
)


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"voice": "ben"},
        {"mode": "clause"},
        {"format": Format(sample_rate=24_000)},
        {"format": Format(sample_rate=48_000)},
        {"format": Format(codec="pcm_s16le", sample_rate=24_000, frame_ms=60)},
        {"instruct": " " * 100_000},
        {"pace": Pace(lead_ms=99_999)},
    ],
)
def test_is_possible(fields: dict[str, Any]) -> None:
    assert find_refusal(Open(context="a", **fields), INFO) is None


@pytest.mark.parametrize(
    ("fields", "code", "part"),
    [
        ({"voice": "carl"}, ErrorCode.UNKNOWN_VOICE, "'carl'; there are anna, ben"),
        ({"voice": ""}, ErrorCode.UNKNOWN_VOICE, "anna, ben"),
        ({"voice": "x" * 10_000}, ErrorCode.UNKNOWN_VOICE, "xxx"),
        ({"mode": "bistream"}, ErrorCode.UNSUPPORTED, "auto, clause"),
        ({"format": Format(sample_rate=44_100)}, ErrorCode.UNSUPPORTED_FORMAT, "24000 or 48000, not 44100"),
        ({"format": Format(codec="pcm_s16le", sample_rate=48_000)}, ErrorCode.UNSUPPORTED_FORMAT, "24000, not 48000"),
        ({"instruct": "x" * 11}, ErrorCode.BAD_MESSAGE, "takes 10"),
        ({"instruct": "x" * 100_000}, ErrorCode.BAD_MESSAGE, "takes 10"),
    ],
)
def test_is_refused_with_the_reason(fields: dict[str, Any], code: ErrorCode, part: str) -> None:
    refusal = find_refusal(Open(context="a", **fields), INFO)
    assert refusal is not None
    assert refusal.code is code
    assert part in refusal.message
    assert len(refusal.message) < 200


def test_request_in_the_engines_words() -> None:
    message = Open(
        context="a",
        format=Format(frame_ms=40, bitrate=16_000, sample_rate=48_000),
        speed=1.5,
        instruct="calm",
        seed=3,
        mode="clause",
        pace=Pace(lead_ms=500),
    )
    request = build_request(message, INFO, UtteranceId("u"))
    assert (request.utterance_id, request.voice) == ("u", "anna")
    assert request.audio == AudioFormat(Codec.OPUS, frame_ms=40, bitrate_bps=16_000, sample_rate_hz=24_000)
    assert request.mode is SpeakingMode.CLAUSE
    assert (request.speed, request.instruct, request.seed, request.lead_ms) == (1.5, "calm", 3, 500)


def test_an_instruction_without_words_is_none() -> None:
    assert build_request(Open(context="a", instruct=" " * 100_000), INFO, UtteranceId("u")).instruct is None


@pytest.mark.parametrize(("asked", "given"), [(None, None), (200, 200), (3000, 3000), (3001, 3000)])
def test_lead_is_capped_at_what_the_engine_has(asked: int | None, given: int | None) -> None:
    assert build_request(Open(context="a", pace=Pace(lead_ms=asked)), INFO, UtteranceId("u")).lead_ms == given


def test_the_format_in_effect_has_the_models_rate() -> None:
    assert effective_format(Format(frame_ms=60, sample_rate=48_000)) == Format(frame_ms=60, sample_rate=24_000)
