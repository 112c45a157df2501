"""State that one session keeps for a client that may come back, and how it knows that client."""

import pytest

from voicegate.gateway.session.continuity import CannotResume, Continuity
from voicegate.protocol import messages as wire
from voicegate.protocol.errors import ProtocolViolation


def wanted(*, max_bytes: int = 10_000) -> Continuity:
    continuity = Continuity("s3cret", max_bytes=max_bytes)
    continuity.acknowledge(0)
    return continuity


def owed(continuity: Continuity) -> list[str | bytes]:
    frames = []
    while (frame := continuity.take_owed()) is not None:
        frames.append(frame)
    return frames


def test_nothing_is_kept_for_a_client_that_never_acknowledges() -> None:
    continuity = Continuity("s3cret", max_bytes=10_000)
    for _ in range(100):
        continuity.note_sent("frame")
        continuity.note_received(20_000)
        assert continuity.take_due_ack() is None
    assert continuity.num_kept_bytes == 0
    with pytest.raises(CannotResume, match="sent no `ack`"):
        continuity.check("s3cret", 100)


def test_it_may_begin_late_and_counts_from_the_beginning() -> None:
    continuity = Continuity("s3cret", max_bytes=10_000)
    continuity.note_sent("a")
    continuity.acknowledge(1)
    continuity.note_sent("b")
    continuity.check("s3cret", 1)
    continuity.take_up(1)
    assert owed(continuity) == ["b"]
    with pytest.raises(CannotResume, match="after message 0 is not kept any more"):
        continuity.check("s3cret", 0)


def test_acks_are_due_by_number_and_by_size() -> None:
    continuity = wanted()
    acks = []
    for num_chars in [1] * 33 + [16 * 1024] * 2:
        continuity.note_received(num_chars)
        acks.append(continuity.take_due_ack())
    assert acks == [None] * 31 + [wire.Ack(32), None, wire.Ack(34), wire.Ack(35)]


def test_coming_back_acknowledges_both_ways() -> None:
    continuity = wanted()
    for frame in "abc":
        continuity.note_sent(frame)
    continuity.note_received(1)
    continuity.check("s3cret", 2)
    assert continuity.take_up(2) == 1
    assert owed(continuity) == ["c"]
    for _ in range(31):
        continuity.note_received(1)
    assert continuity.take_due_ack() is None, "31 since then"


@pytest.mark.parametrize("token", ["", "s3cre", "s3cret2", "S3CRET", "s3crét", "\ud800"])
def test_another_token_is_refused(token: str) -> None:
    with pytest.raises(CannotResume, match="not the token"):
        wanted().check(token, 0)


def test_more_than_was_sent_is_refused() -> None:
    continuity = wanted()
    continuity.note_sent("a")
    with pytest.raises(CannotResume, match="`received` is 2, and that session sent 1 messages"):
        continuity.check("s3cret", 2)
    with pytest.raises(ProtocolViolation, match="ack of 2 messages, and 1 were sent"):
        continuity.acknowledge(2)


def test_an_ack_may_not_be_ahead_of_what_is_sent_again() -> None:
    continuity = wanted()
    for frame in "abc":
        continuity.note_sent(frame)
    continuity.take_up(0)
    with pytest.raises(ProtocolViolation, match="ack of 1 messages, and 0 were sent"):
        continuity.acknowledge(1)
    assert owed(continuity) == ["a", "b", "c"]


def test_a_client_that_acknowledges_too_seldom_loses_the_first_ones() -> None:
    continuity = wanted(max_bytes=1000)
    for n in range(1000):
        continuity.note_sent(f"frame {n}")
        assert continuity.num_kept_bytes <= 1000
    with pytest.raises(CannotResume, match="not kept any more"):
        continuity.check("s3cret", 900)
    continuity.check("s3cret", 995)
    continuity.forget()
    assert continuity.num_kept_bytes == 0
    continuity.check("s3cret", 1000)
