"""Recordings for the tests: something with the levels and pauses of speech, as a file of any kind."""

import io

import numpy as np
import numpy.typing as npt
import soundfile

# Formants of a, i and u: the first two.
_FORMANTS_HZ = np.array([[750, 1200], [300, 2300], [350, 800]])


def speechlike(seconds: float = 2.0, *, rate_hz: int = 24_000, level: float = 0.3) -> npt.NDArray[np.float32]:
    """A buzz that swells and falls three times a second, with another vowel's colour each time.

    Each second is like the first.
    """
    num_samples = round(seconds * rate_hz)
    times_s = np.arange(min(num_samples, rate_hz)) / rate_hz
    vowel = np.floor(3 * times_s).astype(int) % len(_FORMANTS_HZ)
    buzz = np.zeros_like(times_s)
    for harmonic in range(1, 28):
        distances = np.abs(_FORMANTS_HZ - 140 * harmonic).min(1)
        buzz += (np.exp(-((distances / 200) ** 2)) + 0.01)[vowel] * np.sin(2 * np.pi * 140 * harmonic * times_s)
    swell = np.clip(np.sin(2 * np.pi * 3 * times_s), 0, None)
    return np.resize((level * swell * buzz / np.abs(buzz).max()).astype(np.float32), num_samples)


def file_of(
    samples: npt.NDArray[np.float32],
    *,
    rate_hz: int = 24_000,
    kind: str = "WAV",
    subtype: str | None = None,
    endian: str | None = None,
) -> bytes:
    file = io.BytesIO()
    soundfile.write(file, samples, rate_hz, format=kind, subtype=subtype, endian=endian)
    return file.getvalue()
