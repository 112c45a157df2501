"""Speech-token embeddings -> what mu is projected from: Step-Audio2's look-ahead conformer, which doubles the rate.

A chunk of each of several streams at a time, right-padded: a row's first `num_tokens` are its own. It knows nothing of
streams: an `EncoderContext` has what lies before. Shapes: B rows, m tokens, D = dim, H heads of d channels.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Protocol

import torch
import torch.nn.functional as F  # noqa: N812 - torch's own name for it

from voicegate.engine import units
from voicegate.engine.families.stepaudio2.config import ConformerConfig
from voicegate.engine.families.stepaudio2.flow.estimator import Linear, convolve, flat_taps
from voicegate.engine.families.stepaudio2.flow.weights import ENCODER_TAPS, UP_TAPS

EMBED_EPS: Final = 1e-5  # of the embeddings' norms and the last one
LAYER_EPS: Final = 1e-12
# Frames of prompt and speech together that upstream's table of positions has.
MAX_FRAMES: Final = 5_000
# State of the convolutions that a stream carries: conv1's last outputs, and the up-convolution's last inputs.
CONV_HISTORY: Final = ENCODER_TAPS - 1
UP_HISTORY: Final = UP_TAPS - 1


@dataclass(frozen=True, slots=True)
class KnownRows:
    """All rows of one layer up to the newest, in order, right-padded."""

    keys_values: torch.Tensor  # [B, L, 2, H, d]
    is_known: torch.Tensor  # [B, L]
    first_new: torch.Tensor  # [B]: the position of the first new row


class EncoderContext(Protocol):
    def extend(self, new: torch.Tensor, *, layer: int, is_up: bool) -> KnownRows:
        """Keep keys and values [B, n, 2, H, d] of the new rows; -> all up to them."""

    def with_history(self, rows: torch.Tensor, *, is_up: bool) -> torch.Tensor:
        """Put before a causal convolution's input [B, n, D] what it has of earlier chunks; keep what the next needs."""


@dataclass(frozen=True, slots=True)
class EncoderLayer:
    attn_norm: Linear
    qkv: Linear  # [3 * D, D]
    content_bias: torch.Tensor  # [H, d]: u
    position_bias: torch.Tensor  # v
    position_weight: torch.Tensor  # [D, D]
    attn_out: Linear
    ff_norm: Linear
    ff_in: Linear
    ff_out: Linear


class Conformer:
    def __init__(self, config: ConformerConfig, state: Mapping[str, torch.Tensor], *, dtype: torch.dtype) -> None:
        """`state` has upstream's names below `encoder.`."""
        self.config = config
        self.dtype = dtype
        self._embed, self._up_embed = (_load_embedding(state, name, dtype) for name in ("embed", "up_embed"))
        self._lookahead = _conv(state, "pre_lookahead_layer.conv1", dtype)
        self._mix = _conv(state, "pre_lookahead_layer.conv2", dtype)
        self._up = _conv(state, "up_layer.conv", dtype)
        self._layers = tuple(_load_layer(state, f"encoders.{i}.", dtype) for i in range(config.num_layers))
        self._up_layers = tuple(_load_layer(state, f"up_encoders.{i}.", dtype) for i in range(config.num_up_layers))
        self._after_norm = _linear(state, "after_norm", dtype)
        # By distance, the row of distance 0 in the middle.
        self._positions = relative_positions(MAX_FRAMES, config.dim).to(self._after_norm[0].device, dtype)

    def __call__(self, tokens: torch.Tensor, exists: torch.Tensor, context: EncoderContext) -> torch.Tensor:
        """tokens [B, m + lookahead, D] as the embedding table has them, exists [B, m + lookahead] -> [B, 2m, D].

        `exists` is false for what lies behind a row's last token: zeros, but behind the first linear layer.
        """
        embedded = _embedded(tokens.to(self.dtype), self._embed) * exists[..., None]
        ahead = F.leaky_relu(convolve(embedded, *self._lookahead), negative_slope=0.01)
        mixed = convolve(context.with_history(ahead, is_up=False), *self._mix)
        hidden = mixed + embedded[:, : mixed.shape[1]]
        for layer, weights in enumerate(self._layers):
            hidden = self._transform(hidden, weights, context, layer=layer, is_up=False)
        repeated = hidden.repeat_interleave(units.FRAMES_PER_TOKEN, dim=1)
        frames = convolve(context.with_history(repeated, is_up=True), *self._up)
        hidden = _embedded(frames, self._up_embed)
        for layer, weights in enumerate(self._up_layers):
            hidden = self._transform(hidden, weights, context, layer=layer, is_up=True)
        return _norm(hidden, self._after_norm, EMBED_EPS)

    def _transform(
        self, hidden: torch.Tensor, weights: EncoderLayer, context: EncoderContext, *, layer: int, is_up: bool
    ) -> torch.Tensor:
        qkv = F.linear(_norm(hidden, weights.attn_norm, LAYER_EPS), *weights.qkv)
        qkv = qkv.view(*hidden.shape[:-1], 3, self.config.num_heads, self.config.head_dim)
        known = context.extend(qkv[:, :, 1:], layer=layer, is_up=is_up)
        hidden = hidden + F.linear(self._attend(qkv[:, :, 0], known, weights), *weights.attn_out)
        wide = F.silu(F.linear(_norm(hidden, weights.ff_norm, LAYER_EPS), *weights.ff_in))
        return hidden + F.linear(wide, *weights.ff_out)

    def _attend(self, query: torch.Tensor, known: KnownRows, weights: EncoderLayer) -> torch.Tensor:
        """Transformer-XL's relative attention (arXiv:1901.02860) by absolute positions: [B, n, H, d] -> [B, n, D]."""
        keys, values = known.keys_values.unbind(2)  # [B, L, H, d]
        num_new, num_known = query.shape[1], keys.shape[1]
        content = (query + weights.content_bias).transpose(1, 2) @ keys.permute(0, 2, 3, 1)  # [B, H, n, L]
        # By distance, from -(n - 1) to L - 1: what lies outside belongs to padding.
        middle = MAX_FRAMES - 1
        positions = self._positions[middle - num_new + 1 : middle + num_known]
        distances = F.linear(positions, weights.position_weight).view(-1, *query.shape[2:])  # [R, H, d]
        by_distance = (query + weights.position_bias).transpose(1, 2) @ distances.permute(1, 2, 0)  # [B, H, n, R]
        rows = torch.arange(num_new, device=query.device)
        columns = torch.arange(num_known, device=query.device)
        index = known.first_new[:, None, None] + rows[:, None] - columns + (num_new - 1)  # [B, n, L]
        index = index.clamp(min=0, max=len(positions) - 1)
        relative = by_distance.gather(3, index[:, None].expand(-1, query.shape[2], -1, -1))
        scores = (content + relative) * query.shape[3] ** -0.5
        scores = scores.masked_fill(~known.is_known[:, None, None], float("-inf"))
        attended: torch.Tensor = scores.softmax(dim=-1) @ values.transpose(1, 2)
        return attended.transpose(1, 2).flatten(2)


def relative_positions(max_distance: int, dim: int) -> torch.Tensor:
    """[2 * max_distance - 1, D] float32: the encoding of distances -(max - 1) .. max - 1."""
    distance = torch.arange(1 - max_distance, max_distance, dtype=torch.float32)
    rates = torch.exp(torch.arange(0, dim, 2, dtype=torch.float32) * -(math.log(10_000) / dim))
    angles = distance[:, None] * rates
    return torch.stack((angles.sin(), angles.cos()), dim=2).flatten(1)


def _embedded(rows: torch.Tensor, weights: tuple[Linear, Linear]) -> torch.Tensor:
    linear, norm = weights
    return _norm(F.linear(rows, *linear), norm, EMBED_EPS) * math.sqrt(rows.shape[-1])


def _norm(hidden: torch.Tensor, weights: Linear, eps: float) -> torch.Tensor:
    return F.layer_norm(hidden, weights[0].shape, *weights, eps)


def _load_embedding(state: Mapping[str, torch.Tensor], name: str, dtype: torch.dtype) -> tuple[Linear, Linear]:
    return _linear(state, f"{name}.out.0", dtype), _linear(state, f"{name}.out.1", dtype)


def _load_layer(state: Mapping[str, torch.Tensor], prefix: str, dtype: torch.dtype) -> EncoderLayer:
    attn = f"{prefix}self_attn."

    def fused(kind: str) -> torch.Tensor:
        return torch.cat([state[f"{attn}linear_{name}.{kind}"] for name in ("q", "k", "v")]).to(dtype)

    return EncoderLayer(
        attn_norm=_linear(state, f"{prefix}norm_mha", dtype),
        qkv=(fused("weight"), fused("bias")),
        content_bias=state[f"{attn}pos_bias_u"].to(dtype),
        position_bias=state[f"{attn}pos_bias_v"].to(dtype),
        position_weight=state[f"{attn}linear_pos.weight"].to(dtype),
        attn_out=_linear(state, f"{attn}linear_out", dtype),
        ff_norm=_linear(state, f"{prefix}norm_ff", dtype),
        ff_in=_linear(state, f"{prefix}feed_forward.w_1", dtype),
        ff_out=_linear(state, f"{prefix}feed_forward.w_2", dtype),
    )


def _conv(state: Mapping[str, torch.Tensor], name: str, dtype: torch.dtype) -> Linear:
    weight, bias = _linear(state, name, dtype)
    return flat_taps(weight), bias


def _linear(state: Mapping[str, torch.Tensor], name: str, dtype: torch.dtype) -> Linear:
    return state[f"{name}.weight"].to(dtype), state[f"{name}.bias"].to(dtype)
