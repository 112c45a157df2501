"""One batch of chunks in tensors of one shape: what a pass reads and writes, filled from rows of any length."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

import numpy as np
import numpy.typing as npt
import torch

from voicegate.engine import units
from voicegate.engine.families.stepaudio2.config import StepAudio2FlowConfig
from voicegate.engine.families.stepaudio2.flow import encoder, estimator
from voicegate.engine.families.stepaudio2.flow.memory import CFG_HALVES, FlowMemory, Places
from voicegate.engine.families.stepaudio2.flow.model import ABSENT, StepAudio2Flow


@dataclass(frozen=True, slots=True)
class Tails:
    """State of the convolutions that a stream carries from chunk to chunk. Never written to: every chunk leaves
    others."""

    tokens: torch.Tensor  # [2, D] of the encoder
    frames: torch.Tensor  # [4, D] of its up-convolution
    estimator: torch.Tensor  # [steps, layers, convolutions, C, 2, D]

    @staticmethod
    def before_first(config: StepAudio2FlowConfig, *, device: torch.device, dtype: torch.dtype) -> "Tails":
        return Tails(*(torch.zeros(shape, device=device, dtype=dtype) for shape in _tail_shapes(config)))


@dataclass(frozen=True, slots=True, eq=False)
class ChunkRow:
    """The next chunk of one stream, or a voice's prompt."""

    window: Sequence[int]  # speech tokens: the chunk's, and those that it looks ahead at
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
        """Buffers for its own frames."""
        return self.known[len(self.known) - self.num_frames :]


@dataclass(frozen=True, slots=True)
class ChunkShape:
    num_rows: int
    num_tokens: int  # of the longest chunk
    num_known: int  # frames of the longest stream, the chunk's own among them

    @property
    def num_frames(self) -> int:
        return self.num_tokens * units.FRAMES_PER_TOKEN

    @staticmethod
    def of(rows: Sequence[ChunkRow]) -> "ChunkShape":
        """Buffers that just hold them."""
        return ChunkShape(len(rows), max(row.num_tokens for row in rows), max(len(row.known) for row in rows))


# Numbers of a row: its tokens, the position of its first new frame, where its noise begins, frames of the stream and of
# these those that the estimator sees.
_COUNTS: Final = 5

Integers = TypeVar("Integers", torch.Tensor, npt.NDArray[np.int64])
Allocate = Callable[[str, tuple[int, ...], torch.dtype], torch.Tensor]  # a name, a shape, a type -> zeros


class ChunkBuffers:
    """Rows that are not filled, and what lies behind a row's end, read and write the memory's scratch block."""

    def __init__(
        self, model: StepAudio2Flow, memory: FlowMemory, shape: ChunkShape, allocate: Allocate | None = None
    ) -> None:
        """`allocate`: for buffers that lie in memory which others use at other times."""

        def zeros(_: str, size: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
            return torch.zeros(size, device=model.device, dtype=dtype)

        make = allocate or zeros
        self.shape = shape
        self._scratch = memory.scratch
        rows, frames, dim = shape.num_rows, shape.num_frames, model.config.estimator.dim
        window = shape.num_tokens + model.config.lookahead_tokens
        # All integers in one piece, so that they come to a GPU in one copy.
        self._sizes = (
            (rows, _COUNTS),
            (rows, window),
            (rows, frames),
            (rows, shape.num_known),
            (rows, shape.num_known),
        )
        self._integers = make("integers", (sum(map(math.prod, self._sizes)),), torch.int64)
        counts, self.window, self.new, self.known, self.context = self._split(self._integers)
        self.num_tokens, self.first_frames, self.noise_starts, self.num_known, self.num_context = counts.unbind(1)
        tokens, up, steps = _tail_shapes(model.config)
        self.token_tails = make("token tails", (rows, *tokens), model.dtype)
        self.frame_tails = make("frame tails", (rows, *up), model.dtype)
        self.estimator_tails = make("estimator tails", (rows, *steps), model.dtype)
        self.speaker_bias = make("speaker bias", (rows, dim), torch.float32)
        self.cond: torch.Tensor | None = None  # [B, n, 80], of prompts
        self.base = make("base", (CFG_HALVES, rows, frames, dim), torch.float32)
        self.x = make("x", (rows, frames, units.NUM_MELS), torch.float32)
        self.step = make("step", (1,), torch.int64)

    def fill(self, rows: Sequence[ChunkRow]) -> None:
        """On CUDA everything is enqueued on the current stream."""
        host = np.zeros(self._integers.shape[0], dtype=np.int64)
        counts, window, *places = self._split(host)
        window[:] = ABSENT
        for each in places:
            each[:] = self._scratch
        counts[:, 3:] = 1  # who has nothing sees a frame of the scratch block: a sum over none would be NaN
        new, known, context = places
        for index, row in enumerate(rows):
            first = len(row.known) - row.num_frames
            counts[index] = (row.num_tokens, first, row.noise_start, len(row.known), len(row.context))
            window[index, : len(row.window)] = row.window
            new[index, : row.num_frames] = row.new
            known[index, : len(row.known)] = row.known
            context[index, : len(row.context)] = row.context
        self._send(host)
        self.step.zero_()
        if rows:
            tails = [row.tails for row in rows]
            self.token_tails[: len(rows)] = torch.stack([each.tokens for each in tails])
            self.frame_tails[: len(rows)] = torch.stack([each.frames for each in tails])
            self.estimator_tails[: len(rows)] = torch.stack([each.estimator for each in tails])
            self.speaker_bias[: len(rows)] = torch.stack([row.speaker_bias for row in rows])
        self.cond = None
        if any(row.prompt_mel is not None for row in rows):
            self.cond = torch.zeros_like(self.x)
            for each, row in zip(self.cond, rows, strict=False):
                if row.prompt_mel is not None:
                    each[: len(row.prompt_mel)] = row.prompt_mel

    def tails(self, row: int) -> Tails:
        """Copies of what the row's next chunk begins with."""
        return Tails(self.token_tails[row].clone(), self.frame_tails[row].clone(), self.estimator_tails[row].clone())

    def mel(self, row: int, num_frames: int) -> torch.Tensor:
        """[80, n], a copy."""
        return self.x[row, :num_frames].T.clone(memory_format=torch.contiguous_format)

    def _split(self, integers: Integers) -> list[Integers]:
        """The parts of the one piece, as views."""
        parts, start = [], 0
        for size in self._sizes:
            parts.append(integers[start : start + math.prod(size)].reshape(size))
            start += math.prod(size)
        return parts

    def _send(self, host: npt.NDArray[np.int64]) -> None:
        tensor = torch.from_numpy(host)
        if self._integers.device.type == "cuda":
            tensor = tensor.pin_memory()  # else the copy would wait for all that is enqueued
        self._integers.copy_(tensor, non_blocking=True)


def _tail_shapes(config: StepAudio2FlowConfig) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    dit, dim = config.estimator, config.encoder.dim
    steps = (config.num_euler_steps, dit.depth, estimator.NUM_CONVS, CFG_HALVES, estimator.CONV_HISTORY, dit.dim)
    return (encoder.CONV_HISTORY, dim), (encoder.UP_HISTORY, dim), steps
