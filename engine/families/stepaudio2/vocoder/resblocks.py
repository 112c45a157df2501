"""The vocoder's residual blocks, Snake and dilated convolutions, by torch's operations. `cuda/` has the other form.

Rows are right-padded, with zeros behind their ends. Channels first: [B, channels, columns].
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

import torch
from torch.nn import functional

SNAKE_EPS: Final = 1e-9


@dataclass(frozen=True, slots=True)
class Columns:
    """Which columns of padded rows are theirs at one rate."""

    frames: torch.Tensor  # [B]; a row has frames * rate + extra columns
    rate: int
    extra: int
    mask: torch.Tensor  # [B, 1, N]


class Resblock(Protocol):
    def __call__(
        self,
        weights: Mapping[str, torch.Tensor],
        name: str,
        x: torch.Tensor,
        dilations: Sequence[int],
        columns: Columns,
    ) -> torch.Tensor:
        """The block of that name: x [B, channels, N] -> the same shape, zeros behind rows' ends again."""


def plain_resblock(
    weights: Mapping[str, torch.Tensor], name: str, x: torch.Tensor, dilations: Sequence[int], columns: Columns
) -> torch.Tensor:
    """Implements Resblock: some 17 launches a dilation on a GPU."""
    for index, dilation in enumerate(dilations):
        hidden = _snake(x, weights[f"{name}.activations1.{index}.alpha"])
        hidden = convolve(hidden, *filter_of(weights, f"{name}.convs1.{index}"), dilation=dilation) * columns.mask
        hidden = _snake(hidden, weights[f"{name}.activations2.{index}.alpha"])
        x = x + convolve(hidden, *filter_of(weights, f"{name}.convs2.{index}")) * columns.mask
    return x


def filter_of(weights: Mapping[str, torch.Tensor], name: str) -> tuple[torch.Tensor, torch.Tensor]:
    """Weight and bias of a convolution."""
    return weights[f"{name}.weight"], weights[f"{name}.bias"]


def convolve(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, *, dilation: int = 1) -> torch.Tensor:
    """Looks as far ahead as back: as many columns out as in."""
    padding = (weight.shape[2] - 1) * dilation // 2
    return functional.conv1d(x, weight, bias, padding=padding, dilation=dilation)


def _snake(x: torch.Tensor, alpha: torch.Tensor) -> torch.Tensor:
    """x + sin^2(alpha x) / alpha (arXiv:2006.08195); 0 stays 0."""
    alpha = alpha[:, None]
    return torch.addcdiv(x, (x * alpha).sin_().square_(), alpha + SNAKE_EPS)
