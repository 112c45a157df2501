"""The seam of the flow: speech tokens in, mel frames out, a block at a time of many streams.

How long a block is, how far ahead it looks and what it remembers is the flow's own. Its memory is handed out in blocks
too: a stream holds those of what it has rendered until it is closed, a prompt those that every stream behind it shares.
Called from one thread; on a GPU all work is launched on the current CUDA stream, the same one
for all of it.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

import torch

from voicegate.engine import units
from voicegate.engine.device.capture import Capturable
from voicegate.engine.flow.chunking import BatchSize


class FlowError(Exception):
    """Base of what a flow refuses; every stream is then as it was.

    FlowError
      BlocksExhausted    too few blocks are free
      StreamsExhausted   all streams that the flow was built for are open
      BatchesExhausted   all batches run that the flow has buffers for
      StreamTooLong      prompt and tokens pass the end of the noise buffer
    """


class BlocksExhausted(FlowError):
    def __init__(self, *, wanted: int, free: int) -> None:
        super().__init__(f"{wanted} blocks wanted, {free} free: close streams or build the flow with more blocks")
        self.wanted = wanted
        self.free = free


class StreamsExhausted(FlowError):
    pass


class BatchesExhausted(FlowError):
    pass


class StreamTooLong(FlowError):
    pass


@dataclass(frozen=True, slots=True, eq=False)
class FlowPrompt:
    """A voice as the flow needs it."""

    speech_ids: torch.Tensor  # [P] int64; P may be 0
    mel: torch.Tensor  # [2P, 80] float32
    embedding: torch.Tensor  # [192] float32, before normalisation

    def check_shapes(self, *, speaker_dim: int) -> None:
        """Raises ValueError."""
        num_frames = len(self.speech_ids) * units.FRAMES_PER_TOKEN
        if self.mel.shape != (num_frames, units.NUM_MELS):
            wanted = f"a prompt of {len(self.speech_ids)} tokens needs mel [{num_frames}, {units.NUM_MELS}]"
            raise ValueError(f"{wanted}, not {list(self.mel.shape)}")
        if self.embedding.shape != (speaker_dim,):
            raise ValueError(f"embedding is {list(self.embedding.shape)}, not [{speaker_dim}]")


class PreparedPrompt(Protocol):
    @property
    def num_blocks(self) -> int:
        """Blocks of the memory that it holds."""

    @property
    def first_block_tokens(self) -> int:
        """Generated tokens in the first block behind it, of a stream with the usual one."""

    @property
    def second_block_tokens(self) -> int:
        """Generated tokens in the block after that."""


class FlowStream(Protocol):
    def append(self, token_ids: Iterable[int]) -> None:
        """More speech tokens. Raises ValueError or StreamTooLong, and then none was appended."""

    def finish(self) -> None:
        """No more tokens follow; lookahead past the end is silence from now on. Idempotent."""

    @property
    def is_ready(self) -> bool:
        """Whether the next block can be rendered now."""

    @property
    def num_missing_tokens(self) -> int:
        """Speech tokens to come before another block is ready, one that is being rendered left out; at least 0."""

    @property
    def is_exhausted(self) -> bool:
        """Finished, and every frame has been returned."""

    @property
    def next_num_frames(self) -> int:
        """Frames in the next block, prompt frames among them."""

    @property
    def num_own_blocks(self) -> int:
        """Blocks of the memory that it holds alone."""

    @property
    def next_num_blocks(self) -> int:
        """Blocks of the memory that the next block takes when it is begun."""


def check_batch(streams: Sequence[FlowStream]) -> None:
    """Whether these may be begun together. Raises ValueError."""
    if not streams or len(set(streams)) != len(streams) or not all(stream.is_ready for stream in streams):
        raise ValueError("a batch takes one or more different streams that are ready")


class FlowBatch(Protocol):
    """The next block of each of several streams."""

    def advance(self) -> bool:
        """One Euler step for all rows; True when it was the last. On a GPU it is only launched."""

    def result(self) -> list[torch.Tensor]:
        """New mel frames [80, n] of each stream that is still open, in their order; n may be 0. The batch is over then.

        On a GPU they are there for what is launched afterwards.
        """


Prompt = TypeVar("Prompt", bound=PreparedPrompt)
Rendered = TypeVar("Rendered", bound=PreparedPrompt, covariant=True)
Stream = TypeVar("Stream", bound=FlowStream)


class PromptRendering(Protocol[Rendered]):
    """A voice's prompt on its way, a step at a time: other streams' batches may run between two steps.

    All blocks that it will take are its own from the beginning.
    """

    @property
    def takes_step(self) -> bool:
        """Whether a batch that the next step may need is free."""

    @property
    def holds_batch(self) -> bool:
        """Between two of its steps, of those that streams' blocks need, too."""

    def advance(self) -> bool:
        """One Euler step; True when it was the last. On a GPU it is only launched. Raises BatchesExhausted."""

    def result(self) -> Rendered:
        """Once, behind the last step: it is the caller's to release."""

    def close(self) -> None:
        """Give back what it holds; nothing, once its result was taken. Idempotent."""


def rendered_whole(rendering: PromptRendering[Rendered]) -> Rendered:
    """Without anybody between its steps."""
    try:
        while not rendering.advance():
            pass
        return rendering.result()
    finally:
        rendering.close()


class FlowBackend(Protocol[Prompt, Stream]):
    """A prompt lives from `prepare`, or its rendering's result, to `release`, a stream from `open` to `close`."""

    @property
    def name(self) -> str:
        """The one that computes: torch, cuda (our kernels) or tensorrt, which has our kernels beside it."""

    @property
    def graphs(self) -> Capturable: ...

    @property
    def lookahead_tokens(self) -> int:
        """Speech tokens behind a block that must be there before it is rendered, unless the stream has ended."""

    @property
    def num_free_blocks(self) -> int: ...

    @property
    def num_free_batches(self) -> int:
        """How many more batches may run at the same time."""

    def batch_size(self, max_rows: int) -> BatchSize:
        """The size of a batch of up to `max_rows` whole blocks, such that little is computed in vain.

        Shorter blocks leave room for more of them. One block fits always.
        """

    def num_prompt_blocks(self, num_tokens: int) -> int:
        """Blocks of the memory that a prompt of so many tokens takes at most."""

    def num_speech_blocks(self, num_tokens: int) -> int:
        """Blocks of the memory that a stream takes for so much speech at most."""

    def begin_prompt(self, prompt: FlowPrompt) -> PromptRendering[Prompt]:
        """Begin to compute all that streams behind it share. Raises ValueError, StreamTooLong, BlocksExhausted.

        The flow may repeat some of the prompt in front of it, if that makes the first sound come sooner.
        """

    def prepare(self, prompt: FlowPrompt) -> Prompt:
        """As `begin_prompt`, to its end, for when no stream speaks yet. Raises BatchesExhausted, too."""

    def release(self, prompt: Prompt) -> None:
        """No stream can be opened any more; those that are open keep the blocks until they close. Idempotent."""

    def open(self, prompt: Prompt, *, begins_short: bool = False) -> Stream:
        """Raises StreamsExhausted; ValueError if the prompt was released.

        `begins_short`: its first block takes fewer tokens, where the flow has prepared the prompt for that, too.
        """

    def close(self, stream: Stream) -> None:
        """Give its blocks back, at once or when the batch that it is in is over. Idempotent."""

    def begin(self, streams: Sequence[Stream]) -> FlowBatch:
        """The next block of each. All must be ready.

        Raises ValueError for streams that are not, or more than fit a batch; BlocksExhausted; BatchesExhausted. Then
        nothing has changed.
        """
