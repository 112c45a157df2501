"""The velocity network of Step-Audio2's flow (upstream's DiT), inference only; both CFG halves are one batch.

It knows nothing of streams: a `FrameContext` hands it what lies before the frames at hand and keeps what later ones
will need. Shapes: C = CFG halves, B rows, n frames, D = dim, H heads of d channels.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

import torch
import torch.nn.functional as F  # noqa: N812 - torch's own name for it

from voicegate.engine import units
from voicegate.engine.families.stepaudio2.config import ConvDitConfig
from voicegate.engine.families.stepaudio2.flow.modulation import BlockModulation, Modulation, modulation_table
from voicegate.engine.families.stepaudio2.flow.weights import CONV_TAPS

NORM_EPS: Final = 1e-6  # of the modulated norms
INNER_NORM_EPS: Final = 1e-5  # of queries, keys and the convolution
CONV_HISTORY: Final = CONV_TAPS - 1
NUM_CONVS: Final = 2  # of a block

Linear = tuple[torch.Tensor, torch.Tensor]  # weight, bias


class FrameContext(Protocol):
    """Surroundings of the frames of one velocity call."""

    def with_history(self, hidden: torch.Tensor, *, layer: int, conv: int) -> torch.Tensor:
        """[C, B, n, D], the input of a causal convolution -> [C, B, 2 + n, D] with the 2 frames before it."""

    def attend(self, query: torch.Tensor, keys_values: torch.Tensor, *, layer: int) -> torch.Tensor:
        """[C, B, n, H, d] and [C, B, n, 2, H, d] of the new frames -> [C, B, n, H * d]; queries come unscaled."""


@dataclass(frozen=True, slots=True)
class EstimatorLayer:
    qkv: Linear  # [3 * H * d, D]
    query_norm: Linear  # [d]
    key_norm: Linear
    attn_out: Linear
    conv_in: Linear  # [D, taps * D]
    conv_norm: Linear
    conv_out: Linear
    mlp_in: Linear
    mlp_out: Linear


class Estimator:
    def __init__(
        self, config: ConvDitConfig, state: Mapping[str, torch.Tensor], times: Sequence[float], *, dtype: torch.dtype
    ) -> None:
        """`state` has upstream's names below `decoder.estimator.`; `times` are all that will ever be asked for."""
        self.config = config
        self.dtype = dtype
        self.modulation_table = modulation_table(state, times, depth=config.depth)  # float32; a time's rows: [_, D]
        self.layers = tuple(_load_layer(state, f"blocks.{layer}.", dtype) for layer in range(config.depth))
        # Columns are x, mu, speaker, cond; only x changes from step to step, and the rest is used once a chunk.
        proj, mels = state["in_proj.weight"], units.NUM_MELS
        self.x_weight = proj[:, :mels].to(dtype).contiguous()
        self._mu_weight, self._speaker_weight, self._cond_weight = (
            proj[:, part * mels : (part + 1) * mels].contiguous() for part in (1, 2, 3)
        )
        self._input_bias = state["in_proj.bias"]
        self.out = _linear(state, "final_layer.linear", dtype)

    def speaker_bias(self, speaker: torch.Tensor) -> torch.Tensor:
        """[..., 80] -> [..., D]: what the conditioned half adds to every frame, bias of the projection included."""
        return F.linear(speaker, self._speaker_weight, self._input_bias)

    def conditioned_base(self, mu: torch.Tensor, speaker_bias: torch.Tensor, cond: torch.Tensor | None) -> torch.Tensor:
        """mu, cond [B, n, 80], speaker_bias [B, D] -> [B, n, D]: the input projection of all but x. No cond: zeros."""
        base = F.linear(mu, self._mu_weight) + speaker_bias[:, None]
        return base if cond is None else base + F.linear(cond, self._cond_weight)

    def guided_base(self, conditioned: torch.Tensor) -> torch.Tensor:
        """[B, n, D] -> [2, B, n, D]: the unconditioned half has zeros for mu, speaker and cond."""
        return torch.stack((conditioned, self._input_bias.expand_as(conditioned)))

    def velocity(
        self, x: torch.Tensor, base: torch.Tensor, modulation: Modulation, context: FrameContext
    ) -> torch.Tensor:
        """x [B, n, 80], base [C, B, n, D] -> [C, B, n, 80]. The halves share x, so it is projected once."""
        hidden = base.to(self.dtype) + F.linear(x.to(self.dtype), self.x_weight)
        for layer, (weights, block) in enumerate(zip(self.layers, modulation.blocks, strict=True)):
            attended = self._attention(hidden, weights, block, layer, context)
            hidden = torch.addcmul(hidden, attended, block.attn_gate)
            convolved = self._convolution(hidden, weights, block, layer, context)
            hidden = torch.addcmul(hidden, convolved, block.conv_gate)
            wide = F.gelu(
                F.linear(_norm(hidden, block.mlp_scale, block.mlp_shift), *weights.mlp_in), approximate="tanh"
            )
            hidden = torch.addcmul(hidden, F.linear(wide, *weights.mlp_out), block.mlp_gate)
        return F.linear(_norm(hidden, modulation.out_scale, modulation.out_shift), *self.out)

    def _attention(
        self, hidden: torch.Tensor, weights: EstimatorLayer, block: BlockModulation, layer: int, context: FrameContext
    ) -> torch.Tensor:
        qkv = F.linear(_norm(hidden, block.attn_scale, block.attn_shift), *weights.qkv)
        query, key, value = qkv.view(*hidden.shape[:-1], 3, self.config.num_heads, self.config.head_dim).unbind(-3)
        width = (self.config.head_dim,)
        query = F.layer_norm(query, width, *weights.query_norm, INNER_NORM_EPS)
        key = F.layer_norm(key, width, *weights.key_norm, INNER_NORM_EPS)
        attended = context.attend(query, torch.stack((key, value), dim=-3), layer=layer)
        return F.linear(attended, *weights.attn_out)

    def _convolution(
        self, hidden: torch.Tensor, weights: EstimatorLayer, block: BlockModulation, layer: int, context: FrameContext
    ) -> torch.Tensor:
        first = context.with_history(_norm(hidden, block.conv_scale, block.conv_shift), layer=layer, conv=0)
        between = F.layer_norm(
            convolve(first, *weights.conv_in), (self.config.dim,), *weights.conv_norm, INNER_NORM_EPS
        )
        second = context.with_history(F.mish(between), layer=layer, conv=1)
        return convolve(second, *weights.conv_out)


def convolve(frames: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    """[..., n + taps - 1, D] -> [..., n, out], no padding; weight [out, taps * D], as `flat_taps` makes it.

    As one product: on CUDA conv1d would be cuDNN's, which rounds float32 to TF32 by default.
    """
    num_taps = weight.shape[1] // frames.shape[-1]
    num_out = frames.shape[-2] - num_taps + 1
    taps = torch.cat([frames.narrow(-2, tap, num_out) for tap in range(num_taps)], dim=-1)
    return F.linear(taps, weight, bias)


def flat_taps(weight: torch.Tensor) -> torch.Tensor:
    """A conv1d's [out, in, taps] -> [out, taps * in]."""
    return weight.permute(0, 2, 1).flatten(1).contiguous()


def _norm(hidden: torch.Tensor, scale: torch.Tensor, shift: torch.Tensor) -> torch.Tensor:
    return F.layer_norm(hidden, scale.shape, scale, shift, NORM_EPS)


def _load_layer(state: Mapping[str, torch.Tensor], prefix: str, dtype: torch.dtype) -> EstimatorLayer:
    def fused(kind: str) -> torch.Tensor:
        return torch.cat([state[f"{prefix}attn.{name}.{kind}"] for name in ("to_q", "to_k", "to_v")]).to(dtype)

    def conv(index: int) -> Linear:
        weight, bias = _linear(state, f"{prefix}conv.block.{index}", dtype)
        return flat_taps(weight), bias

    return EstimatorLayer(
        qkv=(fused("weight"), fused("bias")),
        query_norm=_linear(state, f"{prefix}attn.q_norm", dtype),
        key_norm=_linear(state, f"{prefix}attn.k_norm", dtype),
        attn_out=_linear(state, f"{prefix}attn.proj", dtype),
        conv_in=conv(1),
        conv_norm=_linear(state, f"{prefix}conv.block.3", dtype),
        conv_out=conv(6),
        mlp_in=_linear(state, f"{prefix}mlp.fc1", dtype),
        mlp_out=_linear(state, f"{prefix}mlp.fc2", dtype),
    )


def _linear(state: Mapping[str, torch.Tensor], name: str, dtype: torch.dtype) -> Linear:
    return state[f"{name}.weight"].to(dtype), state[f"{name}.bias"].to(dtype)
