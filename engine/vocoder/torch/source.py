"""The harmonic source: f0 -> the samples that excite the filter. Everything but the noise is constant over a frame.

Upstream upsamples f0, downsamples phases and upsamples them again by nearest neighbour; what is left of that is one
phase per mel frame and harmonic, held for 480 samples. Its random initial phase never reaches a sample.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch

from voicegate.engine import units
from voicegate.engine.model.config import VocoderConfig


@dataclass(frozen=True, slots=True)
class FrameSource:
    """One value per mel frame: the excitation of sample n in frame t is sine[t] + noise_gain[t] * U[n], U uniform."""

    sine: torch.Tensor  # [B, T, 9] float32; zero where unvoiced
    noise_gain: torch.Tensor  # [B, T] float32
    cycles: torch.Tensor  # [B, T, 9] float64: the running sum of cycles per sample, this frame included


class HarmonicSource:
    def __init__(self, config: VocoderConfig, weights: Mapping[str, torch.Tensor]) -> None:
        self._sine_amplitude = config.sine_amplitude
        self._noise_std = config.noise_std
        self._voiced_threshold_hz = config.voiced_threshold_hz
        self.num_harmonics = config.num_harmonics + 1
        self.merge_weight = weights["m_source.l_linear.weight"][0]  # [9]
        self._merge_bias = weights["m_source.l_linear.bias"]  # [1]
        device = self.merge_weight.device
        self._multiples = torch.arange(1, self.num_harmonics + 1, dtype=torch.float32, device=device)
        # A tensor: CUDA multiplies by the reciprocal of a Python number, which is an ulp off a division.
        self._sample_rate_hz = torch.tensor(float(units.SAMPLE_RATE_HZ), device=device)

    def frames(self, f0: torch.Tensor, cycles_before: torch.Tensor) -> FrameSource:
        """f0 [B, T] float32 and the sums up to the first frame [B, 9] float64 -> per-frame sources."""
        # The order of operations and the float32 roundings are upstream's: an ulp here is radians after minutes.
        per_sample = (f0[:, :, None] * self._multiples / self._sample_rate_hz) % 1
        # Torch's CPU cumsum of float32 adds up in float64 and rounds each output.
        summed = torch.cat((cycles_before[:, None], per_sample.to(torch.float64)), dim=1).cumsum(1)[:, 1:]
        phase = summed.to(torch.float32) * 2 * math.pi * units.SAMPLES_PER_FRAME
        voiced = (f0 > self._voiced_threshold_hz).to(torch.float32)
        sine = torch.sin(phase).mul_(self._sine_amplitude).mul_(voiced[:, :, None])
        noise_gain = voiced * self._noise_std + (1 - voiced) * self._sine_amplitude / 3
        return FrameSource(sine, noise_gain, summed)

    def samples(self, frames: FrameSource, noise: torch.Tensor) -> torch.Tensor:
        """noise [B, 480 T]: merge weights times the table's rows, one number a sample -> samples [B, 480 T]."""
        center = frames.sine @ self.merge_weight + self._merge_bias  # [B, T]
        per_frame = noise.reshape(len(noise), -1, units.SAMPLES_PER_FRAME)
        merged = torch.addcmul(center[:, :, None], per_frame, frames.noise_gain[:, :, None])
        return merged.tanh_().flatten(1)
