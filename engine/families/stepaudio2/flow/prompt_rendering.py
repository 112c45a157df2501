"""A voice's prompt on its way: one chunk as long as it is, for all of it sees itself."""

from itertools import chain, islice, repeat

import torch

from voicegate.engine import units
from voicegate.engine.families.stepaudio2.flow import memory
from voicegate.engine.families.stepaudio2.flow.chunk_buffers import ChunkRow, Tails
from voicegate.engine.families.stepaudio2.flow.chunking import ChunkSchedule
from voicegate.engine.families.stepaudio2.flow.memory import FlowMemory
from voicegate.engine.families.stepaudio2.flow.model import StepAudio2Flow
from voicegate.engine.families.stepaudio2.flow.stream import ChunkPrompt, Solve, Solver
from voicegate.engine.flow.backend import FlowPrompt, StreamTooLong


class ChunkPromptRendering:
    """Implements PromptRendering. Made by StepAudio2FlowRunner.begin_prompt.

    No solver has buffers for a chunk of any length: it takes none of those that streams need.
    """

    takes_step = True
    holds_batch = False

    def __init__(
        self, model: StepAudio2Flow, pool: FlowMemory, solver: Solver, schedule: ChunkSchedule, prompt: FlowPrompt
    ) -> None:
        """Raises ValueError, StreamTooLong, BlocksExhausted."""
        self._model = model
        self._pool = pool
        self._solver = solver
        self._schedule = schedule
        self._prompt = prompt
        self._tokens = _checked_tokens(model, prompt)
        self._speaker_bias = model.speaker_bias(prompt.embedding)
        self._tails = Tails.before_first(model.config, device=model.device, dtype=model.dtype)
        self._solve: Solve | None = None
        self._num_steps_left = model.schedule.num_steps if self._tokens else 0
        self._blocks = pool.allocate(memory.num_token_blocks(len(self._tokens)))
        self._places = pool.places_of(self._blocks)[: len(self._tokens) * units.FRAMES_PER_TOKEN]

    def advance(self) -> bool:
        if self._num_steps_left:
            self._solve = self._solve or self._solver.begin([self._row()])
            self._solve.advance()
            self._num_steps_left -= 1
        if self._solve is not None and not self._num_steps_left:
            self._tails = self._solve.tails(0)
            self._end_solve()
        return not self._num_steps_left

    def result(self) -> ChunkPrompt:
        assert not self._num_steps_left, "the prompt has Euler steps to run"
        blocks, self._blocks = self._blocks, []  # the prompt's own now
        sizes = self._schedule.size(0), self._schedule.size(1)
        return ChunkPrompt(self._speaker_bias, self._tails, self._places, tuple(blocks), *sizes)

    def close(self) -> None:
        self._end_solve()
        self._pool.release(self._blocks)
        self._blocks = []

    def _end_solve(self) -> None:
        solve, self._solve = self._solve, None
        if solve is not None:
            solve.release()

    def _row(self) -> ChunkRow:
        # Upstream lets a prompt look ahead at its own beginning.
        ahead = islice(chain.from_iterable(repeat(self._tokens)), self._model.config.lookahead_tokens)
        return ChunkRow(
            window=[*self._tokens, *ahead],
            num_tokens=len(self._tokens),
            noise_start=0,
            known=self._places,
            context=self._places,
            tails=self._tails,
            speaker_bias=self._speaker_bias,
            prompt_mel=self._prompt.mel.to(self._model.device, torch.float32),
        )


def _checked_tokens(model: StepAudio2Flow, prompt: FlowPrompt) -> list[int]:
    """Raises ValueError or StreamTooLong."""
    prompt.check_shapes(speaker_dim=model.config.speaker_dim)
    num_frames = len(prompt.speech_ids) * units.FRAMES_PER_TOKEN
    if num_frames > model.max_frames:
        raise StreamTooLong(f"the prompt has {num_frames} frames; the flow takes {model.max_frames}")
    return model.checked_tokens(prompt.speech_ids.tolist())
