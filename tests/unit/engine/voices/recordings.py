"""Recordings of speech, as they are and with noise: those of the tiny model's voices."""

import io

import numpy as np
import numpy.typing as npt
import soundfile
import torch

from tests.support.golden import TINY_MODEL_DIR
from voicegate.engine.voices.audio_file import Recording

PEOPLE = ("woman", "man")
_TILTS = {"white": 0.0, "pink": 0.5, "brown": 1.0}


def content_of(speaker: str) -> bytes:
    return (TINY_MODEL_DIR / "voices" / f"{speaker}_prompt.wav").read_bytes()


def read(speaker: str) -> Recording:
    samples, rate_hz = soundfile.read(io.BytesIO(content_of(speaker)), dtype="float32")
    return Recording(torch.from_numpy(samples), rate_hz)


def noise(kind: str, num_samples: int) -> npt.NDArray[np.float64]:
    """Its power is one."""
    spectrum = np.fft.rfft(np.random.default_rng(0).standard_normal(num_samples))
    tilted = spectrum / np.maximum(np.arange(len(spectrum)), 1) ** _TILTS[kind]
    samples = np.fft.irfft(tilted, num_samples)
    return samples / samples.std()


def with_noise(recording: Recording, kind: str, snr_db: float) -> Recording:
    level = float(recording.samples.std()) * 10 ** (-snr_db / 20)
    added = torch.from_numpy(level * noise(kind, len(recording.samples))).float()
    return Recording(0.5 * (recording.samples + added), recording.rate_hz)
