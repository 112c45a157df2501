"""Launches that the estimators of both families have: of split attention's end, and of the Euler step's.

See ops. Importing it imports Triton.
"""

# mypy: disable-error-code="no-untyped-call"

from typing import Final, Protocol

import torch
import triton

from voicegate.engine import units
from voicegate.engine.flow.cuda import attention_kernels, line_kernels

MIN_TILE: Final = 16  # tl.dot takes no smaller side
_MERGED_LINES: Final = 32  # of a program


def tile_of(size: int) -> int:
    return max(int(triton.next_power_of_2(size)), MIN_TILE)


class Launching(Protocol):
    """A family's tensors, as far as they say how its kernels are launched."""

    @property
    def is_pdl(self) -> bool: ...


class Solving(Launching, Protocol):
    @property
    def dtype(self) -> torch.dtype: ...

    @property
    def cfg_rate(self) -> float: ...

    @property
    def widths(self) -> torch.Tensor:
        """[Euler steps] float32."""


def merge(
    tensors: Launching, sums: torch.Tensor, highest: torch.Tensor, total: torch.Tensor, *, out: torch.Tensor
) -> None:
    """Sums [splits, lines, H * d], highest and total [splits, lines * H] -> out [lines, H * d]."""
    splits, num_lines = highest.shape
    channels = out.numel() // num_lines
    attention_kernels.merge_kernel[(triton.cdiv(num_lines, _MERGED_LINES),)](
        sums,
        highest,
        total,
        out,
        num_lines,
        CHANNELS=channels,
        SPLITS=splits,
        BLOCK_L=_MERGED_LINES,
        BLOCK_C=tile_of(channels),
        IS_PDL=tensors.is_pdl,
        num_warps=4,
        launch_pdl=tensors.is_pdl,
    )


def euler(
    tensors: Solving,
    weight: torch.Tensor,
    bias: torch.Tensor,
    x: torch.Tensor,
    step: torch.Tensor,
    normed: torch.Tensor,
    *,
    num_lines: int,
) -> None:
    """normed [C * L, D] -> velocity, guidance, and x one Euler step further, in place. Weight [80, D], bias [80]."""
    half_precision = tensors.dtype.itemsize == 2
    line_kernels.euler_kernel[(triton.cdiv(num_lines, MIN_TILE), triton.cdiv(units.NUM_MELS, MIN_TILE))](
        normed,
        weight,
        bias,
        tensors.widths,
        x,
        step,
        num_lines,
        CFG_RATE=tensors.cfg_rate,
        DIM=normed.shape[1],
        MELS=units.NUM_MELS,
        BLOCK_L=MIN_TILE,
        BLOCK_M=MIN_TILE,
        NUM_PARTS=8 if half_precision else 1,
        BLOCK_K=64,
        NUM_STAGES=2 if half_precision else 1,
        IS_PDL=tensors.is_pdl,
        num_warps=8 if half_precision else 4,
        launch_pdl=tensors.is_pdl,
    )
