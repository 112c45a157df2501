"""A sender of a value outside a list learns the list."""

from typing import Literal

import msgspec
import pytest

from voicegate.protocol import codec
from voicegate.protocol.complaint import complaint
from voicegate.protocol.dialects.one_shot import RequestViolation, decode
from voicegate.protocol.errors import ProtocolViolation
from voicegate.protocol.messages import Open


class Asked(msgspec.Struct):
    stream_format: Literal["sse", "audio"] | None = None


@pytest.mark.parametrize(
    ("fields", "choices"),
    [
        ('"mode":"shout"', "auto, bistream, clause, incremental"),
        ('"format":{"codec":"mp3"}', "opus, pcm_s16le"),
        ('"format":{"frame_ms":25}', "20, 40, 60"),
    ],
)
def test_what_is_none_of_a_list_is_told_the_list(fields: str, choices: str) -> None:
    with pytest.raises(ProtocolViolation) as refused:
        codec.decode_client('{"type":"open","context":"a",' + fields + "}")
    assert str(refused.value).endswith(f"; it must be one of {choices}")


def test_a_field_that_may_be_null_too_has_a_list() -> None:
    with pytest.raises(
        RequestViolation, match=r"'x' - at `\$.stream_format`; it must be one of audio, sse$"
    ) as refused:
        decode(b'{"stream_format":"x"}', Asked)
    assert refused.value.field == "stream_format"


@pytest.mark.parametrize("value", ["x" * 10_000, "\n` - at `$.mode", "` - at `$.nothing.here"])
def test_a_value_of_the_peers_own_making_is_quoted_in_part(value: str) -> None:
    with pytest.raises(msgspec.ValidationError) as refused:
        msgspec.convert({"context": "a", "mode": value}, Open)
    told = complaint(refused.value, Open)
    assert told.endswith("; it must be one of auto, bistream, clause, incremental")
    assert len(told) < 300


def test_other_complaints_are_as_they_were() -> None:
    with pytest.raises(msgspec.ValidationError) as refused:
        msgspec.convert({"context": "a", "speed": 5}, Open)
    assert complaint(refused.value, Open) == str(refused.value)
