"""Golden conversations of Kyutai's clients: what each frame becomes, and what comes back."""

import struct
from typing import Any

import msgspec
import pytest

from tests.unit.protocol.dialects.conversation import READY, alignment, done, error, find_anna, shown, told
from voicegate.protocol import messages as wire
from voicegate.protocol.dialects.dialect import Speech
from voicegate.protocol.dialects.kyutai import Kyutai

PCM_OPEN = wire.Open(context="speech", voice="anna", format=wire.Format(codec="pcm_s16le"))


def packed(**fields: Any) -> bytes:
    return msgspec.msgpack.encode(fields)


def heard(dialect: Kyutai, *frames: str | bytes) -> list[Any]:
    return [effect for frame in frames for effect in shown(dialect.receive(frame))]


def unpacked(effects: list[Any]) -> list[Any]:
    return [msgspec.msgpack.decode(effect) if isinstance(effect, bytes) else effect for effect in effects]


def test_unmutes_turn() -> None:
    dialect = Kyutai("PcmMessagePack", "anna", find_anna)
    assert unpacked(told(dialect, READY)) == [{"type": "Ready"}]
    effects = heard(dialect, packed(type="Text", text="Hello"), packed(type="Text", text="there."), packed(type="Eos"))
    assert effects == [PCM_OPEN, wire.Text("speech", "Hello"), wire.Text("speech", " there."), wire.End("speech")]
    (word,) = unpacked(told(dialect, alignment("speech", ("Hello", 0, 0, 400))))
    assert word == {"type": "Text", "text": "Hello", "start_s": 0.0, "stop_s": 0.4}
    samples = struct.pack("<2000f", *[0.5] * 2000)
    frames = unpacked(told(dialect, Speech("speech", samples, 0, 83)))
    assert frames == [{"type": "Audio", "pcm": [0.5] * 1920}]
    rest = unpacked(told(dialect, Speech("speech", b"", 83, 83, is_last=True)))
    assert rest == [{"type": "Audio", "pcm": [0.5] * 80}]
    assert told(dialect, done("speech")) == [("hangup", 1000)]


def test_words_keep_the_blanks_that_they_have() -> None:
    dialect = Kyutai("Pcm", "anna", find_anna)
    effects = heard(dialect, "Hello ", "there", " you", "", "all")
    assert [effect.text for effect in effects[1:]] == ["Hello ", "there", " you", " all"]
    assert heard(dialect, b"\0", b"\0", "late") == [wire.End("speech")]


def test_raw_formats_carry_audio_alone() -> None:
    dialect = Kyutai("Pcm", "anna", find_anna)
    heard(dialect, "Hi")
    assert told(dialect, READY, alignment("speech", ("Hi", 0, 0, 400)), Speech("speech", b"abcd", 0, 1)) == [b"abcd"]
    assert told(dialect, error("overloaded", "full", "speech")) == [("hangup", 1008)]


def test_ogg_opus_in_messages() -> None:
    dialect = Kyutai("OggOpusMessagePack", "anna", find_anna)
    assert heard(dialect, "Hi")[0].format == wire.Format()
    assert unpacked(told(dialect, Speech("speech", b"Ogg", 0, 1))) == [{"type": "OggOpus", "data": [79, 103, 103]}]


def test_no_text_is_done() -> None:
    assert heard(Kyutai("Pcm", "anna", find_anna), b"\0") == [PCM_OPEN, wire.End("speech")]


def test_no_room() -> None:
    dialect = Kyutai("PcmMessagePack", "anna", find_anna)
    heard(dialect, "Hi")
    answer = unpacked(told(dialect, error("overloaded", "no free channels", "speech")))
    assert answer == [{"type": "Error", "message": "no free channels"}, ("hangup", 1008)]
    assert heard(dialect, "there") == []


@pytest.mark.parametrize(
    "frame",
    [
        b"",
        b"\xff\xff",
        packed(type="Shout"),
        packed(text="x"),
        b"\x81\xa4type\xa2\xff\xff",
        packed(type="Voice"),
        b"\x91" * 100_000,
    ],
)
def test_what_is_no_message_ends_the_socket(frame: bytes) -> None:
    (answer, end) = unpacked(heard(Kyutai("PcmMessagePack", "anna", find_anna), frame))
    assert answer["type"] == "Error"
    assert end == ("hangup", 1008)
