"""The first packets are made here and the others elsewhere; the stream is the one that a single encoder makes."""

import numpy as np
import pytest

from voicegate.engine import units
from voicegate.engine.audio.encoder_pool import EncoderProcesses
from voicegate.engine.audio.encoding import Answer, Encoded, LocalEncoders, LocalEncoding
from voicegate.engine.audio.head_start import HeadStarts
from voicegate.engine.audio.outlet import Outlet
from voicegate.engine.audio.packets import OpusPacketEncoder, Samples
from voicegate.engine.interface import AudioFormat, AudioReady, Codec, Done, EngineEvent, Failed, UtteranceId

NAME = UtteranceId("a")
SOUND = np.random.default_rng(0).uniform(-0.3, 0.3, 40 * units.SAMPLES_PER_FRAME + 123).astype(np.float32)


class Clock:
    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


class LateEncoders(LocalEncoders):
    """Answers when it is told to: what leaves before was made elsewhere."""

    def __init__(self) -> None:
        super().__init__()
        self.owed: list[tuple[Answer, Encoded]] = []

    def open(self, audio: AudioFormat) -> "LateEncoding":
        return LateEncoding(super().open(audio), self.owed)

    def answer(self) -> None:
        for answer, encoded in self.owed:
            answer(encoded)
        self.owed.clear()


class LateEncoding(LocalEncoding):
    def __init__(self, encoding: LocalEncoding, owed: list[tuple[Answer, Encoded]]) -> None:
        super().__init__(encoding._encoder)
        self._owed = owed

    def encode(self, samples: Samples, answer: Answer) -> None:
        super().encode(samples, lambda encoded: self._owed.append((answer, encoded)))

    def flush(self, answer: Answer) -> None:
        super().flush(lambda encoded: self._owed.append((answer, encoded)))

    def finish(self, answer: Answer) -> None:
        super().finish(lambda encoded: self._owed.append((answer, encoded)))


def head_starts(encoders: LocalEncoders | EncoderProcesses, clock: Clock | None = None) -> HeadStarts:
    return HeadStarts(encoders, clock or Clock())


def outlet(encoders: HeadStarts | LocalEncoders, events: list[EngineEvent], audio: AudioFormat) -> Outlet:
    return Outlet(NAME, encoders.open(audio), frame_ms=audio.frame_ms, sink=events.extend, clock=lambda: 0.0)


def packets(events: list[EngineEvent]) -> list[bytes]:
    return [packet for event in events if isinstance(event, AudioReady) for packet in event.packets]


def speak(way_out: Outlet, sizes: list[int]) -> None:
    for index, part in enumerate(np.split(SOUND, np.cumsum(sizes))):
        way_out.send_audio(part)
        if index == 1:
            way_out.flush()
    way_out.finish(lambda delivered: Done(NAME, delivered.num_samples, delivered.num_packets, 0))


def test_the_first_packet_waits_for_nobody() -> None:
    late, events = LateEncoders(), list[EngineEvent]()
    speak(outlet(head_starts(late), events, AudioFormat()), [])
    assert len(packets(events)) == 1
    late.answer()
    assert isinstance(events[-1], Done)
    assert events[-1].num_packets == len(packets(events)) > 40


class BusyEncoding(LocalEncoding):
    """To give it samples takes time."""

    def __init__(self, encoding: LocalEncoding, events: list[EngineEvent]) -> None:
        super().__init__(encoding._encoder)
        self._events = events
        self.num_left: list[int] = []  # packets, whenever it was given samples

    def encode(self, samples: Samples, answer: Answer) -> None:
        self.num_left.append(len(packets(self._events)))
        super().encode(samples, answer)


def test_the_first_packet_leaves_before_its_process_is_given_samples() -> None:
    events: list[EngineEvent] = []
    encoders = LocalEncoders()
    busy = BusyEncoding(encoders.open(AudioFormat()), events)
    encoders.open = lambda audio: busy  # type: ignore[method-assign]
    outlet(head_starts(encoders), events, AudioFormat()).send_audio(SOUND)
    assert busy.num_left == [1, 1]


@pytest.mark.parametrize("audio", [AudioFormat(), AudioFormat(frame_ms=60, bitrate_bps=24_000)])
@pytest.mark.parametrize("sizes", [[], [100], [480, 1], [700, 960, 5]])
def test_the_stream_is_the_same_to_the_byte(audio: AudioFormat, sizes: list[int]) -> None:
    alone: list[EngineEvent] = []
    speak(outlet(LocalEncoders(), alone, audio), sizes)
    starts = head_starts(LocalEncoders())
    for _ in range(2):  # the second with an encoder that has been used
        events: list[EngineEvent] = []
        speak(outlet(starts, events, audio), sizes)
        assert packets(events) == packets(alone)
        assert events[-1] == alone[-1]


def test_a_process_goes_on_where_the_start_ends() -> None:
    pool = EncoderProcesses(1)
    made: list[Encoded] = []
    encoding = head_starts(pool).open(AudioFormat())
    encoding.encode(SOUND[:960], made.append)
    assert [len(each.packets) for each in made] == [2], "made here"
    encoding.encode(SOUND[960:], made.append)
    encoding.finish(made.append)
    pool.close()  # returns when all is answered
    wanted: list[Encoded] = []
    alone = LocalEncoders().open(AudioFormat())
    for part in (SOUND[:960], SOUND[960:]):
        alone.encode(part, wanted.append)
    alone.finish(wanted.append)
    assert made == wanted


def test_many_new_requests_do_not_keep_the_engines_thread() -> None:
    clock, late, events = Clock(), LateEncoders(), list[EngineEvent]()
    starts = head_starts(late, clock)

    def num_begun(num_new_requests: int) -> int:
        events.clear()
        for _ in range(num_new_requests):
            outlet(starts, events, AudioFormat()).send_audio(SOUND)
        return len(packets(events))

    assert num_begun(10) == 4
    assert num_begun(1) == 0
    clock.now_s = 0.02
    assert num_begun(10) == 2
    clock.now_s = 100.0
    assert num_begun(10) == 4
    late.answer()
    assert len(packets(events)) > 10 * 40, "the others have come the long way"


def test_what_is_no_opus_goes_the_usual_way() -> None:
    late, events = LateEncoders(), list[EngineEvent]()
    outlet(head_starts(late), events, AudioFormat(codec=Codec.PCM_S16LE)).send_audio(SOUND)
    assert not packets(events)


def test_an_encoder_that_fails_behind_a_start_fails_the_utterance_once(monkeypatch: pytest.MonkeyPatch) -> None:
    events: list[EngineEvent] = []
    way_out = outlet(head_starts(LocalEncoders()), events, AudioFormat())
    monkeypatch.setattr(OpusPacketEncoder, "encode", lambda *_: 1 / 0)
    speak(way_out, [])
    assert [type(event) for event in events] == [AudioReady, Failed]
