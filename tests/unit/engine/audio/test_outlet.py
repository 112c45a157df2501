"""Output of an outlet: in which order, from which thread, and what does not leave after its end."""

from collections import deque
from collections.abc import Callable

import numpy as np
import pytest
from structlog.testing import capture_logs

from voicegate.engine import units
from voicegate.engine.audio.encoding import Answer, Encoding, LocalEncoding, TellFailure
from voicegate.engine.audio.outlet import Delivered, Outlet
from voicegate.engine.audio.packets import PcmPacketEncoder, Samples, create_packet_encoder
from voicegate.engine.interface import (
    AlignedText,
    Alignment,
    AudioFormat,
    AudioReady,
    Cancelled,
    Codec,
    Done,
    EngineEvent,
    Failed,
    Flushed,
    UtteranceId,
)

NAME = UtteranceId("a")
PCM = AudioFormat(codec=Codec.PCM_S16LE)
FRAME = units.ms_to_samples(20)


class LateEncoding:
    """Answers come when the test says so, as from an encoder process."""

    def __init__(self) -> None:
        self._encoding = LocalEncoding(create_packet_encoder(PCM))
        self._calls: deque[Callable[[], None]] = deque()
        self.is_closed = False
        self.fail: TellFailure = lambda _: None

    def on_failure(self, tell: TellFailure) -> None:
        self.fail = tell

    def encode(self, samples: Samples, answer: Answer) -> None:
        self._calls.append(lambda: self._encoding.encode(samples, answer))

    def flush(self, answer: Answer) -> None:
        self._calls.append(lambda: self._encoding.flush(answer))

    def finish(self, answer: Answer) -> None:
        self._calls.append(lambda: self._encoding.finish(answer))

    def close(self) -> None:
        self.is_closed = True

    def answer_all(self) -> None:
        while self._calls:
            self._calls.popleft()()


def outlet(events: list[EngineEvent], encoding: Encoding | None = None, audio: AudioFormat = PCM) -> Outlet:
    encoding = encoding or LocalEncoding(create_packet_encoder(audio))
    return Outlet(NAME, encoding, frame_ms=20, sink=events.extend, clock=lambda: 7.0)


def done(delivered: Delivered) -> Done:
    return Done(NAME, units.samples_to_ms(delivered.num_samples), delivered.num_packets, 0)


def cancelled(delivered: Delivered) -> Cancelled:
    return Cancelled(NAME, units.samples_to_ms(delivered.num_samples), 0, "", "")


def ramp(num_frames: float) -> Samples:
    return np.linspace(-0.5, 0.5, int(num_frames * FRAME), dtype=np.float32)


def packets(events: list[EngineEvent]) -> list[bytes]:
    return [packet for event in events if isinstance(event, AudioReady) for packet in event.packets]


def test_everything_leaves_in_the_order_in_which_it_came() -> None:
    events: list[EngineEvent] = []
    late = LateEncoding()
    way_out = outlet(events, late)
    way_out.send_audio(ramp(2.5))
    way_out.flush()
    way_out.send(Flushed(NAME, "f", 60))
    way_out.send_audio(ramp(1))
    way_out.finish(done)
    assert events == [], "an event waits for the packets before it"
    late.answer_all()
    kinds = [type(event) for event in events]
    assert kinds == [AudioReady, AudioReady, AudioReady, Flushed, AudioReady, Done]
    assert [event.pts_48k for event in events if isinstance(event, AudioReady)] == [0, 960, 1920, 2880]
    assert isinstance(events[-1], Done)
    assert events[-1].num_packets == 4


def test_the_first_packet_does_not_wait_for_the_whole_block() -> None:
    events: list[EngineEvent] = []
    outlet(events).send_audio(ramp(20))
    assert [len(event.packets) for event in events if isinstance(event, AudioReady)] == [1, 19]


def test_what_is_announced_leaves_in_one_call_with_the_sound_behind_it() -> None:
    calls: list[list[EngineEvent]] = []
    late = LateEncoding()
    out = Outlet(NAME, late, frame_ms=20, sink=calls.append, clock=lambda: 7.0)
    words = Alignment(NAME, (AlignedText("a", 0, 40, 0, 1),), estimated=True)
    out.announce(words)
    out.send_audio(ramp(1))
    assert not calls  # nobody is told of words whose sound is not there
    late.answer_all()
    ((first, second),) = calls
    assert first is words
    assert isinstance(second, AudioReady)


def test_what_is_announced_and_not_followed_leaves_with_the_end() -> None:
    events: list[EngineEvent] = []
    out = outlet(events)
    words = Alignment(NAME, (AlignedText("a", 0, 40, 0, 1),), estimated=True)
    out.announce(words)
    out.finish(done)
    assert events == [words, done(Delivered(0, 0, None))]


def test_closing_drops_what_is_queued_and_says_how_much_has_left() -> None:
    events: list[EngineEvent] = []
    late = LateEncoding()
    way_out = outlet(events, late)
    way_out.send_audio(ramp(1))
    late.answer_all()
    way_out.send_audio(ramp(50))
    way_out.close(cancelled)
    late.answer_all()
    way_out.send_audio(ramp(1))
    way_out.finish(done)
    late.answer_all()
    assert [type(event) for event in events] == [AudioReady, Cancelled]
    assert isinstance(events[-1], Cancelled)
    assert events[-1].audio_ms == 20


def test_closing_twice_says_one_end() -> None:
    events: list[EngineEvent] = []
    way_out = outlet(events)
    way_out.close(cancelled)
    way_out.close(lambda _: Failed(NAME, "again"))
    assert [type(event) for event in events] == [Cancelled]


@pytest.mark.parametrize("num_frames", [0, 2])
def test_an_encoder_that_fails_ends_its_utterance_at_once(num_frames: int) -> None:
    events: list[EngineEvent] = []
    late = LateEncoding()
    way_out = outlet(events, late)
    way_out.send_audio(ramp(num_frames))
    late.answer_all()
    num_before = len(events)
    way_out.send_audio(ramp(50))
    with capture_logs() as logs:
        late.fail("lost")
        late.fail("lost")
    assert len(logs) == 1
    late.answer_all()
    way_out.send_audio(ramp(1))
    way_out.flush()
    way_out.send(Flushed(NAME, "f", 60))
    way_out.finish(done)
    assert [type(event) for event in events[num_before:]] == [Failed]
    assert late.is_closed


def test_an_encoder_that_has_failed_before_is_told_as_well() -> None:
    class Lost(LateEncoding):
        def on_failure(self, tell: TellFailure) -> None:
            tell("lost")

    events: list[EngineEvent] = []
    outlet(events, Lost())
    assert [type(event) for event in events] == [Failed]


def test_an_encoder_here_that_fails_fails_its_utterance_and_not_its_caller() -> None:
    class Broken(PcmPacketEncoder):
        def encode(self, samples: Samples) -> list[bytes]:
            raise ValueError("out of tune")

    events: list[EngineEvent] = []
    with capture_logs() as logs:
        way_out = outlet(events, LocalEncoding(Broken(PCM)))
        way_out.send_audio(ramp(20))
        way_out.finish(done)
    assert [type(event) for event in events] == [Failed]
    assert [entry["reason"] for entry in logs] == ["ValueError('out of tune')"]
