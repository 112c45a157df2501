"""An utterance's way out: samples and events in, packets and events to the sink, in the order in which they came.

Packets may be made elsewhere and come later: what was posted behind them waits for them. `close` is the cancel:
whatever has not left by then is lost.
"""

import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import structlog

from voicegate.engine import units
from voicegate.engine.audio.encoding import Encoded, Encoding
from voicegate.engine.audio.packets import Samples
from voicegate.engine.interface import AudioReady, EngineEvent, Failed, UtteranceId

log = structlog.get_logger()

Sink = Callable[[list[EngineEvent]], None]  # called from any thread

# Packets that are encoded before anything of an utterance leaves: its first sound does not wait for the whole first
# block, nor for a second packet, which takes 0.1 ms and is there long before the first has been played.
_FIRST_SLICE_PACKETS = 1

# The client's message; the log has the rest.
_FAILURE = "this utterance's audio could not be encoded any further; try again"


@dataclass(frozen=True, slots=True)
class Delivered:
    """Audio that has left through an outlet."""

    num_packets: int
    num_samples: int  # taken by the encoder, those of a packet that is only begun among them
    first_packet_s: float | None  # on the outlet's clock


EndEventOf = Callable[[Delivered], EngineEvent]


@dataclass(slots=True)
class _Place:
    """In the line of what is to leave: packets that may not be there yet, and what follows them."""

    encoded: Encoded | None = None
    events: tuple[EngineEvent, ...] = ()
    end_event_of: EndEventOf | None = None


class Outlet:
    """Posting methods are called from one thread. After the end event nothing leaves, and posting does nothing.

    The end event is that of `close` or of `finish`, or `Failed` at the moment at which the encoder is lost.
    """

    def __init__(
        self, utterance_id: UtteranceId, encoding: Encoding, *, frame_ms: int, sink: Sink, clock: Callable[[], float]
    ) -> None:
        self._utterance_id = utterance_id
        self._encoding = encoding
        self._frame_ms = frame_ms
        self._sink = sink
        self._clock = clock
        self._lock = threading.RLock()  # over all that follows, and over the sink: an event leaves whole or not at all
        self._line: deque[_Place] = deque()
        self._is_closed = False
        self._has_audio = False
        self._num_packets = 0
        self._num_samples = 0
        self._first_packet_s: float | None = None
        encoding.on_failure(self._fail)

    def send_audio(self, samples: Samples) -> None:
        """Samples [n] at SAMPLE_RATE_HZ. The first packet of an utterance leaves before the others are encoded."""
        if self._is_closed:
            return
        if not self._has_audio:
            self._has_audio = True
            first = _FIRST_SLICE_PACKETS * units.ms_to_samples(self._frame_ms)
            self._encoding.encode(samples[:first], partial(self._answered, self._take_place()))
            samples = samples[first:]
        if len(samples):
            self._encoding.encode(samples, partial(self._answered, self._take_place()))

    def send(self, event: EngineEvent) -> None:
        self._answered(self._take_place(events=(event,)), Encoded())

    def announce(self, event: EngineEvent) -> None:
        """It leaves in one call of the sink with what is posted next, which is to follow at once."""
        self._take_place(events=(event,)).encoded = Encoded()

    def flush(self) -> None:
        """Complete the packet that is begun, if any, with silence."""
        if not self._is_closed:
            self._encoding.flush(partial(self._answered, self._take_place()))

    def finish(self, end_event_of: EndEventOf) -> None:
        """Encode the rest; then the end event."""
        if not self._is_closed:
            self._encoding.finish(partial(self._answered, self._take_place(end_event_of=end_event_of)))

    def close(self, end_event_of: EndEventOf) -> None:
        """Drop what has not left; the end event leaves at once."""
        with self._lock:
            self._end(end_event_of)

    def _take_place(self, *, events: tuple[EngineEvent, ...] = (), end_event_of: EndEventOf | None = None) -> _Place:
        place = _Place(events=events, end_event_of=end_event_of)
        with self._lock:
            if not self._is_closed:
                self._line.append(place)
        return place

    def _answered(self, place: _Place, encoded: Encoded) -> None:
        """Let leave all that waited for nothing else, together: each call of the sink may wake a thread."""
        with self._lock:
            place.encoded = encoded
            events: list[EngineEvent] = []
            end_event_of = None
            while self._line and end_event_of is None and self._line[0].encoded is not None:
                first = self._line.popleft()
                events += self._events_of(first)
                end_event_of = first.end_event_of
            if events:
                self._sink(events)
            if end_event_of is not None:
                self._end(end_event_of)

    def _events_of(self, place: _Place) -> list[EngineEvent]:
        assert place.encoded is not None
        self._num_samples += place.encoded.num_samples
        return [*self._audio_ready(place.encoded.packets), *place.events]

    def _fail(self, reason: str) -> None:
        with self._lock:
            if not self._is_closed:
                log.error("encoding_failed", utterance=self._utterance_id, reason=reason)
                self._end(lambda _: Failed(self._utterance_id, _FAILURE))

    def _end(self, end_event_of: EndEventOf) -> None:
        if self._is_closed:
            return
        # May raise: then nothing has ended yet, and another end can still be told.
        event = end_event_of(Delivered(self._num_packets, self._num_samples, self._first_packet_s))
        self._is_closed = True
        self._line.clear()
        self._sink([event])
        self._encoding.close()

    def _audio_ready(self, packets: tuple[bytes, ...]) -> list[EngineEvent]:
        if not packets:
            return []
        if self._first_packet_s is None:
            self._first_packet_s = self._clock()
        pts_48k = self._num_packets * self._frame_ms * units.OPUS_CLOCK_HZ // 1000
        self._num_packets += len(packets)
        return [AudioReady(self._utterance_id, packets, pts_48k)]
