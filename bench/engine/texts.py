"""Texts for a load: everyday English that the loaded model takes a wanted number of seconds to say.

A trained model takes about as long as a person. One with generated weights whose stop ids are never drawn speaks
every clause to its length limit, 0.8 s a text token: then the tokenizer decides how long a text is.
"""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final

from voicegate.bench.demo import tokens_of
from voicegate.bench.sentences import EVERYDAY
from voicegate.engine import units
from voicegate.engine.core.clause import Listing
from voicegate.engine.core.clause_feed import ClauseFeed
from voicegate.engine.interface import SpeakingMode
from voicegate.engine.model.config import StopRule
from voicegate.engine.text.tokenizer import TextTokenizer

# Length of one clause, where the text allows it.
_CLAUSE_S: Final = 4.0
# A clause is drawn among this many that come nearest to its length. Lower -> lengths are met better, texts repeat.
_NUM_NEAREST: Final = 4
# A later sentence that is shorter is held back until more text comes (segmenter.MIN_LETTERS, and its full stop).
_MIN_CANDIDATE_CHARS: Final = 8

Seconds = Callable[[str], float]


class Lengths(Enum):
    NATURAL = "natural"  # the model stops where the text ends
    LIMIT = "limit"  # it never does: every clause is cut at its limit


@dataclass(frozen=True, slots=True)
class Script:
    text: str
    pieces: tuple[str, ...]  # the text as an LLM would write it
    expected_s: float  # of audio


def limit_seconds(
    text: str, tokenizer: TextTokenizer, *, language: str, stop: StopRule, max_clause_tokens: int
) -> float:
    """Audio where every clause speaks to its limit: the model's by its text, at most `max_clause_tokens`."""
    feed = ClauseFeed(
        Listing(0), SpeakingMode.CLAUSE, tokenizer, language=language, max_clause_tokens=max_clause_tokens
    )
    feed.push(text)
    feed.end()
    feed.read_all()
    limits = [min(stop.max_length(len(clause.text_ids)), max_clause_tokens) for clause in feed.clauses]
    return sum(limits) * units.MS_PER_TOKEN / 1000


def candidates(lengths: Lengths) -> list[str]:
    """Sentences to build texts of. Where the sense does not matter, their beginnings too: those are short enough."""
    if lengths is Lengths.NATURAL:
        return list(EVERYDAY)
    words = [sentence.rstrip(".?").replace(",", "").split() for sentence in EVERYDAY]
    beginnings = {" ".join(row[:length]) + "." for row in words for length in range(1, len(row) + 1)}
    return sorted(text for text in beginnings if len(text) >= _MIN_CANDIDATE_CHARS)


class ScriptWriter:
    def __init__(self, seconds_of: Seconds, sentences: Sequence[str], rng: random.Random) -> None:
        self._seconds_of = seconds_of
        self._sentences = sorted((seconds_of(sentence), sentence) for sentence in sentences)
        self._rng = rng

    def write(self, wanted_s: float) -> Script:
        """About `wanted_s` of audio, as clauses of about 4 s: as near as the sentences allow."""
        num_clauses = max(1, round(wanted_s / _CLAUSE_S))
        text = " ".join(self._sentence(wanted_s / num_clauses) for _ in range(num_clauses))
        return Script(text, tuple(tokens_of(text)), self._seconds_of(text))

    def write_many(self, num: int, shortest_s: float, longest_s: float) -> list[Script]:
        """Lengths evenly spread over the range, in random order."""
        step_s = (longest_s - shortest_s) / max(num - 1, 1)
        wanted_s = [shortest_s + index * step_s for index in range(num)]
        self._rng.shuffle(wanted_s)
        return [self.write(each_s) for each_s in wanted_s]

    def _sentence(self, wanted_s: float) -> str:
        nearest = sorted(self._sentences, key=lambda each: abs(each[0] - wanted_s))[:_NUM_NEAREST]
        return self._rng.choice(nearest)[1]
