"""The CUDA runner's steps on their way."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from voicegate.engine.llm.backend import SequenceOutput
from voicegate.engine.llm.cuda.device_queue import Transfer
from voicegate.engine.llm.runner import Live


@dataclass(slots=True, eq=False)
class Member:
    """A sequence's part in a step other than a plain decode."""

    sample: int | None = None  # its place among the step's samples; None: it has ended without one
    is_forced_fill: bool = False
    error: str | None = None


@dataclass(slots=True, eq=False)
class CudaStep:
    lives: Sequence[Live]
    members: dict[int, Member]  # by place in `lives`; the others are decodes, whose samples come first, in order
    transfers: list[Transfer] = field(default_factory=list)  # in order; all their samples are the step's
    tokens: list[int] = field(default_factory=list)  # of transfers that are over
    applied: list[SequenceOutput] | None = None
