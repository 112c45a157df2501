"""A second family of token2wav that computes nothing, unlike the first in all that the engine must not rely on.

Flow: 2 tokens of lookahead; chunks of 4, 8, then 16 tokens, counted from the first generated one; 3 Euler steps; memory
in blocks of 10 frames, so that a chunk takes several. Vocoder: one frame is held back. Frames tell their tokens.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, chain, repeat

import torch

from tests.support.hollow_stages import hollow, hollow_runner
from tests.support.tiny_engine import CONFIG
from voicegate.bench.standins.token2wav import TOKEN_SCALE, hollow_vocoder
from voicegate.engine import units
from voicegate.engine.core.stages import Stages, VoiceRoom
from voicegate.engine.core.voice_shelf import ready_voice
from voicegate.engine.device.capture import NOTHING_TO_CAPTURE, Capturable
from voicegate.engine.flow.backend import (
    BlocksExhausted,
    FlowPrompt,
    StreamsExhausted,
    rendered_whole,
)
from voicegate.engine.flow.chunking import BatchSize

LOOKAHEAD_TOKENS = 2
CHUNK_TOKENS = (4, 8, 16)  # and 16 ever after
BLOCK_FRAMES = 10
NUM_STEPS = 3


def _chunk_ends() -> Iterable[int]:
    """Generated tokens at the end of each chunk."""
    return accumulate(chain(CHUNK_TOKENS, repeat(CHUNK_TOKENS[-1])))


def _num_blocks(num_frames: int) -> int:
    return -(-num_frames // BLOCK_FRAMES)


def frames_of(tokens: Sequence[int]) -> torch.Tensor:
    """Levels of the frames of these tokens."""
    return torch.tensor(tokens).repeat_interleave(units.FRAMES_PER_TOKEN) / TOKEN_SCALE


@dataclass(slots=True)
class OtherPrompt:
    num_blocks: int
    first_block_tokens: int = CHUNK_TOKENS[0]
    second_block_tokens: int = CHUNK_TOKENS[1]
    is_released: bool = False


class OtherStream:
    def __init__(self) -> None:
        self.tokens: list[int] = []
        self.num_own_blocks = 0
        self.is_in_batch = False
        self.is_closed = False
        self._is_finished = False
        self._num_done = 0
        self._ends = iter(_chunk_ends())
        self._end = next(self._ends)

    def append(self, token_ids: Iterable[int]) -> None:
        assert not self._is_finished
        assert not self.is_closed
        self.tokens.extend(token_ids)

    def finish(self) -> None:
        self._is_finished = True

    @property
    def is_ready(self) -> bool:
        if self.is_closed or self.is_in_batch:
            return False
        if self._is_finished:
            return not self.is_exhausted
        return len(self.tokens) >= self._end + LOOKAHEAD_TOKENS

    @property
    def num_missing_tokens(self) -> int:
        return max(self._end + LOOKAHEAD_TOKENS - len(self.tokens), 0)

    @property
    def is_exhausted(self) -> bool:
        return self._is_finished and self._num_done == len(self.tokens)

    @property
    def next_num_frames(self) -> int:
        return units.FRAMES_PER_TOKEN * (min(self._end, len(self.tokens)) - self._num_done)

    @property
    def next_num_blocks(self) -> int:
        num_done_frames = units.FRAMES_PER_TOKEN * self._num_done
        return _num_blocks(num_done_frames + self.next_num_frames) - self.num_own_blocks

    def next_chunk(self) -> list[int]:
        """Its tokens; the chunk behind it is the next one then."""
        end = min(self._end, len(self.tokens))
        chunk = self.tokens[self._num_done : end]
        self._num_done, self._end = end, next(self._ends)
        return chunk


class OtherBatch:
    """Chunks of different lengths."""

    def __init__(self, streams: Sequence[OtherStream]) -> None:
        self.streams: list[OtherStream | None] = [*streams]
        self._chunks = [stream.next_chunk() for stream in streams]
        self._num_steps = 0
        for stream in streams:
            stream.is_in_batch = True

    def advance(self) -> bool:
        self._num_steps += 1
        return self._num_steps == NUM_STEPS

    def result(self) -> list[torch.Tensor]:
        assert self._num_steps == NUM_STEPS
        mels = []
        for stream, chunk in zip(self.streams, self._chunks, strict=True):
            if stream is not None:
                stream.is_in_batch = False
                mels.append(frames_of(chunk).expand(units.NUM_MELS, -1))
        return mels


class OtherPromptRendering:
    """A single step."""

    takes_step = True
    holds_batch = False

    def __init__(self, flow: "OtherFlow", prompt: FlowPrompt) -> None:
        self._flow = flow
        self._num_blocks = flow.num_prompt_blocks(len(prompt.speech_ids))

    def advance(self) -> bool:
        return True

    def result(self) -> OtherPrompt:
        num_blocks, self._num_blocks = self._num_blocks, 0
        return OtherPrompt(num_blocks)

    def close(self) -> None:
        self._flow.num_free_blocks += self._num_blocks
        self._num_blocks = 0


class OtherFlow:
    """A FlowBackend."""

    graphs: Capturable = NOTHING_TO_CAPTURE
    lookahead_tokens = LOOKAHEAD_TOKENS
    num_free_batches = 4

    def __init__(self, *, num_blocks: int, max_streams: int) -> None:
        self.num_free_blocks = num_blocks
        self.opened: list[OtherStream] = []  # ever
        self._max_streams = max_streams
        self._batches: list[OtherBatch] = []

    @property
    def num_open(self) -> int:
        return sum(not stream.is_closed for stream in self.opened)

    def batch_size(self, max_rows: int) -> BatchSize:
        return BatchSize(num_rows=max_rows, num_frames=max_rows * 2 * CHUNK_TOKENS[-1])

    def num_prompt_blocks(self, num_tokens: int) -> int:
        return _num_blocks(units.FRAMES_PER_TOKEN * num_tokens)

    def num_speech_blocks(self, num_tokens: int) -> int:
        return _num_blocks(units.FRAMES_PER_TOKEN * num_tokens)

    def begin_prompt(self, prompt: FlowPrompt) -> "OtherPromptRendering":
        self._take(self.num_prompt_blocks(len(prompt.speech_ids)))
        return OtherPromptRendering(self, prompt)

    def prepare(self, prompt: FlowPrompt) -> OtherPrompt:
        return rendered_whole(self.begin_prompt(prompt))

    def release(self, prompt: OtherPrompt) -> None:
        if not prompt.is_released:
            prompt.is_released = True
            self.num_free_blocks += prompt.num_blocks

    def open(self, prompt: OtherPrompt, *, begins_short: bool = False) -> OtherStream:
        del begins_short
        assert not prompt.is_released
        if self.num_open == self._max_streams:
            raise StreamsExhausted(f"all {self._max_streams} streams are open")
        self.opened.append(OtherStream())
        return self.opened[-1]

    def close(self, stream: OtherStream) -> None:
        if stream.is_closed:
            return
        stream.is_closed = True
        self.num_free_blocks += stream.num_own_blocks
        for batch in self._batches:
            batch.streams = [None if each is stream else each for each in batch.streams]

    def begin(self, streams: Sequence[OtherStream]) -> OtherBatch:
        assert all(stream.is_ready for stream in streams)
        wanted = [stream.next_num_blocks for stream in streams]
        self._take(sum(wanted))
        for stream, num_blocks in zip(streams, wanted, strict=True):
            stream.num_own_blocks += num_blocks
        self._batches.append(OtherBatch(streams))
        return self._batches[-1]

    def _take(self, num_blocks: int) -> None:
        if num_blocks > self.num_free_blocks:
            raise BlocksExhausted(wanted=num_blocks, free=self.num_free_blocks)
        self.num_free_blocks -= num_blocks


def other_stages(*, num_blocks: int = 400) -> Stages:
    """The hollow LLM, whose prompts have no instruction here, and the other family behind it."""
    made, num_slots = hollow().stages, CONFIG.max_active_clauses
    llm_config = replace(made.model.llm, end_of_prompt_id=None)
    model = replace(made.model, name="other", llm=llm_config, instruct_prefix="", supports_instruct=False)
    flow = OtherFlow(num_blocks=num_blocks, max_streams=num_slots)
    voices = {
        name: ready_voice(replace(ready.voice, prompt_text=ready.voice.transcript), model, made.tokenizer, flow)
        for name, ready in made.voices.items()
    }
    return replace(
        made,
        model=model,
        llm=hollow_runner(num_slots=num_slots),
        flow=flow,
        vocoder=hollow_vocoder(max_streams=num_slots, look_right_frames=1),
        voices=voices,
        voice_room=VoiceRoom((250, 250)),
    )
