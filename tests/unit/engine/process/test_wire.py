"""Frames in any parts, and bodies that come back as they were."""

from itertools import pairwise

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from voicegate.engine.interface import (
    AlignedText,
    Alignment,
    AudioReady,
    BadRequest,
    Cancelled,
    Done,
    EngineError,
    EngineEvent,
    EngineStats,
    EngineStopped,
    Failed,
    Flushed,
    Overloaded,
    Timing,
    UnknownVoice,
    Unsupported,
    UtteranceId,
    VoiceConflict,
    VoiceRefused,
)
from voicegate.engine.process import wire
from voicegate.engine.process.replica import StartRefused
from voicegate.engine.process.wire import Frames, State, WireError, frame

ID = UtteranceId("u-1")
EVENTS: tuple[EngineEvent, ...] = (
    AudioReady(ID, (b"one", b"", b"x" * 4000), 48 * 10**9),
    Alignment(ID, (AlignedText("né", 0, 20, 0, 2), AlignedText("你好", 20, 99, 2, 4)), estimated=True),
    Flushed(ID, "flush \n 1", 20),
    Done(ID, 100, 5, 4800, Timing(0.1, None, 2.0, 3.5), is_truncated=True),
    Cancelled(ID, 20, 960, "said", " and not\x00said"),
    Failed(ID, "why"),
)


FRAMES = [(1, 0, b""), (255, 2**32 - 1, b"x" * 300), (0, 7, b"\x00"), (6, 1, b"")]
STREAM = b"".join(frame(*each) for each in FRAMES)


@settings(max_examples=50)
@given(st.lists(st.integers(0, len(STREAM)), max_size=8))
def test_frames_come_whole_however_they_are_parted(cuts: list[int]) -> None:
    reader, got = Frames(), []
    for start, end in pairwise([0, *sorted(cuts), len(STREAM)]):
        got += reader.feed(STREAM[start:end])
    assert got == FRAMES


def test_what_is_no_frame_is_told_before_it_is_waited_for() -> None:
    with pytest.raises(WireError, match="body of 4294967295 bytes"):
        list(Frames().feed(b"\xff" * 9))


@pytest.mark.parametrize("event", EVENTS)
def test_events_come_back_as_they_were(event: EngineEvent) -> None:
    kind, body = wire.pack_event(event)
    assert wire.unpack_event(kind, ID, body) == event


def test_numbers_of_an_engine_may_be_of_any_type() -> None:
    stats = EngineStats({"steps": np.float32(0.5), "rows": np.int64(3)}, {"free": 2}, {"llm": [1, 0]})
    state = msgspec.json.decode(wire.pack_state(State(7, "why", stats)), type=State)
    assert state == State(7, "why", EngineStats({"steps": 0.5, "rows": 3.0}, {"free": 2.0}, {"llm": [1, 0]}))


@pytest.mark.parametrize(
    "kind", [UnknownVoice, Unsupported, BadRequest, VoiceRefused, VoiceConflict, EngineStopped, EngineError]
)
def test_refusals_are_raised_as_they_were(kind: type[EngineError]) -> None:
    error = wire.error_of(wire.refusal(kind("why")))
    assert type(error) is kind
    assert str(error) == "why"


def test_what_passes_says_when() -> None:
    error = wire.error_of(wire.refusal(Overloaded("full", retry_after_ms=5)))
    assert isinstance(error, Overloaded)
    assert (str(error), error.retry_after_ms) == ("full", 5)


def test_what_cannot_be_raised_alike_is_an_engine_error_all_the_same() -> None:
    error = wire.error_of(wire.refusal(StartRefused("too small")))
    assert type(error) is EngineError
    assert str(error) == "too small"
