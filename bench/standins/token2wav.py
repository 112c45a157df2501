"""A flow and a vocoder that compute nothing: a frame's bins, and its samples, are its token, and its voice's mel."""

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, Final

import torch

from voicegate.bench.standins import NO_COSTS, Costs
from voicegate.engine import units
from voicegate.engine.device.capture import NOTHING_TO_CAPTURE
from voicegate.engine.flow import chunking
from voicegate.engine.flow.block_pool import BlockPool
from voicegate.engine.flow.chunking import BatchSize
from voicegate.engine.flow.runner import FlowRunner
from voicegate.engine.flow.stream import BlockRow, BlockStream
from voicegate.engine.model.config import EstimatorConfig
from voicegate.engine.vocoder.backend import VocoderJob
from voicegate.engine.vocoder.runner import VocoderRunner
from voicegate.engine.voices.pace import VoicePace
from voicegate.engine.voices.voice import Voice

_NUM_EULER_STEPS: Final = 10
_SPEAKER_DIM: Final = 192
TOKEN_SCALE: Final = 2.0**15  # a sample is below 1


class HollowSolve:
    def __init__(self, solver: "HollowSolver", streams: Sequence[BlockStream]) -> None:
        self._solver = solver
        self._num_frames = sum(stream.next_num_frames for stream in streams)
        self._voices = [stream.prompt.mel[:1, :1] for stream in streams]
        self._tokens = [stream.tokens[stream.next_frame // units.FRAMES_PER_TOKEN :] for stream in streams]

    def advance(self) -> None:
        self._solver.costs.euler_step(self._num_frames)

    def frames(self, wanted: Sequence[slice | None]) -> list[torch.Tensor]:
        mels = []
        for tokens, voice, span in zip(self._tokens, self._voices, wanted, strict=True):
            if span is not None:
                of_tokens = torch.tensor(tokens[: chunking.TOKENS_PER_BLOCK]).repeat_interleave(units.FRAMES_PER_TOKEN)
                mels.append((of_tokens[span] / TOKEN_SCALE + voice).expand(units.NUM_MELS, -1))
        return mels

    def release(self) -> None:
        self._solver.running.discard(self)


class HollowSolver:
    name = "hollow"
    graphs = NOTHING_TO_CAPTURE

    def __init__(self, *, max_batches: int, costs: Costs) -> None:
        self.costs = costs
        self.running: set[HollowSolve] = set()
        self.max_batches = max_batches

    @property
    def num_free_batches(self) -> int:
        return max(self.max_batches - len(self.running), 0)

    def batch_size(self, max_rows: int) -> BatchSize:
        """As on CUDA: a quarter more rows where they are short."""
        return BatchSize(max_rows + max_rows // 4, max_rows * chunking.FRAMES_PER_BLOCK)

    def begin(self, streams: Sequence[BlockStream], _: Sequence[BlockRow]) -> HollowSolve:
        solve = HollowSolve(self, streams)
        self.running.add(solve)
        return solve


class HollowRenderer:
    name = "hollow"
    graphs = NOTHING_TO_CAPTURE

    def __init__(self, costs: Costs, look_right_frames: int) -> None:
        self._look_right_frames = look_right_frames
        self._held: dict[int, torch.Tensor] = {}
        self._costs = costs

    def reset(self, slot: int) -> None:
        self._held[slot] = torch.zeros(0)

    def render(self, jobs: Sequence[VocoderJob]) -> list[torch.Tensor]:
        self._costs.vocoder_call(len(jobs))
        return [self._render(job, job.stream.slot) for job in jobs if job.stream.slot is not None]

    def _render(self, job: VocoderJob, slot: int) -> torch.Tensor:
        known = torch.cat((self._held[slot], job.mel[0]))
        num_final = len(known) if job.is_final else max(len(known) - self._look_right_frames, 0)
        self._held[slot] = known[num_final:]
        job.stream.is_ended = job.is_final
        return known[:num_final].repeat_interleave(units.SAMPLES_PER_FRAME)


def hollow_flow(
    *,
    num_blocks: int,
    max_streams: int,
    max_batches: int,
    costs: Costs = NO_COSTS,
    first_blocks: chunking.FirstBlocks = chunking.FirstBlocks(),  # noqa: B008 - frozen
) -> FlowRunner:
    frames = chunking.FRAMES_PER_BLOCK
    estimator = EstimatorConfig(dim=1, depth=1, num_heads=1, head_dim=1, ff_mult=1, block_frames=frames)
    host = torch.device("cpu")
    pool = BlockPool(estimator, num_steps=1, num_blocks=num_blocks, device=host, dtype=torch.float32)
    model: Any = SimpleNamespace(
        checked_tokens=tuple,
        speaker_bias=lambda embedding: embedding,
        device=host,
        max_frames=15_000,
        config=SimpleNamespace(lookahead_tokens=3, speaker_dim=_SPEAKER_DIM),
        schedule=SimpleNamespace(num_steps=_NUM_EULER_STEPS),
    )
    solver = HollowSolver(max_batches=max_batches, costs=costs)
    return FlowRunner(model, pool, solver, max_streams=max_streams, first_blocks=first_blocks)


def hollow_vocoder(*, max_streams: int, look_right_frames: int = 4, costs: Costs = NO_COSTS) -> VocoderRunner:
    model: Any = SimpleNamespace(check_length=lambda _: None, held_back_frames=look_right_frames, takes_any_cut=True)
    return VocoderRunner(model, HollowRenderer(costs, look_right_frames), max_streams=max_streams)


def hollow_voice(name: str, *, prompt_text: str, transcript: str, num_tokens: int, pace: VoicePace | None) -> Voice:
    return Voice(
        name=name,
        description="",
        prompt_text=prompt_text,
        transcript=transcript,
        speech_tokens=torch.arange(num_tokens),
        mel=torch.zeros(units.FRAMES_PER_TOKEN * num_tokens, units.NUM_MELS),
        embedding=torch.zeros(_SPEAKER_DIM),
        pace=pace,
    )
