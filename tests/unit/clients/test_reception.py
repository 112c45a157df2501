"""The server's messages about one context, and the three rules that end it from our side."""

import pytest

from voicegate.clients.python.errors import ConnectionLost, ContextFailed, ReaderTooSlow
from voicegate.clients.python.reception import Phase, Reception
from voicegate.protocol import messages as wire
from voicegate.protocol.audio_message import AudioMessage

PACKET = b"\xf8" + bytes(9)  # 20 ms of CELT
OPENED = wire.Opened("c", 7, "woman", wire.Format(), 24_000, 312)
DONE = wire.Done("c", 100, 5, wire.Timing())
CANCELLED = wire.Cancelled("c", 100, "spoken ", "rest")


def audio(sequence: int, *packets: bytes, pts_48k: int = 0, is_last: bool = False) -> AudioMessage:
    return AudioMessage(7, sequence, pts_48k, packets, is_first=sequence == 0, is_last=is_last)


@pytest.fixture
def reception() -> Reception:
    opened = Reception(max_unread_bytes=100)
    assert not opened.receive(OPENED)
    return opened


def test_audio_is_read_in_order_with_its_place_and_length(reception: Reception) -> None:
    reception.receive_audio(audio(0, PACKET, PACKET), 1.5)
    reception.receive_audio(audio(1, PACKET, pts_48k=1920), 2.0)
    first, second = reception.read(), reception.read()
    assert first is not None
    assert second is not None
    assert (first.pts_48k, first.duration_48k, first.arrived_s, first.is_first) == (0, 1920, 1.5, True)
    assert (second.pts_48k, second.duration_48k, second.is_first) == (1920, 960, False)
    assert reception.read() is None
    assert reception.unread_bytes == 0


def test_the_last_message_tells_the_exact_end(reception: Reception) -> None:
    reception.receive_audio(audio(0, PACKET), 0.0)
    assert reception.end_pts_48k is None
    reception.receive_audio(audio(1, pts_48k=800, is_last=True), 0.0)
    assert reception.end_pts_48k == 800


def test_pcm_lasts_as_long_as_its_bytes() -> None:
    pcm = Reception(max_unread_bytes=10_000)
    pcm.receive(wire.Opened("c", 7, "woman", wire.Format(codec="pcm_s16le"), 24_000, 0))
    pcm.receive_audio(audio(0, bytes(960)), 0.0)
    item = pcm.read()
    assert item is not None
    assert item.duration_48k == 960


def test_audio_before_an_end_can_be_read_after_it(reception: Reception) -> None:
    reception.receive_audio(audio(0, PACKET), 0.0)
    assert not reception.receive(DONE)
    assert (reception.phase, reception.result) == (Phase.ENDED, DONE)
    assert reception.read() is not None


def test_cancelling_drops_audio_and_waits_for_the_end(reception: Reception) -> None:
    reception.receive_audio(audio(0, PACKET), 0.0)
    reception.begin_cancel()
    assert reception.read() is None
    assert not reception.receive_audio(audio(1, PACKET, pts_48k=960), 0.0)
    assert reception.read() is None
    # Text that crossed the cancel is refused by the server, which changes nothing.
    assert not reception.receive(wire.Error("illegal_in_state", "late", fatal=False, context="c"))
    assert reception.phase is Phase.CANCELLING
    reception.receive(CANCELLED)
    assert reception.result == CANCELLED


def test_cancelling_an_ended_context_only_drops_its_audio(reception: Reception) -> None:
    reception.receive_audio(audio(0, PACKET), 0.0)
    reception.receive(DONE)
    reception.begin_cancel()
    assert (reception.phase, reception.result, reception.read()) == (Phase.ENDED, DONE, None)


def test_too_much_unread_audio_fails_the_context_and_frees_the_memory(reception: Reception) -> None:
    assert not reception.receive_audio(audio(0, *[PACKET] * 10), 0.0)
    assert reception.receive_audio(audio(1, PACKET, pts_48k=9600), 0.0)
    assert isinstance(reception.error, ReaderTooSlow)
    assert (reception.unread_bytes, reception.read()) == (0, None)
    assert not reception.receive_audio(audio(2, PACKET, pts_48k=10560), 0.0)


def test_a_fatal_error_fails_the_context(reception: Reception) -> None:
    assert not reception.receive(wire.Error("engine_failed", "out of luck", fatal=True, context="c"))
    assert isinstance(reception.error, ContextFailed)
    assert (reception.error.code, reception.error.message) == ("engine_failed", "out of luck")
    assert reception.error.retry_after_ms is None


def test_a_refused_message_of_ours_fails_the_context_and_cancels_it(reception: Reception) -> None:
    error = wire.Error("bad_message", "text too long", fatal=False, context="c")
    assert reception.receive(error)
    assert isinstance(reception.error, ContextFailed)


def test_refusal_of_an_open_tells_when_to_come_back() -> None:
    refused = Reception(max_unread_bytes=100)
    assert not refused.receive(wire.Error("overloaded", "full", fatal=True, context="c", retry_after_ms=700))
    assert isinstance(refused.error, ContextFailed)
    assert refused.error.retry_after_ms == 700


def test_what_crossed_an_earlier_context_of_the_id_is_no_refusal() -> None:
    opening = Reception(max_unread_bytes=100)
    assert not opening.receive(wire.Error("unknown_context", "no such context is open", fatal=False, context="c"))
    assert opening.phase is Phase.OPENING
    opening.receive(OPENED)
    assert opening.receive(wire.Error("unknown_context", "no such context is open", fatal=False, context="c"))
    assert isinstance(opening.error, ContextFailed)


@pytest.mark.parametrize(
    "message", [audio(1, PACKET), audio(0, b""), audio(0, b"\xfb\x00")], ids=["gap", "empty packet", "not Opus"]
)
def test_audio_that_cannot_be_right_fails_the_context(reception: Reception, message: AudioMessage) -> None:
    assert reception.receive_audio(message, 0.0)
    assert isinstance(reception.error, ContextFailed)
    assert reception.error.code == "bad_audio"


def test_nothing_follows_an_end(reception: Reception) -> None:
    reception.receive(DONE)
    assert not reception.receive(CANCELLED)
    assert not reception.receive(wire.Error("engine_failed", "late", fatal=True, context="c"))
    reception.fail(ConnectionLost("gone"))
    assert (reception.result, reception.error) == (DONE, None)
