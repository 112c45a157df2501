"""The CUDA runner's steps on their way."""

from collections.abc import Callable
from dataclasses import dataclass

from voicegate.engine.llm.backend import SequenceOutput
from voicegate.engine.llm.cuda.device_queue import Transfer
from voicegate.engine.llm.live_sequences import Live


@dataclass(slots=True, eq=False)
class Member:
    """A sequence's part in a step other than a plain decode."""

    sample: int | None = None  # its place among the step's samples; None: it has ended without one
    is_forced_fill: bool = False
    error: str | None = None


class CudaStep:
    """A LaunchedStep of CudaLlmRunner, which fills it in."""

    def __init__(
        self,
        lives: list[Live],
        members: dict[int, Member],
        outputs_of: Callable[["CudaStep"], list[SequenceOutput]],
    ) -> None:
        """`members` by place in `lives`; the others are decodes, whose samples come first, in order."""
        self.lives = lives
        self.members = members
        self.transfers: list[Transfer] = []  # in order; all their samples are the step's
        self.tokens: list[int] = []  # of transfers that are over
        self._outputs_of = outputs_of
        self.applied: list[SequenceOutput] | None = None

    @property
    def is_done(self) -> bool:
        return self.applied is not None or all(transfer.is_done for transfer in self.transfers)

    def outputs(self) -> list[SequenceOutput]:
        return self._outputs_of(self)
