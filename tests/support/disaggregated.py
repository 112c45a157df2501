"""Hollow stages of several token2wavs behind one LLM, and what drives a core by hand, or in a thread."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import count

from tests.support.hollow_stages import Hollow, hollow, hollow_runner
from tests.support.lanes import StuckLane, on_lane
from tests.support.tiny_engine import CONFIG, PCM, Heard
from voicegate.bench.standins.llm import HollowRunner
from voicegate.engine.audio.outlet import Sink
from voicegate.engine.backends.disaggregated.core import DisaggregatedCore
from voicegate.engine.config import EngineConfig
from voicegate.engine.core.core import EngineCore
from voicegate.engine.core.stages import Stages
from voicegate.engine.device.watcher import Waker
from voicegate.engine.interface import EngineEvent, SpeakingMode, UtteranceId, UtteranceRequest
from voicegate.engine.load.build import engine_info
from voicegate.engine.thread.worker import LoadedEngine, ThreadedEngine


@dataclass(frozen=True)
class HollowToken2wavs:
    """Each with slots for as many clauses, and all with one LLM, which has slots for all."""

    runner: HollowRunner
    parts: tuple[Hollow, ...]

    @property
    def all_stages(self) -> list[Stages]:
        return [part.stages for part in self.parts]

    @property
    def held(self) -> list[tuple[int, ...]]:
        """Held parts of the LLM, then of each: as at the start where none holds any."""
        return [(self.runner.num_free_slots,), *(part.held[1:] for part in self.parts)]


def hollow_token2wavs(
    number: int = 2, *, num_slots: int = 8, num_blocks: int | Sequence[int] = 200
) -> HollowToken2wavs:
    blocks = [num_blocks] * number if isinstance(num_blocks, int) else num_blocks
    runner = hollow_runner(num_slots=number * num_slots)
    names = count()
    parts = [hollow(num_slots=num_slots, num_blocks=each) for each in blocks]
    return HollowToken2wavs(
        runner,
        tuple(replace(part, stages=replace(part.stages, llm=runner, sequence_ids=names)) for part in parts),
    )


@dataclass
class OnLanes:
    """Hollow token2wavs, and their LLM, on lanes that can be made to hang."""

    models: HollowToken2wavs
    llm_lane: StuckLane
    lanes: list[StuckLane]
    all_stages: list[Stages]


def on_lanes(number: int = 2) -> OnLanes:
    models, llm_lane = hollow_token2wavs(number), StuckLane(hangs=False)
    lanes = [StuckLane(hangs=False) for _ in range(number)]
    llm = on_lane(models.runner, llm_lane)
    parts = zip(models.all_stages, lanes, strict=True)
    return OnLanes(models, llm_lane, lanes, [replace(stages, llm=llm, token2wav_lane=lane) for stages, lane in parts])


def apart(config: EngineConfig, number: int) -> EngineConfig:
    """An engine with an LLM of its own and so many token2wavs: cpu, and cpu.2, cpu.3 ..."""
    return replace(config, device="auto", llm_device="cpu", token2wav_devices=("cpu",) * number)


def threaded(made: OnLanes, *, patience_s: float) -> ThreadedEngine:
    """In a thread of its own, by the machine's clock."""
    config = replace(apart(CONFIG, len(made.all_stages)), device_patience_s=patience_s)

    def load(sink: Sink, waker: Waker) -> LoadedEngine:
        core = DisaggregatedCore(config, made.all_stages, time.monotonic, sink, waker=waker)
        return LoadedEngine(core, engine_info(config, *made.all_stages))

    return ThreadedEngine(load)


class Driven:
    """A core of either kind."""

    def __init__(self, all_stages: Sequence[Stages], config: EngineConfig = CONFIG, *, is_apart: bool = False) -> None:
        """`is_apart`: disaggregated also with a single token2wav."""
        self.now_s = 0.0
        self.heard: dict[UtteranceId, Heard] = {}
        self.core: EngineCore | DisaggregatedCore
        if len(all_stages) == 1 and not is_apart:
            self.core = EngineCore(config, all_stages[0], lambda: self.now_s, self._hear)
        else:
            several = apart(config, len(all_stages))
            self.core = DisaggregatedCore(several, all_stages, lambda: self.now_s, self._hear)

    def say(
        self, name: str, text: str, *, voice: str = "woman", seed: int = 1, mode: SpeakingMode = SpeakingMode.CLAUSE
    ) -> UtteranceId:
        utterance_id = UtteranceId(name)
        self.heard[utterance_id] = Heard()
        self.core.submit(UtteranceRequest(utterance_id, voice, PCM, mode), seed=seed)
        self.core.push_text(utterance_id, text)
        self.core.end_text(utterance_id)
        return utterance_id

    def step(self) -> bool:
        """False when there was nothing to do."""
        num_fetched = self._num_fetched
        did_work = not self.core.step().is_idle or self._num_fetched != num_fetched
        self.now_s += 0.001
        return did_work

    def run(self, max_steps: int = 20_000) -> None:
        """Until nothing is left to do."""
        for _ in range(max_steps):
            if not self.step():
                return
        raise AssertionError("the engine is still busy")

    @property
    def several(self) -> DisaggregatedCore:
        """The core, where it is one of several."""
        assert isinstance(self.core, DisaggregatedCore)
        return self.core

    @property
    def _num_fetched(self) -> int:
        cores = self.core.cores if isinstance(self.core, DisaggregatedCore) else [self.core]
        return sum(core.num_fetched for core in cores)

    def ends(self) -> list[str]:
        return [type(heard.end).__name__ for heard in self.heard.values()]

    def _hear(self, events: list[EngineEvent]) -> None:
        for event in events:
            self.heard[event.utterance_id].events.append(event)
