"""When the packets of a context may leave, so that its listener never has more in hand than it can hold. Pure.

The listener is taken to play from its first packet on, without a break; what its player reports corrects that.
"""

from collections import deque
from dataclasses import dataclass, field, replace

from voicegate.engine import units
from voicegate.engine.interface import AudioReady, Cancelled, Done, EndEvent, EngineEvent, Failed

_SAME_S = 1e-6  # times that differ by less are the same


@dataclass(slots=True)
class SendPace:
    burst_ms: int  # of audio in hand; never less than one packet
    frame_ms: int
    sent_ms: int = 0
    waiting: deque[EngineEvent] = field(default_factory=deque)  # what may not leave yet, in order
    _empty_s: float | None = None  # when the listener has played all that was sent

    @property
    def next_due_s(self) -> float:
        """When the next packet may leave; only once the first has."""
        assert self._empty_s is not None
        return self._empty_s - max(0, self.burst_ms - self.frame_ms) / 1000

    def take_due(self, now_s: float) -> EngineEvent | None:
        """The next event, or as much of it, that may leave now; audio counts as sent."""
        if not self.waiting:
            return None
        event = self.waiting.popleft()
        if not isinstance(event, AudioReady):
            return event
        num_due = self._num_due(now_s)
        if num_due < len(event.packets):
            rest_pts_48k = event.pts_48k + num_due * self.frame_ms * units.OPUS_CLOCK_HZ // 1000
            self.waiting.appendleft(replace(event, packets=event.packets[num_due:], pts_48k=rest_pts_48k))
            event = replace(event, packets=event.packets[:num_due])
        self._note_sent(len(event.packets), now_s)
        return event if event.packets else None

    @property
    def end(self) -> EndEvent | None:
        """If it waits: then the engine is done, and the rest only waits for its listener."""
        return next((event for event in self.waiting if isinstance(event, Done | Cancelled | Failed)), None)

    def take_end(self) -> EndEvent | None:
        """The end, if it waits; nothing waits from here on."""
        end = self.end
        self.waiting.clear()
        return end

    def _num_due(self, now_s: float) -> int:
        """Packets."""
        in_hand_ms = 0.0 if self._empty_s is None else max(0.0, self._empty_s - now_s) * 1000
        room_ms = max(self.burst_ms, self.frame_ms) - in_hand_ms
        return max(0, int((room_ms + _SAME_S * 1000) // self.frame_ms))  # a player that paused may have too much

    def _note_sent(self, num_packets: int, now_s: float) -> None:
        if not num_packets:
            return
        sent_ms = num_packets * self.frame_ms
        self.sent_ms += sent_ms
        empty_s = now_s if self._empty_s is None else max(self._empty_s, now_s)
        self._empty_s = empty_s + sent_ms / 1000

    def note_played(self, played_ms: int, now_s: float) -> None:
        """Notes a player's report: it may have paused, or begun late."""
        if self._empty_s is not None:
            self._empty_s = now_s + max(0, self.sent_ms - played_ms) / 1000
