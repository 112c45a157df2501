"""adaLN modulations of the estimator at its few fixed times, computed once from weights that are then not kept.

They depend on time alone, and hold 43 % of the released estimator's weights.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import torch
import torch.nn.functional as F  # noqa: N812 - torch's own name for it

from voicegate.engine.flow.weights import TIME_CHANNELS

ROWS_PER_LAYER: Final = 6


@dataclass(frozen=True, slots=True)
class LayerModulation:
    """All [dim]. Scales have their 1 added: they are then weight and bias of a layer norm."""

    # In the order of modulation_table's rows.
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


def modulation_table(state: Mapping[str, torch.Tensor], times: Sequence[float], *, depth: int) -> torch.Tensor:
    """[times, ROWS_PER_LAYER * depth + 2, dim] float32: per layer in LayerModulation's order, then scale and shift."""
    device = state["proj_out.weight"].device
    embedding = F.silu(time_embedding(state, torch.tensor(times, dtype=torch.float32, device=device)))

    def chunks(name: str, count: int) -> tuple[torch.Tensor, ...]:
        return F.linear(embedding, state[f"{name}.weight"], state[f"{name}.bias"]).chunk(count, dim=1)

    rows: list[torch.Tensor] = []
    for layer in range(depth):
        # Order of chunks: shift before scale in the blocks, scale before shift at the end (as upstream has it).
        attn_shift, attn_scale, attn_gate, ff_shift, ff_scale, ff_gate = chunks(
            f"transformer_blocks.{layer}.attn_norm.linear", ROWS_PER_LAYER
        )
        rows += [1 + attn_scale, attn_shift, attn_gate, 1 + ff_scale, ff_shift, ff_gate]
    out_scale, out_shift = chunks("norm_out.linear", 2)
    return torch.stack([*rows, 1 + out_scale, out_shift], dim=1)


def step_modulations(table: torch.Tensor, *, depth: int, dtype: torch.dtype) -> tuple[StepModulation, ...]:
    """modulation_table, one entry per time."""
    return tuple(
        StepModulation(
            layers=tuple(
                LayerModulation(*rows[ROWS_PER_LAYER * layer : ROWS_PER_LAYER * (layer + 1)]) for layer in range(depth)
            ),
            out_scale=rows[-2],
            out_shift=rows[-1],
        )
        for rows in table.to(dtype)
    )
