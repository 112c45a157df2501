"""The pitch of questions that yes or no answers: it rises from the last stressed vowel on.

Both teachers let these questions fall, as their statements do (README, "The pitch of questions"). Their pitch is known
before the samples are made, so it is changed there.
"""

import itertools
import re
from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

_MARKS: Final = ".?!"
STRESSES: Final = "ˈˌ"  # the weaker one where a question has no other
_NO_SOUND_OF_ITS_OWN: Final = str.maketrans("", "", STRESSES)
_CLAUSES_END: Final = re.compile(r"[,;:—…(]")
# Questions with what, where, when, who, whose, why, how, which (with 's, too) and whom fall in English, as those with
# "or" do. One other word may stand before: and how, at what.
_ASKING: Final = frozenset(
    ("hum", *(word + end for word in ("wʌt", "wɛɹ", "wɛn", "hu", "wI", "hW", "wɪʧ") for end in ("", "s", "z")))
)
_OR: Final = "ɔɹ"

_LOW, _HIGH = -1.5, 7.5  # semitones from the question's median: soon after the vowel's beginning, at the end
_FALL_S: Final = 0.08  # to _LOW
_MOST_SEMITONES_PER_S: Final = 50.0  # a short vowel does not get down to _LOW
_FAINT_DB: Final = -20.0  # below the question's loudest: nobody hears pitch there, so it is up before
LATE_S: Final = 0.0625  # of both teachers' phonemes, against their samples
_LEAST_VALUES: Final = 3  # of the pitch, that rise: fewer are no melody
VOICED_HZ: Final = 40  # the teachers' pitch is lower where there is no voice

Floats = npt.NDArray[np.float32]


def yes_no_questions(symbols: Sequence[str]) -> Iterator[tuple[int, int]]:
    """First place and the mark's place of each, in an utterance's phonemes."""
    begin = 0
    for place, symbol in enumerate(symbols):
        if symbol in _MARKS:
            if symbol == "?" and _is_yes_no("".join(symbols[begin:place])):
                yield begin, place
            begin = place + 1


def _is_yes_no(phonemes: str) -> bool:
    clauses = [clause.split() for clause in _CLAUSES_END.split(phonemes.translate(_NO_SOUND_OF_ITS_OWN))]
    words = set(itertools.chain(*clauses))
    beginnings = set(itertools.chain(*(clause[:2] for clause in clauses)))
    return bool(words) and not beginnings & _ASKING and _OR not in words


def _last_stress(symbols: Sequence[str]) -> int | None:
    for stress in STRESSES:
        places = [place for place, symbol in enumerate(symbols) if symbol == stress]
        if places:
            return places[-1]
    return None


def rising(
    pitch_hz: Floats, level_db: Floats, symbols: Sequence[str], begins: npt.NDArray[np.int64], values_per_s: float
) -> Floats:
    """The pitch of an utterance, its questions raised.

    pitch_hz, level_db: [values]; a pitch below 40 Hz is unvoiced. begins: [symbols + 1], the value at which each symbol
    begins.
    """
    pitch_hz = pitch_hz.copy()
    begins = np.maximum(begins - round(LATE_S * values_per_s), 0)
    for first, mark in yes_no_questions(symbols):
        begin, end = begins[first], begins[mark + 1]
        voiced = begin + np.flatnonzero(pitch_hz[begin:end] > VOICED_HZ)
        last = _last_stress(symbols[first:mark])
        if last is None or not len(voiced):
            continue
        loud = voiced[level_db[voiced] > level_db[begin:end].max() + _FAINT_DB]
        changed = voiced[voiced >= begins[first + last]]
        if not len(loud) or loud[-1] - begins[first + last] < _LEAST_VALUES:
            continue
        middle = 12 * np.log2(np.median(pitch_hz[voiced]))
        times = (changed - changed[0]) / values_per_s
        up_at = (loud[-1] - changed[0]) / values_per_s
        low_at = min(_FALL_S, up_at / 3)
        low = max(_LOW, _HIGH - _MOST_SEMITONES_PER_S * (up_at - low_at))
        before = 12 * np.log2(pitch_hz[changed[0]])
        notes = np.interp(times, (0, low_at, up_at), (before, middle + low, middle + _HIGH))
        pitch_hz[changed] = 2 ** (notes / 12)
    return pitch_hz
