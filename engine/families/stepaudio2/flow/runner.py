"""FlowBackend on Step-Audio2's flow: chunks that see themselves and what is known of all before, for many streams.

A stream's frames are those of upstream's streaming mode with the same chunks, however tokens arrive and whatever else
runs (tests/parity/test_stepaudio2_flow.py).
"""

from collections.abc import Sequence
from typing import Final

from voicegate.engine import units
from voicegate.engine.device.capture import Capturable
from voicegate.engine.families.stepaudio2.flow import memory
from voicegate.engine.families.stepaudio2.flow.chunking import ChunkSchedule, whole_context
from voicegate.engine.families.stepaudio2.flow.memory import FlowMemory
from voicegate.engine.families.stepaudio2.flow.model import StepAudio2Flow
from voicegate.engine.families.stepaudio2.flow.prompt_rendering import ChunkPromptRendering
from voicegate.engine.families.stepaudio2.flow.stream import (
    ChunkBatch,
    ChunkPrompt,
    ChunkStream,
    Solver,
    StreamRules,
)
from voicegate.engine.flow.backend import (
    FlowPrompt,
    StreamsExhausted,
    check_batch,
    rendered_whole,
)
from voicegate.engine.flow.chunking import BatchSize

# Frames that `batch_size` counts as a whole block: a second of speech.
_FRAMES_PER_ROW: Final = units.FRAME_RATE_HZ


class StepAudio2FlowRunner:
    """See FlowBackend for the promises. Knows streams and their blocks; the solver computes."""

    def __init__(
        self,
        model: StepAudio2Flow,
        pool: FlowMemory,
        solver: Solver,
        *,
        max_streams: int,
        rules: StreamRules | None = None,
    ) -> None:
        """All streams and prompts share the pool: see memory.bytes_per_block for what a block costs."""
        self.model = model
        self._rules = rules or StreamRules(ChunkSchedule(), whole_context)
        self._pool = pool
        self._solver = solver
        self._max_streams = max_streams
        self._num_open = 0

    @property
    def name(self) -> str:
        return self._solver.name

    @property
    def graphs(self) -> Capturable:
        return self._solver.graphs

    @property
    def lookahead_tokens(self) -> int:
        return self.model.config.lookahead_tokens

    @property
    def num_free_blocks(self) -> int:
        return self._pool.num_free

    @property
    def num_free_batches(self) -> int:
        return self._solver.num_free_batches

    def batch_size(self, max_rows: int) -> BatchSize:
        longest = max(self._rules.schedule.sizes) + self.lookahead_tokens
        num_frames = max(max_rows * _FRAMES_PER_ROW, longest * units.FRAMES_PER_TOKEN)
        return BatchSize(min(max_rows, self._solver.max_rows, self._max_streams), num_frames)

    def num_prompt_blocks(self, num_tokens: int) -> int:
        return memory.num_token_blocks(num_tokens)

    def num_speech_blocks(self, num_tokens: int) -> int:
        return memory.num_token_blocks(num_tokens)

    def begin_prompt(self, prompt: FlowPrompt) -> ChunkPromptRendering:
        return ChunkPromptRendering(self.model, self._pool, self._solver, self._rules.schedule, prompt)

    def prepare(self, prompt: FlowPrompt) -> ChunkPrompt:
        return rendered_whole(self.begin_prompt(prompt))

    def release(self, prompt: ChunkPrompt) -> None:
        if not prompt.is_released:
            prompt.is_released = True
            self._pool.release(prompt.blocks)

    def open(self, prompt: ChunkPrompt, *, begins_short: bool = False) -> ChunkStream:
        del begins_short  # of a first chunk so much is held back that a shorter one would not cover the second
        if prompt.is_released:
            raise ValueError("the prompt was released")
        if self._num_open == self._max_streams:
            raise StreamsExhausted(f"all {self._max_streams} streams are open")
        self._num_open += 1
        self._pool.retain(prompt.blocks)
        return ChunkStream(self.model, prompt, self._rules)

    def close(self, stream: ChunkStream) -> None:
        if stream.is_closed:
            return
        self._num_open -= 1
        stream.is_closed = True
        if stream.batch is not None:
            stream.batch.drop(stream)
        self._pool.release((*stream.prompt.blocks, *stream.blocks))
        stream.blocks.clear()

    def begin(self, streams: Sequence[ChunkStream]) -> ChunkBatch:
        check_batch(streams)
        return ChunkBatch(self.model, self._pool, self._solver, streams)
