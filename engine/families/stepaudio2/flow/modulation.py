"""adaLN modulations of the estimator at its few fixed times, computed once from weights that are then not kept.

They depend on time alone, and hold a third of the released estimator's weights.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F  # noqa: N812 - torch's own name for it

from voicegate.engine.families.stepaudio2.flow.weights import MODULATIONS, TIME_CHANNELS


@dataclass(frozen=True, slots=True)
class BlockModulation:
    """All [D]. Scales have their 1 added: they are then weight and bias of a layer norm."""

    # In the order of upstream's chunks.
    attn_shift: torch.Tensor
    attn_scale: torch.Tensor
    attn_gate: torch.Tensor
    mlp_shift: torch.Tensor
    mlp_scale: torch.Tensor
    mlp_gate: torch.Tensor
    conv_shift: torch.Tensor
    conv_scale: torch.Tensor
    conv_gate: torch.Tensor


@dataclass(frozen=True, slots=True)
class Modulation:
    """Modulation of one time."""

    blocks: tuple[BlockModulation, ...]
    out_shift: torch.Tensor
    out_scale: torch.Tensor


def time_embedding(state: Mapping[str, torch.Tensor], times: torch.Tensor) -> torch.Tensor:
    """times [T] float32 -> [T, D]; `state` has the estimator's names."""
    half = TIME_CHANNELS // 2
    rates = torch.exp(torch.arange(half, device=times.device).float() * (-math.log(10_000) / half))
    angles = 1000 * times[:, None] * rates
    hidden = torch.cat((angles.cos(), angles.sin()), dim=1)
    hidden = F.silu(F.linear(hidden, state["t_embedder.mlp.0.weight"], state["t_embedder.mlp.0.bias"]))
    return F.linear(hidden, state["t_embedder.mlp.2.weight"], state["t_embedder.mlp.2.bias"])


def modulation_table(state: Mapping[str, torch.Tensor], times: Sequence[float], *, depth: int) -> torch.Tensor:
    """[times, MODULATIONS * depth + 2, D] float32: for each block in BlockModulation's order, then shift and scale."""
    device = state["in_proj.weight"].device
    embedding = F.silu(time_embedding(state, torch.tensor(times, dtype=torch.float32, device=device)))

    def rows(name: str, count: int) -> torch.Tensor:
        chunks = F.linear(embedding, state[f"{name}.weight"], state[f"{name}.bias"]).view(len(times), count, -1)
        chunks[:, 1::3] += 1  # the scales
        return chunks

    blocks = [rows(f"blocks.{layer}.adaLN_modulation.1", MODULATIONS) for layer in range(depth)]
    return torch.cat((*blocks, rows("final_layer.adaLN_modulation.1", 2)), dim=1)


def modulation_of(rows: torch.Tensor) -> Modulation:
    """One time's rows of the table -> what they are. Views."""
    *blocks, out_shift, out_scale = rows.unbind(0)
    return Modulation(
        blocks=tuple(
            BlockModulation(*blocks[first : first + MODULATIONS]) for first in range(0, len(blocks), MODULATIONS)
        ),
        out_shift=out_shift,
        out_scale=out_scale,
    )
