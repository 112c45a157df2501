"""Round trips of the binary audio message, and its reading of arbitrary bytes."""

from hypothesis import given
from hypothesis import strategies as st

from voicegate.protocol import audio_message
from voicegate.protocol.audio_message import AudioMessage
from voicegate.protocol.errors import ProtocolViolation

u32 = st.integers(0, 2**32 - 1)


@given(
    st.builds(
        AudioMessage,
        handle=st.integers(0, 2**16 - 1),
        sequence=u32,
        pts_48k=u32,
        packets=st.lists(st.binary(max_size=100), max_size=5).map(tuple),
        is_first=st.booleans(),
        is_last=st.booleans(),
        is_discontinuity=st.booleans(),
    )
)
def test_comes_back_as_it_was(message: AudioMessage) -> None:
    assert audio_message.unpack(audio_message.pack(message)) == message


@given(st.binary(max_size=64))
def test_any_bytes_are_a_message_or_a_violation(raw: bytes) -> None:
    try:
        message = audio_message.unpack(raw)
    except ProtocolViolation:
        return
    repacked = audio_message.pack(message)
    assert repacked[2:] == raw[2:]  # flags that this version does not know are dropped


def test_pts_wraps_after_a_day() -> None:
    message = AudioMessage(handle=1, sequence=5, pts_48k=2**32 + 960, packets=(b"x",))
    assert audio_message.unpack(audio_message.pack(message)).pts_48k == 960


def test_largest_packet() -> None:
    message = AudioMessage(handle=1, sequence=0, pts_48k=0, packets=(bytes(2**16 - 1),))
    assert audio_message.unpack(audio_message.pack(message)) == message
