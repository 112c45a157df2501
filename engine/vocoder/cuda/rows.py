"""The table that tells a call's kernels about its streams: one row of int64 numbers a stream, copied once a call."""

from collections.abc import Sequence
from typing import Final, NamedTuple

import torch

# Calls whose copies may be under way at once; the next one waits for the oldest.
NUM_BUFFERS: Final = 16


class Row(NamedTuple):
    """The order of the fields is the kernels' (the *_FIELD constants below)."""

    slot: int
    num_frames: int  # mel frames to advance by; 0: nothing but the lookahead changes
    is_first: int  # no frame of this stream was advanced by before: its slot's tails are not read
    is_final: int
    start_frame: int  # advanced by so far
    num_lookahead: int  # frames in the slot that are known but not advanced by
    num_new: int  # frames at `mel_address`
    mel_address: int  # of the first new frame's first band, float32 on the device
    band_stride: int  # in numbers
    frame_stride: int


SLOT_FIELD: Final = 0
FRAMES_FIELD: Final = 1
FIRST_FIELD: Final = 2
FINAL_FIELD: Final = 3
START_FIELD: Final = 4
LOOKAHEAD_FIELD: Final = 5
NEW_FIELD: Final = 6
ADDRESS_FIELD: Final = 7
BAND_STRIDE_FIELD: Final = 8
FRAME_STRIDE_FIELD: Final = 9
NUM_FIELDS: Final = len(Row._fields)


def idle_row(slot: int) -> Row:
    """Fills a call up to its bucket: advances by nothing; `slot` is one that no stream has."""
    return Row(slot, 0, 1, 0, 0, 0, 0, 0, 0, 0)


def busy_row(slot: int, num_frames: int) -> Row:
    """Advances by so many frames, all of them silence, in the middle of a stream."""
    return Row(slot, num_frames, 0, 0, 0, 0, 0, 0, 0, 0)


class RowStaging:
    """The host's side of the table: written here, copied to the device without waiting for it."""

    def __init__(self, rows: torch.Tensor) -> None:
        """`rows` [streams, fields] int64: where the kernels look."""
        self._rows = rows
        self._is_on_gpu = rows.device.type == "cuda"
        self._buffers = [
            torch.zeros(rows.shape, dtype=rows.dtype, pin_memory=self._is_on_gpu) for _ in range(NUM_BUFFERS)
        ]
        self._arrays = [buffer.numpy() for buffer in self._buffers]
        self._copied = [torch.cuda.Event() for _ in self._buffers] if self._is_on_gpu else []  # type: ignore[no-untyped-call]
        self._next = 0

    def send(self, rows: Sequence[Row]) -> None:
        number = self._next
        self._next = (number + 1) % NUM_BUFFERS
        if self._is_on_gpu:
            self._copied[number].synchronize()
        self._arrays[number][: len(rows)] = rows
        self._rows[: len(rows)].copy_(self._buffers[number][: len(rows)], non_blocking=True)
        if self._is_on_gpu:
            self._copied[number].record()
