"""A voice's prompt, a stream behind it, and the batch that renders the next chunk of several streams.

A stream's state is its tokens, the places of its frames, its blocks and its convolutions' tails: a batch changes none
of them until its result is taken.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch

from voicegate.engine import units
from voicegate.engine.device.capture import Capturable
from voicegate.engine.families.stepaudio2.flow import memory
from voicegate.engine.families.stepaudio2.flow.chunk_buffers import ChunkRow, Tails
from voicegate.engine.families.stepaudio2.flow.chunking import ChunkSchedule
from voicegate.engine.families.stepaudio2.flow.memory import FlowMemory, Places
from voicegate.engine.families.stepaudio2.flow.model import StepAudio2Flow
from voicegate.engine.flow.backend import StreamTooLong


class ContextRule(Protocol):
    """View of later chunks on a chunk: `chunking.whole_context` or `trimmed_context`."""

    def __call__(self, known: Places, new: Places, *, num_prompt_frames: int) -> Places: ...


@dataclass(frozen=True, slots=True)
class StreamRules:
    """How streams are cut and what they remember."""

    schedule: ChunkSchedule
    context: ContextRule


class Solve(Protocol):
    """The ODE of one batch's chunks on its way: nothing but computation. On CUDA everything is only enqueued."""

    def advance(self) -> None:
        """One Euler step for all rows."""

    def mel(self, row: int) -> torch.Tensor:
        """[80, n], a copy."""

    def tails(self, row: int) -> Tails:
        """Copies of what the row's next chunk begins with."""

    def release(self) -> None:
        """Its buffers may be another's from now on."""


class Solver(Protocol):
    @property
    def name(self) -> str:
        """The backend: torch, cuda (our kernels) or tensorrt."""

    @property
    def graphs(self) -> Capturable: ...

    @property
    def max_rows(self) -> int:
        """Rows of a batch."""

    @property
    def num_free_batches(self) -> int:
        """How many more batches may run at the same time."""

    def begin(self, rows: Sequence[ChunkRow]) -> Solve:
        """Raises BatchesExhausted or ValueError, and then nothing has changed."""


@dataclass(slots=True, eq=False)
class ChunkPrompt:
    """Implements PreparedPrompt. Holds one reference to each of its blocks until it is released."""

    speaker_bias: torch.Tensor
    tails: Tails
    places: Places  # of its frames, in order
    blocks: tuple[int, ...]
    first_block_tokens: int
    second_block_tokens: int
    is_released: bool = False

    @property
    def num_blocks(self) -> int:
        return len(self.blocks)


class ChunkStream:
    """Implements FlowStream. Opened and closed by StepAudio2FlowRunner."""

    def __init__(self, model: StepAudio2Flow, prompt: ChunkPrompt, rules: StreamRules) -> None:
        self.prompt = prompt
        self.tokens: list[int] = []  # generated ones
        self.blocks: list[int] = []  # its own; it holds a reference to each, and to the prompt's
        self.known = prompt.places  # of all frames, in order
        self.context = prompt.places  # of those that the next chunk sees
        self.tails = prompt.tails
        self.batch: ChunkBatch | None = None  # set by ChunkBatch while it renders this stream
        self.is_closed = False
        self._model = model
        self._rules = rules
        self._is_finished = False
        self._num_chunks = 0
        self._num_done = 0  # tokens, that are mel

    def append(self, token_ids: Iterable[int]) -> None:
        if self._is_finished or self.is_closed:
            raise ValueError("tokens after the end of the stream")
        new = self._model.checked_tokens(token_ids)
        num_tokens = len(self.tokens) + len(new)
        num_frames = len(self.prompt.places) + num_tokens * units.FRAMES_PER_TOKEN
        if num_frames > self._model.max_frames:
            raise StreamTooLong(
                f"prompt and speech would have {num_frames} frames; the flow has positions and noise for "
                f"{self._model.max_frames}"
            )
        self.tokens.extend(new)

    def finish(self) -> None:
        self._is_finished = True

    @property
    def is_ready(self) -> bool:
        return not self.is_closed and self.batch is None and self._next_chunk[0] > 0

    @property
    def num_missing_tokens(self) -> int:
        num_chunks, num_done = self._num_chunks, self._num_done
        if self.batch is not None:
            num_chunks, num_done = num_chunks + 1, num_done + self._next_chunk[0]
        wanted = num_done + self._rules.schedule.size(num_chunks) + self._model.config.lookahead_tokens
        return max(wanted - len(self.tokens), 0)

    @property
    def is_exhausted(self) -> bool:
        return self._is_finished and self._num_done == len(self.tokens)

    @property
    def next_num_frames(self) -> int:
        return self._next_chunk[0] * units.FRAMES_PER_TOKEN

    @property
    def num_own_blocks(self) -> int:
        return len(self.blocks)

    @property
    def next_num_blocks(self) -> int:
        return memory.num_blocks(self._num_own_frames + self.next_num_frames) - len(self.blocks)

    def next_row(self, pool: FlowMemory, blocks: Sequence[int]) -> ChunkRow:
        """The next chunk, with its `next_num_blocks` new blocks."""
        num_tokens, is_last = self._next_chunk
        first = self._num_own_frames
        new = pool.places_of([*self.blocks, *blocks])[first : first + self.next_num_frames]
        end = self._num_done + num_tokens + (0 if is_last else self._model.config.lookahead_tokens)
        return ChunkRow(
            window=self.tokens[self._num_done : end],
            num_tokens=num_tokens,
            noise_start=len(self.context),
            known=np.concatenate((self.known, new)),
            context=np.concatenate((self.context, new)),
            tails=self.tails,
            speaker_bias=self.prompt.speaker_bias,
        )

    def take(self, row: ChunkRow, blocks: Sequence[int], tails: Tails) -> None:
        """The chunk that `next_row` began is done."""
        self.context = self._rules.context(self.context, row.new, num_prompt_frames=len(self.prompt.places))
        self.known = row.known
        self.blocks.extend(blocks)
        self.tails = tails
        self.batch = None
        self._num_chunks += 1
        self._num_done += row.num_tokens

    @property
    def _next_chunk(self) -> tuple[int, bool]:
        """Its tokens, and whether it is the last. Tokens that come while a chunk is rendered change nothing of it."""
        if self.batch is not None:
            return self.batch.num_tokens(self), False
        return self._rules.schedule.next_chunk(
            self._num_chunks,
            len(self.tokens) - self._num_done,
            lookahead=self._model.config.lookahead_tokens,
            is_finished=self._is_finished,
        )

    @property
    def _num_own_frames(self) -> int:
        return self._num_done * units.FRAMES_PER_TOKEN


class ChunkBatch:
    """Implements FlowBatch. Made by StepAudio2FlowRunner.begin.

    It holds its own reference to every block that it reads or writes: a stream may close under it.
    """

    def __init__(self, model: StepAudio2Flow, pool: FlowMemory, solver: Solver, streams: Sequence[ChunkStream]) -> None:
        """Raises BlocksExhausted, BatchesExhausted or ValueError, and then nothing has changed."""
        self._pool = pool
        self._num_steps = model.schedule.num_steps
        self._step = 0
        self._streams: list[ChunkStream | None] = [*streams]  # None: dropped
        wanted = [stream.next_num_blocks for stream in streams]
        blocks = iter(pool.allocate(sum(wanted)))
        self._new_blocks = [[next(blocks) for _ in range(count)] for count in wanted]
        try:
            self._rows = [stream.next_row(pool, new) for stream, new in zip(streams, self._new_blocks, strict=True)]
            self._solve = solver.begin(self._rows)
        except BaseException:
            for new in self._new_blocks:
                pool.release(new)
            raise
        self._read_blocks = [(*stream.prompt.blocks, *stream.blocks) for stream in streams]
        for read, stream in zip(self._read_blocks, streams, strict=True):
            pool.retain(read)
            stream.batch = self

    def num_tokens(self, stream: ChunkStream) -> int:
        """In the chunk of one of its streams."""
        return self._rows[self._streams.index(stream)].num_tokens

    @property
    def is_done(self) -> bool:
        """All Euler steps have run, or every stream was dropped."""
        return self._step == self._num_steps or not any(self._streams)

    def advance(self) -> bool:
        if not self.is_done:
            self._solve.advance()
            self._step += 1
        return self.is_done

    def drop(self, stream: ChunkStream) -> None:
        """Take a stream out; it is as it was before `begin`. No-op if it is not in."""
        if stream.batch is self:
            self._streams[self._streams.index(stream)] = None
            stream.batch = None
            if not any(self._streams):
                self._release()

    def result(self) -> list[torch.Tensor]:
        if not self.is_done:
            raise RuntimeError("the batch has Euler steps to run")
        if not any(self._streams):
            return []
        mels = []
        for index, stream in enumerate(self._streams):
            if stream is not None:
                mels.append(self._solve.mel(index))
                self._pool.retain(self._new_blocks[index])
                stream.take(self._rows[index], self._new_blocks[index], self._solve.tails(index))
        self._streams = [None] * len(self._rows)
        self._release()
        return mels

    def _release(self) -> None:
        self._solve.release()
        for blocks in (*self._read_blocks, *self._new_blocks):
            self._pool.release(blocks)
