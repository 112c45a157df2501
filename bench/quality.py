"""Word error rate of the loaded model by pocketsphinx (default English), over everyday sentences spoken whole.

    python -m voicegate.bench.quality [--voices rms slt] [--modes clause bistream] [--output bench/results/quality.json]

A weak recogniser on 20 sentences: differences of a few words are noise (models/tiny/RECIPE.md has the voice's own).
"""

import argparse
import re
import time
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from pocketsphinx import Decoder

from voicegate.bench import environment, results_file, sentences
from voicegate.bench.stats import word_errors
from voicegate.engine import units
from voicegate.engine.config import EngineConfig
from voicegate.engine.interface import (
    AudioFormat,
    AudioReady,
    Codec,
    EngineEvent,
    Failed,
    SpeakingMode,
    UtteranceId,
    UtteranceRequest,
)
from voicegate.engine.loading.build import load_stages, set_threads
from voicegate.engine.loop.core import EngineCore
from voicegate.engine.model.config import load_model_config
from voicegate.engine.voices.store import load_voices

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


def speak(
    core: EngineCore, events: list[EngineEvent], text: str, voice: str, mode: SpeakingMode, seed: int
) -> npt.NDArray[np.int16]:
    """The whole text as PCM at the engine's rate; `events` is the core's sink.

    The text's end is told late, so that bistream has to stream.
    """
    utterance_id = UtteranceId(f"quality {seed}")
    core.submit(UtteranceRequest(utterance_id, voice, AudioFormat(Codec.PCM_S16LE), mode), seed=seed)
    core.push_text(utterance_id, text)
    for is_ended in (False, True):
        if is_ended:
            core.end_text(utterance_id)
        core.run_until_idle()
    pcm = b""
    for event in events:
        if isinstance(event, AudioReady):
            pcm += b"".join(event.packets)
        elif isinstance(event, Failed):
            raise RuntimeError(event.message)
    events.clear()
    return np.frombuffer(pcm, "<i2")


def measure(core: EngineCore, events: list[EngineEvent], voice: str, mode: SpeakingMode) -> dict[str, Any]:
    recogniser = Recogniser()
    rows: list[dict[str, Any]] = []
    for seed, text in enumerate(sentences.EVERYDAY):
        heard = recogniser.words(speak(core, events, text, voice, mode, seed), units.SAMPLE_RATE_HZ)
        wanted = words_of(text)
        rows.append(
            {"text": text, "heard": " ".join(heard), "errors": word_errors(wanted, heard), "words": len(wanted)}
        )
    num_errors, num_words = sum(row["errors"] for row in rows), sum(row["words"] for row in rows)
    return {
        "voice": voice,
        "mode": mode.value,
        "wer": round(num_errors / num_words, 4),
        "errors": num_errors,
        "words": num_words,
        "sentences": rows,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, default=environment.REPOSITORY / "models" / "tiny")
    parser.add_argument("--voices", nargs="+", default=["rms", "slt"])
    parser.add_argument("--modes", nargs="+", default=["clause", "bistream"], choices=["clause", "bistream"])
    parser.add_argument("--output", type=Path, default=environment.REPOSITORY / "bench" / "results" / "quality.json")
    options = parser.parse_args()

    # The lead would hold a lone utterance back to real time; here it is to run as fast as it can.
    config = EngineConfig(options.model, device="cpu", lead_ms=3_600_000).resolved("cpu")
    set_threads(config)
    model = load_model_config(options.model)
    stages = load_stages(config, model, load_voices(options.model, model))
    events: list[EngineEvent] = []
    core = EngineCore(config, stages, time.monotonic, events.extend)
    report: dict[str, Any] = {
        "environment": environment.describe(),
        "results": [
            measure(core, events, voice, SpeakingMode(mode)) for mode in options.modes for voice in options.voices
        ],
    }
    results_file.save(report, options.output)
    for result in report["results"]:
        print(f"{result['voice']} {result['mode']}: {result['wer']} ({result['errors']}/{result['words']})")


if __name__ == "__main__":
    main()
