"""adaLN modulations of the estimator at its few fixed times, computed once from weights that are then not kept.

They depend on time alone, and hold 43 % of the released estimator's weights.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F  # noqa: N812 - torch's own name for it

from engine.token2wav.flow.weights import TIME_CHANNELS


@dataclass(frozen=True, slots=True)
class LayerModulation:
    """All [dim]. Scales have their 1 added: they are then weight and bias of a layer norm."""

    attn_scale: torch.Tensor
    attn_shift: torch.Tensor
    attn_gate: torch.Tensor
    ff_scale: torch.Tensor
    ff_shift: torch.Tensor
    ff_gate: torch.Tensor


@dataclass(frozen=True, slots=True)
class StepModulation:
    layers: tuple[LayerModulation, ...]
    out_scale: torch.Tensor
    out_shift: torch.Tensor


def time_embedding(state: Mapping[str, torch.Tensor], times: torch.Tensor) -> torch.Tensor:
    """times [T] -> [T, dim]; `state` has the estimator's names."""
    half = TIME_CHANNELS // 2
    rates = torch.exp(torch.arange(half, device=times.device).float() * -(math.log(10_000) / (half - 1)))
    angles = 1000 * times[:, None] * rates
    hidden = torch.cat((angles.sin(), angles.cos()), dim=1)
    hidden = F.silu(F.linear(hidden, state["time_embed.time_mlp.0.weight"], state["time_embed.time_mlp.0.bias"]))
    return F.linear(hidden, state["time_embed.time_mlp.2.weight"], state["time_embed.time_mlp.2.bias"])


def tabulate_modulations(
    state: Mapping[str, torch.Tensor], times: Sequence[float], *, depth: int, dtype: torch.dtype
) -> tuple[StepModulation, ...]:
    """One entry per time."""
    device = state["proj_out.weight"].device
    embedding = F.silu(time_embedding(state, torch.tensor(times, dtype=torch.float32, device=device)))

    def chunks(name: str, count: int) -> list[tuple[torch.Tensor, ...]]:
        table = F.linear(embedding, state[f"{name}.weight"], state[f"{name}.bias"])
        return [row.chunk(count) for row in table]

    layers = [chunks(f"transformer_blocks.{layer}.attn_norm.linear", 6) for layer in range(depth)]
    # Order of chunks: shift before scale in the blocks, scale before shift at the end (as upstream has it).
    return tuple(
        StepModulation(
            layers=tuple(_layer_modulation(*layer[step], dtype=dtype) for layer in layers),
            out_scale=(1 + scale).to(dtype),
            out_shift=shift.to(dtype),
        )
        for step, (scale, shift) in enumerate(chunks("norm_out.linear", 2))
    )


def _layer_modulation(*chunks: torch.Tensor, dtype: torch.dtype) -> LayerModulation:
    attn_shift, attn_scale, attn_gate, ff_shift, ff_scale, ff_gate = chunks
    return LayerModulation(
        attn_scale=(1 + attn_scale).to(dtype),
        attn_shift=attn_shift.to(dtype),
        attn_gate=attn_gate.to(dtype),
        ff_scale=(1 + ff_scale).to(dtype),
        ff_shift=ff_shift.to(dtype),
        ff_gate=ff_gate.to(dtype),
    )
