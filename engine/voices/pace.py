"""How fast a voice speaks, as it was found to: fitted to sentences that it said, and kept in its file. No torch.

What speech of a growing sentence goes by (core/growth.py): without it, by the pace of the voice's prompt.
"""

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

_TOKENS_PER_LETTER: Final = "tokens_per_letter"
_GROWING_SHARE: Final = "growing_share"
# Possible paces: 8 ms a letter to 0.8 s. A share above 1 would say that speech may outrun its text.
_PACES: Final = (0.2, 20.0)
_SHARES: Final = (0.3, 1.0)

# Sentences in twenty may be spoken faster than the share allows for. Lower -> later first sound; higher -> more
# sentences whose speech runs into text that is not there yet, where it drags and pauses. The two voices of the tiny
# model get from it what was best by ear of a recogniser (docs/adr/0006).
_FASTER_SHARE: Final = 0.05
# Fewer say nothing of the fastest twentieth.
MIN_SENTENCES: Final = 20


class Said(NamedTuple):
    """One sentence, spoken whole."""

    num_letters: int  # text.spoken_length
    num_tokens: int


@dataclass(frozen=True, slots=True)
class VoicePace:
    """Raises ValueError for what no voice can have."""

    tokens_per_letter: float  # speech tokens
    growing_share: float  # of what its known words take at that pace, that a sentence may say while it is written

    def __post_init__(self) -> None:
        for name, (low, high) in ((_TOKENS_PER_LETTER, _PACES), (_GROWING_SHARE, _SHARES)):
            value = getattr(self, name)
            if not low <= value <= high:  # nor a NaN
                raise ValueError(f"{name} is {value}; it must lie in {low} to {high}")

    def texts(self) -> dict[str, str]:
        """For the header of a voice's file."""
        return {_TOKENS_PER_LETTER: str(self.tokens_per_letter), _GROWING_SHARE: str(self.growing_share)}


def pace_in(texts: Mapping[str, str]) -> VoicePace | None:
    """Pace of a voice's header; None: it was not tuned. Raises ValueError."""
    values = [texts.get(name) for name in (_TOKENS_PER_LETTER, _GROWING_SHARE)]
    if values == [None, None]:
        return None
    try:
        tokens_per_letter, growing_share = (float(value or "nothing") for value in values)
    except ValueError as error:
        raise ValueError(f"{_TOKENS_PER_LETTER} and {_GROWING_SHARE} are {values}, not two numbers") from error
    return VoicePace(tokens_per_letter, growing_share)


@dataclass(frozen=True, slots=True)
class PaceFit:
    """`relative`: of every sentence, its pace against the mean one; ascending."""

    pace: VoicePace
    relative: tuple[float, ...]

    def relative_at(self, share: float) -> float:
        """So much of the mean pace, or less, has this share of the sentences."""
        return self.relative[math.floor(share * (len(self.relative) - 1))]


def fit(said: Sequence[Said]) -> PaceFit:
    """Raises ValueError where it is too little, or no speech."""
    if len(said) < MIN_SENTENCES:
        raise ValueError(f"{len(said)} sentences are too few to tell a pace by: {MIN_SENTENCES} are needed")
    mean = sum(each.num_tokens for each in said) / sum(each.num_letters for each in said)
    relative = tuple(sorted(each.num_tokens / each.num_letters / mean for each in said))
    share = statistics.quantiles(relative, n=round(1 / _FASTER_SHARE), method="inclusive")[0]
    low, high = _SHARES
    return PaceFit(VoicePace(round(mean, 4), round(min(max(share, low), high), 3)), relative)
