"""Recognises speech with pocketsphinx's default English model. A weak one: compare many words, not a few."""

import re

import numpy as np
import numpy.typing as npt
import torch
from pocketsphinx import Decoder

_RECOGNISER_RATE_HZ = 16_000


def words_of(text: str) -> list[str]:
    return re.findall(r"[a-z']+", text.lower())


class Recogniser:
    """pocketsphinx's default English model; mono 16-bit PCM at 16 kHz."""

    def __init__(self) -> None:
        self._decoder = Decoder(samprate=float(_RECOGNISER_RATE_HZ), loglevel="ERROR")

    def words(self, samples: npt.NDArray[np.int16], rate_hz: int) -> list[str]:
        self._decoder.start_utt()
        self._decoder.process_raw(_resample(samples, rate_hz).tobytes(), no_search=False, full_utt=True)
        self._decoder.end_utt()
        hypothesis = self._decoder.hyp()
        return words_of(hypothesis.hypstr) if hypothesis is not None else []


def _resample(samples: npt.NDArray[np.int16], rate_hz: int) -> npt.NDArray[np.int16]:
    """Band-limited by zeroing the spectrum above the new Nyquist frequency: whole signals only."""
    num_out = len(samples) * _RECOGNISER_RATE_HZ // rate_hz
    spectrum = torch.fft.rfft(torch.from_numpy(samples.astype(np.float64)))[: num_out // 2 + 1]
    resampled = torch.fft.irfft(spectrum, n=num_out) * (num_out / len(samples))
    out: npt.NDArray[np.int16] = resampled.clamp(-32768, 32767).numpy().astype(np.int16)
    return out
