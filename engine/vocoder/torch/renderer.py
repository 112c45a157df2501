"""Renders jobs with torch's operations, in batches that are padded as little as may be: runs anywhere."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import torch
from torch.nn import functional

from voicegate.engine import units
from voicegate.engine.device.capture import NOTHING_TO_CAPTURE
from voicegate.engine.vocoder.backend import VocoderJob, VocoderStream
from voicegate.engine.vocoder.model import VocoderModel
from voicegate.engine.vocoder.torch.network import VocoderNetwork
from voicegate.engine.vocoder.torch.state import BatchRows, StateTable

# Rows of one padded call are at least this full. Lower -> fewer calls, more of each spent on padding.
MIN_ROW_FILL: Final = 0.75


@dataclass(frozen=True, slots=True)
class _Advance:
    """A job with frames to advance by. `mel` [n + 4, 80] begins with the stream's lookahead."""

    job_index: int
    job: VocoderJob
    mel: torch.Tensor
    num_frames: int


class TorchRenderer:
    """Implements Renderer."""

    name = "torch"
    graphs = NOTHING_TO_CAPTURE

    def __init__(self, model: VocoderModel, *, max_streams: int, dtype: torch.dtype = torch.float32) -> None:
        self._model = model
        self._device = device = model.device
        self._look_right = model.config.look_right_frames
        self._network = VocoderNetwork(model.config, model.weights, dtype=dtype, device=device)
        self._state = StateTable(self._network.layout, max_streams, dtype=torch.float32, device=device)
        self._exact_state = StateTable(self._network.exact_layout, max_streams, dtype=torch.float64, device=device)
        self._lookaheads = [torch.zeros(0, units.NUM_MELS, device=device) for _ in range(max_streams)]

    def reset(self, slot: int) -> None:
        self._state.reset(slot)
        self._exact_state.reset(slot)
        self._lookaheads[slot] = self._lookaheads[slot][:0]

    def render(self, jobs: Sequence[VocoderJob]) -> list[torch.Tensor]:
        samples = [torch.zeros(0, device=self._device) for _ in jobs]
        advances: list[_Advance] = []
        for index, job in enumerate(jobs):
            known = torch.cat((self._lookaheads[_slot(job.stream)], job.mel.T.to(self._device)))
            if job.is_final and len(known):
                known = functional.pad(known, (0, 0, 0, self._look_right))  # upstream's right context at the end
            num_frames = len(known) - self._look_right
            if num_frames > 0:
                advances.append(_Advance(index, job, known, num_frames))
            else:
                self._keep_lookahead(job.stream, known)
                job.stream.is_ended = job.is_final
        for batch in _batches(advances):
            for advance, pcm in zip(batch, self._run_batch(batch), strict=True):
                samples[advance.job_index] = pcm
        return samples

    def _run_batch(self, batch: Sequence[_Advance]) -> list[torch.Tensor]:
        streams = [advance.job.stream for advance in batch]
        slots = torch.tensor([stream.slot for stream in streams], device=self._device)
        longest = batch[0].num_frames
        mel = torch.zeros(len(batch), longest + self._look_right, units.NUM_MELS, device=self._device)
        for row, advance in zip(mel, batch, strict=True):
            row[: len(advance.mel)] = advance.mel
        state, exact_state = self._state.gather(slots), self._exact_state.gather(slots)
        samples = self._network.advance(
            mel,
            self._noise_rows([stream.num_frames for stream in streams], longest),
            {**self._state.tails(state), **self._exact_state.tails(exact_state)},
            self._batch_rows(batch),
        )
        self._state.scatter(slots, state)
        self._exact_state.scatter(slots, exact_state)
        return [self._finish(advance, row) for advance, row in zip(batch, samples, strict=True)]

    def _batch_rows(self, batch: Sequence[_Advance]) -> BatchRows:
        frames = [advance.num_frames for advance in batch]
        return BatchRows(
            frames=torch.tensor(frames, device=self._device),
            is_first=torch.tensor([advance.job.stream.num_frames == 0 for advance in batch], device=self._device),
            is_final=torch.tensor([advance.job.is_final for advance in batch], device=self._device),
            uniform_frames=frames[0] if frames[0] == frames[-1] else None,
        )

    def _noise_rows(self, start_frames: Sequence[int], num_frames: int) -> torch.Tensor:
        """[B, 480 (n + 1)]: the noise of the frames to advance by and of the one after."""
        starts = torch.tensor(start_frames, device=self._device) * units.SAMPLES_PER_FRAME
        columns = torch.arange((num_frames + 1) * units.SAMPLES_PER_FRAME, device=self._device)
        # A row that is padded may run past the table's end; what it finds there is garbage anyway.
        return self._model.noise[(starts[:, None] + columns).clamp_(max=len(self._model.noise) - 1)]

    def _finish(self, advance: _Advance, samples: torch.Tensor) -> torch.Tensor:
        """Move the stream on; of its row [480 n + 4], the part that belongs to the signal and is final."""
        stream = advance.job.stream
        is_first = stream.num_frames == 0
        stream.num_frames += advance.num_frames
        self._keep_lookahead(stream, advance.mel[advance.num_frames :].clone())
        stream.is_ended = advance.job.is_final
        part = self._model.final_part(advance.num_frames, is_first=is_first, is_final=advance.job.is_final)
        return samples[part]

    def _keep_lookahead(self, stream: VocoderStream, frames: torch.Tensor) -> None:
        """frames [at most 4, 80]"""
        self._lookaheads[_slot(stream)] = frames
        stream.num_lookahead = len(frames)


def _slot(stream: VocoderStream) -> int:
    assert stream.slot is not None, "the runner has checked the job"
    return stream.slot


def _batches(advances: Sequence[_Advance]) -> list[list[_Advance]]:
    """Grouped by length, the longest first in each, so that little of a call is padding."""
    batches: list[list[_Advance]] = []
    for advance in sorted(advances, key=lambda each: each.num_frames, reverse=True):
        if batches and advance.num_frames >= MIN_ROW_FILL * batches[-1][0].num_frames:
            batches[-1].append(advance)
        else:
            batches.append([advance])
    return batches
