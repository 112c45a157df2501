"""Measures of speech without a listener: its pauses, and where its pitch goes at the end. Pure."""

import numpy as np
import numpy.typing as npt

from voicegate.engine.units import SAMPLE_RATE_HZ

_WINDOW_S = 0.02
# Quieter than this below the loudest window is silence.
_SILENCE_DB = 35.0
# Shorter ones are stops, not pauses.
_PAUSE_S = 0.15
_F0_HZ = (70.0, 350.0)
_F0_WINDOW_S = 0.04
# End of the voiced speech, compared with all of it.
_END_S = 0.3


def pauses_s(samples: npt.NDArray[np.int16]) -> list[float]:
    """Silences inside the speech; those before and behind it are not counted."""
    level_db = _levels_db(samples)
    is_loud = level_db > level_db.max(initial=-np.inf) - _SILENCE_DB
    loud = np.flatnonzero(is_loud)
    runs = np.diff(loud) - 1
    return [float(run * _WINDOW_S) for run in runs if run * _WINDOW_S >= _PAUSE_S]


def final_rise(samples: npt.NDArray[np.int16]) -> float | None:
    """Semitones of the last voiced stretch above the speech's median; None where too little is voiced."""
    f0_hz = _f0_hz(samples)
    voiced = f0_hz[f0_hz > 0]
    num_last = round(_END_S / _F0_WINDOW_S)
    if len(voiced) < 2 * num_last:
        return None
    return float(12 * np.log2(np.median(voiced[-num_last:]) / np.median(voiced)))


def _levels_db(samples: npt.NDArray[np.int16]) -> npt.NDArray[np.float64]:
    size = round(_WINDOW_S * SAMPLE_RATE_HZ)
    windows = samples[: len(samples) // size * size].reshape(-1, size).astype(np.float64)
    levels: npt.NDArray[np.float64] = 10 * np.log10((windows**2).mean(-1) + 1.0)
    return levels


def _f0_hz(samples: npt.NDArray[np.int16]) -> npt.NDArray[np.float64]:
    """By the highest peak of the autocorrelation of each window; 0 where none is high enough."""
    size = round(_F0_WINDOW_S * SAMPLE_RATE_HZ)
    low, high = (round(SAMPLE_RATE_HZ / hz) for hz in reversed(_F0_HZ))
    found = []
    for start in range(0, len(samples) - 2 * size, size):
        window = samples[start : start + 2 * size].astype(np.float64)
        window -= window.mean()
        spectrum = np.fft.rfft(window * np.hanning(len(window)), 4 * size)
        correlation = np.fft.irfft(np.abs(spectrum) ** 2)[: high + 1]
        lag = low + int(np.argmax(correlation[low:]))
        is_voiced = correlation[lag] > 0.4 * correlation[0] > 0
        found.append(SAMPLE_RATE_HZ / lag if is_voiced else 0.0)
    return np.array(found)
