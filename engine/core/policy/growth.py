"""Speaking while the sentence grows: how far the speech may run into text that is still being written, and when.

Speech that runs past the text known so far pauses, drags and garbles what follows; speech made too early is made
without the words that would have shaped it. So a pass may hold fewer speech tokens than its words are worth, and its
next block is made when the listener needs it, not before. Pure: times come in, nothing is measured here.
"""

import math
from dataclasses import dataclass
from typing import Final

from voicegate.engine import units

# Of what the known words are worth, what may be said of them while more follow: of a voice that was not tuned, at the
# pace of its prompt. Higher -> speech that drags and pauses; lower -> later first sound (docs/adr/0006).
UNTUNED_SHARE: Final = 0.8
# What an agent's first words are assumed to come at before there is more than one to judge by: ordinary LLM speed.
_ASSUMED_LETTERS_PER_S: Final = 90.0
_LETTERS_PER_WORD: Final = 5.0
# How much that assumption weighs, in seconds of text seen. Lower -> one slow word delays the start; higher -> a slow
# writer is taken for a fast one, and its listener waits between the first block and the second.
_ASSUMED_FOR_S: Final = 0.1
# Faster than that nobody is taken for: words that came at once may have been held back on their way. Higher -> who
# writes in bursts is overtaken by the first block; lower -> who writes fast is heard later.
_FASTEST_LETTERS_PER_S: Final = 125.0
# What comes so soon behind was sent with it. Higher -> a quick start is one piece, and who writes on slowly is
# overtaken; lower -> pieces that one packet brought are taken for an uneven hand.
_TOGETHER_S: Final = 0.002
# Who is as uneven as chance (intervals that vary by their mean) until so many words have shown otherwise. Higher ->
# even writers are heard later; lower -> two even intervals are taken for a habit.
_UNEVEN_FOR_WORDS: Final = 0.1
# How much the letters of a word vary, as the square of their deviation over their mean.
_WORD_VARIATION: Final = 0.05
# So many standard deviations fewer words are counted on than are to be expected. Higher -> first sound later of who
# writes unevenly; lower -> more of them are overtaken by the first block (docs/adr/0006).
_DEVIATIONS: Final = 1.5
# A first block may have more of what the words but the last are worth, so many times the share, or the share of what
# all are worth, the last among them: a start is no word longer for that. Higher -> first sound sooner, and words
# are said of which the next is not known; lower -> later (docs/adr/0006).
_FIRST_TIMES: Final = 1.25
# The share of what all known words are worth, for a listener who is about to run dry: better speech that drags a little
# than a gap. Higher -> it drags more; lower -> gaps (docs/adr/0006).
_DRY_SHARE: Final = 1.25
# The same of the words but the last for the second block, when the first is begun and they are only promised: they are
# promised with deviations to spare, and the last of them comes along. Higher -> first sound sooner; lower -> fewer who
# wait for the second block (docs/adr/0006).
_PROMISED_SHARE: Final = 1.2
# Whoever has written nothing for so long pauses. Higher -> speech runs past its words while it waits for more; lower ->
# gaps where a slow writer's next word would have come.
_PAUSE_S: Final = 0.35
# How soon "about to" is. Higher -> speech is made early more often; lower -> the block comes too late.
_DRY_S: Final = 0.05
# What a later block is expected to take when a sentence is begun, in mean times of those that were read lately: the
# longest is most often one that nobody needed yet. Higher -> later first sound; lower -> gaps behind the first block.
_EXPECTED_TIMES: Final = 2.0
# What one more of them weighs in that mean. Lower -> load that comes in waves is met late; higher -> one slow block
# makes all who come begin late.
_NEWS_SHARE: Final = 0.05
# After so long, half of what a slow block took is forgotten. Higher -> one slow block makes the next ones early for
# longer; lower -> load that comes in waves is met late.
_HALF_LIFE_S: Final = 1.0
# A first block that takes longer, and so many times what one takes at the quickest: whoever begins with few words now
# would only have all wait longer. Higher -> listeners have gaps before newcomers wait; lower -> who could be heard
# early is not.
_STRAINED_S: Final = 0.35
_STRAINED_TIMES: Final = 4


@dataclass(frozen=True, slots=True)
class Worth:
    """Of the words of one voice, in speech tokens."""

    tokens_per_letter: float
    token_share: float  # that may be said while more text follows

    def letters_for(self, num_tokens: int, *, share: float | None = None) -> float:
        """That are worth so many speech tokens, of which only this share may be said; None: the voice's."""
        return num_tokens / ((self.token_share if share is None else share) * self.tokens_per_letter)

    def to_begin(self, num_tokens: int, *, num_second_tokens: int, num_promised: float) -> "Needed":
        """For a first reading of so many speech tokens, so that the second one will not have to wait for its words.

        `num_promised`: letters that will come before it has to be begun.
        """
        later = self.letters_for(num_tokens + num_second_tokens, share=_PROMISED_SHARE)
        return Needed(
            but_last=self.letters_for(num_tokens, share=_FIRST_TIMES * self.token_share),
            of_all=self.letters_for(num_tokens),
            at_least=later - num_promised,
        )

    def to_go_on(self, num_tokens: int, *, is_dry: bool) -> "Needed":
        """For a later reading, up to so many speech tokens in all. `is_dry`: its listener is about to run dry."""
        of_all = self.letters_for(num_tokens, share=max(_DRY_SHARE, self.token_share)) if is_dry else math.inf
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
    """When the next block is due, and from when on its listener is about to run dry. `block_s`: a block's time."""
    return deadline_s - block_s - max(lead_s, _DRY_S), deadline_s - block_s - _DRY_S


def covered_s(num_first_tokens: int, *, held_back_frames: int, first_block_s: float, block_s: float) -> float:
    """From a first reading's beginning until the second one's has to be, so that its listener has no gap.

    It is heard `first_block_s` after its beginning, at the soonest, and the second has to be begun `block_s`, at most,
    before all that it has made has been heard. Below 0: who begins with so much will have a gap. What vocoder and
    packets hold back, its listener runs dry sooner.
    """
    num_heard_frames = num_first_tokens * units.FRAMES_PER_TOKEN - held_back_frames
    return num_heard_frames / units.FRAME_RATE_HZ + first_block_s - block_s


@dataclass(frozen=True, slots=True)
class Beginning:
    """What the first reading of a sentence makes while more of it is written."""

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
            if interval_s <= _TOGETHER_S:
                return
            self._num_intervals += 1
            self._intervals_s += interval_s
            self._squares_s2 += interval_s**2
        self._last_s = now_s

    def has_paused(self, now_s: float) -> bool:
        """For longer than a word takes: speech that bridges that runs past its words, and spoils what follows."""
        return self._begun_s is not None and now_s - self._last_s > _PAUSE_S

    def letters_within(self, seconds: float, now_s: float) -> float:
        """That can be counted on to come in the next `seconds`: the mean less some deviations.

        Words are taken for a renewal process, whose count in a time has the variance of mean times the squared
        variation of its intervals (Cox, Renewal Theory, 1962, 4.2); that its rate is known from `seen_s` alone adds
        seconds / seen_s of that.
        """
        seconds = max(seconds, 0.0)
        num_assumed = _ASSUMED_LETTERS_PER_S * _ASSUMED_FOR_S
        num_letters = self._num_letters + num_assumed
        num_words = self._num_intervals + num_assumed / _LETTERS_PER_WORD
        seen_s = _ASSUMED_FOR_S + (0.0 if self._begun_s is None else now_s - self._begun_s)
        seen_s = max(seen_s, num_letters / _FASTEST_LETTERS_PER_S)
        interval_s = seen_s / num_words
        mean = seconds / interval_s
        variance = mean * (self._variation(interval_s) * (1 + seconds / seen_s) + _WORD_VARIATION)
        return num_letters / num_words * max(mean - _DEVIATIONS * math.sqrt(variance), 0.0)

    def _variation(self, interval_s: float) -> float:
        """Of the intervals around this one, as the square of their deviation over it; none before there is one."""
        if not self._num_intervals:
            return 0.0
        around = self._squares_s2 / interval_s**2 - 2 * self._intervals_s / interval_s + self._num_intervals
        return (_UNEVEN_FOR_WORDS + max(around, 0.0)) / (_UNEVEN_FOR_WORDS + self._num_intervals)


class BlockTime:
    """How long a block takes from its reading to its samples: the longest and the soonest lately, forgotten by and by.

    First blocks go before others, so theirs is another time; until there is one of a later block, it is both.
    """

    def __init__(self) -> None:
        self._first = _Fading()
        self._later = _Fading()
        self._mean_later_s: float | None = None
        self._quickest_first_s = math.inf
        self._soonest_first_s, self._soonest_since_s = 0.0, 0.0

    def took(self, seconds: float, now_s: float, *, is_first: bool) -> None:
        if is_first:
            soonest_s = self.soonest_first_s(now_s) if self._first.is_known else math.inf
            self._soonest_first_s, self._soonest_since_s = min(seconds, soonest_s), now_s
            self._quickest_first_s = min(self._quickest_first_s, seconds)
        elif self._mean_later_s is None:
            self._mean_later_s = seconds
        else:
            self._mean_later_s += _NEWS_SHARE * (seconds - self._mean_later_s)
        (self._first if is_first else self._later).rise(seconds, now_s)

    def is_strained(self, now_s: float) -> bool:
        """Whether there is more to do than can be done in time: so much that newcomers feel it."""
        return self._first.is_known and self.first_s(now_s) > max(_STRAINED_S, _STRAINED_TIMES * self._quickest_first_s)

    def first_s(self, now_s: float) -> float:
        return self._first.at(now_s)

    def soonest_first_s(self, now_s: float) -> float:
        """So soon a listener may be heard, and run dry: the smallest, drifting to the largest as that is forgotten."""
        kept = _kept(now_s - self._soonest_since_s)
        return kept * self._soonest_first_s + (1 - kept) * self.first_s(now_s)

    def later_s(self, now_s: float) -> float:
        """Of a block behind the first, at the longest."""
        return (self._later if self._later.is_known else self._first).at(now_s)

    def expected_later_s(self, now_s: float) -> float:
        """The same as it is to be expected."""
        longest_s = self.later_s(now_s)
        return longest_s if self._mean_later_s is None else min(longest_s, _EXPECTED_TIMES * self._mean_later_s)


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
    return math.exp2(-max(seconds, 0.0) / _HALF_LIFE_S)
