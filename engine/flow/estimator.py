"""The velocity network of the flow (upstream's DiT), inference only; both CFG halves are one batch.

It knows nothing of streams: a `FrameContext` hands it what lies before the frames at hand and keeps what the next
ones will need. Shapes: C = 2 CFG halves, B rows, n frames, D = dim, H heads of d channels.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

import torch
import torch.nn.functional as F  # noqa: N812 - torch's own name for it

from voicegate.engine import units
from voicegate.engine.flow.modulation import modulation_table, step_modulations
from voicegate.engine.flow.weights import CONV_GROUPS, CONV_TAPS, INV_FREQ
from voicegate.engine.model.config import EstimatorConfig

NORM_EPS: Final = 1e-6
# Beyond this mish(x) is x in float32, and exp(x)**2 would overflow.
MISH_LIMIT: Final = 20.0
CONV_HISTORY: Final = CONV_TAPS - 1


class FrameContext(Protocol):
    """The surroundings of one velocity call's frames. Two implementations: one block of streams, a whole sequence."""

    def with_history(self, hidden: torch.Tensor, *, step: int, conv: int) -> torch.Tensor:
        """[C, B, n, D], the input of a causal convolution -> [C, B, 30 + n, D] with the 30 frames before it."""

    def attend(self, qkv: torch.Tensor, *, step: int, layer: int) -> torch.Tensor:
        """[C, B, n, 3, H, d] -> [C, B, n, H * d]; queries come scaled, and rotated like the keys."""


@dataclass(frozen=True, slots=True)
class EstimatorLayer:
    qkv_weight: torch.Tensor  # [3 * H * d, D]
    qkv_bias: torch.Tensor
    attn_out_weight: torch.Tensor  # [D, H * d]
    attn_out_bias: torch.Tensor
    ff_in_weight: torch.Tensor  # [ff_mult * D, D]
    ff_in_bias: torch.Tensor
    ff_out_weight: torch.Tensor
    ff_out_bias: torch.Tensor


class Estimator:
    def __init__(
        self, config: EstimatorConfig, state: Mapping[str, torch.Tensor], times: Sequence[float], *, dtype: torch.dtype
    ) -> None:
        """`state` has upstream's names below `decoder.estimator.`; `times` are all that will ever be asked for."""
        self.config = config
        self.dtype = dtype
        self.modulation_table = modulation_table(state, times, depth=config.depth)
        self._modulations = step_modulations(self.modulation_table, depth=config.depth, dtype=dtype)
        self.layers = tuple(_load_layer(config, state, layer, dtype) for layer in range(config.depth))
        # Columns are x, cond, mu, speaker; only x changes from step to step.
        proj = state["input_embed.proj.weight"]
        x_part, cond_mu_part = units.NUM_MELS, 2 * units.NUM_MELS
        self.x_weight = proj[:, :x_part].to(dtype).contiguous()
        # Used once per block: float32 costs nothing.
        self._cond_mu_weight = proj[:, x_part : x_part + cond_mu_part].contiguous()
        self._speaker_weight = proj[:, x_part + cond_mu_part :].contiguous()
        self.input_bias = state["input_embed.proj.bias"]
        self.convs = tuple(_load_conv(state, f"input_embed.conv_pos_embed.conv{i}.0", dtype) for i in (1, 2))
        self.out_weight = state["proj_out.weight"].to(dtype)
        self.out_bias = state["proj_out.bias"]
        self._inv_freq = state.get(INV_FREQ, inverse_frequencies(config.head_dim)).to(proj.device)

    def rotations(self, num_frames: int) -> torch.Tensor:
        """[num_frames, d / 2] complex64: the rotary factors of absolute frames 0 .. num_frames - 1."""
        positions = torch.arange(num_frames, device=self._inv_freq.device).float()
        angles = positions[:, None] * self._inv_freq
        return torch.complex(angles.cos(), angles.sin())

    def speaker_bias(self, speaker: torch.Tensor) -> torch.Tensor:
        """[80] -> [D]: what the conditioned half adds to every frame, bias of the projection included."""
        return F.linear(speaker, self._speaker_weight, self.input_bias)

    def input_base(self, cond: torch.Tensor, mu: torch.Tensor, speaker_bias: torch.Tensor) -> torch.Tensor:
        """cond, mu [B, n, 80], speaker_bias [B, D] -> [C, B, n, D]: the input projection of all but x.

        The unconditioned half has zeros for cond, mu and speaker, so only the bias is left of it.
        """
        conditioned = self.conditioned_base(cond, mu, speaker_bias)
        return torch.stack((conditioned, self.input_bias.expand_as(conditioned)))

    def conditioned_base(self, cond: torch.Tensor, mu: torch.Tensor, speaker_bias: torch.Tensor) -> torch.Tensor:
        """The conditioned half of input_base: [B, n, D] float32."""
        return F.linear(torch.cat((cond, mu), dim=2), self._cond_mu_weight) + speaker_bias[:, None]

    def velocity(
        self, x: torch.Tensor, base: torch.Tensor, rotation: torch.Tensor, *, step: int, context: FrameContext
    ) -> torch.Tensor:
        """x [B, n, 80], base [C, B, n, D], rotation [B, n, d / 2] -> [C, B, n, 80]."""
        hidden = self.embed_input(x, base, step=step, context=context)
        for layer in range(self.config.depth):
            hidden = self.transform(hidden, rotation, step=step, layer=layer, context=context)
        modulation = self._modulations[step]
        return F.linear(
            _norm(hidden, modulation.out_scale, modulation.out_shift), self.out_weight, self.out_bias.to(self.dtype)
        )

    def embed_input(self, x: torch.Tensor, base: torch.Tensor, *, step: int, context: FrameContext) -> torch.Tensor:
        """-> [C, B, n, D]. The two halves share x, so it is projected once."""
        hidden = base.to(self.dtype) + F.linear(x.to(self.dtype), self.x_weight)
        position = hidden
        for conv, (weight, bias) in enumerate(self.convs):
            window = context.with_history(position, step=step, conv=conv)
            position = mish(causal_conv(window, weight, bias))
        return hidden + position

    def transform(
        self, hidden: torch.Tensor, rotation: torch.Tensor, *, step: int, layer: int, context: FrameContext
    ) -> torch.Tensor:
        """One DiT block: [C, B, n, D] -> [C, B, n, D]."""
        weights = self.layers[layer]
        modulation = self._modulations[step].layers[layer]
        attended = self.attention(hidden, rotation, step=step, layer=layer, context=context)
        hidden = torch.addcmul(hidden, attended, modulation.attn_gate)
        wide = F.linear(
            _norm(hidden, modulation.ff_scale, modulation.ff_shift), weights.ff_in_weight, weights.ff_in_bias
        )
        narrow = F.linear(F.gelu(wide, approximate="tanh"), weights.ff_out_weight, weights.ff_out_bias)
        return torch.addcmul(hidden, narrow, modulation.ff_gate)

    def attention(
        self, hidden: torch.Tensor, rotation: torch.Tensor, *, step: int, layer: int, context: FrameContext
    ) -> torch.Tensor:
        """The attention half of a block, before its gate: [C, B, n, D] -> [C, B, n, D]."""
        weights = self.layers[layer]
        modulation = self._modulations[step].layers[layer]
        normed = _norm(hidden, modulation.attn_scale, modulation.attn_shift)
        qkv = F.linear(normed, weights.qkv_weight, weights.qkv_bias)
        qkv = qkv.view(*hidden.shape[:3], 3, self.config.num_heads, self.config.head_dim)
        # Upstream rotates before it splits heads, and only as many channels as one head has: head 0 alone.
        rotate(qkv[..., :2, 0, :], rotation)
        attended = context.attend(qkv, step=step, layer=layer)
        return F.linear(attended, weights.attn_out_weight, weights.attn_out_bias)


def _norm(hidden: torch.Tensor, scale: torch.Tensor, shift: torch.Tensor) -> torch.Tensor:
    return F.layer_norm(hidden, scale.shape, scale, shift, NORM_EPS)


def rotate(pairs: torch.Tensor, rotation: torch.Tensor) -> None:
    """In place: pairs [C, B, n, 2, d], channels (2i, 2i + 1) are one complex number; in float32 whatever the dtype."""
    numbers = torch.view_as_complex(pairs.float().view(*pairs.shape[:-1], -1, 2))
    turned = numbers * rotation[:, :, None]
    pairs.copy_(torch.view_as_real(turned).flatten(-2))


def causal_conv(window: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    """[C, B, 30 + n, D] -> [C, B, n, D].

    As a two-dimensional convolution of height 1 in channels-last, so that frames stay rows: conv1d would reorder
    both its input and its output, which takes half as long as the convolution itself.
    """
    image = window.flatten(0, 1).mT.unsqueeze(2)
    rows = F.conv2d(image, weight, bias, groups=CONV_GROUPS).squeeze(2).mT
    return rows.reshape(*window.shape[:2], *rows.shape[1:])


def mish(x: torch.Tensor) -> torch.Tensor:
    """x * tanh(log(1 + e^x)) without the logarithm: a third of the time of torch's single-threaded kernel."""
    power = x.clamp(max=MISH_LIMIT).exp_()
    ratio = power * (power + 2)
    return (ratio / (ratio + 2)).mul_(x)


def _load_layer(
    config: EstimatorConfig, state: Mapping[str, torch.Tensor], layer: int, dtype: torch.dtype
) -> EstimatorLayer:
    prefix = f"transformer_blocks.{layer}."
    query_scale = config.head_dim**-0.5

    def fused(kind: str) -> torch.Tensor:
        query, key, value = (state[f"{prefix}attn.{name}.{kind}"] for name in ("to_q", "to_k", "to_v"))
        # The softmax scale is folded into the queries; it commutes with the rotation.
        return torch.cat((query * query_scale, key, value)).to(dtype)

    return EstimatorLayer(
        qkv_weight=fused("weight"),
        qkv_bias=fused("bias"),
        attn_out_weight=state[f"{prefix}attn.to_out.0.weight"].to(dtype),
        attn_out_bias=state[f"{prefix}attn.to_out.0.bias"].to(dtype),
        ff_in_weight=state[f"{prefix}ff.ff.0.0.weight"].to(dtype),
        ff_in_bias=state[f"{prefix}ff.ff.0.0.bias"].to(dtype),
        ff_out_weight=state[f"{prefix}ff.ff.2.weight"].to(dtype),
        ff_out_bias=state[f"{prefix}ff.ff.2.bias"].to(dtype),
    )


def _load_conv(state: Mapping[str, torch.Tensor], name: str, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    weight = state[f"{name}.weight"].to(dtype).unsqueeze(2)  # [D, D / groups, 1, taps]
    return weight.contiguous(memory_format=torch.channels_last), state[f"{name}.bias"].to(dtype)


def inverse_frequencies(head_dim: int) -> torch.Tensor:
    """[head_dim / 2]: by how much a place turns each pair of channels. Upstream's flow has them among its weights."""
    return 1.0 / (10_000 ** (torch.arange(0, head_dim, 2).float() / head_dim))
