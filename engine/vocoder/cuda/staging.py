"""The host's side of the table of rows: written here, copied to the device without waiting for it."""

from collections.abc import Sequence
from typing import Final

import torch

from voicegate.engine.vocoder.cuda.rows import Row

# Calls whose copies may be under way at once; the next one waits for the oldest.
NUM_BUFFERS: Final = 16


class RowStaging:
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
