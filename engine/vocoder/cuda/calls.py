"""Jobs -> calls that fit the buckets: rows for the kernels, and where each row's samples belong. No device work."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from voicegate.engine.vocoder.backend import VocoderJob
from voicegate.engine.vocoder.cuda.rows import Row


@dataclass(frozen=True, slots=True)
class PlannedRow:
    """A stream's part in a call."""

    job_index: int
    row: Row
    lookahead_after: int  # frames that the slot holds then


def plan_rows(
    job_index: int, job: VocoderJob, mel: torch.Tensor, *, look_right: int, max_frames: int
) -> list[PlannedRow]:
    """A job's rows, in order, each of a call of its own and of at most `max_frames`; none if nothing changes.

    `mel`: the job's frames on the device, float32, which must live until the calls have been launched.
    """
    stream = job.stream
    if stream.slot is None:
        raise ValueError("a closed vocoder stream has no rows")
    num_known, start, taken = stream.num_lookahead, stream.num_frames, 0
    num_new = mel.shape[1]
    to_advance = num_known + num_new - look_right
    if job.is_final and num_known + num_new:
        to_advance += look_right  # upstream's right context at the end is zeros
    rows: list[PlannedRow] = []
    while to_advance > 0 or (not rows and num_new):
        frames = max(0, min(to_advance, max_frames))
        is_last = frames >= to_advance
        count = min(num_new - taken, frames + look_right - num_known)
        address = mel.data_ptr() + taken * mel.stride(1) * mel.element_size()
        is_final = job.is_final and is_last
        row = Row(
            stream.slot,
            frames,
            int(start == 0),
            int(is_final),
            start,
            num_known,
            count,
            address,
            mel.stride(0),
            mel.stride(1),
        )
        num_known += count if frames == 0 else look_right - num_known
        rows.append(PlannedRow(job_index, row, num_known))
        taken += count
        start += frames
        to_advance -= frames
    return rows


def group_calls(plans: Sequence[Sequence[PlannedRow]], max_batch: int) -> list[list[PlannedRow]]:
    """Round i takes every job's row i; rows of like length share a call, the longest first."""
    calls: list[list[PlannedRow]] = []
    for number in range(max((len(plan) for plan in plans), default=0)):
        rows = sorted(
            (plan[number] for plan in plans if number < len(plan)), key=lambda each: each.row.num_frames, reverse=True
        )
        calls += [rows[start : start + max_batch] for start in range(0, len(rows), max_batch)]
    return calls
