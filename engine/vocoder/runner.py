"""VocoderBackend over a renderer: places for streams, and what may be asked of them. Knows no network."""

from collections.abc import Sequence
from typing import Protocol

import torch

from voicegate.engine import units
from voicegate.engine.device.capture import Capturable
from voicegate.engine.vocoder.backend import (
    VocoderJob,
    VocoderStream,
    VocoderStreamEnded,
    VocoderStreamsExhausted,
)


class BoundedModel(Protocol):
    """A network, as far as it does not depend on how it is run."""

    @property
    def held_back_frames(self) -> int:
        """As VocoderBackend has it."""

    @property
    def takes_any_cut(self) -> bool:
        """As VocoderBackend has it."""

    def check_length(self, num_frames: int) -> None:
        """For a stream of so many frames. Raises VocoderStreamTooLong."""


class Renderer(Protocol):
    """Computes jobs and keeps what streams carry from call to call, by slot."""

    name: str

    @property
    def graphs(self) -> Capturable: ...

    def reset(self, slot: int) -> None:
        """A stream begins in it, whatever it holds."""

    def render(self, jobs: Sequence[VocoderJob]) -> list[torch.Tensor]:
        """As VocoderBackend.run, of jobs that were checked; their streams are moved on."""


class VocoderRunner:
    """See VocoderBackend for the promises."""

    def __init__(self, model: BoundedModel, renderer: Renderer, *, max_streams: int) -> None:
        self.model = model
        self.name = renderer.name
        self.graphs = renderer.graphs
        self.held_back_frames = model.held_back_frames
        self.takes_any_cut = model.takes_any_cut
        self._renderer = renderer
        self._max_streams = max_streams
        self._free_slots = list(reversed(range(max_streams)))

    def open(self) -> VocoderStream:
        if not self._free_slots:
            raise VocoderStreamsExhausted(f"all {self._max_streams} vocoder streams are open")
        slot = self._free_slots.pop()
        self._renderer.reset(slot)
        return VocoderStream(slot)

    def close(self, stream: VocoderStream) -> None:
        if stream.slot is not None:
            self._free_slots.append(stream.slot)
            stream.slot = None

    @torch.inference_mode()
    def run(self, jobs: Sequence[VocoderJob]) -> list[torch.Tensor]:
        self._check(jobs)
        return self._renderer.render(jobs)

    def _check(self, jobs: Sequence[VocoderJob]) -> None:
        if len({id(job.stream) for job in jobs}) != len(jobs):
            raise ValueError("a stream may have one job in a call: its frames come in order")
        for job in jobs:
            stream = job.stream
            if stream.slot is None or stream.is_ended:
                raise VocoderStreamEnded("this vocoder stream is closed or has had its final frames")
            if job.mel.shape[0] != units.NUM_MELS or job.mel.dim() != 2:
                raise ValueError(f"mel is {list(job.mel.shape)}, not [{units.NUM_MELS}, frames]")
            self.model.check_length(stream.num_frames + stream.num_lookahead + job.mel.shape[1])
