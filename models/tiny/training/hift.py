"""The vocoder to be trained, in batches: mel -> samples. Parameters have upstream's names and shapes (hift.pt).

engine/vocoder/torch/offline.py is the same computation for one utterance.
"""

import math
from collections.abc import Callable
from typing import Final

import torch
from torch import nn
from torch.nn import functional

from voicegate.engine.model.config import VocoderConfig
from voicegate.engine.vocoder.weights import F0_KERNELS, source_stride, vocoder_shapes

from .shards import SAMPLES_PER_FRAME

SAMPLE_RATE_HZ: Final = 24_000
_GAIN, _DIRECTION = ".parametrizations.weight.original0", ".parametrizations.weight.original1"
LOOK_RIGHT: Final = 4


class Vocoder(nn.Module):
    window: torch.Tensor
    inverse: torch.Tensor

    def __init__(self, config: VocoderConfig) -> None:
        super().__init__()
        self.config = config
        shapes = vocoder_shapes(config)
        self.names = sorted(shapes)
        self.values = nn.ParameterList(nn.Parameter(_initial(name, shapes[name])) for name in self.names)
        with torch.no_grad():  # weight norm begins as the identity
            for name, value in self.named():
                if name.endswith(_GAIN):
                    direction = dict(self.named())[name.removesuffix(_GAIN) + _DIRECTION]
                    value.copy_(direction.flatten(1).norm(dim=1)[:, None, None])
        self.register_buffer("window", torch.hann_window(config.stft_size), persistent=False)
        self.register_buffer("inverse", _inverse_transform(self.window), persistent=False)
        self.snake: Snake = _snake

    def named(self) -> list[tuple[str, nn.Parameter]]:
        return list(zip(self.names, self.values, strict=True))

    def folded(self) -> dict[str, torch.Tensor]:
        """Each module's weight, bias and alpha, weight norm applied."""
        raw = dict(self.named())
        folded: dict[str, torch.Tensor] = {}
        for name, value in raw.items():
            if name.endswith(_DIRECTION):
                module = name.removesuffix(_DIRECTION)
                folded[f"{module}.weight"] = raw[module + _GAIN] * value / value.flatten(1).norm(dim=1)[:, None, None]
            elif not name.endswith(_GAIN):
                folded[name] = value
        return folded

    def pitch(self, weights: dict[str, torch.Tensor], mel: torch.Tensor) -> torch.Tensor:
        """mel [B, 80, T + 3] -> Hz [B, T]."""
        x = mel
        for layer, kernel in enumerate(F0_KERNELS):
            name = f"f0_predictor.condnet.{2 * layer}"
            x = functional.pad(x, (kernel - 1, 0)) if layer else x
            x = functional.elu(functional.conv1d(x, weights[f"{name}.weight"], weights[f"{name}.bias"]))
        classifier = (weights[f"f0_predictor.classifier.{kind}"] for kind in ("weight", "bias"))
        return functional.linear(x.transpose(1, 2), *classifier)[..., 0].abs()

    def source(
        self, weights: dict[str, torch.Tensor], hertz: torch.Tensor, cycles_before: torch.Tensor, noise: torch.Tensor
    ) -> torch.Tensor:
        """Hz [B, T], phases in cycles to begin with [B, 9], uniform noise [B, 480 T, 9] -> samples [B, 480 T]."""
        config = self.config
        multiples = torch.arange(1, config.num_harmonics + 2, device=hertz.device)
        per_sample = (hertz[:, :, None].double() * multiples / SAMPLE_RATE_HZ) % 1
        cycles = (per_sample * SAMPLES_PER_FRAME).cumsum(1) + cycles_before[:, None]
        is_voiced = (hertz > config.voiced_threshold_hz).float()
        sine = torch.sin((cycles % 1).float() * 2 * math.pi) * config.sine_amplitude * is_voiced[:, :, None]
        gain = is_voiced * config.noise_std + (1 - is_voiced) * config.sine_amplitude / 3
        merge, bias = weights["m_source.l_linear.weight"][0], weights["m_source.l_linear.bias"]
        centre = (sine @ merge + bias).repeat_interleave(SAMPLES_PER_FRAME, dim=1)
        return torch.tanh(centre + (noise @ merge) * gain.repeat_interleave(SAMPLES_PER_FRAME, dim=1))

    def spectra(self, samples: torch.Tensor) -> torch.Tensor:
        """[B, 480 T] -> [B, 18, 120 T + 1]."""
        spectrum = torch.stft(
            samples, self.config.stft_size, self.config.stft_hop, window=self.window, return_complex=True
        )
        return torch.cat((spectrum.real, spectrum.imag), dim=1)

    def filter(self, weights: dict[str, torch.Tensor], mel: torch.Tensor, spectra: torch.Tensor) -> torch.Tensor:
        """mel [B, 80, T + 4], spectra [B, 18, 120 T + 1] -> log magnitudes and phases [B, 18, 120 T + 1]."""
        config = self.config
        num_blocks = len(config.resblock_kernels)
        x = _conv(weights, "conv_pre", mel)
        for stage, rate in enumerate(config.upsample_rates):
            x = functional.leaky_relu(x, config.leaky_relu_slope).repeat_interleave(rate, dim=2)
            x = _left_conv(weights, f"ups.{stage}", x)
            if stage == len(config.upsample_rates) - 1:
                x = torch.cat((x[:, :, 1:2], x), dim=2)
            stride = source_stride(config, stage)
            down = _conv(weights, f"source_downs.{stage}", functional.pad(spectra, (stride - 1, 0)), stride=stride)
            dilations = config.source_resblock_dilations[stage]
            x = x + self._resblock(weights, f"source_resblocks.{stage}", down, dilations)
            first = stage * num_blocks
            blocks = [
                self._resblock(weights, f"resblocks.{first + index}", x, dilations)
                for index, dilations in enumerate(config.resblock_dilations)
            ]
            x = torch.stack(blocks).mean(0)
        with torch.autocast(mel.device.type, enabled=False):  # phases want the digits
            return _left_conv(weights, "conv_post", functional.leaky_relu(x.float(), 0.01))

    def _resblock(
        self, weights: dict[str, torch.Tensor], name: str, x: torch.Tensor, dilations: tuple[int, ...]
    ) -> torch.Tensor:
        for index, dilation in enumerate(dilations):
            hidden = self.snake(weights[f"{name}.activations1.{index}.alpha"], x)
            hidden = _left_conv(weights, f"{name}.convs1.{index}", hidden, dilation=dilation)
            hidden = self.snake(weights[f"{name}.activations2.{index}.alpha"], hidden)
            x = x + _left_conv(weights, f"{name}.convs2.{index}", hidden)
        return x

    def samples(self, filtered: torch.Tensor) -> torch.Tensor:
        """The inverse of `spectra`. torch.istft reads a value back, which a CUDA graph cannot."""
        log_magnitude, phase = filtered.float().chunk(2, dim=1)
        magnitude, angle = log_magnitude.clamp(max=4.6).exp(), torch.sin(phase)
        size, hop = self.config.stft_size, self.config.stft_hop
        parts = torch.cat((magnitude * angle.cos(), magnitude * angle.sin()), dim=1)
        frames = torch.einsum("bfn,fs->bsn", parts, self.inverse)
        num_samples = hop * (frames.shape[2] - 1)
        total = functional.fold(frames, (1, num_samples + size), (1, size), stride=(1, hop))[:, 0, 0]
        return total[:, size // 2 : size // 2 + num_samples]


Snake = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


def _inverse_transform(window: torch.Tensor) -> torch.Tensor:
    """[n + 2, n]: real and imaginary parts -> windowed samples; four overlap, and their sum is the signal."""
    size = len(window)
    basis = torch.eye(size // 2 + 1, dtype=torch.complex64)
    rows = torch.cat((torch.fft.irfft(basis, size), torch.fft.irfft(1j * basis, size)))
    return rows * window / (window.square().sum() / (size // 4))


def _initial(name: str, shape: tuple[int, ...]) -> torch.Tensor:
    if name.endswith(".alpha"):
        return torch.ones(shape)
    if name.endswith(_DIRECTION) or len(shape) > 1:
        return torch.randn(shape) / math.sqrt(math.prod(shape[1:]))
    return torch.zeros(shape)


def _conv(
    weights: dict[str, torch.Tensor], name: str, x: torch.Tensor, *, dilation: int = 1, stride: int = 1
) -> torch.Tensor:
    return functional.conv1d(x, weights[f"{name}.weight"], weights[f"{name}.bias"], stride=stride, dilation=dilation)


def _left_conv(weights: dict[str, torch.Tensor], name: str, x: torch.Tensor, *, dilation: int = 1) -> torch.Tensor:
    kernel = weights[f"{name}.weight"].shape[2]
    return _conv(weights, name, functional.pad(x, ((kernel - 1) * dilation, 0)), dilation=dilation)


def _snake(alpha: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    alpha = alpha[:, None].to(x.dtype)
    return x + torch.sin(x * alpha) ** 2 / (alpha + 1e-9)
