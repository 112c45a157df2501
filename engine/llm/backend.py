"""The seam of the speech LLM: text tokens in, speech tokens out, one decode step at a time. No torch.

Ids are plain ints: text ids index the text table, speech ids the speech table (see LlmConfig).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol


class LlmError(Exception):
    """Base of what an LLM backend raises; nothing has changed then.

    LlmError
      NoFreeSlot       every slot is taken; wait until a sequence ends
      InvalidRequest   this model or this sequence cannot do what was asked; the message says why
      UnknownSequence  `step` was asked for a sequence that has ended, never was, waits for text or is named twice
    """


class NoFreeSlot(LlmError):
    pass


class InvalidRequest(LlmError):
    pass


class UnknownSequence(LlmError):
    pass


@dataclass(frozen=True, slots=True)
class LlmPrompt:
    """What the voice said before: its transcript behind the instruction, and its speech tokens; both may be empty."""

    text_ids: tuple[int, ...] = ()
    speech_ids: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class SequenceRequest:
    sequence_id: int  # the caller's name for it; free again once the sequence has ended
    prompt: LlmPrompt
    text_ids: tuple[int, ...]  # all of the text, or its beginning where `is_streaming`
    is_streaming: bool = False  # bistream: `push_text` and `end_text` follow
    seed: int = 0  # equal seeds give equal tokens, alone or in any batch
    max_tokens: int | None = None  # speech tokens, at least 1; None: only the model's own limit


@dataclass(frozen=True, slots=True)
class SequenceOutput:
    """What one step made of one sequence; `is_final` or `error`: it has ended and its slot is free."""

    sequence_id: int
    tokens: tuple[int, ...] = ()  # speech ids below speech_token_size, in order
    is_final: bool = False
    is_truncated: bool = False  # ended by a length limit, not by the model; then `is_final` too
    error: str | None = None  # what was wrong with this sequence; safe to show


class LaunchedStep(Protocol):
    """A step that the device may still be computing."""

    @property
    def is_done(self) -> bool:
        """Whether `outputs` would not wait for the device. Does not wait itself."""

    def outputs(self) -> list[SequenceOutput]:
        """What the step made, waiting for the device if need be; the same list at every call.

        In the order of the launch, without the sequences that were aborted since, or that an earlier step has ended.
        Steps take effect in the order of their launches: a later one's `outputs` waits for the earlier ones too.
        """


@dataclass(frozen=True, slots=True)
class FinishedStep:
    """A LaunchedStep that was computed by its launch."""

    finished: list[SequenceOutput]

    @property
    def is_done(self) -> bool:
        return True

    def outputs(self) -> list[SequenceOutput]:
        return self.finished


class LlmBackend(Protocol):
    """Called from one thread. A sequence lives from `add` to its final or failed output, or to `abort`."""

    @property
    def num_free_slots(self) -> int:
        """How many more sequences `add` would take now."""

    @property
    def num_launches(self) -> int:
        """CUDA graphs launched so far; 0 where there are none."""

    def add(self, request: SequenceRequest) -> None:
        """Take a slot. Runs nothing. Raises NoFreeSlot, or InvalidRequest (also where the id is alive)."""

    def push_text(self, sequence_id: int, text_ids: Sequence[int]) -> None:
        """Append text; no-op where the sequence has ended.

        Raises InvalidRequest after `end_text`, for ids out of range, and where the request was not `is_streaming`.
        """

    def end_text(self, sequence_id: int) -> None:
        """No more text follows. Idempotent; no-op where the sequence has ended. Raises as `push_text`."""

    def abort(self, sequence_id: int) -> None:
        """End a sequence without output and free its slot at once. Idempotent; an unknown id is a no-op."""

    def is_runnable(self, sequence_id: int) -> bool:
        """Whether `step` or `launch` may be asked for it: alive, and not waiting for text.

        While launched steps of it are in flight: whether another may be launched behind them.
        """

    def launch(self, sequence_ids: Sequence[int]) -> LaunchedStep:
        """Begin what `step` does, without waiting for the device. Raises as `step`."""

    def step(self, sequence_ids: Sequence[int]) -> list[SequenceOutput]:
        """One decode step (or prefill) of each of these; one output each, in their order.

        Every id must be runnable and named once, else UnknownSequence and nothing has run. A sequence that fails
        (too long for its slot, say) says so in its own output and leaves the others as they would have been.
        An output may be empty: the step only fed text or closed a block of speech tokens. The same as
        `launch(sequence_ids).outputs()`.
        """
