"""When speech begins in decoded audio: what separates audible from arrived. Pure."""

import sys
from array import array
from typing import Final

_WINDOW_MS: Final = 10
# Shorter sounds than this are clicks, not speech.
_LEAST_WINDOWS: Final = 3
_FULL_SCALE: Final = 32_768


def onset_s(pcm: bytes, rate_hz: int, *, gate_dbfs: float = -40.0) -> float | None:
    """Start of the first 30 ms whose 10 ms windows are all above the gate, in s16le mono; None: all silent."""
    samples = array("h", pcm)
    if sys.byteorder == "big":
        samples.byteswap()
    window = rate_hz * _WINDOW_MS // 1000
    least_energy = (_FULL_SCALE * 10 ** (gate_dbfs / 20)) ** 2 * window
    num_loud = 0
    for index in range(len(samples) // window):
        energy = sum(sample * sample for sample in samples[index * window : (index + 1) * window])
        num_loud = num_loud + 1 if energy >= least_energy else 0
        if num_loud == _LEAST_WINDOWS:
            return (index + 1 - _LEAST_WINDOWS) * _WINDOW_MS / 1000
    return None
