"""The names and shapes that Step-Audio2's hift.pt must have, and its weight norm folded away."""

from collections.abc import Mapping
from typing import Final

import torch

from voicegate.engine import units
from voicegate.engine.model.config import VocoderConfig
from voicegate.engine.model.weights import Shape, WeightsError, check_shapes
from voicegate.engine.vocoder.weights import (
    POST_KERNEL,
    folded,
    normed_conv_shapes,
    resblock_shapes,
    source_stride,
    stage_channels,
    without_prefix,
)

# Constructor constants of upstream's modules, which no checkpoint of the family changes.
PRE_KERNEL: Final = 7
F0_KERNEL: Final = 3
NUM_F0_LAYERS: Final = 5
F0_PREFIX: Final = "f0_predictor."
F0_LAYER_STRIDE: Final = 2  # condnet.0, .2, ...: activations lie between


def load_vocoder_weights(
    config: VocoderConfig, state_dict: Mapping[str, torch.Tensor], *, device: torch.device
) -> dict[str, torch.Tensor]:
    """Every `<module>.weight`, `.bias` and `.alpha`: float64 for the f0 predictor, float32 for all else.

    Raises WeightsError listing all faults.
    """
    check_vocoder(config, state_dict)
    return {
        key: tensor.to(device, torch.float64 if key.startswith(F0_PREFIX) else torch.float32)
        for key, tensor in folded(without_prefix(state_dict)).items()
    }


def check_vocoder(config: VocoderConfig, state_dict: Mapping[str, torch.Tensor]) -> None:
    """Raises WeightsError listing all faults."""
    _check_config(config)
    check_shapes("vocoder", without_prefix(state_dict), vocoder_shapes(config))


def _check_config(config: VocoderConfig) -> None:
    """Checks sizes that the code takes for granted and that model.json could, in principle, change."""
    rate = config.stft_hop
    for upsample in config.upsample_rates:
        rate *= upsample
    checks = {
        f"upsample_rates and hop_len make {units.SAMPLES_PER_FRAME} samples a frame": rate == units.SAMPLES_PER_FRAME,
        "conv_pre_look_right is absent": config.look_right_frames == 0,
        "n_fft is four times hop_len": config.stft_size == 4 * config.stft_hop,
        "every upsampling has a kernel and a source resblock": len(config.upsample_rates)
        == len(config.upsample_kernels)
        == len(config.source_resblock_kernels)
        == len(config.source_resblock_dilations),
        "upsampling kernels are longer than their rates by an even number": all(
            kernel >= rate and (kernel - rate) % 2 == 0
            for kernel, rate in zip(config.upsample_kernels, config.upsample_rates, strict=False)
        ),
        "every resblock kernel has dilations": len(config.resblock_kernels) == len(config.resblock_dilations),
    }
    broken = [rule for rule, holds in checks.items() if not holds]
    if broken:
        raise WeightsError("this vocoder cannot be run; it must hold that " + "; ".join(broken))


def vocoder_shapes(config: VocoderConfig) -> dict[str, Shape]:
    """Every parameter of the checkpoint."""
    bins = config.stft_size + 2  # real and imaginary parts of n_fft / 2 + 1 bins
    shapes: dict[str, Shape] = {
        "m_source.l_linear.weight": (1, config.num_harmonics + 1),
        "m_source.l_linear.bias": (1,),
        **normed_conv_shapes("conv_pre", config.base_channels, units.NUM_MELS, PRE_KERNEL),
        **normed_conv_shapes("conv_post", bins, stage_channels(config, len(config.upsample_rates) - 1), POST_KERNEL),
        f"{F0_PREFIX}classifier.weight": (1, config.f0_channels),
        f"{F0_PREFIX}classifier.bias": (1,),
    }
    for layer in range(NUM_F0_LAYERS):
        inputs = config.f0_channels if layer else units.NUM_MELS
        shapes |= normed_conv_shapes(
            f"{F0_PREFIX}condnet.{layer * F0_LAYER_STRIDE}", config.f0_channels, inputs, F0_KERNEL
        )
    for stage in range(len(config.upsample_rates)):
        shapes |= _stage_shapes(config, stage, bins)
    return shapes


def _stage_shapes(config: VocoderConfig, stage: int, bins: int) -> dict[str, Shape]:
    channels, stride = stage_channels(config, stage), source_stride(config, stage)
    # A transposed convolution's weights are [in, out, k], and its norm is over all but its inputs.
    up = normed_conv_shapes(f"ups.{stage}", 2 * channels, channels, config.upsample_kernels[stage])
    shapes: dict[str, Shape] = {
        **up,
        f"ups.{stage}.bias": (channels,),
        f"source_downs.{stage}.weight": (channels, bins, 2 * stride if stride > 1 else 1),
        f"source_downs.{stage}.bias": (channels,),
        **resblock_shapes(
            f"source_resblocks.{stage}",
            channels,
            config.source_resblock_kernels[stage],
            len(config.source_resblock_dilations[stage]),
        ),
    }
    for index, (size, dilations) in enumerate(
        zip(config.resblock_kernels, config.resblock_dilations, strict=True), stage * len(config.resblock_kernels)
    ):
        shapes |= resblock_shapes(f"resblocks.{index}", channels, size, len(dilations))
    return shapes
