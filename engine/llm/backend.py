"""The seam of the speech LLM: text tokens in, speech tokens out. No torch.

Two kinds of backend implement it. For a **stepped** one the engine chooses what steps next (`is_runnable`, `launch`):
runner.py. One that **schedules itself** runs in threads or processes of its own and never asks for a step. What either
has made is fetched with `poll`. Ids are plain ints: text ids index the text table, speech ids the speech table.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from voicegate.engine.device.watcher import Waker


class LlmError(Exception):
    """Base of what an LLM backend raises; nothing has changed then.

    LlmError
      NoFreeSlot       every slot is taken; wait until a sequence ends
      InvalidRequest   this model, backend or sequence cannot do what was asked; the message says why
      LlmDied          the backend makes no tokens any more, for nobody; the message says why
    """


class NoFreeSlot(LlmError):
    pass


class InvalidRequest(LlmError):
    pass


class LlmDied(LlmError):
    pass


@dataclass(frozen=True, slots=True)
class LlmTraits:
    """Promises of a backend beyond LlmBackend; the engine offers its clients no more than that."""

    takes_streamed_text: bool  # `is_streaming` requests; without it all text of a pass is there when it begins
    is_reproducible: bool  # equal seeds give equal tokens, alone or in any batch


@dataclass(frozen=True, slots=True)
class LlmPrompt:
    """Said by the voice before: its transcript after the instruction, and its speech tokens; both may be empty."""

    text_ids: tuple[int, ...] = ()
    speech_ids: tuple[int, ...] = ()
    _hash: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_hash", hash((self.text_ids, self.speech_ids)))

    def __hash__(self) -> int:
        """Once: what is kept of a prompt is looked up by it, and a device waits meanwhile."""
        return self._hash


@dataclass(frozen=True, slots=True)
class SequenceRequest:
    sequence_id: int  # the caller's name for it, used once: outputs may come after `abort`
    prompt: LlmPrompt
    text_ids: tuple[int, ...]  # all of the text, or its beginning where `is_streaming`
    is_streaming: bool = False  # bistream: `push_text` and `end_text` follow
    seed: int = 0
    max_tokens: int | None = None  # speech tokens, at least 1; None: only the model's own limit
    is_growing: bool = False  # `read` follows, again and again, and `text_ids` is empty


@dataclass(frozen=True, slots=True)
class SequenceOutput:
    """Made of one sequence, in one step or several; `is_final` or `error`: it has ended, its slot is free."""

    sequence_id: int
    tokens: tuple[int, ...] = ()  # speech ids below speech_token_size, in order
    is_final: bool = False
    is_truncated: bool = False  # ended by a length limit, not by the model; then `is_final` too
    error: str | None = None  # what was wrong with this sequence; safe to show
    is_paused: bool = False  # its reading is over; it goes on with the next `read`
    is_spent: bool = False  # and the model ended it sooner: it has said all that it knew


class LlmBackend(Protocol):
    """Called from one thread. A sequence lives from `add` to its final or failed output, or to `abort`.

    Its outputs come in order, and none follows the last one. After `abort` some may still come, of what was on its way.

    What concerns one sequence is told in its output, and the others go on. A backend that cannot go on at all wakes the
    engine and raises LlmDied from `poll`, and from nothing else: what it is given then comes to nothing. One that can
    fall silent keeps time itself: nobody else notices.

    One that schedules itself decides alone what steps next, and runs as far ahead as `max_tokens` lets it: the engine
    begins an utterance's next sequence only when it has turned most of the last one into sound.
    """

    @property
    def traits(self) -> LlmTraits: ...

    @property
    def num_free_slots(self) -> int:
        """How many more sequences `add` would take now."""

    @property
    def counters(self) -> Mapping[str, float]:
        """Since it was loaded, as far as it knows them: llm_steps, _rows, _seconds, _launches (of CUDA graphs)."""

    def set_waker(self, waker: Waker) -> None:
        """It is called when `poll` has something new for an engine's thread that may be asleep."""

    def add(self, request: SequenceRequest) -> None:
        """Take a slot. Waits for nothing. Raises NoFreeSlot, or InvalidRequest (also where the id is alive)."""

    def push_text(self, sequence_id: int, text_ids: Sequence[int]) -> None:
        """Append text; no-op where the sequence has ended.

        Raises InvalidRequest after `end_text`, for ids out of range, and where the request was not `is_streaming`.
        """

    def end_text(self, sequence_id: int) -> None:
        """No more text follows. Idempotent; no-op where the sequence has ended. Raises as `push_text`."""

    def read(self, sequence_id: int, text_ids: Sequence[int], *, until: int | None) -> None:
        """A growing sequence goes on, with this text in place of the one before, up to `until` speech tokens in all.

        None: the text is complete, and the model ends the speech. See sequence.Growing. No-op where the sequence has
        ended. Raises InvalidRequest where its last reading has not paused, for ids out of range, and where the request
        was not `is_growing`.
        """

    def abort(self, sequence_id: int) -> None:
        """Let a sequence end without a last output. Idempotent; an unknown id is a no-op.

        Its slot is free at once for `add`, though a backend that schedules itself may come to the new request later.
        """

    @property
    def takes_step(self) -> bool:
        """Whether `launch` would begin at once; False always, where it schedules itself."""

    def is_runnable(self, sequence_id: int) -> bool:
        """Whether a step of it may be launched: alive, not waiting for text, and of a backend that is stepped."""

    def launch(self, sequence_ids: Sequence[int]) -> list[int]:
        """Begin one decode step (or prefill) of each of these that is runnable; returns the others.

        Each is named once. Raises what the device raises: then nothing was begun.
        """

    def poll(self) -> list[SequenceOutput]:
        """All outputs since the last call, in order. Does not wait."""

    @property
    def num_fetched(self) -> int:
        """Grows with whatever `poll` has fetched, be it told or held back."""

    def tell_after(self, sequence_id: int, num_tokens: int) -> None:
        """Nobody needs its next tokens before there are so many, at least 1, since the last that were told.

        A backend may hold them back until then, and no longer: it tells of an end, of a pause and of a sequence's first
        token at once, and when it has told it tells of each again. No-op for an unknown id.
        """

    def take_held(self, sequence_id: int) -> tuple[int, ...]:
        """The tokens that it holds back; they are told by that."""

    @property
    def is_busy(self) -> bool:
        """Whether something is under way that `poll` will have without being asked for it again."""

    def wait(self) -> None:
        """Until `poll` has something or raises, or nothing is under way: for callers that gave no waker."""

    def close(self) -> None:
        """End what it runs by itself. Idempotent."""
