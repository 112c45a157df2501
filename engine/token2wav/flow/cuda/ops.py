"""The parts of one Euler step that have two implementations, chosen part by part.

The signatures are those of plain_ops, which is also what the kernels are tested against.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol

import torch

from voicegate.engine.token2wav.flow.cuda import plain_ops
from voicegate.engine.token2wav.flow.cuda.config import FlowCudaConfig
from voicegate.engine.token2wav.flow.cuda.lane import BlockBuffers
from voicegate.engine.token2wav.flow.cuda.tensors import FlowTensors


class NormOp(Protocol):
    def __call__(
        self,
        tensors: FlowTensors,
        block: BlockBuffers,
        hidden: torch.Tensor,
        *,
        update: torch.Tensor | None,
        gate_row: int,
        scale_row: int,
        dtype: torch.dtype | None = None,
    ) -> torch.Tensor: ...


class AttendOp(Protocol):
    def __call__(
        self,
        tensors: FlowTensors,
        block: BlockBuffers,
        qkv: torch.Tensor,
        layer: int,
        *,
        dtype: torch.dtype | None = None,
    ) -> torch.Tensor: ...


LinearOp = Callable[[FlowTensors, torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]


@dataclass(frozen=True, slots=True)
class StepOps:
    """See plain_ops for what each does."""

    embed: Callable[[FlowTensors, BlockBuffers, torch.Tensor], None]
    norm: NormOp
    attend: AttendOp
    linear: LinearOp
    widen: LinearOp
    update: LinearOp
    euler: Callable[[FlowTensors, BlockBuffers, torch.Tensor], None]


PLAIN_OPS = StepOps(
    embed=plain_ops.embed,
    norm=plain_ops.norm,
    attend=plain_ops.attend,
    linear=plain_ops.linear,
    widen=plain_ops.widen,
    update=plain_ops.linear,
    euler=plain_ops.euler,
)


def choose_ops(config: FlowCudaConfig) -> StepOps:
    """Raises ImportError if a Triton kernel is asked for and Triton is not installed (extra `gpu`)."""
    if not any(
        (
            config.fuse_input,
            config.fuse_norm,
            config.fuse_attention,
            config.fuse_linear,
            config.fuse_gelu,
            config.fuse_output,
        )
    ):
        return PLAIN_OPS
    from voicegate.engine.token2wav.flow.cuda import fused_attention, fused_linear, fused_ops  # noqa: PLC0415 - Triton is optional

    return StepOps(
        embed=fused_ops.embed if config.fuse_input else plain_ops.embed,
        norm=fused_ops.norm if config.fuse_norm else plain_ops.norm,
        attend=fused_attention.attend if config.fuse_attention else plain_ops.attend,
        linear=fused_linear.linear if config.fuse_linear else plain_ops.linear,
        widen=fused_linear.widen if config.fuse_gelu else plain_ops.widen,
        update=fused_linear.update if config.fuse_linear else plain_ops.linear,
        euler=fused_ops.euler if config.fuse_output else plain_ops.euler,
    )


def choose_float8_ops(config: FlowCudaConfig) -> StepOps:
    """The same for tensors.in_float8. Raises as `choose_ops`."""
    linear, widen = plain_ops.float8_linear, plain_ops.float8_widen
    if config.fuse_linear or config.fuse_gelu:
        from voicegate.engine.token2wav.flow.cuda import float8_linear  # noqa: PLC0415 - Triton is optional

        linear = float8_linear.linear if config.fuse_linear else linear
        widen = float8_linear.widen if config.fuse_gelu else widen
    return replace(choose_ops(config), linear=linear, widen=widen, update=linear)
