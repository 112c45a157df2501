"""One stream behind a prompt, and the batch that renders the next block of several.

Frames, tokens and blocks are counted from the first of the prompt. A stream's state is its tokens and its
finished blocks, both plain lists: a batch changes neither until its result is taken.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch

from voicegate.engine import units
from voicegate.engine.device.capture import Capturable
from voicegate.engine.flow.backend import StreamTooLong
from voicegate.engine.flow.block_pool import BlockPool
from voicegate.engine.flow.chunking import FRAMES_PER_BLOCK, TOKENS_PER_BLOCK, BatchSize
from voicegate.engine.flow.model import FlowModel
from voicegate.engine.flow.prompt import BlockPrompt


class BlockStream:
    """Implements FlowStream. Opened and closed by FlowRunner."""

    def __init__(self, model: FlowModel, prompt: BlockPrompt) -> None:
        self.prompt = prompt
        self.tokens = list(prompt.tokens)
        self.blocks = list(prompt.blocks)  # finished ones; this stream holds a reference to each
        self.batch: BlockBatch | None = None  # set by BlockBatch while it renders this stream
        self.is_finished = False
        self.is_closed = False
        self._model = model

    def append(self, token_ids: Iterable[int]) -> None:
        if self.is_finished or self.is_closed:
            raise ValueError("tokens after the end of the stream")
        new = self._model.checked_tokens(token_ids)
        num_frames = (len(self.tokens) + len(new)) * units.FRAMES_PER_TOKEN
        if num_frames > self._model.max_frames:
            raise StreamTooLong(
                f"prompt and speech would have {num_frames} frames, the flow's noise {self._model.max_frames}"
            )
        self.tokens.extend(new)

    def finish(self) -> None:
        self.is_finished = True

    def abandon(self, pool: BlockPool) -> None:
        """Nobody wants more of it: its blocks go back to the pool that it has them from."""
        self.is_closed = True
        if self.batch is not None:
            self.batch.drop(self)
        pool.release(self.blocks)
        self.blocks.clear()

    @property
    def is_ready(self) -> bool:
        if self.is_closed or self.batch is not None:
            return False
        if self.is_finished:
            return not self.is_exhausted
        return self._next_token + TOKENS_PER_BLOCK + self._model.config.lookahead_tokens <= len(self.tokens)

    @property
    def num_missing_tokens(self) -> int:
        num_blocks = len(self.blocks) + (self.batch is not None)
        end = (num_blocks + 1) * TOKENS_PER_BLOCK + self._model.config.lookahead_tokens
        return max(end - len(self.tokens), 0)

    @property
    def is_exhausted(self) -> bool:
        has_speech = len(self.tokens) > len(self.prompt.tokens)
        return self.is_finished and not (has_speech and self._next_token < len(self.tokens))

    @property
    def next_frame(self) -> int:
        """First frame of the next block."""
        return len(self.blocks) * FRAMES_PER_BLOCK

    @property
    def next_num_frames(self) -> int:
        return min(FRAMES_PER_BLOCK, len(self.tokens) * units.FRAMES_PER_TOKEN - self.next_frame)

    @property
    def num_own_blocks(self) -> int:
        return len(self.blocks) - len(self.prompt.blocks)

    @property
    def next_num_blocks(self) -> int:
        return 1

    @property
    def next_num_prompt_frames(self) -> int:
        return min(max(self.prompt.num_frames - self.next_frame, 0), self.next_num_frames)

    def next_window(self, num_tokens: int) -> list[int]:
        """FlowModel.token_window around the next block's first `num_tokens` tokens."""
        return self._model.token_window(self.tokens, self._next_token, num_tokens)

    def next_prompt_mel(self, num_frames: int) -> torch.Tensor:
        """[up to `num_frames`, 80]: the prompt's mel in the next block, a view."""
        return self.prompt.mel[self.next_frame : self.next_frame + num_frames]

    @property
    def _next_token(self) -> int:
        return len(self.blocks) * TOKENS_PER_BLOCK


@dataclass(frozen=True, slots=True)
class BlockRow:
    """One stream's row of a batch."""

    finished: tuple[int, ...]  # block table: all that lies before, in order
    block: int  # where the new frames' keys, values and conv inputs go
    num_frames: int  # of the new block; below 50 only in a stream's last


class BlockSolve(Protocol):
    """The ODE of one batch's blocks on its way: nothing but computation. Made by a BlockSolver."""

    def advance(self) -> None:
        """One Euler step for all rows. On CUDA this enqueues and returns."""

    def frames(self, wanted: Sequence[slice | None]) -> list[torch.Tensor]:
        """[80, n] copies of the wanted frames, a slice or None for each row; rows with None are left out.

        A slice has a start and a stop within the row's frames.
        """

    def release(self) -> None:
        """Its buffers may be another's from now on."""


class BlockSolver(Protocol):
    """Two implementations: tensors as large as the batch, and fixed buffers for CUDA graphs."""

    @property
    def name(self) -> str:
        """The one that computes: torch, cuda (our kernels) or tensorrt."""

    @property
    def graphs(self) -> Capturable: ...

    def batch_size(self, max_rows: int) -> BatchSize:
        """The size of one batch, up to `max_rows` whole blocks, with nothing computed in vain."""

    @property
    def num_free_batches(self) -> int:
        """How many more batches may run at the same time."""

    def begin(self, streams: Sequence[BlockStream], rows: Sequence[BlockRow]) -> BlockSolve:
        """Raises BatchesExhausted or ValueError, and then nothing has changed."""


class BlockBatch:
    """Implements FlowBatch. Made by FlowRunner.begin.

    It holds its own reference to every block that it reads or writes: a stream may close under it.
    """

    def __init__(
        self,
        model: FlowModel,
        pool: BlockPool,
        solver: BlockSolver,
        streams: Sequence[BlockStream],
    ) -> None:
        """Raises BlocksExhausted, BatchesExhausted or ValueError, and then nothing has changed."""
        self._num_steps = model.schedule.num_steps
        self._pool = pool
        self._streams: list[BlockStream | None] = [*streams]  # None: dropped
        self._step = 0
        self._prompt_frames = [stream.next_num_prompt_frames for stream in streams]
        self._rows, self._solve = self._begin(solver)
        for row, stream in zip(self._rows, streams, strict=True):
            pool.retain(row.finished)
            stream.batch = self

    def _begin(self, solver: BlockSolver) -> tuple[list[BlockRow], BlockSolve]:
        streams = self.streams
        blocks = self._pool.allocate(len(streams))
        rows = [
            BlockRow(finished=tuple(stream.blocks), block=block, num_frames=stream.next_num_frames)
            for stream, block in zip(streams, blocks, strict=True)
        ]
        try:
            return rows, solver.begin(streams, rows)
        except BaseException:
            self._pool.release(blocks)
            raise

    @property
    def streams(self) -> list[BlockStream]:
        """Those still in it, in the order of `begin`."""
        return [stream for stream in self._streams if stream is not None]

    @property
    def is_done(self) -> bool:
        """All Euler steps have run, or every stream was dropped."""
        return self._step == self._num_steps or not any(self._streams)

    def advance(self) -> bool:
        if not self.is_done:
            self._solve.advance()
            self._step += 1
        return self.is_done

    def drop(self, stream: BlockStream) -> None:
        """Take a stream out; it is as it was before `begin`. No-op if it is not in.

        Its row is computed to the end all the same: a batch of another shape would round others' samples differently.
        """
        if stream.batch is self:
            self._streams[self._streams.index(stream)] = None
            stream.batch = None
            if not self.streams:
                self._release()

    def result(self) -> list[torch.Tensor]:
        """As FlowBatch; the blocks of `streams` are finished by this. On CUDA frames may be rows of one tensor."""
        if not self.is_done:
            raise RuntimeError("the batch has Euler steps to run")
        if not self.streams:
            return []
        mels = self._solve.frames(
            [
                slice(first, row.num_frames) if stream is not None else None
                for stream, first, row in zip(self._streams, self._prompt_frames, self._rows, strict=True)
            ]
        )
        for stream, row in zip(self._streams, self._rows, strict=True):
            if stream is not None:
                self._pool.retain([row.block])
                stream.blocks.append(row.block)
                stream.batch = None
        self._streams = [None] * len(self._rows)
        self._release()
        return mels

    def _release(self) -> None:
        self._solve.release()
        for row in self._rows:
            self._pool.release((*row.finished, row.block))
