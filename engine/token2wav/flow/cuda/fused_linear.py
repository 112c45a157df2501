"""An estimator's products: Triton's for few lines, cuBLAS's beyond. See ops; Step-Audio2's estimator has the same.

From where cuBLAS is faster, and which tile is fastest, is the outcome of bench/kernels/tune_flow.py on an H200.
"""

# mypy: disable-error-code="no-untyped-call"

import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Final

import torch
import torch.nn.functional as F  # noqa: N812 - torch's own name for it
import triton
from triton.runtime import driver

from voicegate.engine.token2wav.flow.cuda import linear_kernels
from voicegate.engine.token2wav.flow.cuda.launching import Launching

# Up to this many lines, one stream's block, wide products are Triton's.
_FEW_LINES: Final = 100
# Up to this many, two streams' blocks, an update's inputs are split among programs: its outputs alone are too few.
_FEW_UPDATE_LINES: Final = 200


@dataclass(frozen=True, slots=True)
class LinearTile:
    lines: int
    outs: int
    depth: int
    num_stages: int
    num_warps: int
    num_parts: int = 1  # of the inputs

    def fits(self, weight: torch.Tensor) -> bool:
        width_out, width_in = weight.shape
        return width_out % self.outs == 0 and width_in % (self.num_parts * self.depth) == 0

    def within(self, num_bytes: int, dtype: torch.dtype) -> "LinearTile":
        """With as many stages as there is shared memory for: a Hopper's 227 KiB hold all, an Ada's 99 do not."""
        most = num_bytes // ((self.lines + self.outs) * self.depth * dtype.itemsize)
        return self if self.num_stages <= most else replace(self, num_stages=most)


def _few_tile(num_lines: int, width_in: int) -> LinearTile:
    return LinearTile(lines=64, outs=64, depth=64, num_stages=6, num_warps=4)


def _update_tile(num_lines: int, width_in: int) -> LinearTile:
    """A part has few steps, which are loaded all at once."""
    if num_lines > 2 * 64:
        stages = 4 if width_in <= 1024 else 6
        return LinearTile(lines=128, outs=64, depth=64, num_stages=stages, num_warps=4, num_parts=4)
    depth = 64 if width_in <= 1024 else 128
    return LinearTile(lines=64, outs=64, depth=depth, num_stages=4, num_warps=4, num_parts=4)


def launch_linear(
    x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, *, tile: LinearTile, has_gelu: bool, is_pdl: bool
) -> torch.Tensor:
    num_lines, width_in = x.shape
    width_out = len(weight)
    out_dtype = x.dtype if tile.num_parts == 1 else torch.float32
    out = torch.empty(tile.num_parts * num_lines, width_out, dtype=out_dtype, device=x.device)
    linear_kernels.linear_kernel[(width_out // tile.outs, triton.cdiv(num_lines, tile.lines), tile.num_parts)](
        x,
        weight,
        bias,
        out,
        num_lines,
        WIDTH_IN=width_in,
        WIDTH_OUT=width_out,
        HAS_GELU=has_gelu,
        NUM_PARTS=tile.num_parts,
        BLOCK_L=tile.lines,
        BLOCK_O=tile.outs,
        BLOCK_K=tile.depth,
        NUM_STAGES=tile.num_stages,
        IS_PDL=is_pdl,
        num_warps=tile.num_warps,
        launch_pdl=is_pdl,
    )
    return out


@dataclass(frozen=True, slots=True)
class Few:
    """Which products are Triton's: of so few lines, by these tiles."""

    num_lines: int
    tile_of: Callable[[int, int], LinearTile]  # of lines and their width

    def tile(self, x: torch.Tensor, weight: torch.Tensor) -> LinearTile | None:
        """With as many stages as there is room for; None: a product for cuBLAS."""
        tile = self.tile_of(*x.shape)
        if len(x) > self.num_lines or x.dtype.itemsize != 2 or not tile.fits(weight):
            return None
        return tile.within(shared_bytes(x.device), x.dtype)


_FEW: Final = Few(_FEW_LINES, _few_tile)
_FEW_OF_UPDATE: Final = Few(_FEW_UPDATE_LINES, _update_tile)


def linear(
    tensors: Launching, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, *, few: Few = _FEW
) -> torch.Tensor:
    if (tile := few.tile(x, weight)) is not None:
        return launch_linear(x, weight, bias, tile=tile, has_gelu=False, is_pdl=tensors.is_pdl)
    return F.linear(x, weight, bias)


def widen(
    tensors: Launching, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, *, few: Few = _FEW
) -> torch.Tensor:
    if (tile := few.tile(x, weight)) is not None:
        return launch_linear(x, weight, bias, tile=tile, has_gelu=True, is_pdl=tensors.is_pdl)
    # cuBLASLt's epilogue is the tanh form; a CPU's `use_gelu` would be the exact one.
    return torch._addmm_activation(bias, x, weight.t(), use_gelu=True)


update: Final = partial(linear, few=_FEW_OF_UPDATE)


def shared_bytes(device: torch.device) -> int:
    """That a program may have there; where kernels are interpreted nothing limits them."""
    return _shared_bytes(device) if device.type == "cuda" else sys.maxsize


@cache
def _shared_bytes(device: torch.device) -> int:
    return int(driver.active.utils.get_device_properties(device.index)["max_shared_mem"])
