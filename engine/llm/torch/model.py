"""The speech LLM's network, inference only: a Qwen2 decoder body, CosyVoice's speech table and its speech head.

Knows tensors and the cache's attention; knows nothing of sequences, sampling or text. Parameter names are upstream's.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch
import torch.nn.functional as F  # noqa: N812 - torch's own habit

from voicegate.engine.llm.torch.kv_cache import RaggedAttention
from voicegate.engine.llm.torch.linear import Linear
from voicegate.engine.model.config import HeadBias, LlmConfig
from voicegate.engine.model.weights import Shape, check_shapes

BODY = "llm.model.model."
TEXT_TABLE = BODY + "embed_tokens.weight"
SPEECH_TABLE = "speech_embedding.weight"
HEAD = "llm_decoder.weight"
HEAD_BIAS = "llm_decoder.bias"
TIED_TEXT_HEAD = "llm.model.lm_head.weight"  # in the files, unused by speech


@dataclass(frozen=True, slots=True)
class _Layer:
    attention_norm: "_RmsNorm"
    qkv: Linear  # hidden -> (heads + 2 * kv_heads) * head_dim
    attention_out: Linear
    mlp_norm: "_RmsNorm"
    gate_up: Linear  # hidden -> 2 * intermediate
    down: Linear


class LlmModel:
    """Shared by all sequences and without state of its own. Nothing here asks for gradients.

    `hidden` stands for config.hidden_size. Activations have `dtype`; tables stay in the checkpoint's dtype.
    """

    def __init__(
        self,
        config: LlmConfig,
        state_dict: Mapping[str, torch.Tensor],
        *,
        device: torch.device | str = "cpu",
        dtype: torch.dtype = torch.float32,
        packs_half_weights: bool = True,
    ) -> None:
        """Raises WeightsError naming every key that is missing, unknown or of another shape.

        `packs_half_weights` is the off switch of Linear's half-width copies on a CPU.
        """
        check_state_dict(config, state_dict)
        self.config = config
        self.device = torch.device(device)
        self.dtype = dtype

        def linear(weight: torch.Tensor, bias: torch.Tensor | None = None) -> Linear:
            return Linear(weight, bias, device=self.device, dtype=dtype, packs_half=packs_half_weights)

        def norm(name: str) -> _RmsNorm:
            return _RmsNorm(state_dict[f"{name}.weight"].to(self.device, dtype), config.rms_norm_eps)

        def layer(index: int) -> _Layer:
            name = f"{BODY}layers.{index}."
            gate_up = [state_dict[f"{name}mlp.{part}_proj.weight"] for part in ("gate", "up")]
            return _Layer(
                attention_norm=norm(f"{name}input_layernorm"),
                qkv=linear(*(fused_qkv(config, state_dict, name, kind) for kind in ("weight", "bias"))),
                attention_out=linear(state_dict[f"{name}self_attn.o_proj.weight"]),
                mlp_norm=norm(f"{name}post_attention_layernorm"),
                gate_up=linear(torch.cat(gate_up)),
                down=linear(state_dict[f"{name}mlp.down_proj.weight"]),
            )

        # One table for both kinds of ids, so that any mix of them is one lookup: text rows, then speech rows.
        self._table = torch.cat([state_dict[TEXT_TABLE], state_dict[SPEECH_TABLE]]).to(self.device)
        self._layers = [layer(index) for index in range(config.num_layers)]
        self._norm = norm(f"{BODY}norm")
        self._head = linear(state_dict[HEAD], head_bias(config, state_dict))
        self._rotary = rotary_table(config).to(self.device)

    @property
    def first_speech_row(self) -> int:
        """Speech id s is row `first_speech_row + s` of the joint table; text ids are their own rows."""
        return self.config.vocab_size

    def embed(self, rows: torch.Tensor) -> torch.Tensor:
        """Rows of the joint table [N] int64 -> [N, hidden]."""
        return torch.embedding(self._table, rows).to(self.dtype)

    def forward(self, embeddings: torch.Tensor, attention: RaggedAttention) -> torch.Tensor:
        """[N, hidden] at `attention.positions` -> [N, hidden] behind the final RMSNorm, what the head reads.

        Stores the rows' keys and values through `attention`; the slots' lengths are the caller's to advance.
        """
        rotary = self._rotary.index_select(0, attention.positions)
        width = (self.config.num_heads + self.config.num_kv_heads) * self.config.head_dim
        residual = embeddings
        for index, layer in enumerate(self._layers):
            qkv = layer.qkv(layer.attention_norm(residual))
            _rotate_(qkv.narrow(1, 0, width), rotary)
            residual = residual + layer.attention_out(attention.attend(index, qkv))
            gate, up = layer.gate_up(layer.mlp_norm(residual)).chunk(2, -1)
            residual += layer.down(F.silu(gate).mul_(up))
        return self._norm(residual)

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """[B, hidden] from `forward` -> [B, num_speech_rows] float32."""
        return self._head(hidden).float()


class _RmsNorm:
    """x / sqrt(mean(x^2) + eps) * weight over the last axis."""

    def __init__(self, weight: torch.Tensor, eps: float) -> None:
        self._weight = weight
        self._eps = eps
        width = len(weight)
        # On a CPU torch's rms_norm is made of small ops; the same from a fused vector norm takes half the time:
        # x * (weight * sqrt(width)) / hypot(|x|, sqrt(width * eps)).
        self._is_composed = weight.is_cpu and weight.dtype == torch.float32
        self._scaled_weight = weight * math.sqrt(width)
        self._root_eps = torch.full((1, 1), math.sqrt(width * eps), device=weight.device, dtype=weight.dtype)

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        if not self._is_composed:
            normed: torch.Tensor = torch.rms_norm(x, self._weight.shape, self._weight, self._eps)
            return normed
        norm = torch.linalg.vector_norm(x, dim=-1, keepdim=True)
        scale: torch.Tensor = self._scaled_weight / norm.hypot_(self._root_eps)
        return scale.mul_(x)


def fused_qkv(config: LlmConfig, state_dict: Mapping[str, torch.Tensor], layer: str, kind: str) -> torch.Tensor:
    """Weight or bias of the three projections as one, query and key channels in `_rotate_`'s order."""
    parts = {part: state_dict[f"{layer}self_attn.{part}_proj.{kind}"] for part in "qkv"}
    half = config.head_dim // 2
    for part in "qk":
        whole = parts[part]
        # [heads, 2, half] -> [heads, half, 2]: HF rotates channel i with i + half, a complex product wants neighbours.
        parts[part] = whole.view(-1, 2, half, *whole.shape[1:]).transpose(1, 2).reshape(whole.shape)
    return torch.cat([parts[part] for part in "qkv"])


def rotary_table(config: LlmConfig) -> torch.Tensor:
    """[max_positions, 1, head_dim / 2] complex64: each position's rotations."""
    exponents = torch.arange(0, config.head_dim, 2, dtype=torch.float32) / config.head_dim
    inverse = 1.0 / config.rope_theta**exponents
    angles = torch.outer(torch.arange(config.max_positions, dtype=torch.float32), inverse)
    return torch.polar(torch.ones_like(angles), angles)[:, None]


def _rotate_(heads: torch.Tensor, rotary: torch.Tensor) -> None:
    """Rotary embedding in place: [N, H * head_dim], pairs of neighbours turned by rotary [N, 1, head_dim / 2]."""
    # One complex product instead of five real ops; float() is no copy, and the copy back not needed, in float32.
    pairs = torch.view_as_complex(heads.float().view(len(heads), -1, rotary.shape[-1], 2))
    pairs.mul_(rotary)
    if heads.dtype != torch.float32:
        heads.copy_(torch.view_as_real(pairs).view(heads.shape))


def head_bias(config: LlmConfig, state_dict: Mapping[str, torch.Tensor]) -> torch.Tensor | None:
    """[num_speech_rows], where it counts."""
    return state_dict[HEAD_BIAS] if config.head_bias is HeadBias.USED else None


def check_state_dict(config: LlmConfig, state_dict: Mapping[str, torch.Tensor]) -> None:
    """Raises WeightsError listing each key that is missing, unknown or misshaped."""
    used = {key: tensor for key, tensor in state_dict.items() if key != TIED_TEXT_HEAD}
    check_shapes("LLM", used, llm_shapes(config))


def num_products(config: LlmConfig) -> int:
    """Multiplications with weights, for one position that is fed and scored."""
    shapes = {name: shape for name, shape in llm_shapes(config).items() if name not in (TEXT_TABLE, SPEECH_TABLE)}
    return sum(math.prod(shape) for shape in shapes.values() if len(shape) > 1)


def llm_shapes(config: LlmConfig) -> dict[str, Shape]:
    """Every parameter of the checkpoint but the text head, which is tied to the text table and unused by speech."""
    hidden, inner = config.hidden_size, config.intermediate_size
    query, key = config.num_heads * config.head_dim, config.num_kv_heads * config.head_dim
    shapes: list[tuple[str, Shape]] = [
        (TEXT_TABLE, (config.vocab_size, hidden)),
        (SPEECH_TABLE, (config.num_table_rows, hidden)),
        (HEAD, (config.num_speech_rows, hidden)),
        (f"{BODY}norm.weight", (hidden,)),
    ]
    if config.head_bias is not HeadBias.ABSENT:
        shapes.append((HEAD_BIAS, (config.num_speech_rows,)))
    for index in range(config.num_layers):
        name = f"{BODY}layers.{index}."
        for part, width in (("q", query), ("k", key), ("v", key)):
            shapes.append((f"{name}self_attn.{part}_proj.weight", (width, hidden)))
            shapes.append((f"{name}self_attn.{part}_proj.bias", (width,)))
        shapes += [
            (f"{name}self_attn.o_proj.weight", (hidden, query)),
            (f"{name}mlp.gate_proj.weight", (inner, hidden)),
            (f"{name}mlp.up_proj.weight", (inner, hidden)),
            (f"{name}mlp.down_proj.weight", (hidden, inner)),
            (f"{name}input_layernorm.weight", (hidden,)),
            (f"{name}post_attention_layernorm.weight", (hidden,)),
        ]
    return dict(shapes)
