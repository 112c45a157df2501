"""Left-looking layers of the vocoder, channels last: [B, columns, channels], each with its past inputs as state.

A layer is given its new columns, puts its tail before them and leaves behind the tail of the next call.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Final

import torch
from torch.nn import functional

from voicegate.engine.vocoder.torch.state import BatchRows, Layout, Tails, behind_tail, merged_layouts

Weights = Mapping[str, torch.Tensor]

# Up to this size of a single input torch does not ask oneDNN but runs a loop of its own, two to five times slower than
# a matrix product over the unfolded taps (ATen/native/Convolution.cpp, use_mkldnn).
ONEDNN_MIN_NUMBERS: Final = 20_480


class Convolution:
    """x [B, N, in] -> [B, n, out], no padding.

    As a 2-D convolution of height one, because conv1d has no channels-last path: oneDNN would transpose input and
    output at every layer, a quarter of the time at 16 to 64 channels.
    """

    def __init__(
        self,
        weight: torch.Tensor,  # [out, in, k]
        bias: torch.Tensor,
        *,
        dilation: int = 1,
        stride: int = 1,
        dtype: torch.dtype,
    ) -> None:
        self.num_outputs, self.num_inputs, self._kernel = weight.shape
        self.span = (self._kernel - 1) * dilation  # columns to the left that an output sees
        self._dilation = dilation
        self._stride = stride
        self._weight = weight[:, :, None].to(dtype).to(memory_format=torch.channels_last)  # [out, in, 1, k]
        self._bias = bias.to(dtype)
        self._product = self._weight.permute(3, 1, 0, 2).reshape(-1, self.num_outputs)  # [k * in, out], a view
        self._is_on_cpu = weight.device.type == "cpu"

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        if self._is_on_cpu and len(x) == 1 and x.numel() <= ONEDNN_MIN_NUMBERS:
            return self._as_product(x[0])[None]
        image = x[:, None].permute(0, 3, 1, 2)  # [B, in, 1, N], channels last in memory
        out = functional.conv2d(image, self._weight, self._bias, (1, self._stride), 0, (1, self._dilation))
        return out.permute(0, 2, 3, 1)[:, 0]

    def _as_product(self, x: torch.Tensor) -> torch.Tensor:
        num_columns = (len(x) - self.span - 1) // self._stride + 1
        step = x.stride(0)
        taps = x.as_strided(
            (num_columns, self._kernel, self.num_inputs),
            (self._stride * step, self._dilation * step, 1),
            x.storage_offset(),
        )
        return torch.addmm(self._bias, taps.reshape(num_columns, -1), self._product)


class SnakeConv:
    """Snake, x + sin^2(alpha x) / alpha (arXiv:2006.08195), then a dilated left-looking convolution."""

    def __init__(self, conv_name: str, alpha_name: str, weights: Weights, *, dilation: int, dtype: torch.dtype) -> None:
        self._name = conv_name
        self._conv = Convolution(
            weights[f"{conv_name}.weight"], weights[f"{conv_name}.bias"], dilation=dilation, dtype=dtype
        )
        alpha = weights[f"{alpha_name}.alpha"]
        self._alpha = alpha.to(dtype)
        self._inverse_alpha = (1 / (alpha + 1e-9)).to(dtype)

    @property
    def layout(self) -> Layout:
        return {self._name: (self._conv.span, self._conv.num_inputs)}

    def advance(self, x: torch.Tensor, tails: Tails, rows: BatchRows, rate: int) -> torch.Tensor:
        squared = (x * self._alpha).sin_().square_()
        active = torch.addcmul(x, squared, self._inverse_alpha, out=squared)
        return self._conv(behind_tail(tails[self._name], active, rows, rate))


class ResBlock:
    """For each dilation: x + conv(snake(dilated conv(snake(x))))."""

    def __init__(self, name: str, weights: Weights, dilations: Sequence[int], *, dtype: torch.dtype) -> None:
        self._units = [
            tuple(
                SnakeConv(
                    f"{name}.convs{half}.{index}",
                    f"{name}.activations{half}.{index}",
                    weights,
                    dilation=unit_dilation,
                    dtype=dtype,
                )
                for half, unit_dilation in ((1, dilation), (2, 1))
            )
            for index, dilation in enumerate(dilations)
        ]

    @property
    def layout(self) -> Layout:
        return merged_layouts(layer.layout for unit in self._units for layer in unit)

    def advance(self, x: torch.Tensor, tails: Tails, rows: BatchRows, rate: int) -> torch.Tensor:
        """x is left as it was: three blocks read the same input."""
        for dilated, plain in self._units:
            hidden = dilated.advance(x, tails, rows, rate)
            x = plain.advance(hidden, tails, rows, rate).add_(x)
        return x


class Upsample:
    """Repeat each column `factor` times, then a left-looking convolution; folded into one at the lower rate.

    Of the k repeated columns that an output sees, many are copies of one input column; their taps are summed at
    load, one set for each of the `factor` output phases. A fifth of the work, and a tail of two columns.
    """

    def __init__(self, name: str, weights: Weights, factor: int, *, dtype: torch.dtype) -> None:
        weight = weights[f"{name}.weight"].to(torch.float64)  # [out, in, k]
        outputs, inputs, kernel = weight.shape
        self._name = name
        self._num_outputs = outputs
        context = math.ceil((kernel - 1) / factor)
        folded = weight.new_zeros(factor, outputs, inputs, context + 1)
        for phase in range(factor):
            for tap in range(kernel):
                column = (phase - (kernel - 1) + tap) // factor  # 0 is the newest input column
                folded[phase, :, :, context + column] += weight[:, :, tap]
        bias = weights[f"{name}.bias"].repeat(factor)
        self._conv = Convolution(folded.flatten(0, 1), bias, dtype=dtype)

    @property
    def layout(self) -> Layout:
        return {self._name: (self._conv.span, self._conv.num_inputs)}

    def advance(self, x: torch.Tensor, tails: Tails, rows: BatchRows, rate: int) -> torch.Tensor:
        """x [B, n, in] at `rate` columns per mel frame -> [B, n * factor, out]."""
        phases = self._conv(behind_tail(tails[self._name], x, rows, rate))  # [B, n, factor * out]
        return phases.reshape(x.shape[0], -1, self._num_outputs)
