"""Sent frames that may not have arrived: each comes once, in order, however often the wire is cut."""

import sys

from hypothesis import given
from hypothesis import strategies as st

from voicegate.protocol.delivery import Sent


def sent_frames(*frames: str) -> Sent:
    sent = Sent()
    for frame in frames:
        sent.keep(frame)
        assert sent.take_unwritten() == frame
    return sent


def drained(sent: Sent) -> list[str | bytes]:
    frames = []
    while (frame := sent.take_unwritten()) is not None:
        frames.append(frame)
    return frames


def test_what_was_acknowledged_is_kept_no_longer() -> None:
    sent = sent_frames("a", "b", "c")
    sent.acknowledge(2)
    sent.acknowledge(1)  # late
    assert (sent.num_frames, sent.num_kept, sent.num_kept_bytes) == (3, 1, sys.getsizeof("c"))
    assert [sent.has_all_behind(n) for n in range(5)] == [False, False, True, True, False]


def test_a_new_connection_gets_the_rest() -> None:
    sent = sent_frames("a", "b", "c")
    sent.keep("d")
    sent.rewind(1)
    assert sent.is_owed_any
    assert drained(sent) == ["b", "c", "d"]
    assert not sent.is_owed_any


def test_what_is_not_written_yet_is_not_given_up() -> None:
    sent = sent_frames("a", "b", "c")
    sent.rewind(0)
    assert sent.take_unwritten() == "a"
    sent.shrink(0)
    assert drained(sent) == ["b", "c"]
    sent.shrink(0)
    assert (sent.num_frames, sent.num_kept, sent.num_kept_bytes) == (3, 0, 0)


def test_the_first_ones_are_given_up_where_there_is_too_much() -> None:
    sent = sent_frames("a", "b", "c")
    sent.shrink(2 * sys.getsizeof("a"))
    assert not sent.has_all_behind(0)
    sent.rewind(1)
    assert drained(sent) == ["b", "c"]


def test_frames_that_are_only_counted() -> None:
    sent = Sent()
    sent.count()
    sent.keep("b")
    sent.rewind(1)
    assert (sent.num_frames, drained(sent)) == (2, ["b"])


@given(st.lists(st.sampled_from(["send", "write", "arrive", "acknowledge", "cut"]), max_size=200))
def test_each_frame_arrives_once(steps: list[str]) -> None:
    sent, num_sent = Sent(), 0
    on_the_wire: list[str | bytes] = []
    arrived: list[str | bytes] = []
    for step in steps:
        match step:
            case "send":
                sent.keep(str(num_sent))
                num_sent += 1
            case "write" if (frame := sent.take_unwritten()) is not None:
                on_the_wire.append(frame)
            case "arrive" if on_the_wire:
                arrived.append(on_the_wire.pop(0))
            case "acknowledge":
                sent.acknowledge(len(arrived))
            case "cut":
                on_the_wire.clear()
                assert sent.has_all_behind(len(arrived))
                sent.rewind(len(arrived))
    assert [*arrived, *on_the_wire, *drained(sent)] == [str(n) for n in range(num_sent)]
