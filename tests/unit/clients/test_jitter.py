"""The buffer before a sound card: silence until it is full, silence where it is without audio, and what it counts."""

import pytest

from voicegate.clients.python.jitter import JitterBuffer


@pytest.fixture
def buffer() -> JitterBuffer:
    return JitterBuffer(rate_hz=1000, prebuffer_ms=4)  # 2 bytes a millisecond


def test_silence_until_the_prebuffer_is_there(buffer: JitterBuffer) -> None:
    buffer.push(b"abcd")
    assert buffer.pull(4) == bytes(4)
    buffer.push(b"efgh")
    assert buffer.pull(6) == b"abcdef"
    assert (buffer.played_ms, buffer.buffer_ms, buffer.num_underruns) == (3, 1, 0)


def test_a_empty_buffer_is_one_underrun_however_long(buffer: JitterBuffer) -> None:
    buffer.push(b"abcdefgh")
    assert buffer.pull(10) == b"abcdefgh" + bytes(2)
    assert buffer.pull(4) == bytes(4)
    assert buffer.num_underruns == 1
    buffer.push(b"ijkl")  # goes on at once
    assert buffer.pull(4) == b"ijkl"
    assert buffer.pull(2) == bytes(2)
    assert (buffer.num_underruns, buffer.played_ms) == (2, 6)


def test_the_end_plays_what_is_there_and_is_no_underrun(buffer: JitterBuffer) -> None:
    buffer.push(b"ab")
    assert not buffer.is_drained
    buffer.complete()
    assert buffer.pull(4) == b"ab" + bytes(2)
    assert buffer.is_drained
    assert buffer.num_underruns == 0


def test_barge_in_drops_what_was_not_played(buffer: JitterBuffer) -> None:
    buffer.push(b"abcdefgh")
    buffer.pull(4)
    assert buffer.clear() == 2
    buffer.push(b"late")
    assert buffer.pull(4) == bytes(4)
    assert buffer.is_drained
    assert (buffer.played_ms, buffer.num_underruns) == (2, 0)
