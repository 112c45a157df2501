"""One call of the vocoder for several streams: in tensors of one shape, and how these are computed and run.

What a call does with overlaps is part of it, so that it is one piece of work: a CUDA graph, where captured.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

import numpy as np
import torch

from voicegate.engine import units
from voicegate.engine.device.capture import NOTHING_TO_CAPTURE, Capturable
from voicegate.engine.families.stepaudio2.vocoder.model import OVERLAP_FRAMES, StepAudio2Vocoder
from voicegate.engine.families.stepaudio2.vocoder.network import RowLengths

OVERLAP_SAMPLES: Final = OVERLAP_FRAMES * units.SAMPLES_PER_FRAME

# Rows of one padded call are at least this full. Lower -> fewer calls, more of each spent on padding.
MIN_ROW_FILL: Final = 0.75


@dataclass(frozen=True, slots=True)
class CallRow:
    """Frames of one stream."""

    mel: torch.Tensor  # [80, T], beginning with those that are repeated
    first_frame: int  # of the stream, in it
    source: torch.Tensor | None = None  # [3840]: what excited the repeated frames; None: there are none
    speech: torch.Tensor | None = None  # [3840]: what became of them

    @property
    def num_frames(self) -> int:
        return self.mel.shape[1]


@dataclass(frozen=True, slots=True)
class CallShape:
    num_rows: int
    num_frames: int


_COUNTS: Final = 3  # of a row: its frames, the first's place in the stream, whether it has repeated ones

Decode = Callable[[torch.Tensor, torch.Tensor, RowLengths], torch.Tensor]  # StepAudio2Network.decode, or as exact
Allocate = Callable[[str, tuple[int, ...]], torch.Tensor]  # a name and a shape -> float32 zeros


class CallBuffers:
    """Rows that are not filled are a frame long."""

    def __init__(self, shape: CallShape, *, device: torch.device, allocate: Allocate | None = None) -> None:
        """`allocate`: for buffers that lie in memory which others use at other times."""

        def zeros(_: str, size: tuple[int, ...]) -> torch.Tensor:
            return torch.zeros(size, device=device)

        make = allocate or zeros
        rows, samples = shape.num_rows, shape.num_frames * units.SAMPLES_PER_FRAME
        self.shape = shape
        self.counts = torch.zeros(rows, _COUNTS, dtype=torch.int64, device=device)
        self.mel = make("mel", (rows, units.NUM_MELS, shape.num_frames))
        self.old_source = make("old source", (rows, OVERLAP_SAMPLES))
        self.old_speech = make("old speech", (rows, OVERLAP_SAMPLES))
        self.source = make("source", (rows, samples))  # made by the call
        self.speech = make("speech", (rows, samples))

    def fill(self, rows: Sequence[CallRow]) -> None:
        """On CUDA everything is enqueued on the current stream."""
        counts = np.array([(1, 0, 0)] * self.shape.num_rows, dtype=np.int64)
        for index, row in enumerate(rows):
            counts[index] = (row.num_frames, row.first_frame, row.source is not None)
            self.mel[index, :, : row.num_frames] = row.mel
            if row.source is not None and row.speech is not None:
                self.old_source[index] = row.source
                self.old_speech[index] = row.speech
        tensor = torch.from_numpy(counts)
        if self.counts.device.type == "cuda":
            tensor = tensor.pin_memory()  # else the copy would wait for all that is enqueued
        self.counts.copy_(tensor, non_blocking=True)

    def made(self, index: int, row: CallRow) -> tuple[torch.Tensor, torch.Tensor]:
        """Source and speech of a row, as copies."""
        num_samples = row.num_frames * units.SAMPLES_PER_FRAME
        return self.source[index, :num_samples].clone(), self.speech[index, :num_samples].clone()


class CallPass:
    """Only tensors, only enqueued."""

    def __init__(self, model: StepAudio2Vocoder, decode: Decode | None = None) -> None:
        """`decode`: None for the network's own."""
        self._model = model
        self._decode = decode or model.network.decode
        # Its halves add up to 1.08, not to 1: upstream's speech is that much louder at every seam.
        window = torch.from_numpy(np.hamming(2 * OVERLAP_SAMPLES)).to(model.device, torch.float32)
        self._rising, self._falling = torch.split(window, OVERLAP_SAMPLES)

    @torch.inference_mode()
    def run(self, buffers: CallBuffers) -> None:
        network, mel = self._model.network, buffers.mel
        frames, first_frames, has_old = buffers.counts.unbind(1)
        lengths = RowLengths(frames, buffers.shape.num_frames)
        source = network.source(network.f0(mel, lengths), lengths, self._noise(first_frames, buffers.source.shape[1]))
        width = min(OVERLAP_SAMPLES, source.shape[1])
        overlap = slice(0, width)
        is_old = (has_old > 0)[:, None]
        source[:, overlap] = torch.where(is_old, buffers.old_source[:, overlap], source[:, overlap])
        speech = self._decode(mel, network.spectra(source, lengths), lengths)
        faded = speech[:, overlap] * self._rising[overlap] + buffers.old_speech[:, overlap] * self._falling[overlap]
        speech[:, overlap] = torch.where(is_old, faded, speech[:, overlap])
        buffers.source.copy_(source)
        buffers.speech.copy_(speech)

    def _noise(self, first_frames: torch.Tensor, num_samples: int) -> torch.Tensor:
        """[B, samples]: by place in the stream. Of repeated frames nothing is heard of it."""
        columns = torch.arange(num_samples, device=first_frames.device)
        # A row that is padded may run past the table's end; what it finds there is garbage anyway.
        index = first_frames[:, None] * units.SAMPLES_PER_FRAME + columns
        return self._model.noise[index.clamp(max=len(self._model.noise) - 1)]


class Caller(Protocol):
    """Two implementations: tensors as large as the rows, and fixed buffers for CUDA graphs (bucket_caller.py)."""

    @property
    def graphs(self) -> Capturable: ...

    def run(self, rows: Sequence[CallRow]) -> list[tuple[torch.Tensor, torch.Tensor]]:
        """Source and speech of each."""


class TorchCaller:
    """Rows of about the same length together."""

    graphs = NOTHING_TO_CAPTURE

    def __init__(self, model: StepAudio2Vocoder) -> None:
        self._pass = CallPass(model)
        self._device = model.device

    def run(self, rows: Sequence[CallRow]) -> list[tuple[torch.Tensor, torch.Tensor]]:
        made: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}
        batches: list[list[int]] = []
        for index in sorted(range(len(rows)), key=lambda each: rows[each].num_frames, reverse=True):
            if batches and rows[index].num_frames >= MIN_ROW_FILL * rows[batches[-1][0]].num_frames:
                batches[-1].append(index)
            else:
                batches.append([index])
        for batch in batches:
            buffers = CallBuffers(CallShape(len(batch), rows[batch[0]].num_frames), device=self._device)
            run_batch(self._pass.run, buffers, rows, batch, made)
        return [made[index] for index in range(len(rows))]


def run_batch(
    run: Callable[[CallBuffers], None],
    buffers: CallBuffers,
    rows: Sequence[CallRow],
    batch: Sequence[int],
    made: dict[int, tuple[torch.Tensor, torch.Tensor]],
) -> None:
    """The rows of a batch, by their indices, into what is made of each."""
    buffers.fill([rows[index] for index in batch])
    run(buffers)
    for place, index in enumerate(batch):
        made[index] = buffers.made(place, rows[index])
