"""What leaves an outlet, in which order, from which thread, and what does not after its end."""

import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from engine import units
from engine.audio.outlet import Delivered, Outlet, Runner, run_inline
from engine.audio.packets import Samples, create_packet_encoder
from engine.interface import (
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

pytestmark = pytest.mark.unit

NAME = UtteranceId("a")
PCM = AudioFormat(codec=Codec.PCM_S16LE)
FRAME = units.ms_to_samples(20)


class LateRunner:
    """Encoding happens when the test says so."""

    def __init__(self) -> None:
        self._jobs: deque[Callable[[], None]] = deque()

    def __call__(self, job: Callable[[], None], /) -> None:
        self._jobs.append(job)

    def run_all(self) -> None:
        while self._jobs:
            self._jobs.popleft()()


def outlet(events: list[EngineEvent], run: Runner = run_inline, audio: AudioFormat = PCM) -> Outlet:
    encoder = create_packet_encoder(audio)
    return Outlet(NAME, encoder, frame_ms=20, run=run, sink=events.extend, clock=lambda: 7.0)


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
    late = LateRunner()
    way_out = outlet(events, late)
    way_out.send_audio(ramp(2.5))
    way_out.flush()
    way_out.send(Flushed(NAME, "f", 60))
    way_out.send_audio(ramp(1))
    way_out.finish(done)
    assert events == [], "nothing is encoded in the engine's thread"
    late.run_all()
    kinds = [type(event) for event in events]
    assert kinds == [AudioReady, AudioReady, Flushed, AudioReady, Done]
    assert [event.pts_48k for event in events if isinstance(event, AudioReady)] == [0, 1920, 2880]
    assert isinstance(events[-1], Done)
    assert events[-1].num_packets == 4


@pytest.mark.parametrize("audio", [PCM, AudioFormat()])
def test_a_pool_encodes_what_the_caller_itself_would(audio: AudioFormat) -> None:
    alone: list[EngineEvent] = []
    pooled: list[EngineEvent] = []
    samples = np.random.default_rng(0).uniform(-0.3, 0.3, 40 * FRAME).astype(np.float32)
    with ThreadPoolExecutor(3) as pool:
        for events, run in ((alone, run_inline), (pooled, pool.submit)):
            way_out = outlet(events, run, audio)
            for part in np.array_split(samples, 7):
                way_out.send_audio(part)
            way_out.finish(done)
    assert packets(pooled) == packets(alone)
    assert pooled[-1] == alone[-1]


def test_the_first_packets_do_not_wait_for_the_whole_block() -> None:
    events: list[EngineEvent] = []
    outlet(events).send_audio(ramp(20))
    assert [len(event.packets) for event in events if isinstance(event, AudioReady)] == [2, 18]


def test_closing_drops_what_is_queued_and_says_how_much_has_left() -> None:
    events: list[EngineEvent] = []
    late = LateRunner()
    way_out = outlet(events, late)
    way_out.send_audio(ramp(2))
    late.run_all()
    way_out.send_audio(ramp(50))
    way_out.close(cancelled)
    late.run_all()
    way_out.send_audio(ramp(1))
    way_out.finish(done)
    late.run_all()
    assert [type(event) for event in events] == [AudioReady, Cancelled]
    assert isinstance(events[-1], Cancelled)
    assert events[-1].audio_ms == 40


def test_closing_twice_says_one_end() -> None:
    events: list[EngineEvent] = []
    way_out = outlet(events)
    way_out.close(cancelled)
    way_out.close(lambda _: Failed(NAME, "again"))
    assert [type(event) for event in events] == [Cancelled]


def test_an_encoder_that_fails_ends_its_utterance() -> None:
    class Broken:
        pre_skip_48k = 0

        def encode(self, samples: Samples) -> list[bytes]:
            raise RuntimeError("no")

        def flush(self) -> tuple[list[bytes], int]:
            return [], 0

        def finish(self) -> list[bytes]:
            return []

    events: list[EngineEvent] = []
    way_out = Outlet(NAME, Broken(), frame_ms=20, run=run_inline, sink=events.extend, clock=lambda: 0.0)
    way_out.send_audio(ramp(1))
    assert [type(event) for event in events] == [Failed]
    assert way_out.is_closed


def test_a_cancel_amid_encoding_loses_or_keeps_a_packet_whole() -> None:
    """Many closes race with the pool: whatever left before the end event is counted in it, and nothing follows it."""
    for _ in range(50):
        events: list[EngineEvent] = []
        with ThreadPoolExecutor(2) as pool:
            way_out = outlet(events, pool.submit)
            for _ in range(10):
                way_out.send_audio(ramp(3))
            closer = threading.Thread(target=lambda way_out=way_out: way_out.close(cancelled))
            closer.start()
            closer.join()
        ends = [index for index, event in enumerate(events) if isinstance(event, Cancelled)]
        assert ends == [len(events) - 1]
        delivered = Delivered(len(packets(events)), 0, None)
        assert isinstance(events[-1], Cancelled)
        assert events[-1].audio_ms >= delivered.num_packets * 20
