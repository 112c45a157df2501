"""Word error rate of the loaded model by recognisers (default: pocketsphinx), over texts spoken whole.

    python -m voicegate.bench.quality [--voices woman man] [--modes clause bistream]
        [--output bench/results/quality.json] [--device cuda] [--set kv_dtype=float8] [--seeds 4]
        [--recognisers pocketsphinx whisper] [--texts everyday agent replies]
    python -m voicegate.bench.quality --keep DIR ...    # speak only, into DIR: where there is no recogniser
    python -m voicegate.bench.quality --of DIR ...      # hear what another run kept

pocketsphinx is weak, and 20 sentences are few: differences of a few words are noise (models/tiny/RECIPE.md).
"""

import argparse
import time
import wave
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from voicegate.bench import environment, recogniser, results_file, sentences
from voicegate.bench.engine.__main__ import with_settings
from voicegate.bench.recogniser import Recogniser
from voicegate.bench.word_errors import word_errors
from voicegate.engine import units
from voicegate.engine.config import EngineConfig
from voicegate.engine.core.core import EngineCore
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
from voicegate.engine.load.build import load_stages, set_threads
from voicegate.engine.load.devices import resolved_for_device
from voicegate.engine.model.model_json import load_model_config
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


_MORE = 2  # words more than are written: the text went on, or was said twice in part
Spoken = Callable[[str, str, SpeakingMode, int], npt.NDArray[np.int16]]  # a text, by a voice, in a mode, of a seed


def from_files(directory: Path) -> Spoken:
    """Speech that `keep` has left there."""
    folder_of = {text: directory / name for name, texts in sentences.BY_NAME.items() for text in texts}

    def spoken(text: str, voice: str, mode: SpeakingMode, seed: int) -> npt.NDArray[np.int16]:
        with wave.open(str(folder_of[text] / _file_name(voice, mode, seed))) as file:
            return np.frombuffer(file.readframes(file.getnframes()), "<i2")

    return spoken


def by_an_engine(options: argparse.Namespace) -> Spoken:
    # The lead would hold a single utterance back to real time; here it is to run as fast as it can.
    config = with_settings(EngineConfig(options.model, device=options.device, lead_ms=3_600_000), options.set)
    set_threads(config)
    config = resolved_for_device(config)
    model = load_model_config(options.model)
    stages = load_stages(config, model, load_voices(options.model, model))
    events: list[EngineEvent] = []
    core = EngineCore(config, stages, time.monotonic, events.extend)
    return lambda text, voice, mode, seed: speak(core, events, text, voice, mode, seed)


@dataclass(frozen=True, slots=True)
class Case:
    voice: str
    mode: SpeakingMode
    texts: str  # their name in `sentences.BY_NAME`
    num_seeds: int

    def each_text(self) -> Iterator[tuple[int, str]]:
        """Each with a seed of its own."""
        return enumerate(sentences.BY_NAME[self.texts] * self.num_seeds)


def keep(spoken: Spoken, case: Case, directory: Path) -> None:
    folder = directory / case.texts
    folder.mkdir(parents=True, exist_ok=True)
    for seed, text in case.each_text():
        with wave.open(str(folder / _file_name(case.voice, case.mode, seed)), "wb") as file:
            file.setparams((1, 2, units.SAMPLE_RATE_HZ, 0, "NONE", ""))
            file.writeframes(spoken(text, case.voice, case.mode, seed).astype("<i2").tobytes())


def _file_name(voice: str, mode: SpeakingMode, seed: int) -> str:
    return f"{voice}-{mode.value}-{seed:03}.wav"


def measure(spoken: Spoken, case: Case, recognisers: Mapping[str, Recogniser]) -> Iterator[dict[str, Any]]:
    """A result of each recogniser, which hear the same speech."""
    said = [(text, spoken(text, case.voice, case.mode, seed)) for seed, text in case.each_text()]
    for name, listener in recognisers.items():
        rows: list[dict[str, Any]] = []
        for text, samples in said:
            heard, wanted = listener.words(samples, units.SAMPLE_RATE_HZ), recogniser.words_of(text)
            rows.append(
                {"text": text, "heard": " ".join(heard), "errors": word_errors(wanted, heard), "words": len(wanted)}
            )
        num_errors, num_words = sum(row["errors"] for row in rows), sum(row["words"] for row in rows)
        yield {
            "voice": case.voice,
            "mode": case.mode.value,
            "texts": case.texts,
            "recogniser": name,
            "wer": round(num_errors / num_words, 4),
            "errors": num_errors,
            "words": num_words,
            "said_more": sum(len(row["heard"].split()) >= row["words"] + _MORE for row in rows),
            "sentences": rows,
        }


def parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, default=environment.REPOSITORY / "models" / "tiny")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="an EngineConfig field")
    parser.add_argument("--voices", nargs="+", default=["woman", "man"])
    parser.add_argument("--modes", nargs="+", default=["clause", "bistream"], choices=["clause", "bistream"])
    parser.add_argument(
        "--texts", nargs="+", default=["everyday"], choices=sentences.BY_NAME, help="default: everyday sentences"
    )
    parser.add_argument("--seeds", type=int, default=1, help="times that the texts are spoken (default: 1)")
    parser.add_argument("--output", type=Path, default=environment.REPOSITORY / "bench" / "results" / "quality.json")
    names = recogniser.RECOGNISERS
    parser.add_argument(
        "--recognisers", nargs="+", choices=names, default=[recogniser.DEFAULT], help=f"default: {recogniser.DEFAULT}"
    )
    apart = parser.add_mutually_exclusive_group()
    apart.add_argument("--keep", type=Path, metavar="DIR", help="speak only, into WAV files there")
    apart.add_argument("--of", type=Path, metavar="DIR", help="hear what was kept there")
    return parser


def main() -> None:
    options = parser().parse_args()
    spoken = by_an_engine(options) if options.of is None else from_files(options.of)
    cases = [
        Case(voice, SpeakingMode(mode), texts, options.seeds)
        for texts in options.texts
        for mode in options.modes
        for voice in options.voices
    ]
    if options.keep is not None:
        for case in cases:
            keep(spoken, case, options.keep)
        return
    recognisers = {name: recogniser.recogniser_of(name) for name in options.recognisers}  # before anything is spoken
    report: dict[str, Any] = {
        "environment": environment.describe(),
        "settings": options.set,
        "seeds": options.seeds,
        "results": [result for case in cases for result in measure(spoken, case, recognisers)],
    }
    results_file.save(report, options.output)
    for result in report["results"]:
        heard_by = f"{result['voice']} {result['mode']} {result['texts']}, {result['recogniser']}"
        print(f"{heard_by}: {result['wer']} ({result['errors']}/{result['words']})")


if __name__ == "__main__":
    main()
