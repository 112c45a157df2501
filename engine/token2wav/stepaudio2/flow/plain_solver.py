"""Solves chunks with tensors as large as the batch, right-padded: runs anywhere."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from voicegate.engine import units
from voicegate.engine.device.capture import NOTHING_TO_CAPTURE
from voicegate.engine.token2wav.flow.euler import euler_step
from voicegate.engine.token2wav.stepaudio2.flow.context import (
    ChunkPlaces,
    MemoryEncoderContext,
    MemoryFrameContext,
    PlaceTable,
    Tails,
)
from voicegate.engine.token2wav.stepaudio2.flow.memory import FlowMemory, Places
from voicegate.engine.token2wav.stepaudio2.flow.model import ABSENT, StepAudio2Flow


@dataclass(frozen=True, slots=True, eq=False)
class ChunkRow:
    """The next chunk of one stream, or a voice's prompt."""

    window: Sequence[int]  # speech tokens: the chunk's, and those that it looks ahead at; ABSENT past the last
    num_tokens: int  # the chunk's own
    noise_start: int
    known: Places  # of all frames of the stream in order, the chunk's own at the end
    context: Places  # what its frames see: themselves, and those of the stream that are left
    tails: Tails
    speaker_bias: torch.Tensor
    prompt_mel: torch.Tensor | None = None  # [2n, 80] where the chunk is a prompt

    @property
    def num_frames(self) -> int:
        return self.num_tokens * units.FRAMES_PER_TOKEN

    @property
    def new(self) -> Places:
        """Of its own frames."""
        return self.known[len(self.known) - self.num_frames :]


class PlainSolver:
    graphs = NOTHING_TO_CAPTURE

    def __init__(self, model: StepAudio2Flow, memory: FlowMemory, *, max_batches: int) -> None:
        self.num_free_batches = max_batches
        self._model = model
        self._memory = memory

    def begin(self, rows: Sequence[ChunkRow]) -> "PlainSolve":
        return PlainSolve(self._model, self._memory, rows)


class PlainSolve:
    """The ODE of one batch's chunks on its way: nothing but computation."""

    @torch.inference_mode()
    def __init__(self, model: StepAudio2Flow, memory: FlowMemory, rows: Sequence[ChunkRow]) -> None:
        self._model = model
        self._rows = rows
        places = _places(rows, scratch=memory.scratch, device=model.device)
        tails = [row.tails for row in rows]
        self._encoder_context = MemoryEncoderContext(memory, places, tails)
        self._context = MemoryFrameContext(memory, places, tails)
        mu = model.mu(_windows(rows, model), self._encoder_context)
        speakers = torch.stack([row.speaker_bias for row in rows])
        conditioned = model.estimator.conditioned_base(mu, speakers, _prompt_mels(rows, mu))
        self._base = model.estimator.guided_base(conditioned)
        self._x = torch.zeros_like(mu)
        for x, row in zip(self._x, rows, strict=True):
            x[: row.num_frames] = model.noise[row.noise_start : row.noise_start + row.num_frames]

    @torch.inference_mode()
    def advance(self) -> None:
        """One Euler step for all rows."""
        step = self._context.step
        velocity = self._model.estimator.velocity(self._x, self._base, self._model.modulation(step), self._context)
        width = self._model.schedule.widths[step]
        self._x = euler_step(self._x, velocity, width=width, cfg_rate=self._model.config.cfg_rate)
        self._context.step += 1

    def mel(self, row: int) -> torch.Tensor:
        """[80, n], a copy; made outside of inference mode: an ordinary tensor for whoever comes next."""
        return self._x[row, : self._rows[row].num_frames].T.clone(memory_format=torch.contiguous_format)

    def tails(self, row: int) -> Tails:
        """Copies of what the row's next chunk begins with."""
        encoder = self._encoder_context.tails
        return Tails(
            tokens=encoder[False][row].clone(),
            frames=encoder[True][row].clone(),
            estimator=self._context.tails[:, :, :, :, row].clone(),
        )

    def release(self) -> None:
        """Nothing of it is shared."""


def _places(rows: Sequence[ChunkRow], *, scratch: int, device: torch.device) -> ChunkPlaces:
    def table(places: Sequence[Places]) -> PlaceTable:
        return PlaceTable.of(places, scratch=scratch, length=max(map(len, places)), device=device)

    return ChunkPlaces(
        num_tokens=torch.tensor([row.num_tokens for row in rows], device=device),
        first_frames=torch.tensor([len(row.known) - row.num_frames for row in rows], device=device),
        known_frames=table([row.known for row in rows]),
        new_frames=table([row.new for row in rows]),
        context=table([row.context for row in rows]),
    )


def _windows(rows: Sequence[ChunkRow], model: StepAudio2Flow) -> torch.Tensor:
    """[B, m + lookahead] int64."""
    length = max(row.num_tokens for row in rows) + model.config.lookahead_tokens
    return torch.tensor([[*row.window, *[ABSENT] * (length - len(row.window))] for row in rows], device=model.device)


def _prompt_mels(rows: Sequence[ChunkRow], mu: torch.Tensor) -> torch.Tensor | None:
    """Like mu: zeros but for prompts."""
    if all(row.prompt_mel is None for row in rows):
        return None
    cond = torch.zeros_like(mu)
    for each, row in zip(cond, rows, strict=True):
        if row.prompt_mel is not None:
            each[: len(row.prompt_mel)] = row.prompt_mel
    return cond
