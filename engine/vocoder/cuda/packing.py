"""Convolution weights as the CUDA kernels read them: [outputs, taps, channels], channels padded, blocks joined."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch.nn import functional

from voicegate.engine.vocoder.cuda.config import Precision
from voicegate.engine.vocoder.torch.layers import Weights


@dataclass(frozen=True, slots=True)
class ConvWeights:
    """One convolution, or up to three of the same shape but for their taps."""

    weight: torch.Tensor  # [outputs, taps of all blocks, channels] operands
    bias: torch.Tensor  # [blocks, outputs] float32
    taps: tuple[int, ...]  # of each block
    dilation: int = 1
    stride: int = 1
    is_centred: bool = False  # an output sees as far ahead as back; else what lies before it

    @property
    def num_outputs(self) -> int:
        return self.weight.shape[0]

    @property
    def channels(self) -> int:
        return self.weight.shape[2]

    @property
    def margins(self) -> tuple[int, ...]:
        """Columns to the left that each block's outputs see."""
        reaches = ((taps - 1) * self.dilation for taps in self.taps)
        return tuple(reach // 2 if self.is_centred else reach for reach in reaches)

    @property
    def tails(self) -> tuple[int, ...]:
        """Those that a stream's call has from the one before; a layer that looks ahead is given all at once."""
        return () if self.is_centred else self.margins

    @property
    def num_ahead(self) -> int:
        """Columns to the right that an output sees, at the most."""
        return max(self.margins) if self.is_centred else 0


@dataclass(frozen=True, slots=True)
class SnakeWeights:
    alpha: torch.Tensor  # [blocks, channels] float32
    inverse_alpha: torch.Tensor


class Packer:
    """Packs convolutions that look to the left."""

    is_centred: ClassVar[bool] = False

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
        is_centred = self.is_centred and stride == 1
        return ConvWeights(self._operand(torch.cat(parts, dim=1)), bias, taps, dilation, stride, is_centred)

    def columns_before(self, stride: int) -> int:
        """Columns that the first tap of a convolution with that stride reads before its output's own."""
        return stride - 1

    def upsample(self, name: str, factor: int) -> ConvWeights:
        """Outputs are [factor phases, channels], taps are columns of the lower rate."""
        folded = self._folded(self._weights[f"{name}.weight"].to(torch.float64), factor)
        phases = torch.cat([self._padded(each.to(torch.float32)) for each in folded])
        bias = self._padded_vector(self._weights[f"{name}.bias"]).repeat(1, factor)
        return ConvWeights(self._operand(phases), bias, (folded.shape[3],), is_centred=self.is_centred)

    def _folded(self, weight: torch.Tensor, factor: int) -> torch.Tensor:
        """layers.Upsample's folding: [factor, out, in, taps]."""
        outputs, inputs, kernel = weight.shape
        context = math.ceil((kernel - 1) / factor)
        folded = weight.new_zeros(factor, outputs, inputs, context + 1)
        for phase in range(factor):
            for tap in range(kernel):
                folded[phase, :, :, context + (phase - (kernel - 1) + tap) // factor] += weight[:, :, tap]
        return folded

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
