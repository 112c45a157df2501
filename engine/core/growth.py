"""Speaking while the sentence grows: how far the speech may run into text that is still being written, and when.

Speech that runs past the text known so far pauses, drags and garbles what follows. Speech made too early is made
without the words that would have shaped it. So a pass may hold fewer speech tokens than its words are worth. Its next
block is made when the listener needs it, not before. Pure: times come in, nothing is measured here.
"""

import math
from dataclasses import dataclass
from typing import NamedTuple

from voicegate.engine import units
from voicegate.engine.core import constants


@dataclass(frozen=True, slots=True)
class Needed:
    """Letters of the known words, for a reading: of those but the last, or else of all; and some in any case."""

    but_last: float
    of_all: float
    at_least: float = 0.0  # of those but the last

    @classmethod
    def to_begin(
        cls, num_tokens: int, worth: float, share: float, *, num_second_tokens: int, num_promised: float
    ) -> "Needed":
        """For a first reading of so many speech tokens, so that the second one will not have to wait for its words.

        `worth`: speech tokens of a letter of this voice. `share`: what may be said of that while more text follows.
        `num_promised`: letters that will come before the second has to be begun.
        """
        return cls(
            but_last=num_tokens / (constants.FIRST_TIMES * share * worth),
            of_all=num_tokens / (share * worth),
            at_least=(num_tokens + num_second_tokens) / (constants.PROMISED_SHARE * worth) - num_promised,
        )

    @classmethod
    def to_go_on(cls, num_tokens: int, worth: float, share: float, *, is_late: bool) -> "Needed":
        """For a later reading, up to so many speech tokens in all. `is_late`: its listener is about to have an
        underrun."""
        of_all = num_tokens / (max(constants.UNDERRUN_SHARE, share) * worth) if is_late else math.inf
        return cls(but_last=num_tokens / (share * worth), of_all=of_all)

    def are_there(self, num_but_last: float, num_of_all: float) -> bool:
        """Nothing is said of a last word alone: it may go on."""
        if not num_but_last or num_but_last < self.at_least:
            return False
        return num_but_last >= self.but_last or num_of_all >= self.of_all


class Beginning(NamedTuple):
    """The first reading of a sentence while more of it is written."""

    num_tokens: int  # speech tokens of its blocks
    covered_s: float  # from its beginning until the next reading's has to be, so that its listener has no gap


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

    The latter waits for more words, but not once more for others, and spares a strained engine a reading. None: the
    third would be late. The reading is heard `first_block_s` after its beginning, at the soonest. What follows has to
    be begun `block_s`, at most, before its audio is used up: `held_back_frames` sooner than it has frames.
    """
    both = num_first_tokens + num_second_tokens
    for num_tokens in (both,) if is_strained else (num_first_tokens, both):
        num_heard_frames = num_tokens * units.FRAMES_PER_TOKEN - held_back_frames
        covered_s = num_heard_frames / units.FRAME_RATE_HZ + first_block_s - block_s
        if covered_s >= 0:
            return Beginning(num_tokens, covered_s)
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

    def go_on(self, now_s: float) -> None:
        """The time since the last words was a rest: no interval between two words, and none in which it wrote.

        The words that end it are first words again, and say nothing of the pace.
        """
        if self._begun_s is not None:
            self._begun_s += now_s - self._last_s
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
        mean_s = self._intervals_s / self._num_intervals if self._num_intervals else 0.0
        return min(constants.PAUSE_TIMES * mean_s, constants.MAX_PAUSE_S)

    def letters_within(self, seconds: float, now_s: float) -> float:
        """Letters that can be counted on to come in the next `seconds`: the mean less some deviations.

        Words are taken for a renewal process. Its count in a time has the variance of mean times the squared variation
        of its intervals (Cox, Renewal Theory, 1962, 4.2). Its rate is known from `seen_s` alone, which adds
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
        variation = 0.0  # of the intervals around this one: the square of their deviation over it
        if self._num_intervals:
            around = self._squares_s2 / interval_s**2 - 2 * self._intervals_s / interval_s + self._num_intervals
            assumed = constants.UNEVEN_FOR_WORDS
            variation = (assumed + max(around, 0.0)) / (assumed + self._num_intervals)
        variance = mean * (variation * (1 + seconds / seen_s) + constants.WORD_VARIATION)
        return num_letters / num_words * max(mean - constants.DEVIATIONS * math.sqrt(variance), 0.0)


class BlockTime:
    """How long a block takes from its reading to its samples: the longest and the soonest lately, forgotten by and by.

    First blocks go before others, so theirs is another time; until there is one of a later block, it is both. The
    longest and the soonest of first blocks are halved, or drift half the way, once a HALF_LIFE_S. The usual time of
    later blocks is forgotten by newer ones alone: a silence makes no slow engine quick.
    """

    def __init__(self) -> None:
        # Seconds, and since when; None: no such block yet.
        self._longest_first: tuple[float, float] | None = None
        self._longest_later: tuple[float, float] | None = None
        self._soonest_first = (0.0, 0.0)
        self._num_later = 0
        self._mean_later_s = self._deviation_later_s = 0.0
        self._quickest_first_s = math.inf

    def took(self, seconds: float, now_s: float, *, is_first: bool) -> None:
        if is_first:
            soonest_s = self.soonest_first_s(now_s) if self._longest_first else math.inf
            self._soonest_first = min(seconds, soonest_s), now_s
            self._quickest_first_s = min(self._quickest_first_s, seconds)
            self._longest_first = max(seconds, self.first_s(now_s)), now_s
        else:
            self._num_later += 1
            share = max(constants.NEWS_SHARE, 1 / self._num_later)
            news_s = seconds - self._mean_later_s
            self._mean_later_s += share * news_s
            if self._num_later > 1:  # the first one is the mean, and deviates from nothing
                self._deviation_later_s += share * (abs(news_s) - self._deviation_later_s)
            self._longest_later = max(seconds, _faded(self._longest_later, now_s)), now_s

    def is_strained(self, now_s: float) -> bool:
        """Whether there is more to do than can be done in time: so much that new requests feel it."""
        least_s = max(constants.STRAINED_S, constants.STRAINED_TIMES * self._quickest_first_s)
        return self.first_s(now_s) > least_s

    def first_s(self, now_s: float) -> float:
        return _faded(self._longest_first, now_s)

    def soonest_first_s(self, now_s: float) -> float:
        """So soon a listener may be heard, and have an underrun: the smallest, drifting to the largest as that is
        forgotten."""
        soonest_s, since_s = self._soonest_first
        kept = _kept(now_s - since_s)
        return kept * soonest_s + (1 - kept) * self.first_s(now_s)

    def later_s(self, now_s: float) -> float:
        """Time of a block after the first, at the longest lately; after a silence, as long as it takes now and then.

        The latter is the mean and some mean deviations, as a TCP sender waits for an answer (RFC 6298).
        """
        if self._longest_later:
            usual_s = self._mean_later_s + constants.LATER_DEVIATIONS * self._deviation_later_s
            return max(_faded(self._longest_later, now_s), usual_s)
        return max(self.first_s(now_s), self._quickest_first_s) if self._longest_first else 0.0

    def expected_later_s(self, now_s: float) -> float:
        """Its expected time."""
        longest_s = self.later_s(now_s)
        return min(longest_s, constants.EXPECTED_TIMES * self._mean_later_s) if self._longest_later else longest_s


def _faded(longest: tuple[float, float] | None, now_s: float) -> float:
    return longest[0] * _kept(now_s - longest[1]) if longest else 0.0


def _kept(seconds: float) -> float:
    """The share that is not forgotten."""
    return math.exp2(-max(seconds, 0.0) / constants.HALF_LIFE_S)
