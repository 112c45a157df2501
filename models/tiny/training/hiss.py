"""Kokoro-82M's hiss at the end of clauses, taken out of its speech: some styles say an s there that is not written.

It lies where the last phoneme should fade ("phone" becomes "phones"), so durations do not part it from speech. It is
told by its spectrum: no phoneme that is voiced, and no release of a stop, is for long louder above 4 kHz than below 3.
"""

import itertools
from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float32]

_RATE_HZ: Final = 24_000
_HOP, _WINDOW = 300, 600  # of 12.5 and 25 ms
_LOW_BELOW_HZ, _HIGH_ABOVE_HZ = 3_000, 4_000
_VOICED: Final = frozenset("aeiouæɑɐəɚɛɜɪɔʊʌAIOWYQᵊᵻɹɾlmnŋwj")
_STOPS: Final = frozenset("ptkbdɡ")
_RELEASE: Final = 2  # frames of a stop's own noise
_SHORTEST: Final = 3  # frames; less of it is not heard as an s
# Decibels. Louder above than below by more than this: a hiss; it begins where the upper part comes as near as this.
_HISSES_FROM, _BEGINS_FROM = -3, -18
_FAINT, _QUIET = -40, -36  # against the loudest frame: no hiss is told below it; both parts lie below it after one
_LEFT: Final = 0.003  # of its amplitude: -50 dB
_FADE_SAMPLES: Final = 600


def without_hiss(samples: Floats, symbols: Sequence[str], ends: npt.NDArray[np.int64]) -> Floats:
    """A copy. `symbols`: phonemes, stresses, blanks and punctuation; `ends`: where each ends, frames of 300 samples."""
    cleaned = samples.copy()
    low, high = _loudness(samples)
    loudest = low.max(initial=-np.inf)
    is_hiss = (high > low + _HISSES_FROM) & (high > loudest + _FAINT)
    is_quiet = np.maximum(low, high) < loudest + _QUIET
    for index, following in _before_pauses(symbols):
        begin = int(ends[index - 1]) if index else 0
        end = int(ends[following - 1]) if following < len(symbols) else len(low)
        first, last = _run(is_hiss[begin:end], is_quiet[begin:end])
        if symbols[index] in _STOPS:
            first += _RELEASE
        elif symbols[index] in _VOICED and last - first >= _SHORTEST:
            while first and high[begin + first - 1] > low[begin + first - 1] + _BEGINS_FROM:
                first -= 1
        else:
            continue
        if last > first:
            cleaned[(begin + first) * _HOP : (begin + last) * _HOP] *= _fade((last - first) * _HOP)
    return cleaned


def _before_pauses(symbols: Sequence[str]) -> Iterator[tuple[int, int]]:
    """Places of the phonemes that punctuation or the end follows, each with that of the next phoneme or stress."""
    places = [place for place, symbol in enumerate(symbols) if symbol.isalpha()]
    for place, following in itertools.pairwise([*places, len(symbols)]):
        between = symbols[place + 1 : following]
        if following == len(symbols) or any(not each.isspace() for each in between):
            yield place, following


def _run(is_hiss: npt.NDArray[np.bool_], is_quiet: npt.NDArray[np.bool_]) -> tuple[int, int]:
    """The first frame that hisses, and the first one after it that is quiet; both 0 where there are none such."""
    if not is_hiss.any():
        return 0, 0
    first = int(np.argmax(is_hiss))
    length = int(np.argmax(is_quiet[first:]))
    return (first, first + length) if length else (0, 0)


def _fade(num_samples: int) -> Floats:
    gain = np.full(num_samples, _LEFT, np.float32)
    falling = 0.5 + 0.5 * np.cos(np.linspace(0, np.pi, min(_FADE_SAMPLES, num_samples), dtype=np.float32))
    gain[: len(falling)] = np.maximum(falling, _LEFT)
    return gain


def _loudness(samples: Floats) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Loudness of each frame, in decibels: below 3 kHz, and above 4."""
    num_frames = len(samples) // _HOP
    padded = np.pad(samples, (_HOP // 2, _WINDOW))
    frames = np.lib.stride_tricks.sliding_window_view(padded, _WINDOW)[::_HOP][:num_frames]
    powers = np.abs(np.fft.rfft(frames * np.hanning(_WINDOW))) ** 2
    hertz = np.fft.rfftfreq(_WINDOW, 1 / _RATE_HZ)
    low, high = (powers[:, band].sum(1) for band in (hertz < _LOW_BELOW_HZ, hertz > _HIGH_ABOVE_HZ))
    return 10 * np.log10(low + 1e-9), 10 * np.log10(high + 1e-9)
