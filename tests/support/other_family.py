"""A second family of token2wav, as small as one can be, unlike the first in all that the engine must not rely on.

Encoder: recurrent, a state for each stream; 2 tokens of lookahead. Flow: chunks of 4, 8, then 16 tokens, counted from
the first generated one; a chunk sees itself and all before it; 3 Euler steps; memory in blocks of 10 frames, so that a
chunk takes several. Vocoder: a sine whose phase goes on, glided between neighbouring frames, so one frame is held back.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate, chain, repeat

import torch
import torch.nn.functional as F  # noqa: N812 - torch's own name for it

from tests.support.tiny_engine import CONFIG, tiny_stages
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
from voicegate.engine.flow.batch_size import BatchSize
from voicegate.engine.llm.torch_runner import TorchLlmRunner
from voicegate.engine.model.weights import load_state_dict
from voicegate.engine.vocoder.backend import VocoderJob, VocoderStream, VocoderStreamsExhausted

LOOKAHEAD_TOKENS = 2
CHUNK_TOKENS = (4, 8, 16)  # and 16 ever after
BLOCK_FRAMES = 10
NUM_STEPS = 3
_CHANNELS = 8
_DECAY = 0.9
_AHEAD = (1.0, 0.5, 0.25)  # of a token and of those behind it

_generator = torch.Generator().manual_seed(0)
_EMBEDDING = torch.randn(7000, _CHANNELS, generator=_generator, dtype=torch.float64)
_NOISE = torch.randn(2000, _CHANNELS, generator=_generator, dtype=torch.float64)
_TO_MEL = torch.randn(_CHANNELS, units.NUM_MELS, generator=_generator, dtype=torch.float64)


def _inputs(tokens: Sequence[int]) -> torch.Tensor:
    """[n, channels] of the encoder for n tokens and the lookahead behind them, zeros where there is none: [n + 2]."""
    embedded = F.pad(_EMBEDDING[torch.tensor(tokens, dtype=torch.int64)], (0, 0, 0, LOOKAHEAD_TOKENS))
    num_tokens = len(embedded) - LOOKAHEAD_TOKENS
    return sum(
        (weight * embedded[ahead : ahead + num_tokens] for ahead, weight in enumerate(_AHEAD)),
        start=torch.zeros(num_tokens, _CHANNELS, dtype=torch.float64),
    )


def _chunk_ends() -> Iterable[int]:
    """Generated tokens at the end of each chunk."""
    return accumulate(chain(CHUNK_TOKENS, repeat(CHUNK_TOKENS[-1])))


def _num_blocks(num_frames: int) -> int:
    return -(-num_frames // BLOCK_FRAMES)


@dataclass(slots=True)
class Context:
    """State that a stream carries from chunk to chunk, and that a prompt leaves to streams after it."""

    encoder: torch.Tensor = field(default_factory=lambda: torch.zeros(_CHANNELS, dtype=torch.float64))
    sum_of_mu: torch.Tensor = field(default_factory=lambda: torch.zeros(_CHANNELS, dtype=torch.float64))
    num_frames: int = 0  # from the prompt's first

    def encode(self, inputs: torch.Tensor) -> torch.Tensor:
        """[n, channels] -> mu [2n, channels]; moves the encoder on."""
        mu = []
        for each in inputs:
            self.encoder = _DECAY * self.encoder + each
            mu += [self.encoder, 0.9 * self.encoder]
        return torch.stack(mu) if mu else torch.zeros(0, _CHANNELS, dtype=torch.float64)

    def take(self, mu: torch.Tensor) -> None:
        self.sum_of_mu = self.sum_of_mu + mu.sum(dim=0)
        self.num_frames += len(mu)


@dataclass(slots=True)
class OtherPrompt:
    context: Context
    num_blocks: int
    first_block_tokens: int = CHUNK_TOKENS[0]
    second_block_tokens: int = CHUNK_TOKENS[1]
    is_released: bool = False


class OtherStream:
    def __init__(self, prompt: OtherPrompt) -> None:
        self.tokens: list[int] = []
        self.context = replace(prompt.context)
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

    def encode_next(self) -> torch.Tensor:
        """mu [n, channels] of the next chunk; moves the encoder on, and the chunk behind it."""
        end = min(self._end, len(self.tokens))
        inputs = _inputs(self.tokens[self._num_done : end + LOOKAHEAD_TOKENS])[: end - self._num_done]
        self._num_done, self._end = end, next(self._ends)
        return self.context.encode(inputs)


class OtherBatch:
    """Chunks of different lengths, padded to the longest."""

    def __init__(self, streams: Sequence[OtherStream]) -> None:
        self.streams: list[OtherStream | None] = [*streams]
        mus = [stream.encode_next() for stream in streams]
        self._lengths = [len(mu) for mu in mus]
        self._mu = torch.nn.utils.rnn.pad_sequence(mus, batch_first=True)
        first_frames = [stream.context.num_frames for stream in streams]
        self._x = torch.stack([_NOISE[first : first + self._mu.shape[1]] for first in first_frames])
        for stream, mu in zip(streams, mus, strict=True):
            stream.context.take(mu)
            stream.is_in_batch = True
        means = torch.stack([stream.context.sum_of_mu / stream.context.num_frames for stream in streams])
        self._goal = torch.tanh(self._mu + means[:, None])
        self._num_steps = 0

    def advance(self) -> bool:
        self._x = self._x + (self._goal - self._x) / (self._num_steps + 2)
        self._num_steps += 1
        return self._num_steps == NUM_STEPS

    def result(self) -> list[torch.Tensor]:
        assert self._num_steps == NUM_STEPS
        mels = []
        for stream, x, length in zip(self.streams, self._x, self._lengths, strict=True):
            if stream is not None:
                stream.is_in_batch = False
                mels.append((x[:length] @ _TO_MEL).T.float())
        return mels


class OtherPromptRendering:
    """A single step."""

    takes_step = True
    holds_batch = False

    def __init__(self, flow: "OtherFlow", prompt: FlowPrompt) -> None:
        self._flow = flow
        self._prompt = prompt
        self._num_blocks = flow.num_prompt_blocks(len(prompt.speech_ids))
        self._context = Context()

    def advance(self) -> bool:
        self._context.take(self._context.encode(_inputs(self._prompt.speech_ids.tolist())))
        return True

    def result(self) -> OtherPrompt:
        num_blocks, self._num_blocks = self._num_blocks, 0
        return OtherPrompt(self._context, num_blocks)

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
        self.opened.append(OtherStream(prompt))
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


@dataclass(slots=True)
class _Voice:
    """State of a vocoder stream."""

    level: float | None = None  # of the frame that is held back
    phase: float = 0.0


class OtherVocoder:
    """A VocoderBackend."""

    graphs: Capturable = NOTHING_TO_CAPTURE
    held_back_frames = 1
    takes_any_cut = True

    def __init__(self, *, max_streams: int) -> None:
        self._free = list(range(max_streams))
        self._voices = [_Voice() for _ in range(max_streams)]

    def open(self) -> VocoderStream:
        if not self._free:
            raise VocoderStreamsExhausted("all streams are open")
        slot = self._free.pop()
        self._voices[slot] = _Voice()
        return VocoderStream(slot)

    def close(self, stream: VocoderStream) -> None:
        if stream.slot is not None:
            self._free.append(stream.slot)
            stream.slot = None

    def run(self, jobs: Sequence[VocoderJob]) -> list[torch.Tensor]:
        return [self._render(self._voices[job.stream.slot or 0], job) for job in jobs]

    def _render(self, voice: _Voice, job: VocoderJob) -> torch.Tensor:
        held = [] if voice.level is None else [voice.level]
        levels = [*held, *job.mel.double().mean(dim=0).tolist()]
        if job.is_final and levels:
            levels.append(levels[-1])
        voice.level = levels[-1] if levels else None
        samples, voice.phase = _sing(levels, voice.phase)
        return samples


def _sing(levels: Sequence[float], phase: float) -> tuple[torch.Tensor, float]:
    """Samples from the first level to the last, and the phase behind them."""
    known = torch.tensor(levels, dtype=torch.float64)
    if len(known) < 2:
        return torch.zeros(0), phase
    steps = torch.arange(units.SAMPLES_PER_FRAME, dtype=torch.float64) / units.SAMPLES_PER_FRAME
    glided = known[:-1, None] + (known[1:] - known[:-1])[:, None] * steps
    phases = phase + torch.cumsum((220.0 + 40.0 * glided.flatten()) / units.SAMPLE_RATE_HZ, dim=0)
    return (0.1 * torch.sin(2 * torch.pi * phases)).float(), float(phases[-1]) % 1.0


def render_offline(prompt_ids: Sequence[int], tokens: Sequence[int]) -> torch.Tensor:
    """All samples at once, by formula: no state is carried anywhere."""
    inputs = torch.cat((_inputs(prompt_ids), _inputs(tokens)))
    ages = torch.arange(len(inputs))[:, None] - torch.arange(len(inputs))
    weights = torch.where(ages >= 0, _DECAY ** ages.clamp(min=0).double(), 0.0)
    states = weights @ inputs
    mu = torch.stack((states, 0.9 * states), dim=1).flatten(0, 1)
    start, levels = 2 * len(prompt_ids), []
    for end in _chunk_ends():
        stop = 2 * (len(prompt_ids) + min(end, len(tokens)))
        goal = torch.tanh(mu[start:stop] + mu[:stop].mean(dim=0))
        x = _NOISE[start:stop]
        for step in range(NUM_STEPS):
            x = x + (goal - x) / (step + 2)
        levels += (x @ _TO_MEL).float().double().mean(dim=1).tolist()
        if end >= len(tokens):
            break
        start = stop
    return _sing([*levels, levels[-1]], 0.0)[0]


def other_stages(*, num_blocks: int = 400) -> Stages:
    """The tiny LLM, whose prompts have no instruction here, and the other family behind it."""
    tiny = tiny_stages()
    llm_config = replace(tiny.model.llm, end_of_prompt_id=None)
    model = replace(tiny.model, name="other", llm=llm_config, instruct_prefix="", supports_instruct=False)
    runner = TorchLlmRunner(
        llm_config,
        model.sampling,
        load_state_dict(CONFIG.model_dir / "llm.safetensors"),
        num_slots=CONFIG.max_active_clauses,
        max_positions=1024,
    )
    flow = OtherFlow(num_blocks=num_blocks, max_streams=CONFIG.max_active_clauses)
    voices = {
        name: ready_voice(replace(ready.voice, prompt_text=ready.voice.transcript), model, tiny.tokenizer, flow)
        for name, ready in tiny.voices.items()
    }
    return Stages(
        model,
        tiny.tokenizer,
        runner,
        flow,
        OtherVocoder(max_streams=CONFIG.max_active_clauses),
        voices,
        voice_room=VoiceRoom((250, 250)),
    )
