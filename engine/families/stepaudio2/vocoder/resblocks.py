"""The vocoder's residual blocks, Snake and dilated convolutions, by torch's operations.

Rows are right-padded, with zeros behind their ends. Channels first: [B, channels, columns].
"""

from collections.abc import Mapping, Sequence
from typing import Final

import torch
from torch.nn import functional

SNAKE_EPS: Final = 1e-9


def resblock(
    weights: Mapping[str, torch.Tensor], name: str, x: torch.Tensor, dilations: Sequence[int], mask: torch.Tensor
) -> torch.Tensor:
    """The block of that name: x [B, channels, N] -> the same shape. `mask` [B, 1, N]: which columns are a row's own."""
    for index, dilation in enumerate(dilations):
        hidden = _snake(x, weights[f"{name}.activations1.{index}.alpha"])
        hidden = convolve(hidden, *filter_of(weights, f"{name}.convs1.{index}"), dilation=dilation) * mask
        hidden = _snake(hidden, weights[f"{name}.activations2.{index}.alpha"])
        x = x + convolve(hidden, *filter_of(weights, f"{name}.convs2.{index}")) * mask
    return x


def filter_of(weights: Mapping[str, torch.Tensor], name: str) -> tuple[torch.Tensor, torch.Tensor]:
    """Weight and bias of a convolution."""
    return weights[f"{name}.weight"], weights[f"{name}.bias"]


def convolve(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, *, dilation: int = 1) -> torch.Tensor:
    """Looks as far ahead as back: as many columns out as in."""
    padding = (weight.shape[2] - 1) * dilation // 2
    return functional.conv1d(x, weight, bias, padding=padding, dilation=dilation)


def _snake(x: torch.Tensor, alpha: torch.Tensor) -> torch.Tensor:
    """x + sin^2(alpha x) / alpha (arXiv:2006.08195); 0 stays 0."""
    alpha = alpha[:, None]
    return torch.addcdiv(x, (x * alpha).sin_().square_(), alpha + SNAKE_EPS)
