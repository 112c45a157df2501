"""The kernels of one Euler step, by what they compute. Importing it imports Triton.

C = 2 CFG halves, R rows with L lines in all (buffers.py), D = dim. Shapes are fixed and nothing is read back, so all of
it can be captured.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final, Protocol

import torch

from voicegate.engine.flow.cuda import float8_linear, fused_attention, fused_linear, fused_ops
from voicegate.engine.flow.cuda.buffers import BatchView
from voicegate.engine.flow.cuda.tensors import FlowTensors


class NormOp(Protocol):
    def __call__(
        self,
        tensors: FlowTensors,
        batch: BatchView,
        hidden: torch.Tensor,
        *,
        update: torch.Tensor | None,
        gate_row: int,
        scale_row: int,
        dtype: torch.dtype | None = None,
    ) -> torch.Tensor:
        """hidden += gate * update, if there is one; -> adaLN of hidden [C * L, D]. Rows of the modulation table.

        The update may be in parts to be summed, one tensor [parts * C * L, D]. `dtype` of the result: by default as
        the activations.
        """


class AttendOp(Protocol):
    def __call__(
        self,
        tensors: FlowTensors,
        batch: BatchView,
        qkv: torch.Tensor,
        layer: int,
        *,
        dtype: torch.dtype | None = None,
    ) -> torch.Tensor:
        """qkv [C * L, 3 * H * d] -> [C * L, H * d] of `dtype`; whole blocks' keys and values go to the pool."""


# x [lines, in], weight [out, in], bias [out] -> [lines, out].
LinearOp = Callable[[FlowTensors, torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]


@dataclass(frozen=True, slots=True)
class StepOps:
    # Input projection and both positional convolutions -> hidden [C, L, D] float32; keeps whole blocks' conv tails.
    embed: Callable[[FlowTensors, BatchView, torch.Tensor], None]
    norm: NormOp
    attend: AttendOp
    linear: LinearOp
    widen: LinearOp  # the feed-forward's first half: linear, then GELU's tanh form
    update: LinearOp  # linear, perhaps in parts to be summed: what norm takes
    # normed [C * L, D] -> velocity, guidance, and x one Euler step further, in place.
    euler: Callable[[FlowTensors, BatchView, torch.Tensor], None]


STEP_OPS: Final = StepOps(
    embed=fused_ops.embed,
    norm=fused_ops.norm,
    attend=fused_attention.attend,
    linear=fused_linear.linear,
    widen=fused_linear.widen,
    update=fused_linear.update,
    euler=fused_ops.euler,
)
# For tensors.in_float8.
FLOAT8_STEP_OPS: Final = replace(
    STEP_OPS, linear=float8_linear.linear, widen=float8_linear.widen, update=float8_linear.linear
)
