"""Word error rate of the loaded model by pocketsphinx (default English), over everyday sentences spoken whole.

    python -m voicegate.bench.quality [--voices rms slt] [--modes clause bistream] [--output bench/results/quality.json]

A weak recogniser on 20 sentences: differences of a few words are noise (models/tiny/RECIPE.md has the voice's own).
"""

import argparse
import time
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from voicegate.bench import environment, results_file, sentences
from voicegate.bench.recogniser import Recogniser, words_of
from voicegate.bench.word_errors import word_errors
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
