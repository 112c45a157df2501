"""An utterance: the one object that travels the whole pipe, from its text to its packets and its end event.

It owns its text, its outlet and its idea of what the listener has, and builds its own events. It knows neither the
scheduler nor the models nor other utterances; `core` moves it along, and reports what it has changed.
"""

import math
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from voicegate.engine import units
from voicegate.engine.audio.outlet import Delivered, Outlet
from voicegate.engine.core import constants
from voicegate.engine.core.clause import Clause, ClauseState
from voicegate.engine.core.clause_feed import ClauseFeed
from voicegate.engine.core.growth import WriterPace
from voicegate.engine.core.listener import Listener
from voicegate.engine.core.stages import ReadyVoice
from voicegate.engine.interface import (
    Alignment,
    AtRest,
    Cancelled,
    Done,
    Failed,
    Flushed,
    ListenerReport,
    Timing,
    UtteranceRequest,
)
from voicegate.engine.text.alignment import Sound, WordTimes


@dataclass(slots=True)
class Stamps:
    """Engine clock, seconds; None where it has not happened."""

    first_text_s: float | None = None
    llm_started_s: float | None = None
    first_token_s: float | None = None
    first_chunk_s: float | None = None

    def timing(self, first_packet_s: float | None) -> Timing:
        return Timing(
            queue_ms=self._since_text_ms(self.llm_started_s),
            llm_first_token_ms=self._since_text_ms(self.first_token_s),
            first_chunk_ms=self._since_text_ms(self.first_chunk_s),
            first_packet_ms=self._since_text_ms(first_packet_s),
        )

    def _since_text_ms(self, stamp_s: float | None) -> float | None:
        if stamp_s is None or self.first_text_s is None:
            return None
        return round((stamp_s - self.first_text_s) * 1000, 2)


# The client's message; the log has the rest.
NO_SPEECH: Final = (
    "the model made no speech of this text: write it in other words, in a script and a language that it speaks, "
    "or give another seed"
)

# Characters of a push that are looked at for its writer's pace: a longer one is no agent's that writes word by word.
_PACE_CHARS = 400


class Utterance:
    def __init__(
        self,
        key: int,
        request: UtteranceRequest,
        voice: ReadyVoice,
        feed: ClauseFeed,
        outlet: Outlet,
        *,
        seed: int,
        pre_skip_48k: int,
    ) -> None:
        self.key = key
        self.request = request
        self.utterance_id = request.utterance_id
        self.voice = voice
        self.feed = feed
        self.clauses = feed.clauses
        self.seed = seed
        self.stamps = Stamps()
        self.num_started_clauses = 0
        self.num_vain_bites = 0  # of its text, since one has brought a clause or all was read
        self.is_truncated = False  # a length limit, not the model, ended one of its passes; or one gave no sound
        self.listener = Listener()
        self._last_text_s: float | None = None  # more text may still come; None: it was flushed, or the wait is over
        self._has_stalled = False  # since then: at most half a word waits
        # Since it was last at rest, or from the beginning on:
        self._num_rested_chars = self._num_rested_clauses = 0  # of its text and of those begun, by then
        self._sayable_since_s: float | None = None
        self._buffered_since_s: float | None = None  # the oldest text that is in no clause
        self._unread_since_s: float | None = None
        self._outlet = outlet
        self._pre_skip_48k = pre_skip_48k
        self.pace = WriterPace()
        self.tokens_per_letter = voice.tokens_per_letter
        self._words = WordTimes(self.tokens_per_letter * units.MS_PER_TOKEN / request.speed, feed.pronunciation)
        self._packet_samples = units.ms_to_samples(request.audio.frame_ms)
        self._has_sounded = self._has_unheard_words = False  # since the last flush that was answered
        self._num_samples = 0  # handed to the outlet, silence that fills packets at flushes among them

    @property
    def audio_ms(self) -> int:
        return units.samples_to_ms(self._num_samples)

    @property
    def deadline_s(self) -> float | None:
        """The listener has an underrun; None: its first sound is still to come (`Listener`); infinite: none waits."""
        return math.inf if self.request.is_background else self.listener.deadline_s

    @property
    def waiting_since_s(self) -> float:
        """Engine clock: since when there is something to say, or text that is not read yet; infinite: never.

        After a rest it waits anew.
        """
        since_s = self._unread_since_s if self._sayable_since_s is None else self._sayable_since_s
        return math.inf if since_s is None else since_s

    @property
    def has_begun(self) -> bool:
        """Since it was last at rest."""
        return self.num_started_clauses > self._num_rested_clauses

    @property
    def is_finished(self) -> bool:
        return self.feed.is_ended and not self.clauses

    # --- text: recorded, then read bite by bite ---------------------------------------------------------------

    def push(self, text: str, now_s: float) -> None:
        if self.is_at_rest:
            self.listener.wait_anew(now_s)
            self.pace.go_on(now_s)
        elif self.feed.is_incremental:
            self.pace.wrote(sum(map(str.isalnum, text[:_PACE_CHARS])), now_s)
        self.feed.push(text)
        self._last_text_s, self._has_stalled = now_s, False
        if self._buffered_since_s is None:
            self._buffered_since_s = now_s
        self._has_come(now_s)

    def flush(self, flush_id: str, now_s: float) -> None:
        self.feed.flush(flush_id)
        self._last_text_s = None
        self._has_come(now_s)

    def end(self, now_s: float) -> None:
        self.feed.end()
        self._has_come(now_s)

    def read(self, now_s: float) -> None:
        """One bite, of bounded work."""
        before = [clause.is_text_complete for clause in self.clauses]
        self.feed.read()
        # A sentence that grew ends where it is, and adds no clause.
        if before != [clause.is_text_complete for clause in self.clauses]:
            self._buffered_since_s = self._last_text_s  # what is left has hardly come before
        is_vain = self.feed.has_unread and len(self.clauses) == len(before)
        self.num_vain_bites = self.num_vain_bites + 1 if is_vain else 0
        self._has_read(now_s)

    def stall(self, now_s: float) -> None:
        """Say what has waited for more too long: all but half a word, and that later. Then expect no more."""
        says_half_words = self._last_text_s is None or now_s >= self._last_text_s + constants.HALF_WORD_S
        self.feed.stalled(says_half_words=says_half_words)
        self._buffered_since_s, self._has_stalled = None, True
        if says_half_words or not self.feed.is_waiting:
            self._last_text_s = None
        self._has_read(now_s)

    def note_sayable(self, now_s: float) -> None:
        """Notes that the known part of a sentence that is being written may be said."""
        if self.stamps.first_text_s is None:
            self.stamps.first_text_s = now_s
        if self._sayable_since_s is None:
            self._sayable_since_s = now_s

    def _has_come(self, now_s: float) -> None:
        if self._unread_since_s is None:
            self._unread_since_s = now_s

    def _has_read(self, now_s: float) -> None:
        # A clause that grows may be said when growth.py says so.
        if any(each.text_ids and (each.is_text_complete or not self.feed.is_incremental) for each in self.clauses):
            self.note_sayable(now_s if self._unread_since_s is None else self._unread_since_s)
        if not self.feed.has_unread:
            self._unread_since_s = None
            if not self.feed.is_waiting:
                self._buffered_since_s = None

    def stalls_at_s(self, stall_s: float, lead_s: float) -> float:
        """When its writer has paused: text that waits is said, or all is spoken and it rests. Infinite: neither."""
        if self._last_text_s is None or not (self.feed.is_waiting or self._is_all_spoken):
            return math.inf
        since_s, delay_s = self._last_text_s, max(stall_s, self.pace.pause_s)
        if self.request.max_buffer_delay_ms is not None:
            delay_s = self.request.max_buffer_delay_ms / 1000
            if self._buffered_since_s is not None and not self.feed.is_heard:
                since_s = self._buffered_since_s
        if self._has_stalled:
            since_s, delay_s = self._last_text_s, constants.HALF_WORD_S
        due_s = since_s + delay_s
        deadline_s = self.listener.deadline_s
        return due_s if deadline_s is None else max(due_s, deadline_s - lead_s)

    @property
    def _is_all_spoken(self) -> bool:
        """Nothing is left to say of it, and some of it has come since it was last at rest."""
        is_silent = not (self.clauses or self.feed.has_unread or self.feed.is_waiting)
        return is_silent and self.feed.num_chars > self._num_rested_chars

    @property
    def is_at_rest(self) -> bool:
        return 0 < self.feed.num_chars == self._num_rested_chars

    def rest_if_spoken(self) -> None:
        """After all that was delivered."""
        if self._last_text_s is None and self._is_all_spoken:
            self._num_rested_chars, self._num_rested_clauses = self.feed.num_chars, self.num_started_clauses
            self._sayable_since_s = None
            self._outlet.send(AtRest(self.utterance_id, self._num_rested_chars))

    # --- audio ------------------------------------------------------------------------------------------------

    def deliver(self, samples: npt.NDArray[np.float32], now_s: float) -> None:
        """Samples [n] at SAMPLE_RATE_HZ, in order, on their way to the listener."""
        if not len(samples):
            return
        if self.stamps.first_chunk_s is None:
            self.stamps.first_chunk_s = now_s
        self._outlet.send_audio(samples)
        self._count(len(samples), now_s)

    def pause(self, length_ms: int, now_s: float) -> None:
        """So much silence."""
        self.deliver(np.zeros(units.ms_to_samples(length_ms), np.float32), now_s)

    def _count(self, num_samples: int, now_s: float) -> None:
        before = self._num_samples // self._packet_samples
        self._num_samples += num_samples
        num_packets = self._num_samples // self._packet_samples - before
        if num_packets:
            self.listener.send(num_packets * self.request.audio.frame_ms / 1000, now_s)

    def note_listener(self, report: ListenerReport, now_s: float) -> None:
        self.listener.note(report, made_s=self.audio_ms / 1000, now_s=now_s)

    def _end_pts_48k(self, num_samples: int) -> int:
        return self._pre_skip_48k + num_samples * units.OPUS_CLOCK_PER_SAMPLE if num_samples else 0

    # --- events that end something ----------------------------------------------------------------------------

    def answer_flushes(self, clause: Clause, now_s: float) -> None:
        """Answers the flushes that wait for a spoken clause; pads so that its last packet leaves now."""
        if not clause.flush_ids:
            return
        self._outlet.flush()
        self._count(-self._num_samples % self._packet_samples, now_s)
        self._has_sounded = self._has_unheard_words = False
        for flush_id in clause.flush_ids:
            self._outlet.send(Flushed(self.utterance_id, flush_id, self.audio_ms))

    def note_spoken(self, clause: Clause) -> None:
        """It is over, whatever came of it."""
        self._has_sounded = self._has_sounded or clause.num_samples > 0
        self._has_unheard_words = self._has_unheard_words or clause.is_unheard
        self.is_truncated = self.is_truncated or clause.is_unheard

    @property
    def is_unheard(self) -> bool:
        """There were words, and no sound of any, since the last flush that was answered."""
        return self._has_unheard_words and not self._has_sounded

    def finish(self) -> None:
        """After what was delivered."""
        self._outlet.finish(self._unheard if self.is_unheard else self._done)

    def _unheard(self, _: Delivered) -> Failed:
        return Failed(self.utterance_id, NO_SPEECH, is_of_text=True)

    def _done(self, delivered: Delivered) -> Done:
        end_pts_48k = self._end_pts_48k(delivered.num_samples)
        timing = self.stamps.timing(delivered.first_packet_s)
        return Done(
            self.utterance_id, self.audio_ms, delivered.num_packets, end_pts_48k, timing, is_truncated=self.is_truncated
        )

    def cancel(self, played_ms: int | None) -> None:
        self._outlet.close(lambda delivered: self._cancelled(delivered, played_ms))

    def fail(self, message: str) -> None:
        self._outlet.close(lambda _: Failed(self.utterance_id, message))

    def _cancelled(self, delivered: Delivered, played_ms: int | None) -> Cancelled:
        audio_ms = units.samples_to_ms(delivered.num_samples)
        heard_ms = audio_ms if played_ms is None else min(played_ms, audio_ms)
        text = self.feed.text
        cut = self._words.num_spoken_chars(heard_ms)
        end_pts_48k = self._end_pts_48k(delivered.num_samples)
        return Cancelled(self.utterance_id, audio_ms, end_pts_48k, text[:cut], text[cut:])

    # --- alignment --------------------------------------------------------------------------------------------

    def align(self, clause: Clause, *, delivers: bool) -> None:
        """Tell the words that begin in the samples of the clause that are about to be delivered.

        `delivers`: they are delivered next, and the words leave with them.
        """
        if clause.start_ms is None:
            return
        num_frames = math.floor(
            len(clause.tokens) * units.FRAMES_PER_TOKEN / self.request.speed
        )  # as MelStretch counts
        sound = Sound(
            start_ms=clause.start_ms,
            sent_ms=self.audio_ms,
            until_ms=clause.start_ms + units.samples_to_ms(clause.num_samples),
            known_ms=clause.start_ms + num_frames * units.MS_PER_FRAME,
            is_length_known=clause.state in (ClauseState.RENDERING, ClauseState.SPOKEN),
            is_last=clause.state is ClauseState.SPOKEN,
        )
        words = self._words.tell(
            clause.decided_text, sound, char_start=clause.char_start, num_letters=clause.num_decided_letters
        )
        if words:
            tell = self._outlet.announce if delivers else self._outlet.send
            tell(Alignment(self.utterance_id, words, estimated=True))
