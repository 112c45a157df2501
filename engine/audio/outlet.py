"""An utterance's way out: samples and events in, packets and events to the sink, in the order in which they came.

Encoding costs more than anything else that the CPU does for a stream, so it runs on a pool (libopus releases Python's
lock): the engine's thread posts, one worker at a time drains. `close` is the cancel: whatever is still queued is lost.
"""

import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Protocol

import structlog

from engine import units
from engine.audio.packets import PacketEncoder, Samples
from engine.interface import AudioReady, EngineEvent, Failed, UtteranceId

log = structlog.get_logger()

Sink = Callable[[list[EngineEvent]], None]  # called from any thread

# What is encoded before anything of an utterance leaves: its first sound does not wait for the whole first block.
_FIRST_SLICE_PACKETS = 2


class Runner(Protocol):
    """Where encoding runs: a thread pool's `submit`, or at once in the caller."""

    def __call__(self, job: Callable[[], None], /) -> object: ...


def run_inline(job: Callable[[], None]) -> None:
    """The Runner of tests and of engines without an encoder pool."""
    job()


@dataclass(frozen=True, slots=True)
class Delivered:
    """What has left through an outlet."""

    num_packets: int
    num_samples: int  # handed to the encoder, those of a packet that is only begun among them
    first_packet_s: float | None  # on the outlet's clock


_Item = Callable[[], list[EngineEvent]]


class Outlet:
    """Posting methods are called from one thread. After `close`, or the event of `finish`, nothing leaves."""

    def __init__(
        self,
        utterance_id: UtteranceId,
        encoder: PacketEncoder,
        *,
        frame_ms: int,
        run: Runner,
        sink: Sink,
        clock: Callable[[], float],
    ) -> None:
        self._utterance_id = utterance_id
        self._encoder = encoder
        self._frame_ms = frame_ms
        self._run = run
        self._sink = sink
        self._clock = clock
        self._lock = threading.Lock()  # over all that follows, and over the sink: an event leaves whole or not at all
        self._items: deque[_Item] = deque()
        self._is_draining = False
        self._is_closed = False
        self._num_packets = 0
        self._num_samples = 0
        self._first_packet_s: float | None = None

    @property
    def is_closed(self) -> bool:
        """The end event has left: of `close`, of `finish`, or of an encoder that failed."""
        return self._is_closed

    def send_audio(self, samples: Samples) -> None:
        """Samples [n] at SAMPLE_RATE_HZ. The first packets of an utterance leave before the others are encoded."""
        if self._num_samples == 0 and not self._items:
            first = _FIRST_SLICE_PACKETS * units.ms_to_samples(self._frame_ms)
            self._post(partial(self._encode, samples[:first]))
            samples = samples[first:]
        if len(samples):
            self._post(partial(self._encode, samples))

    def send(self, event: EngineEvent) -> None:
        self._post(lambda: [event])

    def flush(self) -> None:
        """Complete the packet that is begun, if any, with silence."""
        self._post(self._flush)

    def finish(self, end_event: Callable[[Delivered], EngineEvent]) -> None:
        """Encode the rest; then the end event."""
        self._post(lambda: self._finish(end_event))

    def close(self, end_event: Callable[[Delivered], EngineEvent]) -> None:
        """Drop what is queued; the end event leaves at once."""
        with self._lock:
            if self._is_closed:
                return
            self._is_closed = True
            self._items.clear()
            self._sink([end_event(self._delivered())])

    def _post(self, item: _Item) -> None:
        with self._lock:
            if self._is_closed:
                return
            self._items.append(item)
            if self._is_draining:
                return
            self._is_draining = True
        self._run(self._drain)

    def _drain(self) -> None:
        while True:
            with self._lock:
                if not self._items:
                    self._is_draining = False
                    return
                item = self._items.popleft()
            try:
                events = item()
            except Exception:
                log.exception("encoding_failed", utterance=self._utterance_id)
                self.close(lambda _: Failed(self._utterance_id, "internal error while encoding this utterance"))
                return
            with self._lock:
                if events and not self._is_closed:
                    self._count(events)
                    self._sink(events)

    def _count(self, events: list[EngineEvent]) -> None:
        for event in events:
            if isinstance(event, AudioReady):
                self._num_packets += len(event.packets)
                if self._first_packet_s is None:
                    self._first_packet_s = self._clock()

    def _delivered(self) -> Delivered:
        return Delivered(self._num_packets, self._num_samples, self._first_packet_s)

    # --- run by _drain, one at a time -------------------------------------------------------------------------

    def _encode(self, samples: Samples) -> list[EngineEvent]:
        packets = self._encoder.encode(samples)
        self._num_samples += len(samples)
        return self._audio_ready(packets)

    def _flush(self) -> list[EngineEvent]:
        packets, num_padding = self._encoder.flush()
        self._num_samples += num_padding
        return self._audio_ready(packets)

    def _finish(self, end_event: Callable[[Delivered], EngineEvent]) -> list[EngineEvent]:
        packets = self._encoder.finish() if self._num_samples else []
        events = self._audio_ready(packets)
        with self._lock:
            if not self._is_closed:
                self._count(events)
                self._is_closed = True
                self._sink([*events, end_event(self._delivered())])
        return []

    def _audio_ready(self, packets: list[bytes]) -> list[EngineEvent]:
        if not packets:
            return []
        pts_48k = self._num_packets * self._frame_ms * units.OPUS_CLOCK_HZ // 1000
        return [AudioReady(self._utterance_id, tuple(packets), pts_48k)]
