"""The names and shapes that a vocoder checkpoint must have (upstream's hift.pt), and its weight norm folded away."""

from collections.abc import Mapping
from typing import Final

import torch

from voicegate.engine import units
from voicegate.engine.model.config import VocoderConfig
from voicegate.engine.model.weights import Shape, WeightsError, check_shapes

# Constructor constants of upstream's f0 predictor, which no checkpoint of the family changes.
F0_KERNELS: Final = (4, 3, 3, 3, 3)  # the first looks right, the others left
F0_PREFIX: Final = "f0_predictor."
F0_LAYER_STRIDE: Final = 2  # condnet.0, .2, ...: activations lie between
POST_KERNEL: Final = 7

_GAIN: Final = ".parametrizations.weight.original0"  # g [out, 1, 1]
_DIRECTION: Final = ".parametrizations.weight.original1"  # v [out, in, k]


def load_vocoder_weights(
    config: VocoderConfig, state_dict: Mapping[str, torch.Tensor], *, device: torch.device
) -> dict[str, torch.Tensor]:
    """Every `<module>.weight`, `.bias` and `.alpha`: float64 for the f0 predictor, float32 for all else.

    Convolutions are [out, in, k], channels last in memory. Raises WeightsError listing all faults.
    """
    check_vocoder(config, state_dict)
    return {key: _placed(key, tensor, device) for key, tensor in folded(without_prefix(state_dict)).items()}


def check_vocoder(config: VocoderConfig, state_dict: Mapping[str, torch.Tensor]) -> None:
    """Raises WeightsError listing all faults."""
    _check_config(config)
    check_shapes("vocoder", without_prefix(state_dict), vocoder_shapes(config))


def without_prefix(state_dict: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Checkpoints written during GAN training carry a prefix, released ones do not; upstream drops it from both."""
    return {key.replace("generator.", ""): tensor for key, tensor in state_dict.items()}


def _placed(key: str, tensor: torch.Tensor, device: torch.device) -> torch.Tensor:
    if key.startswith(F0_PREFIX):
        return tensor.to(device)
    if tensor.dim() == 3:  # the stateful and the offline vocoder share this storage
        tensor = tensor.transpose(1, 2).contiguous().transpose(1, 2)
    return tensor.to(device, torch.float32)


def folded(state: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """g * v / ||v||, the norm over all but the output channels, in float64: the f0 predictor needs it that exact."""
    # float32 first: what upstream's modules hold, whatever the file stores.
    exact = {key: tensor.detach().cpu().to(torch.float32).to(torch.float64) for key, tensor in state.items()}
    folded: dict[str, torch.Tensor] = {}
    for key, tensor in exact.items():
        if key.endswith(_GAIN):
            continue
        if key.endswith(_DIRECTION):
            name = key.removesuffix(_DIRECTION)
            norm = tensor.flatten(1).norm(dim=1)[:, None, None]
            folded[f"{name}.weight"] = exact[name + _GAIN] * tensor / norm
        else:
            folded[key] = tensor
    return folded


def _check_config(config: VocoderConfig) -> None:
    """Check all that the code takes for granted about sizes that model.json could, in principle, change."""
    rate = config.stft_hop
    for upsample in config.upsample_rates:
        rate *= upsample
    checks = {
        f"upsample_rates and hop_len make {units.SAMPLES_PER_FRAME} samples a frame": rate == units.SAMPLES_PER_FRAME,
        "conv_pre_look_right is 4": config.look_right_frames == F0_KERNELS[0],
        "n_fft is four times hop_len": config.stft_size == 4 * config.stft_hop,
        "every upsampling has a kernel and a source resblock": len(config.upsample_rates)
        == len(config.upsample_kernels)
        == len(config.source_resblock_kernels)
        == len(config.source_resblock_dilations),
        "every resblock kernel has dilations": len(config.resblock_kernels) == len(config.resblock_dilations),
    }
    broken = [rule for rule, holds in checks.items() if not holds]
    if broken:
        raise WeightsError("this vocoder cannot be run; it must hold that " + "; ".join(broken))


def stage_channels(config: VocoderConfig, stage: int) -> int:
    return config.base_channels >> (stage + 1)


def stage_rate(config: VocoderConfig, stage: int) -> int:
    """Columns per mel frame after the stage's upsampling: 8, 40, 120."""
    rate = 1
    for upsample in config.upsample_rates[: stage + 1]:
        rate *= upsample
    return rate


def source_stride(config: VocoderConfig, stage: int) -> int:
    """STFT frames per column of the stage: 15, 3, 1. The convolution that joins them has twice as many taps."""
    return units.SAMPLES_PER_FRAME // config.stft_hop // stage_rate(config, stage)


def vocoder_shapes(config: VocoderConfig) -> dict[str, Shape]:
    """Every parameter of the checkpoint."""
    bins = config.stft_size + 2  # real and imaginary parts of n_fft / 2 + 1 bins
    harmonics = config.num_harmonics + 1
    shapes: dict[str, Shape] = {
        "m_source.l_linear.weight": (1, harmonics),
        "m_source.l_linear.bias": (1,),
        **normed_conv_shapes("conv_pre", config.base_channels, units.NUM_MELS, config.look_right_frames + 1),
        **normed_conv_shapes("conv_post", bins, stage_channels(config, len(config.upsample_rates) - 1), POST_KERNEL),
        **_f0_shapes(config.f0_channels),
    }
    for stage, kernel in enumerate(config.upsample_kernels):
        channels = stage_channels(config, stage)
        stride = source_stride(config, stage)
        shapes |= normed_conv_shapes(f"ups.{stage}", channels, 2 * channels, kernel)
        shapes[f"source_downs.{stage}.weight"] = (channels, bins, 2 * stride if stride > 1 else 1)
        shapes[f"source_downs.{stage}.bias"] = (channels,)
        shapes |= resblock_shapes(
            f"source_resblocks.{stage}",
            channels,
            config.source_resblock_kernels[stage],
            len(config.source_resblock_dilations[stage]),
        )
        for index, (size, dilations) in enumerate(
            zip(config.resblock_kernels, config.resblock_dilations, strict=True), stage * len(config.resblock_kernels)
        ):
            shapes |= resblock_shapes(f"resblocks.{index}", channels, size, len(dilations))
    return shapes


def _f0_shapes(channels: int) -> dict[str, Shape]:
    shapes: dict[str, Shape] = {f"{F0_PREFIX}classifier.weight": (1, channels), f"{F0_PREFIX}classifier.bias": (1,)}
    for layer, kernel in enumerate(F0_KERNELS):
        inputs = channels if layer else units.NUM_MELS
        shapes |= normed_conv_shapes(f"{F0_PREFIX}condnet.{layer * F0_LAYER_STRIDE}", channels, inputs, kernel)
    return shapes


def resblock_shapes(name: str, channels: int, kernel: int, num_dilations: int) -> dict[str, Shape]:
    shapes: dict[str, Shape] = {}
    for index in range(num_dilations):
        for half in (1, 2):
            shapes |= normed_conv_shapes(f"{name}.convs{half}.{index}", channels, channels, kernel)
            shapes[f"{name}.activations{half}.{index}.alpha"] = (channels,)
    return shapes


def normed_conv_shapes(name: str, outputs: int, inputs: int, kernel: int) -> dict[str, Shape]:
    return {
        f"{name}{_GAIN}": (outputs, 1, 1),
        f"{name}{_DIRECTION}": (outputs, inputs, kernel),
        f"{name}.bias": (outputs,),
    }
