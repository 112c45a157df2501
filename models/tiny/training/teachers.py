"""The teachers, offline: a phoneme string in, samples, phoneme times and pitch out. RECIPE.md has their licences.

hibari (one woman's voice, distilled from Kokoro-82M) reads the text; Kokoro-82M speaks the other voices from the
phonemes that hibari found.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

import numpy as np
import numpy.typing as npt
import onnxruntime

SAMPLE_RATE_HZ: Final = 24_000
PITCH_HOP: Final = 300  # samples between two values of the teachers' pitch
_STRESS: Final = "ˈˌ"

Floats = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Spoken:
    samples: Floats
    pitch_hz: Floats  # [samples / 300]; 0 where unvoiced
    symbols: npt.NDArray[np.uint8]  # a phoneme's id at each value of the pitch; 0 is a pause


class Teacher(Protocol):
    def speak(self, phonemes: str) -> Spoken: ...


class Hibari:
    """Its model gives pitch and spectra apart, so a deeper voice can be had of it: both lowered before synthesis."""

    def __init__(self, *, pitch: float = 1.0, formants: float = 1.0) -> None:
        self._pitch, self._formants = pitch, formants
        import hibari  # noqa: PLC0415 - only where a corpus is made
        import onnx  # noqa: PLC0415

        self._hibari = hibari.Hibari()
        self._dsp = hibari.dsp
        model = onnx.load(self._hibari.model_path)
        self._session = _with_outputs(model.SerializeToString(), ("/Clip_output_0",))
        self._random = np.random.default_rng(0)

    def phonemes(self, text: str) -> str:
        phonemes: list[str] = self._hibari.phonemize(text)
        return " ".join(phonemes)

    def speak(self, phonemes: str) -> Spoken:
        ids = self._hibari.ids(phonemes)
        feeds = {"ids": np.asarray([ids], np.int64), "speed": np.ones(1, np.float32)}
        *spectra, pitch, durations = self._session.run(None, feeds)
        hertz = pitch[0] * self._pitch
        samples = self._dsp.synth(*(self._lowered(part[0]) for part in spectra), hertz, self._random)
        return _spoken(samples, hertz, phonemes, self._hibari.vocab, durations)

    def _lowered(self, part: Floats) -> Floats:
        """[601, F]: what was at a frequency, at `formants` times that; the top repeats."""
        if self._formants == 1:
            return part
        places = np.minimum(np.arange(len(part)) / self._formants, len(part) - 1)
        below = np.minimum(places.astype(int), len(part) - 2)
        share = (places - below)[:, None].astype(np.float32)
        lowered: Floats = part[below] * (1 - share) + part[below + 1] * share
        return lowered


class Kokoro:
    """`model` is the int8 export; `style` one of the model's voices, [510, 256] float32."""

    _PITCH, _DURATIONS = "/encoder/F0_proj/Conv_output_0", "/encoder/Clip_output_0"

    def __init__(self, model: Path, vocabulary: Path, style: Path) -> None:
        self._session = _with_outputs(model.read_bytes(), (self._PITCH, self._DURATIONS))
        self._vocabulary: dict[str, int] = json.loads(vocabulary.read_text())["vocab"]
        self._style = np.fromfile(style, np.float32).reshape(-1, 1, 256)

    def speak(self, phonemes: str) -> Spoken:
        ids = [self._vocabulary[symbol] for symbol in phonemes if symbol in self._vocabulary]
        feeds = {
            "tokens": np.asarray([[0, *ids, 0]], np.int64),
            "style": self._style[min(len(ids), len(self._style)) - 1],
            "speed": np.ones(1, np.float32),
        }
        samples, pitch, durations = self._session.run(None, feeds)
        return _spoken(samples.ravel(), pitch.ravel(), phonemes, self._vocabulary, durations)


def _with_outputs(model: bytes, names: tuple[str, ...]) -> onnxruntime.InferenceSession:
    """What the published model keeps to itself, as further outputs; one thread."""
    import onnx  # noqa: PLC0415

    graph = onnx.load_from_string(model)
    graph.graph.output.extend(onnx.ValueInfoProto(name=name) for name in names)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(graph.SerializeToString(), options, providers=["CPUExecutionProvider"])


def _spoken(
    samples: Floats, pitch: Floats, phonemes: str, vocabulary: dict[str, int], durations: npt.NDArray[np.generic]
) -> Spoken:
    num_values = len(samples) // PITCH_HOP
    known = [symbol for symbol in phonemes if symbol in vocabulary]
    symbols = np.array([0, *(vocabulary[symbol] for symbol in known), 0], np.uint8)
    for index in range(len(known), 0, -1):  # a stress mark sounds like the vowel that it stands before
        symbol = known[index - 1]
        if symbol in _STRESS:
            symbols[index] = symbols[index + 1]
        elif not (symbol.isalpha() or symbol == " "):
            symbols[index] = 0
    for index, symbol in enumerate(known, 1):
        if symbol == " ":
            symbols[index] = symbols[index - 1]
    counts = np.asarray(durations, np.float64).ravel()
    edges = np.round(np.cumsum(counts) * num_values / counts.sum()).astype(int)
    spread = np.repeat(symbols, np.diff(edges, prepend=0))
    voiced = np.where(pitch > 40, pitch, 0)[:num_values].astype(np.float32)
    return Spoken(samples[: num_values * PITCH_HOP], voiced, spread)
