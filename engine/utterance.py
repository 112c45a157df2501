"""An utterance: the one object that travels the whole pipe, from its text to its packets and its end event.

It owns its text, its encoder and its idea of what the listener has, and builds its own events. It knows neither the
scheduler nor the models nor other utterances; `core` moves it along.
"""

from collections import deque
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from engine import units
from engine.audio.packets import PacketEncoder
from engine.clause import Clause, ClauseState
from engine.clause_feed import ClauseFeed
from engine.interface import (
    AlignedText,
    Alignment,
    AudioReady,
    Cancelled,
    Done,
    Flushed,
    Timing,
    UtteranceId,
    UtteranceRequest,
)
from engine.stages import ReadyVoice
from engine.text.alignment import align_span, split_spoken


@dataclass(slots=True)
class Stamps:
    """Engine clock, seconds; None where it has not happened."""

    first_text_s: float | None = None
    llm_started_s: float | None = None
    first_token_s: float | None = None
    first_chunk_s: float | None = None
    first_packet_s: float | None = None

    def timing(self) -> Timing:
        return Timing(
            queue_ms=self._since_text_ms(self.llm_started_s),
            llm_first_token_ms=self._since_text_ms(self.first_token_s),
            first_chunk_ms=self._since_text_ms(self.first_chunk_s),
            first_packet_ms=self._since_text_ms(self.first_packet_s),
        )

    def _since_text_ms(self, stamp_s: float | None) -> float | None:
        if stamp_s is None or self.first_text_s is None:
            return None
        return round((stamp_s - self.first_text_s) * 1000, 2)


class Utterance:
    def __init__(
        self, request: UtteranceRequest, voice: ReadyVoice, feed: ClauseFeed, encoder: PacketEncoder, *, seed: int
    ) -> None:
        self.request = request
        self.voice = voice
        self.feed = feed
        self.seed = seed
        self.stamps = Stamps()
        self.num_started_clauses = 0
        self.deadline_s: float | None = None  # the listener runs dry; None while nothing was sent
        self._encoder = encoder
        self._ms_per_letter = voice.voice.ms_per_letter() / request.speed
        self._words: list[AlignedText] = []
        self._num_samples = 0
        self._num_packets = 0

    @property
    def utterance_id(self) -> UtteranceId:
        return self.request.utterance_id

    @property
    def clauses(self) -> deque[Clause]:
        return self.feed.clauses

    @property
    def audio_ms(self) -> int:
        return units.samples_to_ms(self._num_samples)

    @property
    def is_finished(self) -> bool:
        return self.feed.is_ended and not self.clauses

    # --- audio ------------------------------------------------------------------------------------------------

    def deliver(self, samples: npt.NDArray[np.float32], now_s: float) -> list[AudioReady]:
        """Samples [n] at SAMPLE_RATE_HZ, in order -> packets, if they complete any."""
        if not len(samples):
            return []
        if self.stamps.first_chunk_s is None:
            self.stamps.first_chunk_s = now_s
        self._num_samples += len(samples)
        return self._audio_ready(self._encoder.encode(samples), now_s)

    def _audio_ready(self, packets: list[bytes], now_s: float) -> list[AudioReady]:
        if not packets:
            return []
        if self.stamps.first_packet_s is None:
            self.stamps.first_packet_s = now_s
        packet_ms = self.request.audio.frame_ms
        pts_48k = self._num_packets * packet_ms * units.OPUS_CLOCK_HZ // 1000
        self._num_packets += len(packets)
        # A listener who ran dry resumes when audio comes: the deadline counts from then.
        self.deadline_s = max(self.deadline_s or now_s, now_s) + len(packets) * packet_ms / 1000
        return [AudioReady(self.utterance_id, tuple(packets), pts_48k)]

    @property
    def _end_pts_48k(self) -> int:
        if not self._num_samples:
            return 0
        return self._encoder.pre_skip_48k + self._num_samples * units.OPUS_CLOCK_PER_SAMPLE

    # --- events that end something ----------------------------------------------------------------------------

    def flushed(self, clause: Clause, now_s: float) -> list[AudioReady | Flushed]:
        """What a spoken clause owes to the flushes that wait for it; pads so that its last packet leaves now."""
        if not clause.flush_ids:
            return []
        packets, num_padding = self._encoder.flush()
        self._num_samples += num_padding
        events: list[AudioReady | Flushed] = list(self._audio_ready(packets, now_s))
        events += [Flushed(self.utterance_id, flush_id, self.audio_ms) for flush_id in clause.flush_ids]
        return events

    def done(self, now_s: float) -> list[AudioReady | Done]:
        packets = self._encoder.finish() if self._num_samples else []
        events: list[AudioReady | Done] = list(self._audio_ready(packets, now_s))
        timing = self.stamps.timing()
        events.append(Done(self.utterance_id, self.audio_ms, self._num_packets, self._end_pts_48k, timing))
        return events

    def cancelled(self, played_ms: int | None) -> Cancelled:
        heard_ms = self.audio_ms if played_ms is None else min(played_ms, self.audio_ms)
        words = [*self._words, *(word for clause in self.clauses for word in self._estimate(clause))]
        text = self.feed.text
        cut = split_spoken(words, heard_ms)
        return Cancelled(self.utterance_id, self.audio_ms, self._end_pts_48k, text[:cut], text[cut:])

    # --- alignment --------------------------------------------------------------------------------------------

    def align(self, clause: Clause) -> list[Alignment]:
        """The clause's words on the audio clock, once both its borders are known."""
        has_all_tokens = clause.state in (ClauseState.RENDERING, ClauseState.SPOKEN)
        if clause.is_aligned or clause.start_ms is None or not has_all_tokens:
            return []
        clause.is_aligned = True
        duration_ms = round(clause.num_tokens * units.MS_PER_TOKEN / self.request.speed)
        items = align_span(clause.text, clause.char_start, clause.start_ms, clause.start_ms + duration_ms)
        self._words += items
        return [Alignment(self.utterance_id, tuple(items), estimated=True)] if items else []

    def _estimate(self, clause: Clause) -> tuple[AlignedText, ...]:
        """Words of a clause whose end is not known yet, at the voice's usual rate."""
        if clause.is_aligned or clause.start_ms is None:
            return ()
        letters = sum(char.isalnum() for char in clause.text)
        known_ms = clause.num_tokens * units.MS_PER_TOKEN / self.request.speed
        duration_ms = round(max(known_ms, letters * self._ms_per_letter))
        return align_span(clause.text, clause.char_start, clause.start_ms, clause.start_ms + duration_ms)
