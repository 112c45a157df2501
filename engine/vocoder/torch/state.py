"""The state that a vocoder stream carries from call to call, one row a slot; and which part of a padded batch is whose.

All tails of a stream lie in one row of one table, so a call gathers its rows once and scatters them once.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import torch

# name -> [columns, channels] of a causal layer's last inputs; or [n] for anything else
Layout = Mapping[str, tuple[int, ...]]
Tails = Mapping[str, torch.Tensor]


class StateTable:
    """[slots, numbers of one stream]. A zero row is a stream's start: zeros are what causal layers pad with."""

    def __init__(self, layout: Layout, num_slots: int, *, dtype: torch.dtype, device: torch.device) -> None:
        self._layout = dict(layout)
        self._sizes = [math.prod(shape) for shape in layout.values()]
        self.rows = torch.zeros(num_slots, sum(self._sizes), dtype=dtype, device=device)

    def reset(self, slot: int) -> None:
        self.rows[slot].zero_()

    def gather(self, slots: torch.Tensor) -> torch.Tensor:
        """Copies of the slots' rows: [B, numbers]. Nothing is changed until they are scattered."""
        return self.rows[slots]

    def scatter(self, slots: torch.Tensor, rows: torch.Tensor) -> None:
        self.rows[slots] = rows

    def tails(self, rows: torch.Tensor) -> dict[str, torch.Tensor]:
        """Views into gathered rows, by name: [B, *shape]. Writing to them writes to the rows."""
        parts = torch.split(rows, self._sizes, dim=1)
        return {
            name: part.view(len(rows), *shape) for (name, shape), part in zip(self._layout.items(), parts, strict=True)
        }


@dataclass(frozen=True, slots=True)
class BatchRows:
    """How far each row of a right-padded batch goes on. What lies to its right is garbage that nothing reads."""

    frames: torch.Tensor  # [B] int64, mel frames by which the row advances, >= 1
    is_first: torch.Tensor  # [B] bool
    is_final: torch.Tensor  # [B] bool
    # Set where all rows advance alike: then slices take the place of gathers. None for a padded batch.
    uniform_frames: int | None

    def index(self, rate: int, width: int, *, offset: int = 0) -> torch.Tensor:
        """[B, width]: columns frames * rate + offset and on, of each row."""
        columns = torch.arange(width, device=self.frames.device)
        return (self.frames * rate + offset)[:, None] + columns

    def window(self, buffer: torch.Tensor, rate: int, width: int, *, offset: int = 0) -> torch.Tensor:
        """buffer [B, N, ...] -> [B, width, ...]: the columns that `index` names."""
        if self.uniform_frames is not None:
            return buffer.narrow(1, self.uniform_frames * rate + offset, width)
        index = self.index(rate, width, offset=offset)
        if buffer.dim() == 2:
            return buffer.gather(1, index)
        return buffer.gather(1, index[:, :, None].expand(-1, -1, buffer.shape[2]))


def behind_tail(tail: torch.Tensor, x: torch.Tensor, rows: BatchRows, rate: int) -> torch.Tensor:
    """[tail, x] along the columns. The tail becomes the columns before `frames * rate` of x, for the next call."""
    buffer = torch.cat((tail.to(x.dtype), x), dim=1)
    tail.copy_(rows.window(buffer, rate, tail.shape[1]))
    return buffer


def merged_layouts(layouts: Iterable[Layout]) -> dict[str, tuple[int, ...]]:
    merged: dict[str, tuple[int, ...]] = {}
    for layout in layouts:
        merged |= layout
    return merged
