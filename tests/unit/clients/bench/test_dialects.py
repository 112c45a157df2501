"""Each dialect's messages, in both directions."""

import base64
import json
from typing import Any

import msgspec
import pytest

from voicegate.clients.bench.dialects import vendors
from voicegate.clients.bench.dialects.conversation import Chunk, ConversationLost, Ended, pcm_chunk
from voicegate.clients.bench.dialects.native import NativePhrases
from voicegate.clients.bench.plan import Piece, Target, Turn
from voicegate.protocol.errors import ProtocolViolation

TARGET = Target("ws://here", voice="anna b")
TURN = Turn((Piece("Hello.", 0.0),), voice="bob")
PCM = bytes(480)
AUDIO = base64.b64encode(PCM).decode()


def said(frames: Any) -> list[Any]:
    return [json.loads(frame) for frame in frames]


def test_elevenlabs_takes_its_own_context_alone() -> None:
    phrases = vendors.ElevenLabsPhrases(TARGET, None)
    (opening,) = said(phrases.begin(TURN))
    assert (opening["text"], opening["context_id"]) == (" ", "t1")
    assert said(phrases.end())[-1] == {"context_id": "t1", "close_context": True}
    assert phrases.take(json.dumps({"audio": AUDIO, "contextId": "t1"})) == Chunk(480, PCM)
    assert phrases.take(json.dumps({"audio": AUDIO, "contextId": "t0"})) is None
    assert phrases.take('{"isFinal": true, "context_id": "t1"}') == Ended()
    assert phrases.take('{"error": "x", "message": "overloaded: no room", "contextId": "t1"}') == Ended(
        is_refused=True, message="overloaded: no room"
    )


@pytest.mark.parametrize("kind", [vendors.ElevenLabsPhrases, vendors.CartesiaPhrases])
def test_what_is_left_of_an_interrupted_turn_is_nobodys(kind: Any) -> None:
    phrases = kind(TARGET, None)
    phrases.begin(TURN)
    assert phrases.cancel(100)
    assert phrases.take('{"isFinal": true, "contextId": "t1", "context_id": "t1", "type": "done"}') is None
    phrases.begin(TURN)
    assert phrases.take('{"isFinal": true, "contextId": "t1", "context_id": "t1", "type": "done"}') is None
    assert phrases.take('{"isFinal": true, "contextId": "t2", "context_id": "t2", "type": "done"}') == Ended()


def test_cartesia_names_the_voice_in_each_request() -> None:
    phrases = vendors.CartesiaPhrases(TARGET, None)
    phrases.begin(TURN)
    (request,) = said(phrases.say("Hello."))
    assert (request["voice"], request["continue"], request["transcript"]) == (
        {"mode": "id", "id": "bob"},
        True,
        "Hello.",
    )
    assert said(phrases.end())[0]["continue"] is False
    failed = phrases.take('{"type": "error", "context_id": "t1", "message": "concurrency limited"}')
    assert failed == Ended(is_refused=True, message="concurrency limited")


def test_deepgram_waits_for_cleared_when_it_has_interrupted() -> None:
    phrases = vendors.DeepgramPhrases(TARGET, None)
    phrases.begin(TURN)
    assert phrases.take(PCM) == Chunk(480, PCM)
    assert phrases.take('{"type": "Metadata"}') is None
    phrases.cancel(10)
    assert phrases.take('{"type": "Flushed", "sequence_id": 0}') is None
    assert phrases.take('{"type": "Cleared", "sequence_id": 0}') == Ended(is_cancelled=True)


def test_vllm_omni_tells_the_rate_of_its_samples() -> None:
    phrases = vendors.VllmOmniPhrases(TARGET, None)
    assert phrases.take(PCM) == Chunk(480, PCM)
    assert phrases.take('{"type": "audio.start", "format": "pcm", "sample_rate": 48000}') is None
    assert phrases.take(PCM) == Chunk(240, PCM)
    assert phrases.take('{"type": "audio.start"}') is None
    assert phrases.take(PCM) == Chunk(480, PCM)


@pytest.mark.parametrize(
    ("kind", "raw", "message"),
    [
        (vendors.VllmOmniPhrases, '{"type": "error", "message": "its engine"}', "its engine"),
        (vendors.DeepgramPhrases, '{"type": "Warning", "warn_code": "X", "warn_msg": "its engine"}', "X: its engine"),
    ],
)
def test_turns_without_names_go_on_elsewhere_after_a_failure(kind: Any, raw: str, message: str) -> None:
    """The server may still tell of the failed one's end, and that would pass for the next one's."""
    phrases = kind(TARGET, None)
    assert not phrases.is_spent
    assert phrases.take(raw) == Ended(message=message)
    assert phrases.is_spent


def test_kyutai_ends_where_the_server_hangs_up() -> None:
    phrases = vendors.KyutaiPhrases(TARGET, None)
    assert not phrases.is_spent
    with pytest.raises(ConversationLost, match="no free channels"):
        phrases.take(msgspec.msgpack.encode({"type": "Error", "message": "no free channels"}))
    phrases.begin(TURN)
    assert phrases.is_spent
    assert phrases.take(msgspec.msgpack.encode({"type": "Audio", "pcm": [0.0] * 1920})) == Chunk(3840)
    assert phrases.hung_up() == Ended()


@pytest.mark.parametrize(
    "kind",
    [vendors.ElevenLabsPhrases, vendors.CartesiaPhrases, vendors.DeepgramPhrases, vendors.VllmOmniPhrases],
)
@pytest.mark.parametrize("raw", ["no JSON", "[]"])
def test_what_is_no_message_is_said_to_be_none(kind: Any, raw: str) -> None:
    with pytest.raises(ProtocolViolation):
        kind(TARGET, None).take(raw)


@pytest.mark.parametrize(
    ("kind", "raw"),
    [
        (vendors.ElevenLabsPhrases, '{"contextId": "t1", "audio": "abc"}'),
        (vendors.ElevenLabsPhrases, '{"contextId": "t1", "audio": 5}'),
        (vendors.CartesiaPhrases, '{"context_id": "t1", "type": "chunk"}'),
        (vendors.CartesiaPhrases, '{"context_id": "t1", "type": "chunk", "data": null}'),
        (vendors.VllmOmniPhrases, '{"type": "audio.start", "format": "wav"}'),
        (vendors.VllmOmniPhrases, '{"type": "audio.start", "sample_rate": "24000"}'),
        (vendors.VllmOmniPhrases, '{"type": "audio.start", "sample_rate": 0.5}'),
        (vendors.VllmOmniPhrases, '{"type": "audio.start", "sample_rate": 1}'),
        (vendors.KyutaiPhrases, msgspec.msgpack.encode({"type": "Audio"})),
        (vendors.KyutaiPhrases, msgspec.msgpack.encode([1, 2])),
    ],
)
def test_what_has_no_audio_where_it_should_is_said_to(kind: Any, raw: str | bytes) -> None:
    phrases = kind(TARGET, None)
    phrases.begin(TURN)
    with pytest.raises(ProtocolViolation):
        phrases.take(raw)


def test_a_server_that_does_not_greet_is_none_of_ours() -> None:
    with pytest.raises(ProtocolViolation, match="did not begin with `ready`"):
        NativePhrases(TARGET, b"\0")


def test_pcm_is_counted_in_whole_samples() -> None:
    assert pcm_chunk(bytes(5), 24_000) == Chunk(4, bytes(4))
