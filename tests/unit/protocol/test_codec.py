"""Cases beyond the vectors: bytes, sizes, and the limits of what an error repeats."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from voicegate.protocol import codec, messages
from voicegate.protocol.errors import ErrorCode, ProtocolViolation


def violation_of(raw: str | bytes) -> ProtocolViolation:
    with pytest.raises(ProtocolViolation) as caught:
        codec.decode_client(raw)
    return caught.value


@given(st.text() | st.binary())
def test_anything_is_a_message_or_a_violation(raw: str | bytes) -> None:
    violation = None
    try:
        codec.decode_client(raw)
    except ProtocolViolation as error:
        violation = error
    assert violation is None or (violation.code is ErrorCode.BAD_MESSAGE and violation.message)


@given(
    st.builds(
        messages.Text,
        context=st.text(min_size=1, max_size=64).filter(str.isprintable),
        text=st.text(st.characters(codec="utf-8")),
    )
)
def test_text_comes_back_as_it_was(message: messages.Text) -> None:
    assert codec.decode_client(codec.encode(message)) == message


def test_bytes_that_are_not_utf8_are_a_violation() -> None:
    assert "not JSON" in violation_of(b'{"type":"text","context":"a","text":"\xff"}').message


def test_deep_nesting_is_a_violation() -> None:
    assert "not JSON" in violation_of('{"type":"ping","t":' + "[" * 5000).message


@pytest.mark.parametrize("field", ["type", "mode", "context"])
def test_an_error_does_not_repeat_a_long_input(field: str) -> None:
    fields = {"type": "open", "context": "a", "mode": "auto", field: "x" * 100_000}
    raw = "{" + ",".join(f'"{key}":"{value}"' for key, value in fields.items()) + "}"
    assert len(violation_of(raw).message) < 400


def test_a_violation_names_the_context_where_it_is_readable() -> None:
    violation = violation_of('{"type":"open","context":"a","speed":9}')
    assert (violation.context, violation.message_type) == ("a", "open")
    assert violation_of('{"type":"open","context":"a\\u0000","speed":9}').context is None
    assert violation_of('{"type":"open","context":7}').context is None
    assert violation_of("[]").message_type is None


def test_text_that_utf8_cannot_hold_is_not_encoded() -> None:
    with pytest.raises(ProtocolViolation, match="cannot be written as JSON"):
        codec.encode(messages.Text(context="a", text="\ud800"))


def test_servers_messages_are_not_clients() -> None:
    assert "unknown type" in violation_of(codec.encode(messages.Flushed(context="a", id="", audio_ms=0))).message
