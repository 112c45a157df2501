"""Requests of an `open`, and how they read in the engine's words."""

from dataclasses import replace
from typing import Any

import pytest

from voicegate.engine.dictionary import Dictionary
from voicegate.engine.interface import AudioFormat, Codec, EngineInfo, SpeakingMode, UtteranceId, VoiceInfo
from voicegate.engine.text.pronunciation import Pronunciation
from voicegate.gateway.session.opening import build_request, effective_format, find_refusal
from voicegate.protocol.errors import ErrorCode
from voicegate.protocol.messages import Format, Open, Pace

INFO = EngineInfo(
    model="m",
    voices=(VoiceInfo("anna", ""), VoiceInfo("ben", "")),
    default_voice="anna",
    modes=(SpeakingMode.AUTO, SpeakingMode.CLAUSE),
    pre_skip_48k=312,
    max_utterances=8,
    max_lead_ms=3000,
    max_instruct_chars=10,
    languages=("en", "zh-TW"),
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
        {"language": "zh"},
        {"language": "en_GB"},
    ],
)
def test_is_possible(fields: dict[str, Any]) -> None:
    assert find_refusal(Open(context="a", **fields), INFO) is None


def test_a_seed_is_refused_before_there_is_any_text() -> None:
    """By a server whose LLM cannot repeat itself: the engine would refuse it with the first text."""
    asked = Open(context="a", seed=1)
    assert find_refusal(asked, INFO) is None
    refusal = find_refusal(asked, replace(INFO, is_reproducible=False))
    assert refusal is not None
    assert refusal.code is ErrorCode.UNSUPPORTED
    assert "seed" in refusal.message


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
        ({"language": "fr-FR"}, ErrorCode.UNSUPPORTED, "does not speak 'fr-FR'; it speaks en, zh-TW"),
        ({"language": "x" * 10_000}, ErrorCode.BAD_MESSAGE, "a tag such as en or en-GB"),
        ({"pronunciations": {"SQL": ""}}, ErrorCode.BAD_MESSAGE, "what is said for 'SQL' must be words"),
        ({"pronunciations": {"x" * 10_000: "x"}}, ErrorCode.BAD_MESSAGE, "at most 64"),
        ({"pronunciations": {f"w{n}": "x" * 128 for n in range(64)}}, ErrorCode.BAD_MESSAGE, "8374 characters in all"),
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
        instruct="buffered",
        seed=3,
        mode="clause",
        pace=Pace(lead_ms=500),
    )
    request = build_request(message, INFO, UtteranceId("u"))
    assert (request.utterance_id, request.voice) == ("u", "anna")
    assert request.audio == AudioFormat(Codec.OPUS, frame_ms=40, bitrate_bps=16_000, sample_rate_hz=24_000)
    assert request.mode is SpeakingMode.CLAUSE
    assert (request.speed, request.instruct, request.seed, request.lead_ms) == (1.5, "buffered", 3, 500)


def test_how_text_is_read_in_the_engines_words() -> None:
    server = Dictionary({"sql": "sequel", "us": "you ess"})
    message = Open(
        context="a", language="en-GB", normalize=False, max_buffer_delay_ms=0, pronunciations={"SQL": "mine"}
    )
    request = build_request(message, INFO, UtteranceId("u"), server)
    assert (request.language, request.is_normalized, request.max_buffer_delay_ms) == ("en-GB", False, 0)
    assert Pronunciation(request.dictionaries).said("SQL us") == "mine you ess"
    assert build_request(Open(context="a"), INFO, UtteranceId("u"), server).dictionaries == (server,)
    assert build_request(Open(context="a"), INFO, UtteranceId("u")).dictionaries == ()


def test_an_instruction_without_words_is_none() -> None:
    assert build_request(Open(context="a", instruct=" " * 100_000), INFO, UtteranceId("u")).instruct is None


@pytest.mark.parametrize(("asked", "given"), [(None, None), (200, 200), (3000, 3000), (3001, 3000)])
def test_lead_is_capped_at_what_the_engine_has(asked: int | None, given: int | None) -> None:
    assert build_request(Open(context="a", pace=Pace(lead_ms=asked)), INFO, UtteranceId("u")).lead_ms == given


def test_the_format_in_effect_has_the_models_rate() -> None:
    assert effective_format(Format(frame_ms=60, sample_rate=48_000)) == Format(frame_ms=60, sample_rate=24_000)
