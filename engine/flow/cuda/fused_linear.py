"""An estimator's products: ours for few lines, cuBLAS's beyond. See ops; Step-Audio2's estimator has the same.

The tiles, and the row count from which cuBLAS is used, are the fastest that were tried on an H200.
"""

# mypy: disable-error-code="no-untyped-call"

import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any, ClassVar, Final

import torch
import torch.nn.functional as F  # noqa: N812 - torch's own name for it
import triton
from triton.runtime import driver

from voicegate.engine.flow.cuda import ahead_kernels, linear_kernels
from voicegate.engine.flow.cuda.launching import Launching

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


@dataclass(frozen=True, slots=True)
class AheadTile:
    """For ahead_kernels, on a Hopper: all weights of so many outputs in shared memory, and so many blocks of inputs."""

    lines: ClassVar[int] = 64
    num_warps: ClassVar[int] = 4
    outs: int
    depth: int
    num_stages: int
    num_parts: int = 1  # of the inputs

    def fits(self, weight: torch.Tensor) -> bool:
        width_out, width_in = weight.shape
        return width_out % self.outs == 0 and width_in % (self.num_parts * self.num_stages * self.depth) == 0


AheadTiles = Callable[[int, int, int], AheadTile | None]  # of lines, width in, width out


def _few_tile(num_lines: int, width_in: int) -> LinearTile:
    return LinearTile(lines=64, outs=64, depth=64, num_stages=6, num_warps=4)


def _update_tile(num_lines: int, width_in: int) -> LinearTile:
    """A part has few steps, which are loaded all at once."""
    if num_lines > 2 * 64:
        stages = 4 if width_in <= 1024 else 6
        return LinearTile(lines=128, outs=64, depth=64, num_stages=stages, num_warps=4, num_parts=4)
    depth = 64 if width_in <= 1024 else 128
    return LinearTile(lines=64, outs=64, depth=depth, num_stages=4, num_warps=4, num_parts=4)


# Up to this many lines, two streams' blocks, the inner product is ahead; up to this many, attention's.
_AHEAD_INNER_LINES: Final = 200
_AHEAD_UPDATE_LINES: Final = 400


def _no_tile(num_lines: int, width_in: int, width_out: int) -> None:
    return None


def _ahead_tile(num_lines: int, width_in: int, width_out: int) -> AheadTile | None:
    """Programs for most multiprocessors, with room beside them for the next kernel's; more lines are programs, too."""
    is_inner = width_out <= 2 * width_in  # of the feedforward; else queries, keys and values
    if num_lines <= 2 * AheadTile.lines:
        if not is_inner:
            return AheadTile(32, 64, 4) if num_lines <= AheadTile.lines else AheadTile(64, 128, 4)
        return AheadTile(16, 64, 16) if num_lines <= AheadTile.lines else AheadTile(32, 128, 8)
    return AheadTile(64, 128, 4) if is_inner and num_lines <= _AHEAD_INNER_LINES else None


def _ahead_update_tile(num_lines: int, width_in: int, width_out: int) -> AheadTile | None:
    is_attention = width_in == width_out
    if num_lines <= AheadTile.lines:
        return AheadTile(64 if is_attention else 32, 64, 4, num_parts=4)
    if num_lines <= 2 * AheadTile.lines and not is_attention:
        return AheadTile(32, 128, 8, num_parts=2)
    if num_lines <= (_AHEAD_UPDATE_LINES if is_attention else _FEW_UPDATE_LINES):
        return AheadTile(64, 64, 8, num_parts=2)
    return None


def launch_linear(
    x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, *, tile: LinearTile, has_gelu: bool, is_pdl: bool
) -> torch.Tensor:
    return _launch(linear_kernels.linear_kernel, x, weight, bias, tile, has_gelu, is_pdl, IS_PDL=is_pdl)


def launch_ahead(
    x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, *, tile: AheadTile, has_gelu: bool
) -> torch.Tensor:
    """As `launch_linear`, overlapping with the kernel before."""
    return _launch(ahead_kernels.linear_ahead_kernel, x, weight, bias, tile, has_gelu, True)


def _launch(
    kernel: Any,
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor,
    tile: LinearTile | AheadTile,
    has_gelu: bool,
    is_pdl: bool,
    **constants: bool,
) -> torch.Tensor:
    """-> [lines, out] as `x`; of a tile with parts [parts * lines, out] float32, to be summed."""
    num_lines, width_in = x.shape
    width_out = len(weight)
    out_dtype = x.dtype if tile.num_parts == 1 else torch.float32
    out = torch.empty(tile.num_parts * num_lines, width_out, dtype=out_dtype, device=x.device)
    kernel[(width_out // tile.outs, triton.cdiv(num_lines, tile.lines), tile.num_parts)](
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
        **constants,
        num_warps=tile.num_warps,
        launch_pdl=is_pdl,
    )
    return out


@dataclass(frozen=True, slots=True)
class Few:
    """Which products are ours: of so few lines, by these tiles."""

    num_lines: int
    tile_of: Callable[[int, int], LinearTile]  # of lines and their width
    ahead_tile_of: AheadTiles = _no_tile  # on a Hopper, instead of the other; of so few lines as it says itself

    def multiply(
        self, tensors: Launching, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, *, has_gelu: bool
    ) -> torch.Tensor | None:
        """In parts to be summed where the tile says so. None: a product for cuBLAS."""
        num_lines, width_in = x.shape
        if x.dtype.itemsize != 2:
            return None
        ahead = self.ahead_tile_of(num_lines, width_in, len(weight))
        if ahead is not None and ahead.fits(weight) and tensors.is_pdl and is_hopper(x.device):
            return launch_ahead(x, weight, bias, tile=ahead, has_gelu=has_gelu)
        tile = self.tile_of(num_lines, width_in)
        if num_lines > self.num_lines or not tile.fits(weight):
            return None
        tile = tile.within(shared_bytes(x.device), x.dtype)
        return launch_linear(x, weight, bias, tile=tile, has_gelu=has_gelu, is_pdl=tensors.is_pdl)


FEW: Final = Few(_FEW_LINES, _few_tile, _ahead_tile)
FEW_OF_UPDATE: Final = Few(_FEW_UPDATE_LINES, _update_tile, _ahead_update_tile)


def linear(
    tensors: Launching, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, *, few: Few = FEW
) -> torch.Tensor:
    product = few.multiply(tensors, x, weight, bias, has_gelu=False)
    return product if product is not None else F.linear(x, weight, bias)


def widen(
    tensors: Launching, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, *, few: Few = FEW
) -> torch.Tensor:
    product = few.multiply(tensors, x, weight, bias, has_gelu=True)
    if product is not None:
        return product
    # cuBLASLt's epilogue is the tanh form; a CPU's `use_gelu` would be the exact one.
    return torch._addmm_activation(bias, x, weight.t(), use_gelu=True)


update: Final = partial(linear, few=FEW_OF_UPDATE)


def is_hopper(device: torch.device) -> bool:
    """Not its successors, whose tensor cores have other instructions."""
    return device.type == "cuda" and torch.cuda.get_device_capability(device)[0] == 9


def shared_bytes(device: torch.device) -> int:
    """Bytes that a program may have there; where kernels are interpreted nothing limits them."""
    return _shared_bytes(device) if device.type == "cuda" else sys.maxsize


@cache
def _shared_bytes(device: torch.device) -> int:
    return int(driver.active.utils.get_device_properties(device.index)["max_shared_mem"])
