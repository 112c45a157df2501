"""Streams behind a vocoder that looks both ways: 8 frames are repeated at each call, and the two renderings faded.

Upstream's glue: of each call the samples of its last 8 frames are held back, unless it is the last. The next call
begins with those frames and the source that excited them, and what it makes of them is faded over what was held back.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from voicegate.engine.device.capture import Capturable
from voicegate.engine.families.stepaudio2.vocoder.calls import OVERLAP_SAMPLES, Caller, CallRow
from voicegate.engine.families.stepaudio2.vocoder.model import OVERLAP_FRAMES
from voicegate.engine.vocoder.backend import VocoderJob, VocoderStream


@dataclass(slots=True)
class _Held:
    """State that a stream carries from call to call. All None before the first; the first waits for more than 8
    frames."""

    waiting: torch.Tensor | None = None  # [80, n]: frames that are in no call yet
    mel: torch.Tensor | None = None  # [80, 8]: the last call's last
    source: torch.Tensor | None = None  # [3840]: what excited them
    speech: torch.Tensor | None = None  # [3840]: what became of them


class OverlapRenderer:
    """Implements Renderer."""

    def __init__(self, caller: Caller, *, device: torch.device, max_streams: int, name: str = "torch") -> None:
        """`name`: what computes."""
        self.name = name
        self._caller = caller
        self._device = device
        self._held = [_Held() for _ in range(max_streams)]

    @property
    def graphs(self) -> Capturable:
        return self._caller.graphs

    def reset(self, slot: int) -> None:
        self._held[slot] = _Held()

    def render(self, jobs: Sequence[VocoderJob]) -> list[torch.Tensor]:
        samples = [torch.zeros(0, device=self._device) for _ in jobs]
        rows: dict[int, CallRow] = {}  # by index of their jobs
        for index, job in enumerate(jobs):
            held = self._held[_slot(job.stream)]
            job.stream.is_ended = job.is_final
            row = _next_row(held, job)
            if row is not None:
                rows[index] = row
            elif job.is_final and held.speech is not None:
                samples[index] = held.speech  # no more frames: what was held back is as final as it gets
        for (index, row), made in zip(rows.items(), self._caller.run(list(rows.values())), strict=True):
            samples[index] = self._finish(jobs[index], row, *made)
        return samples

    def _finish(self, job: VocoderJob, row: CallRow, source: torch.Tensor, speech: torch.Tensor) -> torch.Tensor:
        """Hold back, and move the stream on; -> what is final."""
        job.stream.num_frames, job.stream.num_lookahead = row.first_frame + row.num_frames, 0
        if job.is_final:
            return speech
        held = self._held[_slot(job.stream)]
        held.waiting = None
        held.mel = row.mel[:, -OVERLAP_FRAMES:].clone()
        held.source = source[-OVERLAP_SAMPLES:].clone()
        held.speech = speech[-OVERLAP_SAMPLES:].clone()
        return speech[:-OVERLAP_SAMPLES]


def _next_row(held: _Held, job: VocoderJob) -> CallRow | None:
    """The next call's, or None if there is to be none yet; new frames then wait for more."""
    if held.mel is not None:
        if not job.mel.shape[1]:
            return None
        mel = torch.cat((held.mel, job.mel), dim=1)
        return CallRow(mel, job.stream.num_frames - OVERLAP_FRAMES, held.source, held.speech)
    mel = job.mel if held.waiting is None else torch.cat((held.waiting, job.mel), dim=1)
    if mel.shape[1] > (0 if job.is_final else OVERLAP_FRAMES):
        return CallRow(mel, 0)
    held.waiting = mel
    job.stream.num_lookahead = mel.shape[1]
    return None


def _slot(stream: VocoderStream) -> int:
    assert stream.slot is not None, "the runner has checked the job"
    return stream.slot
