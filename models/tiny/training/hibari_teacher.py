"""hibari: one woman's voice, distilled from Kokoro-82M. It also reads the text for the other teacher."""

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt
import onnxruntime

from .question_pitch import Floats
from .teachers import SAMPLE_RATE_HZ, Spoken, labelled, level_db, with_raised_questions


class Hibari:
    def __init__(self) -> None:
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
        spectra, hertz = [part[0] for part in spectra], pitch[0]
        samples = self._dsp.synth(*spectra, hertz, self._random)
        raised = with_raised_questions(hertz, level_db(samples), phonemes, self._hibari.vocab, durations)
        changed = np.flatnonzero(raised != hertz)
        if len(changed):
            samples = self._dsp.synth(*_with_clear_pitch(spectra, raised, changed), raised, self._random)
        return labelled(samples, raised, phonemes, self._hibari.vocab, durations)

    def speak_all(self, phonemes: Sequence[str]) -> Iterator[tuple[int, Spoken]]:
        return enumerate(map(self.speak, phonemes))


_BIN_HZ: Final = SAMPLE_RATE_HZ / 1200  # of hibari's spectra
_PITCH_BAND: Final = slice(4, 60)  # of these bins: where harmonics are strong
_HARMONIC_BINS: Final = 150  # 3 kHz: above it voices are noise
_SMOOTHED_BINS: Final = 13  # some 260 Hz: more than a harmonic's distance


def _with_clear_pitch(spectra: list[Floats], pitch_hz: Floats, changed: npt.NDArray[np.int64]) -> list[Floats]:
    """hibari lets its last syllables creak, in a part of the spectrum that follows no pitch: that becomes harmonics.

    spectra: each [601, frames], the harmonics' log magnitude and phase, the noise's, the free part's and its phase.
    """
    harmonic, phase, noise, free, free_phase = (part.copy() for part in spectra)
    # A harmonic of magnitude 1 has the energy 1.5 in its window's bins, and there is one in every pitch / bin.
    density = 1.5 * _BIN_HZ / pitch_hz[changed]
    energies = [np.exp(2 * harmonic[:, changed]) * density, np.exp(2 * free[:, changed])]
    creaks = energies[1][_PITCH_BAND].sum(0) > 0.5 * energies[0][_PITCH_BAND].sum(0)
    frames = changed[creaks]
    if not len(frames):
        return spectra
    energy = (energies[0] + energies[1])[:_HARMONIC_BINS, creaks]
    window = np.hanning(_SMOOTHED_BINS + 2)[1:-1]
    smooth = np.stack([np.convolve(each, window / window.sum(), "same") for each in energy.T], axis=1)
    harmonic[:_HARMONIC_BINS, frames] = 0.5 * np.log(smooth / density[creaks])
    free[:_HARMONIC_BINS, frames] -= 20
    phase[:, frames] = 0
    return [harmonic, phase, noise, free, free_phase]


def _with_outputs(model: bytes, names: tuple[str, ...]) -> onnxruntime.InferenceSession:
    """Adds inner values of the published model as further outputs; one thread."""
    import onnx  # noqa: PLC0415

    graph = onnx.load_from_string(model)
    graph.graph.output.extend(onnx.ValueInfoProto(name=name) for name in names)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(graph.SerializeToString(), options, providers=["CPUExecutionProvider"])
