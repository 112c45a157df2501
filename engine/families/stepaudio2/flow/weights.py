"""The names and shapes that Step-Audio2's flow.pt must have."""

from collections.abc import Mapping
from typing import Final

import torch

from voicegate.engine import units
from voicegate.engine.families.stepaudio2.config import ConformerConfig, ConvDitConfig, StepAudio2FlowConfig
from voicegate.engine.model.weights import Shape, check_shapes

# Constructor constants of upstream's modules, which no checkpoint of the family changes.
TIME_CHANNELS: Final = 256
CONV_TAPS: Final = 3  # of the estimator's convolutions
MODULATIONS: Final = 9  # of a block: shift, scale and gate of attention, MLP and convolution
ENCODER_TAPS: Final = 3  # of the look-ahead's second convolution
UP_TAPS: Final = 5

ENCODER_PREFIX: Final = "encoder."
ESTIMATOR_PREFIX: Final = "decoder.estimator."


def load_flow_state(
    config: StepAudio2FlowConfig, state_dict: Mapping[str, torch.Tensor], *, device: torch.device
) -> dict[str, torch.Tensor]:
    """The state dict as float32 on `device`, every key and shape checked. Raises WeightsError listing all faults."""
    check_flow(config, state_dict)
    return {key: tensor.to(device, torch.float32) for key, tensor in state_dict.items()}


def check_flow(config: StepAudio2FlowConfig, state_dict: Mapping[str, torch.Tensor]) -> None:
    """Raises WeightsError listing all faults."""
    check_shapes("flow", state_dict, flow_shapes(config))


def below(state: Mapping[str, torch.Tensor], prefix: str) -> dict[str, torch.Tensor]:
    """The part of a state dict under a prefix, without it."""
    return {key.removeprefix(prefix): tensor for key, tensor in state.items() if key.startswith(prefix)}


def flow_shapes(config: StepAudio2FlowConfig) -> dict[str, Shape]:
    """Every parameter of the flow."""
    dim = config.encoder.dim
    return {
        "input_embedding.weight": (config.vocab_size, dim),
        **_linear("spk_embed_affine_layer", units.NUM_MELS, config.speaker_dim),
        **_linear("encoder_proj", units.NUM_MELS, dim),
        **{ENCODER_PREFIX + key: shape for key, shape in _encoder_shapes(config.encoder).items()},
        **{ESTIMATOR_PREFIX + key: shape for key, shape in _estimator_shapes(config.estimator).items()},
    }


def _encoder_shapes(config: ConformerConfig) -> dict[str, Shape]:
    dim = config.dim
    shapes: dict[str, Shape] = {
        **_norm("after_norm", dim),
        **_linear("pre_lookahead_layer.conv1", dim, dim, config.lookahead_tokens + 1),
        **_linear("pre_lookahead_layer.conv2", dim, dim, ENCODER_TAPS),
        **_linear("up_layer.conv", dim, dim, UP_TAPS),
    }
    for name in ("embed", "up_embed"):
        shapes |= _linear(f"{name}.out.0", dim, dim) | _norm(f"{name}.out.1", dim)
    for stack, num_layers in (("encoders", config.num_layers), ("up_encoders", config.num_up_layers)):
        for layer in range(num_layers):
            shapes |= _encoder_layer(f"{stack}.{layer}", config)
    return shapes


def _encoder_layer(name: str, config: ConformerConfig) -> dict[str, Shape]:
    dim, inner = config.dim, config.feed_forward_units
    shapes: dict[str, Shape] = {
        f"{name}.self_attn.pos_bias_u": (config.num_heads, config.head_dim),
        f"{name}.self_attn.pos_bias_v": (config.num_heads, config.head_dim),
        f"{name}.self_attn.linear_pos.weight": (dim, dim),
        **_linear(f"{name}.feed_forward.w_1", inner, dim),
        **_linear(f"{name}.feed_forward.w_2", dim, inner),
        **_norm(f"{name}.norm_mha", dim),
        **_norm(f"{name}.norm_ff", dim),
    }
    for part in ("q", "k", "v", "out"):
        shapes |= _linear(f"{name}.self_attn.linear_{part}", dim, dim)
    return shapes


def _estimator_shapes(config: ConvDitConfig) -> dict[str, Shape]:
    dim, inner = config.dim, config.num_heads * config.head_dim
    shapes: dict[str, Shape] = {
        **_linear("t_embedder.mlp.0", dim, TIME_CHANNELS),
        **_linear("t_embedder.mlp.2", dim, dim),
        **_linear("in_proj", dim, 4 * units.NUM_MELS),
        **_linear("final_layer.adaLN_modulation.1", 2 * dim, dim),
        **_linear("final_layer.linear", units.NUM_MELS, dim),
    }
    for layer in range(config.depth):
        block = f"blocks.{layer}."
        for name in ("to_q", "to_k", "to_v"):
            shapes |= _linear(f"{block}attn.{name}", inner, dim)
        shapes |= _norm(f"{block}attn.q_norm", config.head_dim) | _norm(f"{block}attn.k_norm", config.head_dim)
        shapes |= _linear(f"{block}attn.proj", dim, inner)
        shapes |= _linear(f"{block}mlp.fc1", config.mlp_units, dim) | _linear(f"{block}mlp.fc2", dim, config.mlp_units)
        shapes |= _linear(f"{block}conv.block.1", dim, dim, CONV_TAPS) | _norm(f"{block}conv.block.3", dim)
        shapes |= _linear(f"{block}conv.block.6", dim, dim, CONV_TAPS)
        shapes |= _linear(f"{block}adaLN_modulation.1", MODULATIONS * dim, dim)
    return shapes


def _linear(name: str, *shape: int) -> dict[str, Shape]:
    return {f"{name}.weight": shape, f"{name}.bias": shape[:1]}


def _norm(name: str, channels: int) -> dict[str, Shape]:
    return {f"{name}.weight": (channels,), f"{name}.bias": (channels,)}
