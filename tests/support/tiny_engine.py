"""The tiny model behind an EngineCore that a test drives by hand: no thread, no clock but its own."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any, cast

from tests.support.golden import TINY_MODEL_DIR
from tests.support.lanes import on_lane
from tests.support.local_maker import LocalMaker
from tests.support.self_scheduling import PLAIN, SelfSchedulingLlm
from voicegate.engine.audio.encoding import Encoders
from voicegate.engine.audio.outlet import Sink
from voicegate.engine.config import EngineConfig
from voicegate.engine.core.core import EngineCore
from voicegate.engine.core.stages import Stages, VoiceRoom
from voicegate.engine.core.utterance import Utterance
from voicegate.engine.core.voice_shelf import ready_voice
from voicegate.engine.device.lanes import HOST_LANE
from voicegate.engine.device.watcher import Waker
from voicegate.engine.interface import (
    AudioFormat,
    AudioReady,
    Cancelled,
    Codec,
    Done,
    EngineEvent,
    Failed,
    SpeakingMode,
    UtteranceId,
    UtteranceRequest,
)
from voicegate.engine.llm.backend import LlmBackend, SequenceOutput, SequenceRequest
from voicegate.engine.llm.runner import LlmRunner
from voicegate.engine.load.build import engine_info, load_stages
from voicegate.engine.model.model_json import load_model_config
from voicegate.engine.thread.worker import LoadedEngine, ThreadedEngine
from voicegate.engine.voices.keeper import VoiceKeeper
from voicegate.engine.voices.store import load_voices

# No lead: an utterance runs as fast as it can. No stalls: what is said depends on the text alone.
CONFIG = EngineConfig(TINY_MODEL_DIR, device="cpu", lead_ms=3_600_000, stall_ms=0).resolved("cpu")
PCM = AudioFormat(codec=Codec.PCM_S16LE)


# Fewer than the model's ten: worse speech, for which the engine does equal work at a third of the flow's cost.
_NUM_EULER_STEPS = 3


@cache
def tiny_stages() -> Stages:
    """Loaded once for all tests: every test leaves them as it found them, and tests/conftest.py checks that."""
    model = load_model_config(TINY_MODEL_DIR)
    model = replace(model, flow=replace(model.flow, num_euler_steps=_NUM_EULER_STEPS))
    return load_stages(CONFIG, model, load_voices(TINY_MODEL_DIR, model))


@cache
def shipped_stages() -> Stages:
    """The model as it is, for tests that listen to what is said, or compare it with what a GPU says."""
    model = load_model_config(TINY_MODEL_DIR)
    return load_stages(CONFIG, model, load_voices(TINY_MODEL_DIR, model))


def tiny_runner() -> LlmRunner:
    """The shared LLM."""
    return _runner_of(tiny_stages())


def _runner_of(stages: Stages) -> LlmRunner:
    assert isinstance(stages.llm, LlmRunner)
    return stages.llm


def tiny_engine(
    *,
    max_utterances: int = 64,
    breaks_first: bool = False,
    stall_ms: int = 0,
    max_clause_tokens: int = CONFIG.max_clause_tokens,
    llm_of: Callable[[LlmRunner], LlmBackend] = lambda runner: on_lane(runner, HOST_LANE),
    encoders: Encoders | None = None,
    stages_of: Callable[[], Stages] = tiny_stages,
) -> ThreadedEngine:
    """The real engine in its thread, over the stages that all tests share; `llm_of` makes an LLM of theirs."""
    config = replace(CONFIG, max_utterances=max_utterances, stall_ms=stall_ms, max_clause_tokens=max_clause_tokens)

    def load(sink: Sink, waker: Waker) -> LoadedEngine:
        shared = stages_of()
        llm = llm_of(_runner_of(shared))
        llm = cast(LlmBackend, FirstSequenceFails(llm)) if breaks_first else llm
        stages = replace(shared, llm=llm)
        core = EngineCore(config, stages, time.monotonic, sink, encoders=encoders, waker=waker)
        keeper = VoiceKeeper(LocalMaker(TINY_MODEL_DIR, stages.model), None)
        return LoadedEngine(core, engine_info(config, stages), keeper, llm.close, encoders)

    return ThreadedEngine(load)


def self_scheduling_llm(runner: LlmRunner) -> LlmBackend:
    """With what TensorRT-LLM can do, and no more."""
    return SelfSchedulingLlm(runner, tiny_stages().model.llm, traits=PLAIN, stream_interval=4)


class FirstSequenceFails:
    """An LLM whose first sequence fails after some outputs, as one too long for its slot would."""

    def __init__(self, llm: LlmBackend, *, after_outputs: int = 5) -> None:
        self._llm = llm
        self._first: int | None = None
        self._num_left = after_outputs

    def __getattr__(self, name: str) -> Any:
        return getattr(self._llm, name)

    def add(self, request: SequenceRequest) -> None:
        self._llm.add(request)
        self._first = request.sequence_id if self._first is None else self._first

    def poll(self) -> list[SequenceOutput]:
        return [made for output in self._llm.poll() if (made := self._passed_on(output)) is not None]

    def _passed_on(self, output: SequenceOutput) -> SequenceOutput | None:
        if output.sequence_id != self._first:
            return output
        self._num_left -= 1
        if self._num_left > 0:
            return output
        self._llm.abort(self._first)
        return None if self._num_left else SequenceOutput(self._first, error="made to fail")


@dataclass(slots=True)
class Heard:
    """Events of one utterance."""

    events: list[EngineEvent] = field(default_factory=list)

    @property
    def pcm(self) -> bytes:
        return b"".join(b"".join(event.packets) for event in self.events if isinstance(event, AudioReady))

    @property
    def end(self) -> EngineEvent | None:
        return self.events[-1] if self.events and isinstance(self.events[-1], Done | Cancelled | Failed) else None


class HandDrivenEngine:
    def __init__(self, config: EngineConfig = CONFIG, stages: Stages | None = None) -> None:
        self.now_s = 0.0
        self.core = EngineCore(config, stages or tiny_stages(), lambda: self.now_s, self._hear)
        self.heard: dict[UtteranceId, Heard] = {}

    def submit(
        self,
        name: str,
        *,
        voice: str = "woman",
        mode: SpeakingMode = SpeakingMode.CLAUSE,
        seed: int = 1,
        speed: float = 1.0,
        max_buffer_delay_ms: int | None = None,
        language: str | None = None,
        is_background: bool = False,
    ) -> UtteranceId:
        utterance_id = UtteranceId(name)
        self.heard[utterance_id] = Heard()
        request = UtteranceRequest(
            utterance_id,
            voice,
            PCM,
            mode,
            speed,
            max_buffer_delay_ms=max_buffer_delay_ms,
            language=language,
            is_background=is_background,
        )
        self.core.submit(request, seed=seed)
        return utterance_id

    def step(self) -> bool:
        """One engine step; False when there was nothing to do. Where a GPU is still at work it is waited for."""
        num_fetched = self.core.num_fetched
        did_work = not self.core.step().is_idle or self.core.num_fetched != num_fetched
        if not did_work and self.core.is_busy:
            self.core.wait()
            did_work = True
        self.now_s += 0.001
        return did_work

    def set_aside(self, utterance: Utterance) -> None:
        """As where others need its memory."""
        self.core._roster.changed.add(utterance.key)
        self.core._speaking.set_aside(utterance)

    def _hear(self, events: list[EngineEvent]) -> None:
        for event in events:
            self.heard[event.utterance_id].events.append(event)

    def run(self, max_steps: int = 100_000) -> None:
        """Until nothing is left to do."""
        for _ in range(max_steps):
            if not self.step():
                roster = self.core._roster
                roster.look(self.now_s)
                assert not roster.waiting or roster.next_alarm_s(self.now_s) is not None, "room that nobody holds"
                return
        raise AssertionError("the engine is still busy")

    def speak(self, name: str, pieces: Sequence[str], **options: object) -> Heard:
        """One utterance from start to end, its text pushed in these pieces, as much work as possible in between."""
        utterance_id = self.submit(name, **options)  # type: ignore[arg-type]
        for piece in pieces:
            self.core.push_text(utterance_id, piece)
            self.run()
        self.core.end_text(utterance_id)
        self.run()
        return self.heard[utterance_id]


@contextmanager
def stages_with_room_for(num_voices: int) -> Iterator[Stages]:
    """The shared ones, with room for so many voices at once; all their voices have it again in the end."""
    shared = tiny_stages()
    num_free = shared.flow.num_free_blocks
    longest = max(ready.voice.num_tokens for ready in shared.voices.values())
    yield replace(shared, voice_room=VoiceRoom((longest,) * num_voices))
    for ready in shared.voices.values():
        if ready.flow_prompt.rendered is None:
            again = ready_voice(ready.voice, shared.model, shared.tokenizer, shared.flow)
            ready.flow_prompt.rendered = again.flow_prompt.rendered
    assert shared.flow.num_free_blocks == num_free
