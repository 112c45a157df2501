"""Streams behind a vocoder that looks both ways: 8 frames are repeated at each call, and the two renderings faded.

Upstream's glue: of each call the samples of its last 8 frames are held back, unless it is the last. The next call
begins with those frames and the source that excited them, and what it makes of them is faded over what was held back.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import torch

from voicegate.engine import units
from voicegate.engine.device.capture import NOTHING_TO_CAPTURE
from voicegate.engine.token2wav.stepaudio2.vocoder.model import StepAudio2Vocoder
from voicegate.engine.token2wav.stepaudio2.vocoder.network import RowLengths
from voicegate.engine.token2wav.vocoder.backend import VocoderJob, VocoderStream

OVERLAP_FRAMES: Final = 8
OVERLAP_SAMPLES: Final = OVERLAP_FRAMES * units.SAMPLES_PER_FRAME

# Rows of one padded call are at least this full. Lower -> fewer calls, more of each spent on padding.
MIN_ROW_FILL: Final = 0.75


@dataclass(slots=True)
class _Held:
    """What a stream carries from call to call. All None before the first; the first waits for more than 8 frames."""

    waiting: torch.Tensor | None = None  # [80, n]: frames that are in no call yet
    mel: torch.Tensor | None = None  # [80, 8]: the last call's last
    source: torch.Tensor | None = None  # [3840]: what excited them
    speech: torch.Tensor | None = None  # [3840]: what became of them


@dataclass(frozen=True, slots=True)
class _Call:
    """A job that renders something. `mel` [80, T] begins with the repeated frames."""

    job_index: int
    job: VocoderJob
    mel: torch.Tensor
    held: _Held

    @property
    def num_frames(self) -> int:
        return self.mel.shape[1]


class OverlapRenderer:
    """Implements Renderer."""

    graphs = NOTHING_TO_CAPTURE

    def __init__(self, model: StepAudio2Vocoder, *, max_streams: int) -> None:
        self._model = model
        self._held = [_Held() for _ in range(max_streams)]
        # Its halves add up to 1.08, not to 1: upstream's speech is that much louder at every seam.
        window = torch.from_numpy(np.hamming(2 * OVERLAP_SAMPLES)).to(model.device, torch.float32)
        self._rising, self._falling = torch.split(window, OVERLAP_SAMPLES)

    def reset(self, slot: int) -> None:
        self._held[slot] = _Held()

    def render(self, jobs: Sequence[VocoderJob]) -> list[torch.Tensor]:
        samples = [torch.zeros(0, device=self._model.device) for _ in jobs]
        calls: list[_Call] = []
        for index, job in enumerate(jobs):
            held = self._held[_slot(job.stream)]
            job.stream.is_ended = job.is_final
            mel = _joined(held, job)
            if mel is not None:
                calls.append(_Call(index, job, mel, held))
            elif job.is_final and held.speech is not None:
                samples[index] = held.speech  # no more frames: what was held back is as final as it gets
        for batch in _batches(calls):
            for call, speech in zip(batch, self._speech(batch), strict=True):
                samples[call.job_index] = speech
        return samples

    def _speech(self, batch: Sequence[_Call]) -> list[torch.Tensor]:
        """Of each call what is final."""
        device, network = self._model.device, self._model.network
        longest = batch[0].num_frames
        mel = torch.zeros(len(batch), units.NUM_MELS, longest, device=device)
        for row, call in zip(mel, batch, strict=True):
            row[:, : call.num_frames] = call.mel
        lengths = RowLengths(torch.tensor([call.num_frames for call in batch], device=device), longest)
        sources = network.source(network.f0(mel, lengths), lengths, self._noise(batch, longest))
        for source, call in zip(sources, batch, strict=True):
            if call.held.source is not None:
                source[:OVERLAP_SAMPLES] = call.held.source
        speeches = network.decode(mel, network.spectra(sources, lengths), lengths)
        return [self._finish(*each) for each in zip(batch, sources, speeches, strict=True)]

    def _noise(self, batch: Sequence[_Call], num_frames: int) -> torch.Tensor:
        """[B, 480 T]: by place in the stream. Of repeated frames nothing is heard of it."""
        starts = [_first_frame(call) * units.SAMPLES_PER_FRAME for call in batch]
        columns = torch.arange(num_frames * units.SAMPLES_PER_FRAME, device=self._model.device)
        # A row that is padded may run past the table's end; what it finds there is garbage anyway.
        index = torch.tensor(starts, device=self._model.device)[:, None] + columns
        return self._model.noise[index.clamp_(max=len(self._model.noise) - 1)]

    def _finish(self, call: _Call, source: torch.Tensor, speech: torch.Tensor) -> torch.Tensor:
        """Fade, hold back, and move the stream on."""
        num_samples = call.num_frames * units.SAMPLES_PER_FRAME
        source, speech = source[:num_samples], speech[:num_samples].clone()
        if call.held.speech is not None:
            faded = speech[:OVERLAP_SAMPLES] * self._rising + call.held.speech * self._falling
            speech[:OVERLAP_SAMPLES] = faded
        stream = call.job.stream
        stream.num_frames, stream.num_lookahead = _first_frame(call) + call.num_frames, 0
        if call.job.is_final:
            return speech
        call.held.waiting = None
        call.held.mel = call.mel[:, -OVERLAP_FRAMES:].clone()
        call.held.source = source[-OVERLAP_SAMPLES:].clone()
        call.held.speech = speech[-OVERLAP_SAMPLES:].clone()
        return speech[:-OVERLAP_SAMPLES]


def _joined(held: _Held, job: VocoderJob) -> torch.Tensor | None:
    """[80, T] of the next call, or None if there is to be none yet; new frames then wait for more."""
    if held.mel is not None:
        return torch.cat((held.mel, job.mel), dim=1) if job.mel.shape[1] else None
    mel = job.mel if held.waiting is None else torch.cat((held.waiting, job.mel), dim=1)
    if mel.shape[1] > (0 if job.is_final else OVERLAP_FRAMES):
        return mel
    held.waiting = mel
    job.stream.num_lookahead = mel.shape[1]
    return None


def _first_frame(call: _Call) -> int:
    """Of the stream, in the call."""
    return 0 if call.held.mel is None else call.job.stream.num_frames - OVERLAP_FRAMES


def _slot(stream: VocoderStream) -> int:
    assert stream.slot is not None, "the runner has checked the job"
    return stream.slot


def _batches(calls: Sequence[_Call]) -> list[list[_Call]]:
    """Grouped by length, the longest first in each, so that little of a call is padding."""
    batches: list[list[_Call]] = []
    for call in sorted(calls, key=lambda each: each.num_frames, reverse=True):
        if batches and call.num_frames >= MIN_ROW_FILL * batches[-1][0].num_frames:
            batches[-1].append(call)
        else:
            batches.append([call])
    return batches
