"""Stages without models: as quick as Python is. What they make tells its tokens, so that one lost or said twice shows.

Slots, memory and borders are the real ones: only what computes is left out.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import torch

from tests.support.golden import TINY_MODEL_DIR
from tests.support.tiny_tokenizer import tiny_tokenizer
from voicegate.engine import units
from voicegate.engine.core.prompting import voice_prompt
from voicegate.engine.core.stages import ReadyVoice, Stages, VoicePrompt, VoiceRoom
from voicegate.engine.device.capture import NOTHING_TO_CAPTURE
from voicegate.engine.device.lanes import HOST_LANE
from voicegate.engine.flow import chunking
from voicegate.engine.flow.backend import FlowPrompt
from voicegate.engine.flow.batch_size import BatchSize
from voicegate.engine.flow.block_context import BlockRow
from voicegate.engine.flow.block_pool import BlockPool
from voicegate.engine.flow.runner import FlowRunner
from voicegate.engine.flow.stream import BlockStream
from voicegate.engine.llm.backend import NoFreeSlot, OneAtATime, SequenceOutput, SequenceRequest
from voicegate.engine.llm.runner import FinishedStep, LaunchedStep
from voicegate.engine.llm.stepped import SteppedLlm
from voicegate.engine.model.config import EstimatorConfig, ModelConfig
from voicegate.engine.model.model_json import load_model_config
from voicegate.engine.vocoder.backend import VocoderJob
from voicegate.engine.vocoder.runner import VocoderRunner
from voicegate.engine.voices.voice import Voice

TOKENS_PER_TEXT_TOKEN = 4
_NUM_STEPS = 10
_NUM_PROMPT_TOKENS = 38  # 12 more fill a block, as a CPU has it
_TRANSCRIPT = "Mind the gap to the platform, please."  # as many letters a token as text has here
_LOOK_RIGHT_FRAMES = 4
_SPEAKER_DIM = 192


@dataclass(slots=True)
class _Sequence:
    seed: int
    num_text_tokens: int
    is_text_complete: bool
    max_tokens: int
    num_tokens: int = 0
    is_growing: bool = False
    is_streaming: bool = False
    until: int = 0  # speech tokens of a growing text's reading, while more text follows
    held: list[int] = field(default_factory=list)  # tokens that were not told of
    tell_after: int = 1

    @property
    def is_runnable(self) -> bool:
        return self.is_text_complete or self.num_tokens < self.num_sayable

    @property
    def num_sayable(self) -> int:
        return self.until if self.is_growing else TOKENS_PER_TEXT_TOKEN * self.num_text_tokens

    def give(self) -> tuple[int, ...]:
        held, self.held, self.tell_after = tuple(self.held), [], 1
        return held


class HollowRunner(OneAtATime):
    """An LlmRunner: so many speech tokens a text token, pseudo-random by seed and place, silent runs among them."""

    graphs = NOTHING_TO_CAPTURE

    def __init__(self, model: ModelConfig, *, num_slots: int, holds_back: bool = True) -> None:
        self._holds_back = holds_back
        self._silent_tokens = sorted(model.silent_tokens)
        self._num_slots = num_slots
        self._sequences: dict[int, _Sequence] = {}

    @property
    def num_free_slots(self) -> int:
        return self._num_slots - len(self._sequences)

    def add(self, request: SequenceRequest) -> None:
        if not self.num_free_slots:
            raise NoFreeSlot("every slot is taken")
        max_tokens = request.max_tokens or 10_000
        is_complete = not (request.is_streaming or request.is_growing)
        self._sequences[request.sequence_id] = _Sequence(
            request.seed,
            len(request.text_ids),
            is_complete,
            max_tokens,
            is_growing=request.is_growing,
            is_streaming=request.is_streaming,
        )

    def push_text(self, sequence_id: int, text_ids: Sequence[int]) -> None:
        if (sequence := self._sequences.get(sequence_id)) is not None:
            sequence.num_text_tokens += len(text_ids)

    def end_text(self, sequence_id: int) -> None:
        if (sequence := self._sequences.get(sequence_id)) is not None:
            sequence.is_text_complete = True

    def read(self, sequence_id: int, text_ids: Sequence[int], *, until: int | None) -> None:
        if (sequence := self._sequences.get(sequence_id)) is not None:
            sequence.num_text_tokens = len(text_ids)
            sequence.is_text_complete = until is None
            sequence.until = until or 0

    def abort(self, sequence_id: int) -> None:
        self._sequences.pop(sequence_id, None)

    def is_runnable(self, sequence_id: int) -> bool:
        sequence = self._sequences.get(sequence_id)
        return sequence is not None and sequence.is_runnable

    def launch(self, sequence_ids: Sequence[int]) -> LaunchedStep:
        return FinishedStep(self.step(sequence_ids))

    def step(self, sequence_ids: Sequence[int]) -> list[SequenceOutput]:
        outputs = [self._step(sequence_id, self._sequences[sequence_id]) for sequence_id in sequence_ids]
        return [output for output in outputs if output is not None]

    def tell_after(self, sequence_id: int, num_tokens: int) -> None:
        """As our CUDA runner it keeps none of a bistream pass, which may lack text at any token."""
        sequence = self._sequences.get(sequence_id)
        if self._holds_back and sequence is not None and not sequence.is_streaming:
            sequence.tell_after = num_tokens

    def take_held(self, sequence_id: int) -> tuple[int, ...]:
        sequence = self._sequences.get(sequence_id)
        return () if sequence is None else sequence.give()

    def _step(self, sequence_id: int, sequence: _Sequence) -> SequenceOutput | None:
        is_truncated = sequence.num_tokens == sequence.max_tokens
        is_said = sequence.num_tokens >= TOKENS_PER_TEXT_TOKEN * sequence.num_text_tokens
        if is_truncated or (is_said and sequence.is_text_complete):
            self.abort(sequence_id)
            return SequenceOutput(sequence_id, sequence.give(), is_final=True, is_truncated=is_truncated)
        sequence.num_tokens += 1
        sequence.held.append(self._token(sequence))
        is_paused = sequence.num_tokens == sequence.until
        if len(sequence.held) < sequence.tell_after and not is_paused:
            return None
        return SequenceOutput(sequence_id, sequence.give(), is_paused=is_paused)

    def _token(self, sequence: _Sequence) -> int:
        place = sequence.num_tokens
        if 20 <= place % 40 < 30:
            return self._silent_tokens[place % len(self._silent_tokens)]
        return (sequence.seed * 7919 + place * 104_729) % 6000 + 100


class _HollowSolve:
    """Mel frames that hold their token's id."""

    def __init__(self, streams: Sequence[BlockStream]) -> None:
        self._tokens = [stream.tokens[stream.next_frame // units.FRAMES_PER_TOKEN :] for stream in streams]

    def advance(self) -> None:
        pass

    def frames(self, wanted: Sequence[slice | None]) -> list[torch.Tensor]:
        mels = []
        for tokens, span in zip(self._tokens, wanted, strict=True):
            if span is not None:
                of_tokens = torch.tensor(tokens[: chunking.TOKENS_PER_BLOCK]).repeat_interleave(units.FRAMES_PER_TOKEN)
                mels.append((of_tokens[span] / 2**15).expand(units.NUM_MELS, -1))
        return mels

    def release(self) -> None:
        pass


class _HollowSolver:
    name = "hollow"
    graphs = NOTHING_TO_CAPTURE

    def __init__(self, *, max_streams: int) -> None:
        self.num_free_batches = max_streams

    def batch_size(self, max_rows: int) -> BatchSize:
        return BatchSize(max_rows, max_rows * chunking.FRAMES_PER_BLOCK)

    def begin(self, streams: Sequence[BlockStream], _: Sequence[BlockRow]) -> _HollowSolve:
        return _HollowSolve(streams)


class _HollowRenderer:
    """Every sample of a frame is the frame's first bin; four frames are looked ahead at."""

    name = "hollow"
    graphs = NOTHING_TO_CAPTURE

    def __init__(self) -> None:
        self._held: dict[int, torch.Tensor] = {}

    def reset(self, slot: int) -> None:
        self._held[slot] = torch.zeros(0)

    def render(self, jobs: Sequence[VocoderJob]) -> list[torch.Tensor]:
        return [self._render(job, job.stream.slot) for job in jobs if job.stream.slot is not None]

    def _render(self, job: VocoderJob, slot: int) -> torch.Tensor:
        known = torch.cat((self._held[slot], job.mel[0]))
        num_final = len(known) if job.is_final else max(len(known) - _LOOK_RIGHT_FRAMES, 0)
        self._held[slot] = known[num_final:]
        job.stream.is_ended = job.is_final
        return known[:num_final].repeat_interleave(units.SAMPLES_PER_FRAME)


def _hollow_flow(*, num_blocks: int, max_streams: int) -> FlowRunner:
    config = EstimatorConfig(dim=1, depth=1, num_heads=1, head_dim=1, ff_mult=1, block_frames=chunking.FRAMES_PER_BLOCK)
    device = torch.device("cpu")
    pool = BlockPool(config, num_steps=1, num_blocks=num_blocks, device=device, dtype=torch.float32)
    model: Any = SimpleNamespace(
        checked_tokens=tuple,
        speaker_bias=lambda embedding: embedding,
        device=device,
        max_frames=15_000,
        config=SimpleNamespace(lookahead_tokens=3, speaker_dim=_SPEAKER_DIM),
        schedule=SimpleNamespace(num_steps=_NUM_STEPS),
    )
    return FlowRunner(model, pool, _HollowSolver(max_streams=max_streams), max_streams=max_streams)


@dataclass(frozen=True)
class Hollow:
    """The stages, and what they are made of."""

    stages: Stages
    runner: HollowRunner
    flow: FlowRunner
    vocoder: VocoderRunner

    @property
    def held(self) -> tuple[int, int, int, int]:
        """Slots, blocks and streams: as at the start where nobody holds any."""
        num_vocoded = self.vocoder._max_streams - len(self.vocoder._free_slots)
        return self.runner.num_free_slots, self.flow.num_free_blocks, self.flow._num_open, num_vocoded


def hollow_voice(name: str = "rms") -> Voice:
    return Voice(
        name=name,
        description="",
        prompt_text=f"Be calm.<|endofprompt|>{_TRANSCRIPT}",
        transcript=_TRANSCRIPT,
        speech_tokens=torch.arange(_NUM_PROMPT_TOKENS),
        mel=torch.zeros(units.FRAMES_PER_TOKEN * _NUM_PROMPT_TOKENS, units.NUM_MELS),
        embedding=torch.zeros(_SPEAKER_DIM),
    )


def hollow(*, num_slots: int = 8, num_blocks: int = 200, holds_back: bool = True) -> Hollow:
    """`num_blocks` beside those of the voice. `holds_back`: the LLM, tokens that nobody needs yet."""
    model = load_model_config(TINY_MODEL_DIR)
    voice = hollow_voice()
    runner = HollowRunner(model, num_slots=num_slots, holds_back=holds_back)
    flow = _hollow_flow(num_blocks=num_blocks + _NUM_PROMPT_TOKENS // chunking.TOKENS_PER_BLOCK, max_streams=num_slots)
    checks_length: Any = SimpleNamespace(check_length=lambda _: None, held_back_frames=4)
    vocoder = VocoderRunner(checks_length, _HollowRenderer(), max_streams=num_slots)
    prompt = voice_prompt(voice, tiny_tokenizer(), instruct_prefix=model.instruct_prefix)
    ready = ReadyVoice(
        voice, prompt, VoicePrompt.of(flow.prepare(FlowPrompt(voice.speech_tokens, voice.mel, voice.embedding)))
    )
    stages = Stages(
        model,
        tiny_tokenizer(),
        SteppedLlm(runner, HOST_LANE),
        flow,
        vocoder,
        {voice.name: ready},
        voice_room=VoiceRoom((_NUM_PROMPT_TOKENS, 250)),
    )
    return Hollow(stages, runner, flow, vocoder)
