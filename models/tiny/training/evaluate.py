"""Measure voices on the held-out sentences: a model's, by the real engine, or the teachers'.

    python -m models.tiny.training.evaluate --model new-model --voices rms slt --modes clause bistream
    python -m models.tiny.training.evaluate --teachers woman man

Word errors by pocketsphinx, or by `--recogniser whisper`; DNSMOS where `speechmos` is installed; energy above 8 kHz;
how much higher the melody ends in questions than in statements, in semitones against the sentence's mean; real-time
factor.
"""

import argparse
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import torch

from voicegate.bench import recogniser
from voicegate.bench.quality import by_an_engine
from voicegate.bench.quality import parser as quality_parser
from voicegate.bench.word_errors import word_errors
from voicegate.engine.interface import SpeakingMode

from .held_out import HELD_OUT, QUESTIONS
from .voices import VOICES

RATE_HZ: Final = 24_000
_BAND_HZ: Final = 8_000
_PITCH_HOP, _PITCH_WINDOW = 240, 1200
_PITCH_RANGE_HZ: Final = (60, 400)
_ENDING_S: Final = 0.35

Samples = npt.NDArray[np.float64]
Speaker = Callable[[str, int], npt.NDArray[np.int16]]


def pitch_hz(samples: Samples) -> Samples:
    """[n]: by the autocorrelation of windows of 50 ms, every 10 ms; 0 where none is clear."""
    low, high = (RATE_HZ // hertz for hertz in reversed(_PITCH_RANGE_HZ))
    found = []
    for start in range(0, len(samples) - _PITCH_WINDOW, _PITCH_HOP):
        window = samples[start : start + _PITCH_WINDOW]
        window = (window - window.mean()) * np.hanning(_PITCH_WINDOW)
        spectrum = np.fft.rfft(window, 2 * _PITCH_WINDOW)
        correlation = np.fft.irfft(np.abs(spectrum) ** 2)[:_PITCH_WINDOW]
        lag = low + int(np.argmax(correlation[low:high]))
        is_clear = correlation[0] > 1e-4 and correlation[lag] > 0.4 * correlation[0]
        found.append(RATE_HZ / lag if is_clear else 0.0)
    return np.array(found)


def ending_semitones(samples: Samples) -> float | None:
    """How far the last voiced third of a second lies above the sentence's mean."""
    hertz = pitch_hz(samples)
    voiced = np.flatnonzero(hertz)
    if not len(voiced):
        return None
    notes = 12 * np.log2(hertz[voiced])
    ending = notes[voiced > voiced[-1] - _ENDING_S * RATE_HZ / _PITCH_HOP]
    return float(ending.mean() - np.median(notes))


def decibels_above(samples: Samples, band_hz: int) -> float:
    energy = np.abs(np.fft.rfft(samples)) ** 2
    share = energy[np.fft.rfftfreq(len(samples), 1 / RATE_HZ) > band_hz].sum() / energy.sum()
    return float(10 * np.log10(share + 1e-12))


def mean_opinions(samples: Samples) -> dict[str, float]:
    """P.808 and overall of DNSMOS; nothing where the package is not there."""
    try:
        from scipy.signal import resample_poly  # noqa: PLC0415 - an extra of this one measurement
        from speechmos import dnsmos  # noqa: PLC0415
    except ImportError:
        return {}
    heard = np.clip(resample_poly(samples, 2, 3), -1, 1).astype(np.float32)
    scores = dnsmos.run(heard, 16_000)
    return {"p808": float(scores["p808_mos"]), "overall": float(scores["ovrl_mos"])}


def measured(speaker: Speaker, sentences: tuple[str, ...], heard_by: str = recogniser.DEFAULT) -> dict[str, Any]:
    listener = recogniser.recogniser_of(heard_by)
    rows: list[dict[str, Any]] = []
    seconds_taken = seconds_spoken = 0.0
    for seed, text in enumerate(sentences):
        began = time.monotonic()
        pcm = speaker(text, seed)
        seconds_taken += time.monotonic() - began
        seconds_spoken += len(pcm) / RATE_HZ
        samples = pcm.astype(np.float64) / 32768
        heard, wanted = listener.words(pcm, RATE_HZ), recogniser.words_of(text)
        rows.append(
            {
                "text": text,
                "heard": " ".join(heard),
                "errors": word_errors(wanted, heard),
                "words": len(wanted),
                "above_8_khz_db": decibels_above(samples, _BAND_HZ),
                "ending_semitones": ending_semitones(samples),
                **mean_opinions(samples),
            }
        )
    real_time_factor = round(seconds_taken / seconds_spoken, 3)
    return {"recogniser": heard_by, **_summary(rows), "real_time_factor": real_time_factor, "sentences": rows}


def _summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    def mean(key: str, *, questions: bool | None = None) -> float | None:
        values = [
            row[key]
            for row in rows
            if row.get(key) is not None and (questions is None or (row["text"] in QUESTIONS) is questions)
        ]
        return round(float(np.mean(values)), 3) if values else None

    asked, told = mean("ending_semitones", questions=True), mean("ending_semitones", questions=False)
    return {
        "wer": round(sum(row["errors"] for row in rows) / sum(row["words"] for row in rows), 4),
        "errors": sum(row["errors"] for row in rows),
        "words": sum(row["words"] for row in rows),
        "p808": mean("p808"),
        "overall": mean("overall"),
        "above_8_khz_db": mean("above_8_khz_db"),
        "question_rise_semitones": None if asked is None or told is None else round(asked - told, 2),
    }


def teacher(name: str, kokoro: Path | None) -> Speaker:
    from .corpus import speaker_of, utterance  # noqa: PLC0415 - the teachers are installed where they are measured
    from .hibari_teacher import Hibari  # noqa: PLC0415

    voice = VOICES[name]
    reader = Hibari()
    speaker = speaker_of(voice, reader, kokoro, torch.device("cpu"))
    return lambda text, seed: utterance(speaker.speak(reader.phonemes(text)), text, voice.number).samples


def _cases(options: argparse.Namespace) -> Iterator[tuple[dict[str, str], Speaker]]:
    for name in options.teachers:
        yield {"teacher": name}, teacher(name, options.kokoro)
    if options.model is None:
        return
    spoken = by_an_engine(quality_parser().parse_args(["--model", str(options.model)]))
    for mode in map(SpeakingMode, options.modes):
        for voice in options.voices:
            yield (
                {"voice": voice, "mode": mode.value},
                lambda text, seed, voice=voice, mode=mode: spoken(text, voice, mode, seed),  # type: ignore[misc]
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path)
    parser.add_argument("--voices", nargs="+", default=["rms", "slt"])
    parser.add_argument("--modes", nargs="+", default=["clause"], choices=[mode.value for mode in SpeakingMode])
    parser.add_argument("--teachers", nargs="*", default=[], choices=sorted(VOICES))
    parser.add_argument("--kokoro", type=Path)
    parser.add_argument("--sentences", type=int, default=len(HELD_OUT))
    parser.add_argument("--seeds", type=int, default=1, help="times that the sentences are spoken (default: 1)")
    parser.add_argument("--output", type=Path)
    recogniser.add_option(parser)
    options = parser.parse_args()
    results = []
    for case, speaker in _cases(options):
        # Questions stand last: a shorter run has its share of them.
        sentences = HELD_OUT if options.sentences >= len(HELD_OUT) else HELD_OUT[:: len(HELD_OUT) // options.sentences]
        result = {**case, **measured(speaker, sentences * options.seeds, options.recogniser)}
        results.append(result)
        print({key: value for key, value in result.items() if key != "sentences"}, flush=True)
    if options.output is not None:
        options.output.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
