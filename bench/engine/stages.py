"""Time to first audio and real-time factor by stage, on a CPU: one utterance at a time, no sockets, no thread.

The core is driven by hand, so a step's time is its stage's. On a GPU a step ends before its work does: there the
engine tells its stages itself (interface.EngineStats).
"""

import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Final
from unittest import mock

from voicegate.bench import sentences
from voicegate.clients.bench.stats import summary
from voicegate.engine import units
from voicegate.engine.config import EngineConfig
from voicegate.engine.core.core import EngineCore
from voicegate.engine.core.stages import Stages
from voicegate.engine.interface import AudioReady, Done, EngineEvent, Failed, UtteranceId, UtteranceRequest
from voicegate.engine.load.build import load_stages, set_threads
from voicegate.engine.load.devices import resolved_for_device
from voicegate.engine.model.model_json import load_model_config
from voicegate.engine.voices.store import load_voices

_NO_LEAD_MS: Final = 3_600_000


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
        """False: nothing to do. On one processor a step does one thing: it decodes, or it advances a block."""
        started_s = time.perf_counter()
        decision = core.step()
        duration_s = time.perf_counter() - started_s
        vocoder_s, self._vocoder_s = self._vocoder_s, 0.0
        if decision.is_idle:
            return False
        if decision.flow is None:
            self._add("llm", duration_s)
            return True
        self._add("flow", duration_s - vocoder_s)
        if vocoder_s:
            self._add("vocoder", vocoder_s)
        return True

    def _add(self, stage: str, duration_s: float) -> None:
        self.seconds[stage] += duration_s
        self.num_calls[stage] += 1


class Ear:
    """The core's sink: when audio came, in milliseconds since `listen`, and how the utterance ended."""

    def __init__(self) -> None:
        self.listen()

    def listen(self) -> None:
        self.started_s = time.perf_counter()
        self.chunks: list[tuple[float, int]] = []  # when its first packet came, and its length in ms
        self.done: Done | None = None
        self._is_new_chunk = True

    def begin_step(self) -> None:
        """Events of one step are one chunk, however many they are."""
        self._is_new_chunk = True

    def hear(self, events: list[EngineEvent]) -> None:
        for event in events:
            if isinstance(event, AudioReady):
                self._add(len(event.packets) * units.MS_PER_FRAME)
            elif isinstance(event, Failed):
                raise RuntimeError(event.message)
            elif isinstance(event, Done):
                self.done = event

    def _add(self, audio_ms: int) -> None:
        arrived_ms = (time.perf_counter() - self.started_s) * 1000
        if self._is_new_chunk:
            self.chunks.append((arrived_ms, audio_ms))
        else:
            self.chunks[-1] = (self.chunks[-1][0], self.chunks[-1][1] + audio_ms)
        self._is_new_chunk = False


def speak(core: EngineCore, ear: Ear, clock: StageClock, text: str, voice: str, seed: int) -> dict[str, float]:
    """One utterance given whole, alone: milliseconds to its packets, its audio and what it took."""
    utterance_id = UtteranceId(f"bench {seed}")
    ear.listen()
    core.submit(UtteranceRequest(utterance_id, voice), seed=seed)
    core.push_text(utterance_id, text)
    core.end_text(utterance_id)
    while ear.done is None:
        ear.begin_step()
        if not clock.step(core):
            raise RuntimeError("the engine has no work, yet the utterance is not done")
    total_ms = (time.perf_counter() - ear.started_s) * 1000
    return _figures(ear.chunks, ear.done.audio_ms, total_ms)


def _figures(chunks: list[tuple[float, int]], audio_ms: int, total_ms: float) -> dict[str, float]:
    first_ms, lead_ms = chunks[0]
    headroom_ms = first_ms + lead_ms - chunks[1][0] if len(chunks) > 1 else float(lead_ms)
    return {
        "first_audio_ms": first_ms,
        "second_chunk_headroom_ms": headroom_ms,
        "audio_ms": audio_ms,
        "total_ms": total_ms,
        "rtf": total_ms / audio_ms,
    }


def measure(core: EngineCore, ear: Ear, clock: StageClock, text: str, voice: str, num_runs: int) -> dict[str, Any]:
    runs = [speak(core, ear, clock, text, voice, seed) for seed in range(num_runs)]
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


def by_stage(
    config: EngineConfig, *, voice: str | None, num_runs: int, tell: Callable[[str], object]
) -> dict[str, Any]:
    """A short sentence and a paragraph; `tell` hears what is next.

    Raises ValueError or EngineError where the model cannot be loaded.
    """
    set_threads(config)
    # The lead would hold a single utterance back to real time; here it is to run as fast as it can.
    config = replace(resolved_for_device(replace(config, device="cpu")), lead_ms=_NO_LEAD_MS)
    tell(f"loading {config.model_dir}")
    started_s = time.perf_counter()
    model = load_model_config(config.model_dir)
    voices = load_voices(config.model_dir, model)
    stages = load_stages(config, model, voices)
    load_s = time.perf_counter() - started_s
    voice = voice or model.default_voice or min(voices)
    ear = Ear()
    core = EngineCore(config, stages, time.monotonic, ear.hear)
    report: dict[str, Any] = {"voice": voice, "load_s": round(load_s, 2)}
    tell("a paragraph, to be warm")
    speak(core, ear, StageClock(), sentences.PARAGRAPH, voice, seed=10_000)
    for name, text in (("short", sentences.SHORT), ("paragraph", sentences.PARAGRAPH)):
        tell(f"the text {name!r}, {num_runs} times")
        with StageClock().watching_vocoder(stages) as clock:
            report[name] = measure(core, ear, clock, text, voice, num_runs)
    return report
