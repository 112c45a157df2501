"""One Euler step by kernels of our own: what a CUDA graph holds. Importing it imports Triton.

Nothing here depends on the host's numbers but the shape: the step, lengths and places are read on the device, so one
graph serves all steps of all batches of its bucket.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Final

import torch

from voicegate.engine.families.stepaudio2.flow.chunk_buffers import ChunkBuffers
from voicegate.engine.families.stepaudio2.flow.cuda import fused_attention, fused_lines
from voicegate.engine.families.stepaudio2.flow.cuda.tensors import StepTensors, step_tensors
from voicegate.engine.families.stepaudio2.flow.memory import FlowMemory
from voicegate.engine.families.stepaudio2.flow.model import StepAudio2Flow
from voicegate.engine.families.stepaudio2.flow.weights import MODULATIONS
from voicegate.engine.flow.cuda import fused_linear
from voicegate.engine.flow.cuda.fused_linear import Few, LinearTile

# Up to this many lines products are Triton's: one row of the longest chunk, both halves; of updates, two. Tiles too
# are the fastest that were tried on an H200.
_FEW_LINES: Final = 216
_FEW_UPDATE_LINES: Final = 432

# Rows of the modulation table within a layer's; a shift follows its scale, a gate its shift.
_ATTN, _MLP, _CONV = 0, 3, 6
_GATE = 2

# x [lines, in], weight [out, in], bias [out] -> [lines, out].
Product = Callable[[StepTensors, torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]


@dataclass(frozen=True, slots=True)
class Products:
    linear: Product
    widen: Product  # linear, then GELU's tanh form
    update: Product  # linear, perhaps in parts to be summed, one behind the other: what norms take


# Up to this many, one tile of them, outputs are parted in narrower tiles. At two such tiles that was slower in a step,
# though each product by itself was faster.
_ONE_TILE_LINES: Final = 64


def _few_tile(num_lines: int, width_in: int) -> LinearTile:
    outs = 32 if num_lines <= _ONE_TILE_LINES else 64
    return LinearTile(lines=64, outs=outs, depth=64, num_stages=6, num_warps=4)


def _update_tile(num_lines: int, width_in: int) -> LinearTile:
    """512 outputs are few programs, so inputs are in four parts."""
    lines = 64 if num_lines <= _FEW_LINES else 128
    outs = 32 if num_lines <= _ONE_TILE_LINES else 64
    depth = 128 if _ONE_TILE_LINES < num_lines <= 2 * _ONE_TILE_LINES and width_in > 1024 else 64
    return LinearTile(lines=lines, outs=outs, depth=depth, num_stages=4, num_warps=4, num_parts=4)


PRODUCTS: Final = Products(
    linear=partial(fused_linear.linear, few=Few(_FEW_LINES, _few_tile)),
    widen=partial(fused_linear.widen, few=Few(_FEW_LINES, _few_tile)),
    update=partial(fused_linear.linear, few=Few(_FEW_UPDATE_LINES, _update_tile)),
)


class FusedStep:
    """Implements EulerStep: 11 launches a layer, 12 where contexts are split, and four."""

    def __init__(self, model: StepAudio2Flow, memory: FlowMemory, *, products: Products = PRODUCTS) -> None:
        """Other products are for tests: what is cuBLASLt's GELU on a GPU is another function on a CPU."""
        self._tensors = step_tensors(model, memory)
        self._products = products

    def advance(self, buffers: ChunkBuffers) -> None:
        tensors = self._tensors
        hidden = fused_lines.project_input(tensors, buffers)
        normed = fused_lines.norm(tensors, buffers, hidden, update=None, gate_row=0, scale_row=_ATTN)
        for layer in range(len(tensors.layers)):
            normed = self._layer(buffers, hidden, normed, layer)
        fused_lines.euler(tensors, buffers, normed)
        buffers.step.add_(1)

    def _layer(self, buffers: ChunkBuffers, hidden: torch.Tensor, normed: torch.Tensor, layer: int) -> torch.Tensor:
        """-> the next layer's first norm; behind the last layer's rows of the table are those of the output's."""
        tensors, products, weights = self._tensors, self._products, self._tensors.layers[layer]
        row = layer * MODULATIONS
        attended = fused_attention.attend(tensors, buffers, products.linear(tensors, normed, *weights.qkv), layer)
        update = products.update(tensors, attended, *weights.attn_out)
        taps = fused_lines.norm_taps(
            tensors, buffers, hidden, layer, update=update, gate_row=row + _ATTN + _GATE, scale_row=row + _CONV
        )
        convolved = products.update(tensors, taps, *weights.conv_in)
        taps = fused_lines.mish_taps(tensors, buffers, convolved, layer)
        update = products.update(tensors, taps, *weights.conv_out)
        normed = fused_lines.norm(
            tensors, buffers, hidden, update=update, gate_row=row + _CONV + _GATE, scale_row=row + _MLP
        )
        update = products.update(tensors, products.widen(tensors, normed, *weights.mlp_in), *weights.mlp_out)
        next_row = row + MODULATIONS + _ATTN
        return fused_lines.norm(
            tensors, buffers, hidden, update=update, gate_row=row + _MLP + _GATE, scale_row=next_row
        )
