"""Encoder processes that a test speaks through, kills and waits for."""

import os
import signal
import threading
from collections.abc import Callable

import numpy as np

from tests.support.patience import PATIENCE_S
from voicegate.engine import units
from voicegate.engine.audio.encoder_child import EncoderChild
from voicegate.engine.audio.encoder_pool import EncoderProcesses
from voicegate.engine.audio.encoding import Encoders, LocalEncoders
from voicegate.engine.audio.outlet import Outlet
from voicegate.engine.interface import AudioFormat, AudioReady, Done, EngineEvent, Failed, UtteranceId

OPUS = AudioFormat()
NAME = UtteranceId("a")
SOUND = np.random.default_rng(0).uniform(-0.3, 0.3, 40 * units.SAMPLES_PER_FRAME + 123).astype(np.float32)


def children(pool: EncoderProcesses) -> list[EncoderChild]:
    return [held.child for held in pool._held]


def kill(child: EncoderChild) -> None:
    """Returns when it is known to be lost, and its utterances have been told."""
    os.kill(child.pid, signal.SIGKILL)
    assert child._has_ended.wait(PATIENCE_S)


def until(pool: EncoderProcesses, is_so: Callable[[], bool]) -> None:
    """Looked at again when a process is ready or lost."""
    with pool._changed:
        assert pool._changed.wait_for(is_so, PATIENCE_S)


def until_whole(pool: EncoderProcesses, *, num_lost: int) -> None:
    until(pool, lambda: pool.counters["encoders_lost"] == num_lost and all(c.is_ready for c in children(pool)))


class Speech:
    """One utterance's way out through these encoders."""

    def __init__(self, encoders: Encoders) -> None:
        self.events: list[EngineEvent] = []
        self._heard = threading.Condition()
        encoding = encoders.open(OPUS)
        self.outlet = Outlet(NAME, encoding, frame_ms=20, sink=self._hear, clock=lambda: 0.0)

    def _hear(self, events: list[EngineEvent]) -> None:
        with self._heard:
            self.events += events
            self._heard.notify_all()

    def say(self, part: slice = slice(None)) -> None:
        """And wait until it is heard, or the utterance has ended."""
        num_before = self.num_packets
        self.outlet.send_audio(SOUND[part])
        self._until(lambda: self.num_packets > num_before or self.has_ended)

    def finish(self) -> EngineEvent:
        self.outlet.finish(lambda delivered: Done(NAME, delivered.num_samples, delivered.num_packets, 0))
        return self.end()

    def end(self) -> EngineEvent:
        self._until(lambda: self.has_ended)
        return self.events[-1]

    def _until(self, is_so: Callable[[], bool]) -> None:
        with self._heard:
            assert self._heard.wait_for(is_so, PATIENCE_S)

    @property
    def has_ended(self) -> bool:
        return any(isinstance(event, Done | Failed) for event in self.events)

    @property
    def packets(self) -> list[bytes]:
        return [packet for event in self.events if isinstance(event, AudioReady) for packet in event.packets]

    @property
    def num_packets(self) -> int:
        return len(self.packets)


def spoken(encoders: Encoders) -> list[bytes]:
    speech = Speech(encoders)
    speech.say()
    assert isinstance(speech.finish(), Done)
    return speech.packets


EXPECTED = spoken(LocalEncoders())
