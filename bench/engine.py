"""Time to first audio and real-time factor of the CPU path, by stage, at the engine seam: no sockets, no thread.

python -m bench.cpu [--runs 20] [--threads N] [--voice rms] [--output bench/results/cpu.json]
"""

import argparse
import json
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

from bench import environment, sentences
from bench.stats import summary
from engine import units
from engine.build import load_stages, set_threads
from engine.config import EngineConfig
from engine.core import EngineCore
from engine.interface import AudioReady, Done, Failed, UtteranceId, UtteranceRequest
from engine.model_config import load_model_config
from engine.scheduler import AdvanceBatch, BeginBlocks, LlmStep
from engine.stages import Stages
from engine.voices.store import load_voices


class StageClock:
    """Wall time of the engine's steps by what they did; the vocoder's is taken out of the flow step it follows."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = defaultdict(float)
        self.num_calls: dict[str, int] = defaultdict(int)
        self._vocoder_s = 0.0

    @contextmanager
    def watching_vocoder(self, stages: Stages) -> Iterator["StageClock"]:
        run = stages.vocoder.run

        def timed(*arguments: Any) -> Any:
            started_s = time.perf_counter()
            result = run(*arguments)
            self._vocoder_s += time.perf_counter() - started_s
            return result

        with mock.patch.object(stages.vocoder, "run", timed):
            yield self

    def step(self, core: EngineCore) -> bool:
        started_s = time.perf_counter()
        work = core.step().work
        duration_s = time.perf_counter() - started_s
        vocoder_s, self._vocoder_s = self._vocoder_s, 0.0
        match work:
            case LlmStep():
                self._add("llm", duration_s)
            case BeginBlocks() | AdvanceBatch():
                self._add("flow", duration_s - vocoder_s)
                if vocoder_s:
                    self._add("vocoder", vocoder_s)
            case None:
                return False
        return True

    def _add(self, stage: str, duration_s: float) -> None:
        self.seconds[stage] += duration_s
        self.num_calls[stage] += 1


def speak(core: EngineCore, clock: StageClock, text: str, voice: str, seed: int) -> dict[str, float]:
    """One utterance given whole, alone: milliseconds to its packets, its audio and what it took."""
    utterance_id = UtteranceId(f"bench {seed}")
    started_s = time.perf_counter()
    core.submit(UtteranceRequest(utterance_id, voice), seed=seed)
    core.push_text(utterance_id, text)
    core.end_text(utterance_id)
    arrivals: list[tuple[float, int]] = []
    while True:
        is_working = clock.step(core)
        for event in core.take_events():
            elapsed_ms = (time.perf_counter() - started_s) * 1000
            if isinstance(event, AudioReady):
                arrivals.append((elapsed_ms, len(event.packets) * units.MS_PER_FRAME))
            elif isinstance(event, Failed):
                raise RuntimeError(event.message)
            elif isinstance(event, Done):
                return _figures(arrivals, event.audio_ms, elapsed_ms)
        if not is_working:
            raise RuntimeError("the engine has no work, yet the utterance is not done")


def _figures(arrivals: list[tuple[float, int]], audio_ms: int, total_ms: float) -> dict[str, float]:
    first_ms, lead_ms = arrivals[0]
    headroom_ms = first_ms + lead_ms - arrivals[1][0] if len(arrivals) > 1 else float(lead_ms)
    return {
        "first_audio_ms": first_ms,
        "second_chunk_headroom_ms": headroom_ms,
        "audio_ms": audio_ms,
        "total_ms": total_ms,
        "rtf": total_ms / audio_ms,
    }


def measure(core: EngineCore, clock: StageClock, text: str, voice: str, num_runs: int) -> dict[str, Any]:
    runs = [speak(core, clock, text, voice, seed) for seed in range(num_runs)]
    audio_s = sum(run["audio_ms"] for run in runs) / 1000
    stages = {
        stage: {
            "ms_per_call": round(1000 * seconds / clock.num_calls[stage], 3),
            "num_calls": clock.num_calls[stage],
            "rtf": round(seconds / audio_s, 4),
        }
        for stage, seconds in clock.seconds.items()
    }
    return {
        "text": text,
        "first_audio_ms": summary([run["first_audio_ms"] for run in runs]),
        "second_chunk_headroom_ms_worst": round(min(run["second_chunk_headroom_ms"] for run in runs), 1),
        "rtf": summary([run["rtf"] for run in runs]),
        "audio_s": round(audio_s, 2),
        "stages": stages,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, default=environment.REPOSITORY / "models" / "tiny")
    parser.add_argument("--voice", default="rms")
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--threads", type=int, default=None, help="of torch; default: one per core")
    parser.add_argument("--output", type=Path, help="default: bench/results/engine-DEVICE.json")
    options = parser.parse_args()

    output = options.output or environment.REPOSITORY / "bench" / "results" / f"engine-{options.device}.json"
    # The lead would hold a lone utterance back to real time; here it is to run as fast as it can.
    config = EngineConfig(options.model, device=options.device, threads=options.threads, lead_ms=3_600_000)
    set_threads(config)
    started_s = time.perf_counter()
    model = load_model_config(options.model)
    stages = load_stages(config, model, load_voices(options.model, model))
    load_s = time.perf_counter() - started_s
    core = EngineCore(config, stages, time.monotonic)
    report: dict[str, Any] = {"environment": environment.describe(), "voice": options.voice, "load_s": round(load_s, 2)}
    speak(core, StageClock(), sentences.PARAGRAPH, options.voice, seed=10_000)  # warm
    for name, text in (("short", sentences.SHORT), ("paragraph", sentences.PARAGRAPH)):
        with StageClock().watching_vocoder(stages) as clock:
            report[name] = measure(core, clock, text, options.voice, options.runs)
    output.write_text(json.dumps(report, indent=1) + "\n")
    print(json.dumps(report, indent=1))


if __name__ == "__main__":
    main()
