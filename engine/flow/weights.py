"""The names and shapes that a flow checkpoint must have (upstream's flow.pt), checked before anything is built."""

from collections.abc import Mapping
from typing import Final

import torch

from voicegate.engine import units
from voicegate.engine.model.config import EstimatorConfig, FlowConfig
from voicegate.engine.model.weights import Shape, check_shapes

# Constructor constants of upstream's DiT that no checkpoint of the family changes and model.json does not carry.
TIME_CHANNELS: Final = 256
CONV_TAPS: Final = 31
CONV_GROUPS: Final = 16
# x, cond, mu, speaker: what the input projection sees of a frame, in this order.
INPUT_PARTS: Final = 4

ESTIMATOR_PREFIX: Final = "decoder.estimator."
INV_FREQ: Final = "rotary_embed.inv_freq"


def load_flow_state(
    config: FlowConfig, state_dict: Mapping[str, torch.Tensor], *, device: torch.device
) -> dict[str, torch.Tensor]:
    """The state dict as float32 on `device`, every key and shape checked. Raises WeightsError listing all faults."""
    check_flow(config, state_dict)
    return {key: tensor.to(device, torch.float32) for key, tensor in state_dict.items()}


def check_flow(config: FlowConfig, state_dict: Mapping[str, torch.Tensor]) -> None:
    """Raises WeightsError listing all faults."""
    optional = {ESTIMATOR_PREFIX + INV_FREQ: (config.estimator.head_dim // 2,)}
    check_shapes("flow", state_dict, flow_shapes(config), optional)


def flow_shapes(config: FlowConfig) -> dict[str, Shape]:
    """Every parameter of the flow; the buffer `inv_freq` is optional and not among them."""
    channels = config.pre_lookahead_channels
    mels = units.NUM_MELS
    shapes: dict[str, Shape] = {
        "input_embedding.weight": (config.vocab_size, mels),
        **_linear("spk_embed_affine_layer", mels, config.speaker_dim),
        **_linear("pre_lookahead_layer.conv1", channels, mels, config.lookahead_tokens + 1),
        **_linear("pre_lookahead_layer.conv2", mels, channels, 3),
    }
    return shapes | {ESTIMATOR_PREFIX + key: shape for key, shape in _estimator_shapes(config.estimator).items()}


def _estimator_shapes(config: EstimatorConfig) -> dict[str, Shape]:
    dim = config.dim
    inner = config.num_heads * config.head_dim
    shapes: dict[str, Shape] = {
        **_linear("time_embed.time_mlp.0", dim, TIME_CHANNELS),
        **_linear("time_embed.time_mlp.2", dim, dim),
        **_linear("input_embed.proj", dim, INPUT_PARTS * units.NUM_MELS),
        **_linear("input_embed.conv_pos_embed.conv1.0", dim, dim // CONV_GROUPS, CONV_TAPS),
        **_linear("input_embed.conv_pos_embed.conv2.0", dim, dim // CONV_GROUPS, CONV_TAPS),
        **_linear("norm_out.linear", 2 * dim, dim),
        **_linear("proj_out", units.NUM_MELS, dim),
    }
    for layer in range(config.depth):
        block = f"transformer_blocks.{layer}."
        shapes |= _linear(block + "attn_norm.linear", 6 * dim, dim)
        for name in ("to_q", "to_k", "to_v"):
            shapes |= _linear(block + f"attn.{name}", inner, dim)
        shapes |= _linear(block + "attn.to_out.0", dim, inner)
        shapes |= _linear(block + "ff.ff.0.0", config.ff_mult * dim, dim)
        shapes |= _linear(block + "ff.ff.2", dim, config.ff_mult * dim)
    return shapes


def _linear(name: str, *shape: int) -> dict[str, Shape]:
    return {f"{name}.weight": shape, f"{name}.bias": shape[:1]}
