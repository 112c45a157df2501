"""Launches the convolution kernel: which tile, which strides, which of its epilogues."""

from dataclasses import dataclass

import torch

from voicegate.engine.vocoder.cuda.config import PRECISIONS, VocoderCudaConfig
from voicegate.engine.vocoder.cuda.conv_kernel import LEAKY, NO_ACTIVATION, SNAKE, conv_kernel
from voicegate.engine.vocoder.cuda.packing import ConvWeights, SnakeWeights


@dataclass(frozen=True, slots=True)
class Columns:
    """An output's columns: `rate` per mel frame and `extra` more."""

    rate: int
    extra: int = 0


@dataclass(frozen=True, slots=True)
class Epilogue:
    """sum + residual -> raw; activation(sum + residual) -> active. All [blocks, streams, columns, outputs].

    `active` begins where the call's own columns do: at its buffer's margin.
    """

    residual: torch.Tensor | None = None
    raw: torch.Tensor | None = None
    active: torch.Tensor | None = None
    snake: SnakeWeights | None = None
    leaky_slope: float | None = None

    @property
    def activation(self) -> int:
        if self.snake is not None:
            return SNAKE
        return NO_ACTIVATION if self.leaky_slope is None else LEAKY


class Convolutions:
    def __init__(self, config: VocoderCudaConfig, rows: torch.Tensor) -> None:
        """`rows`: the call's table, [streams, fields], the same memory for every call."""
        self._config = config
        self._precision = PRECISIONS[config.precision]
        self._rows = rows

    def run(
        self,
        x: torch.Tensor,
        weights: ConvWeights,
        columns: Columns,
        num_frames: int,
        epilogue: Epilogue,
        *,
        origin: int,
        is_sum: bool = False,
    ) -> None:
        """x [blocks, streams, buffer columns, channels]; `origin`: the buffer column that output 0's last tap reads, or
        its middle one.

        `is_sum`: the mean of all blocks, residuals included, takes the place of an output for each.
        """
        num_streams = x.shape[1]
        num_blocks = len(weights.taps)
        num_products = num_streams * (1 if is_sum else num_blocks)
        num_columns = columns.rate * num_frames + columns.extra
        tile = self._config.tile(num_columns=num_columns, num_outputs=weights.num_outputs, num_products=num_products)
        num_tiles = -(-num_columns // tile.columns) * (weights.num_outputs // tile.outputs)
        raw = epilogue.raw if epilogue.raw is not None else weights.bias
        active = epilogue.active if epilogue.active is not None else weights.weight
        residual = epilogue.residual if epilogue.residual is not None else weights.bias
        alpha = epilogue.snake.alpha if epilogue.snake is not None else weights.bias
        inverse_alpha = epilogue.snake.inverse_alpha if epilogue.snake is not None else weights.bias
        block_k = min(self._precision.block_k * tile.depth, weights.channels)
        conv_kernel[(num_tiles, num_streams, 1 if is_sum else num_blocks)](
            x,
            weights.weight,
            weights.bias,
            residual,
            raw,
            active,
            alpha,
            inverse_alpha,
            self._rows,
            weights.num_outputs,
            (weights.channels // block_k).bit_length() - 1,
            weights.channels,
            weights.channels * weights.stride,
            origin,
            weights.dilation,
            *_strides(x),
            *_strides(residual),
            *_strides(raw),
            *_strides(active),
            columns.rate,
            columns.extra,
            epilogue.leaky_slope or 0.0,
            1 / num_blocks,
            *(*weights.taps, 0, 0)[:3],
            NUM_BLOCKS=num_blocks,
            IS_SUM=is_sum,
            IS_CENTRED=weights.is_centred,
            HAS_RESIDUAL=epilogue.residual is not None,
            HAS_RAW=epilogue.raw is not None,
            ACTIVATION=epilogue.activation,
            BLOCK_M=tile.columns,
            BLOCK_N=tile.outputs,
            BLOCK_K=block_k,
            NUM_SLICES=tile.num_slices,
            PRECISION=self._precision.product,
            ROUND_TF32=self._precision.is_rounded_to_tf32,
            IS_FAST=self._precision.has_fast_sine,
            num_warps=tile.num_warps,
            num_stages=tile.num_stages,
            maxnreg=tile.max_registers,
        )


def _strides(tensor: torch.Tensor) -> tuple[int, int]:
    """From stream to stream and from block to block; a residual of one block serves all."""
    if tensor.dim() < 4:
        return 0, 0
    return tensor.stride(1), tensor.stride(0) if tensor.shape[0] > 1 else 0
