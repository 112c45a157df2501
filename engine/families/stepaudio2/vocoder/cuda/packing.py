"""Weights of convolutions that look both ways, as the first family's kernels read them."""

from typing import ClassVar

import torch

from voicegate.engine.vocoder.cuda.packing import Packer


class CentredPacker(Packer):
    is_centred: ClassVar[bool] = True

    def columns_before(self, stride: int) -> int:
        return stride // 2

    def _folded(self, weight: torch.Tensor, factor: int) -> torch.Tensor:
        """A transposed convolution's [in, out, k], padded evenly: each phase sees as many columns back as ahead."""
        inputs, outputs, kernel = weight.shape
        padding = (kernel - factor) // 2
        reach = (factor - 1 + padding) // factor
        folded = weight.new_zeros(factor, outputs, inputs, 2 * reach + 1)
        for phase in range(factor):
            for column in range(-reach, reach + 1):
                tap = phase + padding - column * factor
                if 0 <= tap < kernel:
                    folded[phase, :, :, reach + column] = weight[:, :, tap].T
        return folded
