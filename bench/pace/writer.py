"""How an agent writes: pieces of text and when they come. Pure."""

import random
import re
from dataclasses import dataclass
from enum import Enum


class Pieces(Enum):
    """Where the blank goes that parts two words."""

    LEADING = "leading"  # " word", as most LLMs' tokens: a word is known to be whole when the next one comes
    TRAILING = "trailing"  # "word "
    WHOLE = "whole"  # all at once


@dataclass(frozen=True, slots=True)
class Pace:
    words_per_s: float
    jitter: float = 0.0  # of the time between words: 0 steady, 1 exponential with the same mean
    stall_s: float = 0.0  # a pause in the middle of the text
    pieces: Pieces = Pieces.LEADING


@dataclass(frozen=True, slots=True)
class Piece:
    text: str
    at_s: float  # after the first piece


def written(text: str, pace: Pace, rng: random.Random) -> list[Piece]:
    """The text as it comes; the first piece at 0."""
    if pace.pieces is Pieces.WHOLE:
        return [Piece(text, 0.0)]
    pattern = r"\s*\S+" if pace.pieces is Pieces.LEADING else r"\S+\s*"
    words = re.findall(pattern, text)
    at_s, pieces = 0.0, []
    for index, word in enumerate(words):
        if index:
            steady, random_ = 1.0 - pace.jitter, pace.jitter * rng.expovariate(1.0)
            at_s += (steady + random_) / pace.words_per_s
        if pace.stall_s and index == len(words) // 2:
            at_s += pace.stall_s
        pieces.append(Piece(word, at_s))
    return pieces
