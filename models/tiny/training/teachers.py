"""A teacher, offline: a phoneme string in, samples, phoneme times and pitch out. README.md has their licences."""

from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

import numpy as np
import numpy.typing as npt

from .question_pitch import LATE_S, STRESSES, VOICED_HZ, Floats, rising

SAMPLE_RATE_HZ: Final = 24_000
PITCH_HOP: Final = 300  # samples between two values of the teachers' pitch


@dataclass(frozen=True, slots=True)
class Spoken:
    samples: Floats
    pitch_hz: Floats  # [samples / 300]; 0 where unvoiced
    symbols: npt.NDArray[np.uint8]  # a phoneme's id at each value of the pitch; 0 is a pause
    words: npt.NDArray[np.uint8]  # how many words are said at each value, but for the last one


class Teacher(Protocol):
    def speak(self, phonemes: str) -> Spoken: ...

    def speak_all(self, phonemes: Sequence[str]) -> Iterator[tuple[int, Spoken]]:
        """Each with its index, in an order of the teacher's own."""
        ...


def known_symbols(phonemes: str, vocabulary: Container[str]) -> list[str]:
    return [symbol for symbol in phonemes if symbol in vocabulary]


def symbol_ends(durations: npt.NDArray[np.generic], num_values: int) -> npt.NDArray[np.int64]:
    """Where each symbol ends, pauses before and after the text included, in values of the pitch."""
    counts = np.asarray(durations, np.float64).ravel()
    ends: npt.NDArray[np.int64] = np.round(np.cumsum(counts) * num_values / counts.sum()).astype(np.int64)
    return ends


def level_db(samples: Floats) -> Floats:
    """[samples // 300]."""
    blocks = samples[: len(samples) // PITCH_HOP * PITCH_HOP].reshape(-1, PITCH_HOP)
    level: Floats = 10 * np.log10((blocks**2).mean(1) + 1e-12)
    return level


def with_raised_questions(
    pitch_hz: Floats,
    level: Floats,
    phonemes: str,
    vocabulary: Container[str],
    durations: npt.NDArray[np.generic],
) -> Floats:
    """`level`: dB, [values] as the pitch. `durations`: of the pause before, each known symbol, and the pause after."""
    begins = symbol_ends(durations, len(pitch_hz))[:-1]
    return rising(pitch_hz, level, known_symbols(phonemes, vocabulary), begins, SAMPLE_RATE_HZ / PITCH_HOP)


def labelled(
    samples: Floats, pitch: Floats, phonemes: str, vocabulary: dict[str, int], durations: npt.NDArray[np.generic]
) -> Spoken:
    num_values = len(samples) // PITCH_HOP
    known = known_symbols(phonemes, vocabulary)
    symbols = np.array([0, *(vocabulary[symbol] for symbol in known), 0], np.uint8)
    for index in range(len(known), 0, -1):  # a stress mark sounds like the vowel that it stands before
        symbol = known[index - 1]
        if symbol in STRESSES:
            symbols[index] = symbols[index + 1]
        elif not (symbol.isalpha() or symbol == " "):
            symbols[index] = 0
    for index, symbol in enumerate(known, 1):
        if symbol == " ":
            symbols[index] = symbols[index - 1]
    ends = symbol_ends(durations, num_values)
    spread = np.repeat(symbols, np.diff(ends, prepend=0))
    blanks = [begin for begin, symbol in zip(ends, known, strict=False) if symbol == " "]
    late = round(LATE_S * SAMPLE_RATE_HZ / PITCH_HOP)
    words = np.searchsorted(np.array(blanks, np.int64) - late, np.arange(num_values), side="right").astype(np.uint8)
    voiced = np.where(pitch > VOICED_HZ, pitch, 0)[:num_values].astype(np.float32)
    return Spoken(samples[: num_values * PITCH_HOP], voiced, spread, words)
