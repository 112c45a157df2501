"""What a decoder of ours offers whoever chooses its steps: one decode step at a time, ahead on a GPU. No torch."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from voicegate.engine.device.capture import Capturable
from voicegate.engine.llm.backend import SequenceOutput, SequenceRequest

# Of one sequence alone, launched and not fetched: Python has slept while its prompt was read, and takes longer than a
# decode to wake up.
MAX_STEPS_OF_ONE: Final = 3


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


class LlmRunner(Protocol):
    """Called from one thread. A sequence lives from `add` to its final or failed output, or to `abort`.

    Where it is as in LlmBackend, that says more.
    """

    @property
    def num_free_slots(self) -> int: ...

    @property
    def graphs(self) -> Capturable: ...

    def add(self, request: SequenceRequest) -> None: ...

    def push_text(self, sequence_id: int, text_ids: Sequence[int]) -> None: ...

    def end_text(self, sequence_id: int) -> None: ...

    def read(self, sequence_id: int, text_ids: Sequence[int], *, until: int | None) -> None: ...

    def abort(self, sequence_id: int) -> None: ...

    def is_runnable(self, sequence_id: int) -> bool:
        """Whether `step` or `launch` may be asked for it: alive, and not waiting for text.

        While launched steps of it are in flight: whether another may be launched behind them.
        """

    def are_runnable(self, sequence_ids: Sequence[int]) -> Sequence[bool]: ...

    def tell_after(self, sequence_id: int, num_tokens: int) -> None:
        """As in LlmBackend: a step whose token is held back has no output of it."""

    def take_held(self, sequence_id: int) -> tuple[int, ...]: ...

    def launch(self, sequence_ids: Sequence[int]) -> LaunchedStep:
        """Begin what `step` does, without waiting for the device. Raises as `step`."""

    def step(self, sequence_ids: Sequence[int]) -> list[SequenceOutput]:
        """One decode step (or prefill) of each of these; one output each, in their order, but of tokens held back.

        Every id must be runnable and named once, else UnknownSequence and nothing has run. A sequence that fails
        (too long for its slot, say) says so in its own output and leaves the others as they would have been.
        An output may be empty: the step only fed text or closed a block of speech tokens. The same as
        `launch(sequence_ids).outputs()`.
        """
