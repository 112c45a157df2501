"""The seam of the vocoder: mel frames in, 24 kHz samples out, for many streams at once.

Called from one thread; on a GPU all work is launched on the current CUDA stream, the same one for all of it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch

from voicegate.engine.device.capture import Capturable


class VocoderError(Exception):
    """Base of what a vocoder refuses; every stream is then as it was.

    VocoderError
      VocoderStreamsExhausted   all streams that it was built for are open
      VocoderStreamTooLong      a stream passes the samples that it was built for
      VocoderStreamEnded        a job for a stream that is closed or has had its final job
    """


class VocoderStreamsExhausted(VocoderError):
    pass


class VocoderStreamTooLong(VocoderError):
    pass


class VocoderStreamEnded(VocoderError):
    pass


@dataclass(slots=True, eq=False)
class VocoderStream:
    """One utterance's place in the vocoder, whose own its numbers are."""

    slot: int | None  # None once closed
    num_lookahead: int = 0  # frames known, not advanced by
    num_frames: int = 0  # advanced by
    is_ended: bool = False


@dataclass(frozen=True, slots=True)
class VocoderJob:
    """The next mel frames of a stream: [80, n] float32. n may be 0."""

    stream: VocoderStream
    mel: torch.Tensor
    is_final: bool


class VocoderBackend(Protocol):
    """A stream lives from `open` to `close`."""

    @property
    def name(self) -> str:
        """The one that computes: torch, cuda (our kernels) or tensorrt."""

    @property
    def graphs(self) -> Capturable: ...

    @property
    def held_back_frames(self) -> int:
        """Frames of a stream that are known, and whose samples wait for more, or for its end."""

    @property
    def takes_any_cut(self) -> bool:
        """Whether frames make the same samples, up to rounding, however they are cut into jobs."""

    def open(self) -> VocoderStream:
        """A stream at its start. Raises VocoderStreamsExhausted."""

    def close(self, stream: VocoderStream) -> None:
        """Give its place back; whatever was still to come is dropped. Idempotent."""

    def run(self, jobs: Sequence[VocoderJob]) -> list[torch.Tensor]:
        """The samples that these frames make final, [m] float32 for each job; at most one job a stream.

        On a GPU they are there for what is launched afterwards. Raises ValueError, VocoderStreamTooLong or
        VocoderStreamEnded before anything is computed.
        """
