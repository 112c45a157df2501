"""Pitch from mel frames, and from pitch the samples that excite the filter. Both look both ways; nothing is carried.

Rows are right-padded: `lengths` are their mel frames, and what lies behind them must not be heard before.
"""

import math
from collections.abc import Mapping

import torch
from torch.nn import functional

from voicegate.engine import units
from voicegate.engine.families.stepaudio2.vocoder.weights import F0_KERNEL, F0_LAYER_STRIDE, F0_PREFIX, NUM_F0_LAYERS
from voicegate.engine.model.config import VocoderConfig


class F0Predictor:
    """In float64 throughout: the phase sums what this makes, so rounding by another batch's shape would be heard."""

    def __init__(self, weights: Mapping[str, torch.Tensor]) -> None:
        names = [f"{F0_PREFIX}condnet.{layer * F0_LAYER_STRIDE}" for layer in range(NUM_F0_LAYERS)]
        # [out, k * in]: a matrix product, since torch has no fast float64 convolution.
        self._weights = [weights[f"{name}.weight"].permute(0, 2, 1).flatten(1) for name in names]
        self._biases = [weights[f"{name}.bias"] for name in names]
        self._classifier = (weights[f"{F0_PREFIX}classifier.weight"], weights[f"{F0_PREFIX}classifier.bias"])

    def __call__(self, mel: torch.Tensor, is_valid: torch.Tensor) -> torch.Tensor:
        """mel [B, 80, T], is_valid [B, T] -> Hz [B, T] float32."""
        mask = is_valid[:, :, None]
        x = mel.mT.to(torch.float64) * mask
        for weight, bias in zip(self._weights, self._biases, strict=True):
            padded = functional.pad(x, (0, 0, F0_KERNEL // 2, F0_KERNEL // 2))
            taps = torch.cat([padded.narrow(1, tap, x.shape[1]) for tap in range(F0_KERNEL)], dim=2)
            x = functional.elu_(functional.linear(taps, weight, bias)) * mask
        return functional.linear(x, *self._classifier)[:, :, 0].abs().to(torch.float32)


class HarmonicSource:
    """Sines of the pitch and its overtones whose phase begins anew at every call, and noise."""

    def __init__(self, config: VocoderConfig, weights: Mapping[str, torch.Tensor]) -> None:
        self._sine_amplitude = config.sine_amplitude
        self._noise_std = config.noise_std
        self._voiced_threshold_hz = config.voiced_threshold_hz
        self._merge_weight = weights["m_source.l_linear.weight"][0]
        self._merge_bias = weights["m_source.l_linear.bias"]
        device = self._merge_weight.device
        self._multiples = torch.arange(1, config.num_harmonics + 2, dtype=torch.float32, device=device)
        # A tensor: CUDA multiplies by the reciprocal of a Python number, which is an ulp off a division.
        self._sample_rate_hz = torch.tensor(float(units.SAMPLE_RATE_HZ), device=device)

    def __call__(self, f0: torch.Tensor, lengths: torch.Tensor, noise: torch.Tensor) -> torch.Tensor:
        """f0 [B, T], noise [B, 480 T] merged over harmonics, of deviation 1 each -> samples [B, 480 T]."""
        sines = torch.sin(self._phases(f0, lengths)).mul_(self._sine_amplitude)  # [B, 9, 480 T]
        voiced = (f0 > self._voiced_threshold_hz).to(torch.float32)
        noise_gain = voiced * self._noise_std + (1 - voiced) * self._sine_amplitude / 3
        voiced, noise_gain = (each.repeat_interleave(units.SAMPLES_PER_FRAME, dim=1) for each in (voiced, noise_gain))
        merged = torch.einsum("bhn,h->bn", sines, self._merge_weight)
        return (merged * voiced + noise * noise_gain + self._merge_bias).tanh_()

    def _phases(self, f0: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
        """[B, 9, 480 T] in radians: frames' phases, drawn out along straight lines between their middles."""
        # The order of operations and the float32 roundings are upstream's: phases reach 1e5.
        cycles = (f0[:, :, None] * self._multiples / self._sample_rate_hz) % 1
        # torch's CPU cumsum of float32 adds up in float64 and rounds each output.
        summed = cycles.to(torch.float64).cumsum(1).to(torch.float32)
        phases = summed * 2 * math.pi * units.SAMPLES_PER_FRAME
        # Behind its last middle a row stays at that phase; so padding takes the last one's.
        frames = torch.arange(f0.shape[1], device=f0.device).minimum(lengths[:, None] - 1)  # [B, T]
        held = phases.gather(1, frames[:, :, None].expand(-1, -1, phases.shape[2]))
        return functional.interpolate(held.mT, scale_factor=float(units.SAMPLES_PER_FRAME), mode="linear")
