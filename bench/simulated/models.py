"""Stages of an engine that compute nothing: slots, blocks and borders are the real ones, steps take the device's time.

Speech ends with its text: so many speech tokens a text token as are given, in every seed.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, Final

import torch

from voicegate.bench.simulated.device import (
    Device,
    Lane,
    Mark,
    euler_step_s,
    is_early,
    llm_step_s,
    vocoder_call_s,
)
from voicegate.engine import units
from voicegate.engine.config import EngineConfig
from voicegate.engine.core import constants
from voicegate.engine.core.stages import Stages
from voicegate.engine.core.voice_shelf import ready_voice, voice_room
from voicegate.engine.device.capture import NOTHING_TO_CAPTURE
from voicegate.engine.device.watcher import Waker
from voicegate.engine.flow import chunking
from voicegate.engine.flow.batch_size import BatchSize
from voicegate.engine.flow.block_context import BlockRow
from voicegate.engine.flow.block_pool import BlockPool
from voicegate.engine.flow.runner import FlowRunner
from voicegate.engine.flow.stream import BlockStream
from voicegate.engine.llm.backend import LlmTraits, NoFreeSlot, OneAtATime, SequenceOutput, SequenceRequest
from voicegate.engine.llm.runner import MAX_STEPS_OF_ONE
from voicegate.engine.llm.stepped import takes_step_behind
from voicegate.engine.load.memory import first_blocks
from voicegate.engine.model.config import FLOW_BLOCK_FRAMES, EstimatorConfig
from voicegate.engine.model.model_json import load_model_config
from voicegate.engine.text.tokenizer import TextTokenizer
from voicegate.engine.vocoder.backend import VocoderJob
from voicegate.engine.vocoder.runner import VocoderRunner
from voicegate.engine.voices.pace import VoicePace
from voicegate.engine.voices.voice import Voice

# Blocks of a float8 context that an H200 has room for (docs/adr/0008).
_NUM_BLOCKS = 2760
_SPEAKER_DIM = 192
_TOKEN = 100
_NUM_EULER_STEPS = 10
_LOOK_RIGHT_FRAMES = 4
_MAX_BATCHES = 2


@dataclass(slots=True)
class _Sequence:
    num_before: int  # lines before the text
    num_text: int
    num_behind: int  # lines between text and speech: they are fed again at each reading
    num_stored: int  # of the first two
    num_to_feed: int  # of a reading that has not been launched; 0: it decodes
    until: int | None = None
    num_launched: int = 0
    num_in_flight: int = 0
    num_tokens: int = 0
    num_held: int = 0  # of these, not told of yet
    tell_after: int = 1

    def give(self) -> tuple[int, ...]:
        num_held, self.num_held, self.tell_after = self.num_held, 0, 1
        return (_TOKEN,) * num_held


@dataclass(frozen=True, slots=True)
class _Step:
    mark: Mark
    rows: list[tuple[int, _Sequence]]


class SimulatedLlm(OneAtATime):
    """Implements LlmBackend, stepped. A prompt's lines are fed at once; what stands before new text stays stored."""

    traits = LlmTraits(takes_streamed_text=False, is_reproducible=True)

    def __init__(self, lane: Lane, *, num_slots: int, worth: float) -> None:
        """`worth`: speech tokens of a text token."""
        self.num_readings = 0  # of growing text
        self.num_prompt_lines = 0
        self.num_last_rows = 0
        self.num_fetched = 0
        self.counters: dict[str, float] = {"llm_steps": 0, "llm_rows": 0}
        self._lane = lane
        self._num_slots = num_slots
        self._worth = worth
        self._sequences: dict[int, _Sequence] = {}
        self._steps: deque[_Step] = deque()

    @property
    def num_free_slots(self) -> int:
        return self._num_slots - len(self._sequences)

    def set_waker(self, waker: Waker) -> None:
        """Whoever drives the clock asks."""

    def add(self, request: SequenceRequest) -> None:
        if not self.num_free_slots:
            raise NoFreeSlot("every slot is taken")
        prompt, num_text = request.prompt, len(request.text_ids)
        num_before = len(prompt.text_ids) + 1  # sos
        num_behind = len(prompt.speech_ids) + 1  # task
        self._sequences[request.sequence_id] = _Sequence(
            num_behind=num_behind,
            num_text=num_text,
            # Of a growing text nothing is stored before its first reading.
            num_stored=0 if request.is_growing else num_before + num_text,
            num_before=num_before,
            num_to_feed=0 if request.is_growing else num_before + num_text + num_behind,
        )

    def push_text(self, sequence_id: int, text_ids: Sequence[int]) -> None:
        raise NotImplementedError("bistream is not simulated")

    def end_text(self, sequence_id: int) -> None:
        raise NotImplementedError("bistream is not simulated")

    def read(self, sequence_id: int, text_ids: Sequence[int], *, until: int | None) -> None:
        sequence = self._sequences.get(sequence_id)
        if sequence is None:
            return
        self.num_readings += 1
        sequence.num_text, sequence.until = len(text_ids), until
        num_text = sequence.num_before + len(text_ids)
        sequence.num_to_feed = num_text - sequence.num_stored + sequence.num_behind + sequence.num_tokens
        sequence.num_stored = num_text

    def abort(self, sequence_id: int) -> None:
        self._sequences.pop(sequence_id, None)

    @property
    def takes_step(self) -> bool:
        return takes_step_behind([len(step.rows) for step in self._steps])

    def is_runnable(self, sequence_id: int) -> bool:
        sequence = self._sequences.get(sequence_id)
        if sequence is None or not sequence.num_stored:
            return False
        if sequence.num_to_feed:
            return not sequence.num_in_flight
        return sequence.num_in_flight < MAX_STEPS_OF_ONE and (
            sequence.until is None or sequence.num_launched < sequence.until
        )

    def launch(self, sequence_ids: Sequence[int]) -> None:
        rows = [(sequence_id, self._sequences[sequence_id]) for sequence_id in sequence_ids]
        num_lines = sum(sequence.num_to_feed for _, sequence in rows)
        for _, sequence in rows:
            sequence.num_to_feed = 0
            sequence.num_launched += 1
            sequence.num_in_flight += 1
        self._lane.launch(
            llm_step_s(len(rows), num_lines), is_reading=num_lines > 0, is_early=is_early(len(rows), num_lines)
        )
        self._steps.append(_Step(self._lane.mark(), rows))
        self.num_prompt_lines += num_lines
        self.num_last_rows = len(rows)
        self.counters["llm_steps"] += 1
        self.counters["llm_rows"] += len(rows)

    @property
    def num_done_rows(self) -> int:
        """Of steps that are done and have not been fetched."""
        return sum(len(step.rows) for step in self._steps if step.mark.is_reached)

    def poll(self) -> list[SequenceOutput]:
        outputs = []
        while self._steps and self._steps[0].mark.is_reached:
            self.num_fetched += 1
            for sequence_id, sequence in self._steps.popleft().rows:
                sequence.num_in_flight -= 1
                if self._sequences.get(sequence_id) is sequence:
                    output = self._output(sequence_id, sequence)
                    if output is not None:
                        outputs.append(output)
        return outputs

    def tell_after(self, sequence_id: int, num_tokens: int) -> None:
        if (sequence := self._sequences.get(sequence_id)) is not None:
            sequence.tell_after = num_tokens

    def take_held(self, sequence_id: int) -> tuple[int, ...]:
        sequence = self._sequences.get(sequence_id)
        return () if sequence is None else sequence.give()

    def _output(self, sequence_id: int, sequence: _Sequence) -> SequenceOutput | None:
        if sequence.until is None and sequence.num_tokens >= max(round(sequence.num_text * self._worth), 2):
            self.abort(sequence_id)
            return SequenceOutput(sequence_id, sequence.give(), is_final=True)
        sequence.num_tokens += 1
        sequence.num_held += 1
        is_paused = sequence.num_tokens == sequence.until
        if not is_paused and sequence.num_held < sequence.tell_after:
            return None
        return SequenceOutput(sequence_id, sequence.give(), is_paused=is_paused)

    @property
    def is_busy(self) -> bool:
        return bool(self._steps)

    def wait(self) -> None:
        raise RuntimeError("nobody waits on a simulated device")

    def close(self) -> None:
        """It runs nothing by itself."""


class _Solve:
    def __init__(self, streams: Sequence[BlockStream], lane: Lane, running: "set[_Solve]") -> None:
        self._running = running
        self._num_frames = sum(stream.next_num_frames for stream in streams)
        self._lane = lane

    def advance(self) -> None:
        self._lane.launch(euler_step_s(self._num_frames), num_blocks=self._num_frames / chunking.FRAMES_PER_BLOCK)

    def frames(self, wanted: Sequence[slice | None]) -> list[torch.Tensor]:
        return [torch.zeros(units.NUM_MELS, span.stop - span.start) for span in wanted if span is not None]

    def release(self) -> None:
        self._running.discard(self)


class _Solver:
    name = "simulated"
    graphs = NOTHING_TO_CAPTURE

    def __init__(self, lane: Lane) -> None:
        self._lane = lane
        self._running: set[_Solve] = set()

    @property
    def num_free_batches(self) -> int:
        return _MAX_BATCHES - len(self._running)

    def batch_size(self, max_rows: int) -> BatchSize:
        return BatchSize(max_rows + max_rows // 4, max_rows * chunking.FRAMES_PER_BLOCK)

    def begin(self, streams: Sequence[BlockStream], _: Sequence[BlockRow]) -> _Solve:
        solve = _Solve(streams, self._lane, self._running)
        self._running.add(solve)
        return solve


class _Renderer:
    name = "simulated"
    graphs = NOTHING_TO_CAPTURE

    def __init__(self, lane: Lane) -> None:
        self._held: dict[int, int] = {}
        self._lane = lane

    def reset(self, slot: int) -> None:
        self._held[slot] = 0

    def render(self, jobs: Sequence[VocoderJob]) -> list[torch.Tensor]:
        self._lane.launch(vocoder_call_s(len(jobs)))
        return [self._render(job, job.stream.slot) for job in jobs if job.stream.slot is not None]

    def _render(self, job: VocoderJob, slot: int) -> torch.Tensor:
        known = self._held[slot] + job.mel.shape[1]
        num_final = known if job.is_final else max(known - _LOOK_RIGHT_FRAMES, 0)
        self._held[slot] = known - num_final
        job.stream.is_ended = job.is_final
        return torch.zeros(num_final * units.SAMPLES_PER_FRAME)


# Of a generated checkpoint (full_size/natural.py): speech tokens of their prompts, and those tokens a letter.
VOICES: Final = ((73, 1.46), (114, 2.19), (140, 1.63), (179, 1.57), (218, 1.70), (253, 1.99))


@dataclass(frozen=True, slots=True)
class Simulated:
    stages: Stages
    llm: SimulatedLlm


def simulated(config: EngineConfig, device: Device, *, tokens_per_text_token: float) -> Simulated:
    """`config`: resolved for a GPU; its model directory gives the tokenizer, and names."""
    model = load_model_config(config.model_dir)
    tokenizer = TextTokenizer.from_file(
        config.model_dir / "tokenizer.json", end_of_prompt_id=model.llm.end_of_prompt_id
    )
    flow = _flow(config, device.token2wav)
    checks: Any = SimpleNamespace(check_length=lambda _: None, held_back_frames=_LOOK_RIGHT_FRAMES)
    vocoder = VocoderRunner(checks, _Renderer(device.token2wav), max_streams=config.max_active_clauses)
    llm = SimulatedLlm(device.llm, num_slots=config.max_active_clauses, worth=tokens_per_text_token)
    voices = [_voice(*each) for each in VOICES]
    ready = {voice.name: ready_voice(voice, model, tokenizer, flow) for voice in voices}
    device.token2wav.works.clear()  # prompts are prepared before anybody comes
    stages = Stages(
        model,
        tokenizer,
        llm,
        flow,
        vocoder,
        ready,
        voice_room=voice_room(config, voices),
        token2wav_lane=device.token2wav,
        is_concurrent=True,
        is_llm_apart=device.is_llm_apart,
    )
    return Simulated(stages, llm)


def _flow(config: EngineConfig, lane: Lane) -> FlowRunner:
    estimator = EstimatorConfig(dim=1, depth=1, num_heads=1, head_dim=1, ff_mult=1, block_frames=FLOW_BLOCK_FRAMES)
    host = torch.device("cpu")
    pool = BlockPool(estimator, num_steps=1, num_blocks=_NUM_BLOCKS, device=host, dtype=torch.float32)
    model: Any = SimpleNamespace(
        checked_tokens=tuple,
        speaker_bias=lambda embedding: embedding,
        device=host,
        max_frames=15_000,
        config=SimpleNamespace(lookahead_tokens=3, speaker_dim=_SPEAKER_DIM),
        schedule=SimpleNamespace(num_steps=_NUM_EULER_STEPS),
    )
    return FlowRunner(
        model,
        pool,
        _Solver(lane),
        max_streams=config.max_active_clauses,
        first_blocks=first_blocks(config),
    )


def _voice(num_tokens: int, tokens_per_letter: float) -> Voice:
    transcript = ("mind the gap " * 100)[: round(1.2 * num_tokens / tokens_per_letter)]
    return Voice(
        name=f"prompt-{num_tokens}",
        description="",
        prompt_text=f"You are a helpful assistant.<|endofprompt|>{transcript}",
        transcript=transcript,
        speech_tokens=torch.arange(num_tokens),
        mel=torch.zeros(units.FRAMES_PER_TOKEN * num_tokens, units.NUM_MELS),
        embedding=torch.zeros(_SPEAKER_DIM),
        pace=VoicePace(tokens_per_letter, constants.UNTUNED_SHARE),
    )
