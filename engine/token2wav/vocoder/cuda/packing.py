"""Convolution weights as the CUDA kernels read them: [outputs, taps, channels], channels padded, blocks joined."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch.nn import functional

from voicegate.engine.token2wav.vocoder.cuda.config import Precision
from voicegate.engine.token2wav.vocoder.layers import Weights


@dataclass(frozen=True, slots=True)
class ConvWeights:
    """One convolution, or up to three of the same shape but for their taps."""

    weight: torch.Tensor  # [outputs, taps of all blocks, channels] operands
    bias: torch.Tensor  # [blocks, outputs] float32
    taps: tuple[int, ...]  # of each block
    dilation: int = 1
    stride: int = 1

    @property
    def num_outputs(self) -> int:
        return self.weight.shape[0]

    @property
    def channels(self) -> int:
        return self.weight.shape[2]

    @property
    def tails(self) -> tuple[int, ...]:
        """Columns to the left that each block's outputs see."""
        return tuple((taps - 1) * self.dilation for taps in self.taps)


@dataclass(frozen=True, slots=True)
class SnakeWeights:
    alpha: torch.Tensor  # [blocks, channels] float32
    inverse_alpha: torch.Tensor


class Packer:
    def __init__(self, weights: Weights, precision: Precision) -> None:
        self._weights = weights
        self._precision = precision

    def channels(self, num_channels: int) -> int:
        """Padded so that products take whole steps, and a power of two of them."""
        return max(self._precision.block_k, 32, 1 << (num_channels - 1).bit_length())

    def conv(self, names: Sequence[str], *, dilation: int = 1, stride: int = 1) -> ConvWeights:
        parts = [self._padded(self._weights[f"{name}.weight"]) for name in names]
        bias = torch.stack([self._padded_vector(self._weights[f"{name}.bias"]) for name in names])
        taps = tuple(part.shape[1] for part in parts)
        return ConvWeights(self._operand(torch.cat(parts, dim=1)), bias, taps, dilation, stride)

    def upsample(self, name: str, factor: int) -> ConvWeights:
        """layers.Upsample's folding: outputs are [factor phases, channels], taps are columns of the lower rate."""
        weight = self._weights[f"{name}.weight"].to(torch.float64)
        outputs, inputs, kernel = weight.shape
        context = math.ceil((kernel - 1) / factor)
        folded = weight.new_zeros(factor, outputs, inputs, context + 1)
        for phase in range(factor):
            for tap in range(kernel):
                folded[phase, :, :, context + (phase - (kernel - 1) + tap) // factor] += weight[:, :, tap]
        phases = torch.cat([self._padded(each.to(torch.float32)) for each in folded])
        bias = self._padded_vector(self._weights[f"{name}.bias"]).repeat(1, factor)
        return ConvWeights(self._operand(phases), bias, (context + 1,))

    def snake(self, names: Sequence[str]) -> SnakeWeights:
        alpha = torch.stack([self._padded_vector(self._weights[f"{name}.alpha"]) for name in names])
        return SnakeWeights(alpha, 1 / (alpha + 1e-9))

    def _padded(self, weight: torch.Tensor) -> torch.Tensor:
        """[out, in, k] -> [out, k, in], zeros for the channels that are not there."""
        outputs, inputs, _ = weight.shape
        room = (0, self.channels(inputs) - inputs, 0, 0, 0, self.channels(outputs) - outputs)
        return functional.pad(weight.transpose(1, 2), room)

    def _padded_vector(self, vector: torch.Tensor) -> torch.Tensor:
        return functional.pad(vector.to(torch.float32), (0, self.channels(len(vector)) - len(vector)))

    def _operand(self, weight: torch.Tensor) -> torch.Tensor:
        if self._precision.is_rounded_to_tf32:
            bits = weight.contiguous().view(torch.int32)
            return ((bits + 0x1000) & ~0x1FFF).view(torch.float32)
        return weight.to(self._precision.dtype).contiguous()
