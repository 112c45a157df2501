"""The decoder's weights as the CUDA kernels read them: fused, permuted, norms folded in, padded to whole tiles."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields

import torch
import torch.nn.functional as F  # noqa: N812 - torch's own habit

from voicegate.engine.llm.torch.model import (
    BODY,
    HEAD,
    SPEECH_TABLE,
    TEXT_TABLE,
    check_state_dict,
    fused_qkv,
    head_bias,
    rotary_table,
)
from voicegate.engine.model.config import LlmConfig

MAX_BLOCK_N = 128  # outputs are zero-padded to a multiple of this: a multiple of every tile's `block_n`


@dataclass(frozen=True, slots=True)
class LayerWeights:
    """All [outputs, in] contiguous, outputs padded."""

    qkv: torch.Tensor  # times the norm's weight; q and k channels in pairs
    qkv_bias: torch.Tensor  # float32
    out: torch.Tensor
    gate_up: torch.Tensor  # gate 0, up 0, gate 1, ...; times the norm's weight
    down: torch.Tensor


class DecoderWeights:
    """`table` [table rows of text, then of speech, hidden]; `rotary` [positions, head_dim / 2, 2] float32."""

    def __init__(
        self,
        config: LlmConfig,
        state_dict: Mapping[str, torch.Tensor],
        *,
        device: torch.device,
        dtype: torch.dtype,
    ) -> None:
        """Raises WeightsError naming every key that is missing, unknown or of another shape."""
        check_state_dict(config, state_dict)

        def tensor(name: str) -> torch.Tensor:
            return state_dict[name].to(device)

        def store(weight: torch.Tensor, norm: torch.Tensor | None = None) -> torch.Tensor:
            # The product with the norm's weight is rounded once, from float32.
            weight = weight.to(device).float()
            weight = weight if norm is None else weight * norm
            return F.pad(weight, (0, 0, 0, -len(weight) % MAX_BLOCK_N)).to(dtype).contiguous()

        def pad(bias: torch.Tensor) -> torch.Tensor:
            return F.pad(bias, (0, -len(bias) % MAX_BLOCK_N))

        def layer(index: int) -> LayerWeights:
            name = f"{BODY}layers.{index}."
            attention_norm = tensor(f"{name}input_layernorm.weight").float()
            mlp_norm = tensor(f"{name}post_attention_layernorm.weight").float()
            bias = fused_qkv(config, state_dict, name, "bias").to(device).float()
            gate_up = [tensor(f"{name}mlp.{part}_proj.weight") for part in ("gate", "up")]
            return LayerWeights(
                qkv=store(fused_qkv(config, state_dict, name, "weight"), attention_norm),
                qkv_bias=pad(bias),
                out=store(tensor(f"{name}self_attn.o_proj.weight")),
                gate_up=store(torch.stack(gate_up, 1).flatten(0, 1), mlp_norm),
                down=store(tensor(f"{name}mlp.down_proj.weight")),
            )

        # One layer's behind the other's: decode_step.cu finds them by their row.
        self.stacks = _stack((layer(index) for index in range(config.num_layers)), config.num_layers)
        self.layers = [
            LayerWeights(**{field.name: getattr(self.stacks, field.name)[index] for field in fields(LayerWeights)})
            for index in range(config.num_layers)
        ]
        self.norm = tensor(f"{BODY}norm.weight").float()
        self.head = store(tensor(HEAD), self.norm)
        bias = head_bias(config, state_dict)
        self.head_bias = None if bias is None else pad(bias.to(device).float())
        self.table = torch.cat([tensor(TEXT_TABLE).to(dtype), tensor(SPEECH_TABLE).to(dtype)])
        self.rotary = torch.view_as_real(rotary_table(config)).reshape(-1, config.head_dim).to(device)


def _stack(layers: Iterable[LayerWeights], num_layers: int) -> LayerWeights:
    """All layers' of each, [layers, ...]."""
    stacks: dict[str, torch.Tensor] = {}
    for index, layer in enumerate(layers):
        for field in fields(LayerWeights):
            weight: torch.Tensor = getattr(layer, field.name)
            stack = stacks.setdefault(field.name, weight.new_empty(num_layers, *weight.shape))
            stack[index] = weight
    return LayerWeights(**stacks)
