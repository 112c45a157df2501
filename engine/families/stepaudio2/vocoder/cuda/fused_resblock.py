"""The vocoder's residual blocks with one kernel between two convolutions. Importing it imports Triton."""

# mypy: disable-error-code="no-untyped-call"

from collections.abc import Mapping, Sequence
from typing import Final

import torch
import triton

from voicegate.engine.families.stepaudio2.vocoder.cuda.snake_kernels import snake_kernel
from voicegate.engine.families.stepaudio2.vocoder.resblocks import SNAKE_EPS, Columns, convolve, filter_of

_COLUMNS: Final = 1024  # of a program


def fused_resblock(
    weights: Mapping[str, torch.Tensor], name: str, x: torch.Tensor, dilations: Sequence[int], columns: Columns
) -> torch.Tensor:
    """Implements Resblock: two kernels a dilation besides its convolutions, and one."""
    first, second = ([weights[f"{name}.activations{part}.{i}.alpha"] for i in range(len(dilations))] for part in (1, 2))
    hidden = torch.empty_like(x)
    _launch(x, columns, out=hidden, alpha=first[0])
    for index, dilation in enumerate(dilations):
        weight, bias = filter_of(weights, f"{name}.convs1.{index}")
        hidden = convolve(hidden, weight, None, dilation=dilation)
        _launch(hidden, columns, bias=bias, out=hidden, alpha=second[index])
        weight, bias = filter_of(weights, f"{name}.convs2.{index}")
        convolved = convolve(hidden, weight, None)
        if index + 1 < len(dilations):
            hidden = torch.empty_like(x)
            _launch(convolved, columns, bias=bias, residual=x, out=hidden, alpha=first[index + 1])
        else:
            _launch(convolved, columns, bias=bias, residual=x)
        x = convolved  # where the sum went
    return x


def _launch(
    x: torch.Tensor,
    columns: Columns,
    *,
    bias: torch.Tensor | None = None,
    residual: torch.Tensor | None = None,
    out: torch.Tensor | None = None,
    alpha: torch.Tensor | None = None,
) -> None:
    """x, with a bias a convolution's, becomes its sum with `residual`, if there is one; `out` Snake of that."""
    num_rows, num_channels, num_columns = x.shape
    assert x.is_contiguous()
    assert residual is None or residual.is_contiguous()
    snake_kernel[(num_rows * num_channels, triton.cdiv(num_columns, _COLUMNS))](
        x,
        x if bias is None else bias,
        x if residual is None else residual,
        x,
        x if out is None else out,
        x if alpha is None else alpha,
        columns.frames,
        num_channels,
        num_columns,
        FRAMES_STRIDE=columns.frames.stride(0),
        RATE=columns.rate,
        EXTRA=columns.extra,
        IS_CONVOLUTION=bias is not None,
        HAS_RESIDUAL=residual is not None,
        HAS_SNAKE=out is not None,
        EPS=SNAKE_EPS,
        BLOCK=_COLUMNS,
        num_warps=4,
    )
