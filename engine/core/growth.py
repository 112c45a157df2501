"""Speaking while the sentence grows: how far the speech may run into text that is still being written, and when.

Speech that runs past the text known so far pauses, drags and garbles what follows; speech made too early is made
without the words that would have shaped it. So a pass may hold fewer speech tokens than its words are worth, and its
next block is made when the listener needs it, not before. Pure: times come in, nothing is measured here.
"""

import math
from dataclasses import dataclass

from voicegate.engine import units
from voicegate.engine.core import constants


@dataclass(frozen=True, slots=True)
class SpeechBudget:
    """Worth of one voice's words, in speech tokens."""

    tokens_per_letter: float
    token_share: float  # that may be said while more text follows

    def letters_for(self, num_tokens: int, *, share: float | None = None) -> float:
        """Letters that are worth so many speech tokens, of which only this share may be said; None: the voice's."""
        return num_tokens / ((self.token_share if share is None else share) * self.tokens_per_letter)

    def to_begin(self, num_tokens: int, *, num_second_tokens: int, num_promised: float) -> "Needed":
        """For a first reading of so many speech tokens, so that the second one will not have to wait for its words.

        `num_promised`: letters that will come before it has to be begun.
        """
        later = self.letters_for(num_tokens + num_second_tokens, share=constants.PROMISED_SHARE)
        return Needed(
            but_last=self.letters_for(num_tokens, share=constants.FIRST_TIMES * self.token_share),
            of_all=self.letters_for(num_tokens),
            at_least=later - num_promised,
        )

    def to_go_on(self, num_tokens: int, *, is_late: bool) -> "Needed":
        """For a later reading, up to so many speech tokens in all. `is_late`: its listener is about to have an
        underrun."""
        of_all = (
            self.letters_for(num_tokens, share=max(constants.UNDERRUN_SHARE, self.token_share)) if is_late else math.inf
        )
        return Needed(but_last=self.letters_for(num_tokens), of_all=of_all)


@dataclass(frozen=True, slots=True)
class Needed:
    """Letters of the known words, for a reading: of those but the last, or else of all; and some in any case."""

    but_last: float
    of_all: float
    at_least: float = 0.0  # of those but the last

    def are_there(self, *, num_but_last: float, num_of_all: float) -> bool:
        """Nothing is said of a last word alone: it may go on."""
        if not num_but_last or num_but_last < self.at_least:
            return False
        return num_but_last >= self.but_last or num_of_all >= self.of_all


def next_block_s(deadline_s: float, *, lead_s: float, block_s: float) -> tuple[float, float]:
    """When the next block is due, and from when on its listener is about to have an underrun. `block_s`: a block's
    time."""
    return deadline_s - block_s - max(lead_s, constants.UNDERRUN_S), deadline_s - block_s - constants.UNDERRUN_S


def covered_s(num_first_tokens: int, *, held_back_frames: int, first_block_s: float, block_s: float) -> float:
    """From a first reading's beginning until the second one's has to be, so that its listener has no gap.

    It is heard `first_block_s` after its beginning, at the soonest, and the second has to be begun `block_s`, at most,
    before all that it has made has been heard. Below 0: who begins with so much will have a gap. What vocoder and
    packets hold back, its listener has an underrun sooner.
    """
    num_heard_frames = num_first_tokens * units.FRAMES_PER_TOKEN - held_back_frames
    return num_heard_frames / units.FRAME_RATE_HZ + first_block_s - block_s


@dataclass(frozen=True, slots=True)
class Beginning:
    """The first reading of a sentence while more of it is written."""

    num_tokens: int  # speech tokens of its blocks
    covered_s: float  # from then until the next reading's block has to be begun


def beginning(
    num_first_tokens: int,
    num_second_tokens: int,
    *,
    held_back_frames: int,
    first_block_s: float,
    block_s: float,
    is_strained: bool,
) -> Beginning | None:
    """One block, if the second can be read later and follows in time; else the second comes of the same reading.

    That waits for more words, but not once more behind others, and spares a strained engine a reading. None: the third
    would be late.
    """
    both = num_first_tokens + num_second_tokens
    for num_tokens in (both,) if is_strained else (num_first_tokens, both):
        seconds = covered_s(num_tokens, held_back_frames=held_back_frames, first_block_s=first_block_s, block_s=block_s)
        if seconds >= 0:
            return Beginning(num_tokens, seconds)
    return None


class WriterPace:
    """How evenly and how fast the words of one context come, and so what will be known a little later."""

    def __init__(self) -> None:
        self._begun_s: float | None = None
        self._last_s = 0.0
        self._num_letters = 0  # since the first words, which say nothing of the pace
        self._num_intervals = 0
        self._intervals_s, self._squares_s2 = 0.0, 0.0  # their sum, and that of their squares

    def wrote(self, num_letters: int, now_s: float) -> None:
        if self._begun_s is None:
            self._begun_s = now_s
        else:
            self._num_letters += num_letters
            interval_s = now_s - self._last_s
            if interval_s <= constants.TOGETHER_S:
                return
            self._num_intervals += 1
            self._intervals_s += interval_s
            self._squares_s2 += interval_s**2
        self._last_s = now_s

    def has_paused(self, now_s: float) -> bool:
        """For longer than a word takes, or it always does: speech that bridges that runs past its words, and spoils
        what follows."""
        has_begun = self._begun_s is not None
        return has_begun and (now_s - self._last_s > constants.PAUSE_S or self.is_slow)

    @property
    def is_slow(self) -> bool:
        """Whether its words come more slowly than they are said: no speech of them is without gaps."""
        # As if one more interval had been none: two long ones by chance are no habit.
        return self._num_intervals > 1 and self._intervals_s > constants.SLOW_S * (self._num_intervals + 1)

    @property
    def pause_s(self) -> float:
        """A silence of so long is a pause: longer for a slow writer, whose words are none."""
        return min(constants.PAUSE_TIMES * self._mean_interval_s, constants.MAX_PAUSE_S)

    @property
    def _mean_interval_s(self) -> float:
        return self._intervals_s / self._num_intervals if self._num_intervals else 0.0

    def letters_within(self, seconds: float, now_s: float) -> float:
        """Letters that can be counted on to come in the next `seconds`: the mean less some deviations.

        Words are taken for a renewal process, whose count in a time has the variance of mean times the squared
        variation of its intervals (Cox, Renewal Theory, 1962, 4.2); that its rate is known from `seen_s` alone adds
        seconds / seen_s of that.
        """
        seconds = max(seconds, 0.0)
        num_assumed = constants.ASSUMED_LETTERS_PER_S * constants.ASSUMED_FOR_S
        num_letters = self._num_letters + num_assumed
        num_words = self._num_intervals + num_assumed / constants.LETTERS_PER_WORD
        seen_s = constants.ASSUMED_FOR_S + (0.0 if self._begun_s is None else now_s - self._begun_s)
        seen_s = max(seen_s, num_letters / constants.FASTEST_LETTERS_PER_S)
        interval_s = seen_s / num_words
        mean = seconds / interval_s
        variance = mean * (self._variation(interval_s) * (1 + seconds / seen_s) + constants.WORD_VARIATION)
        return num_letters / num_words * max(mean - constants.DEVIATIONS * math.sqrt(variance), 0.0)

    def _variation(self, interval_s: float) -> float:
        """Variation of the intervals around this one, as the square of their deviation over it; none before there is
        one."""
        if not self._num_intervals:
            return 0.0
        around = self._squares_s2 / interval_s**2 - 2 * self._intervals_s / interval_s + self._num_intervals
        return (constants.UNEVEN_FOR_WORDS + max(around, 0.0)) / (constants.UNEVEN_FOR_WORDS + self._num_intervals)


class BlockTime:
    """How long a block takes from its reading to its samples: the longest and the soonest lately, forgotten by and by.

    First blocks go before others, so theirs is another time; until there is one of a later block, it is both.
    """

    def __init__(self) -> None:
        self._first = _Fading()
        self._later = _Fading()
        self._mean_later_s: float | None = None
        self._quickest_first_s = self._quickest_later_s = math.inf
        self._soonest_first_s, self._soonest_since_s = 0.0, 0.0

    def took(self, seconds: float, now_s: float, *, is_first: bool) -> None:
        if is_first:
            soonest_s = self.soonest_first_s(now_s) if self._first.is_known else math.inf
            self._soonest_first_s, self._soonest_since_s = min(seconds, soonest_s), now_s
            self._quickest_first_s = min(self._quickest_first_s, seconds)
        else:
            self._quickest_later_s = min(self._quickest_later_s, seconds)
            before_s = seconds if self._mean_later_s is None else self._mean_later_s
            self._mean_later_s = before_s + constants.NEWS_SHARE * (seconds - before_s)
        (self._first if is_first else self._later).rise(seconds, now_s)

    def is_strained(self, now_s: float) -> bool:
        """Whether there is more to do than can be done in time: so much that new requests feel it."""
        return self._first.is_known and self.first_s(now_s) > max(
            constants.STRAINED_S, constants.STRAINED_TIMES * self._quickest_first_s
        )

    def first_s(self, now_s: float) -> float:
        return self._first.at(now_s)

    def soonest_first_s(self, now_s: float) -> float:
        """So soon a listener may be heard, and have an underrun: the smallest, drifting to the largest as that is
        forgotten."""
        kept = _kept(now_s - self._soonest_since_s)
        return kept * self._soonest_first_s + (1 - kept) * self.first_s(now_s)

    def later_s(self, now_s: float) -> float:
        """Time of a block after the first, at the longest lately; after a silence, at the quickest that there ever was.

        A silence makes no engine quick: where nothing is left of the longest, a slow one would begin too early.
        """
        if not self._later.is_known:
            return max(self._first.at(now_s), self._quickest_first_s) if self._first.is_known else 0.0
        return max(self._later.at(now_s), self._quickest_later_s)

    def expected_later_s(self, now_s: float) -> float:
        """Its expected time."""
        longest_s = self.later_s(now_s)
        return (
            longest_s if self._mean_later_s is None else min(longest_s, constants.EXPECTED_TIMES * self._mean_later_s)
        )


class _Fading:
    """The largest of what it was told, each halved again and again since."""

    def __init__(self) -> None:
        self._value, self._since_s = 0.0, 0.0
        self.is_known = False

    def rise(self, value: float, now_s: float) -> None:
        self._value, self._since_s, self.is_known = max(value, self.at(now_s)), now_s, True

    def at(self, now_s: float) -> float:
        return self._value * _kept(now_s - self._since_s)


def _kept(seconds: float) -> float:
    """The share that is not forgotten."""
    return math.exp2(-max(seconds, 0.0) / constants.HALF_LIFE_S)
