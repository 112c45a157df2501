"""One upsampling stage of the filter on CUDA: its buffers, and its launches in order."""

import torch
import triton

from voicegate.engine.model.config import VocoderConfig
from voicegate.engine.vocoder.cuda.buffers import BufferSpec, Workspace
from voicegate.engine.vocoder.cuda.config import PRECISIONS, VocoderCudaConfig
from voicegate.engine.vocoder.cuda.convolutions import Columns, Convolutions, Epilogue
from voicegate.engine.vocoder.cuda.packing import ConvWeights, Packer, SnakeWeights
from voicegate.engine.vocoder.cuda.spectrum_kernels import join_kernel
from voicegate.engine.vocoder.weights import source_stride, stage_channels, stage_rate

# Columns per program of kernels that have no product.
JOIN_COLUMNS = 16


class ResBlocks:
    """Residual blocks of the same channels and dilations, side by side: every layer of all of them is one launch."""

    def __init__(self, prefix: str, names: list[str], dilations: tuple[int, ...], packer: Packer) -> None:
        self._prefix = prefix
        self._units: list[tuple[ConvWeights, ConvWeights]] = []
        self._snakes: list[tuple[SnakeWeights, SnakeWeights]] = []
        for index, dilation in enumerate(dilations):
            dilated = packer.conv([f"{name}.convs1.{index}" for name in names], dilation=dilation)
            plain = packer.conv([f"{name}.convs2.{index}" for name in names])
            self._units.append((dilated, plain))
            first, second = ([f"{name}.activations{half}.{index}" for name in names] for half in (1, 2))
            self._snakes.append((packer.snake(first), packer.snake(second)))

    @property
    def first_snake(self) -> SnakeWeights:
        """The activation that the blocks' first inputs must have gone through."""
        return self._snakes[0][0]

    def specs(self, columns: Columns, dtype: torch.dtype) -> list[BufferSpec]:
        return [
            BufferSpec(
                f"{self._prefix}.{unit}.{half}",
                conv.channels,
                dtype,
                columns.rate,
                columns.extra,
                max(conv.margins),
                len(conv.taps),
                conv.tails,
                num_ahead=conv.num_ahead,
            )
            for unit, convs in enumerate(self._units)
            for half, conv in enumerate(convs)
        ]

    def first_input(self, space: Workspace) -> torch.Tensor:
        """Where the blocks' first inputs belong, behind the tails."""
        return space.views[f"{self._prefix}.0.0"][:, :, self._margin(0, 0) :]

    def run(
        self,
        convolve: Convolutions,
        space: Workspace,
        columns: Columns,
        x: torch.Tensor,
        last: Epilogue,
        *,
        residuals: torch.Tensor,
        is_mean: bool,
    ) -> None:
        """x [1, ...] is every block's input; `residuals` [blocks, ...] has room for what follows it and may be x.

        `last` is given to the last layer; its residual is set here.
        """
        for unit, (dilated, plain) in enumerate(self._units):
            margin = self._margin(unit, 1)
            hidden = space.views[f"{self._prefix}.{unit}.1"]
            convolve.run(
                space.views[f"{self._prefix}.{unit}.0"],
                dilated,
                columns,
                space.num_frames,
                Epilogue(active=hidden[:, :, margin:], snake=self._snakes[unit][1]),
                origin=self._margin(unit, 0),
            )
            residual = x if unit == 0 else residuals
            is_last = unit + 1 == len(self._units)
            if is_last:
                epilogue = Epilogue(residual, last.raw, last.active, last.snake, last.leaky_slope)
            else:
                following = space.views[f"{self._prefix}.{unit + 1}.0"][:, :, self._margin(unit + 1, 0) :]
                epilogue = Epilogue(residual, residuals, following, self._snakes[unit + 1][0])
            convolve.run(hidden, plain, columns, space.num_frames, epilogue, origin=margin, is_sum=is_last and is_mean)

    def _margin(self, unit: int, half: int) -> int:
        return max(self._units[unit][half].margins)


class CudaStage:
    def __init__(self, config: VocoderConfig, stage: int, packer: Packer, cuda: VocoderCudaConfig) -> None:
        self._precision = PRECISIONS[cuda.precision]
        self._name = f"stage.{stage}"
        factor = config.upsample_rates[stage]
        self.is_last = stage + 1 == len(config.upsample_rates)
        rate = stage_rate(config, stage)
        self._columns = Columns(rate, 1 if self.is_last else 0)
        self._columns_before = Columns(rate // factor)
        self._channels = packer.channels(stage_channels(config, stage))
        self._stride = source_stride(config, stage)
        self._upsample = packer.upsample(f"ups.{stage}", factor)
        self._source_down = packer.conv([f"source_downs.{stage}"], stride=self._stride)
        self._source_before = packer.columns_before(self._stride)
        self._source = ResBlocks(
            f"{self._name}.source",
            [f"source_resblocks.{stage}"],
            config.source_resblock_dilations[stage],
            packer,
        )
        num_blocks = len(config.resblock_kernels)
        # The longest first: a launch ends with what began last.
        order = sorted(range(num_blocks), key=lambda index: -config.resblock_kernels[index])
        names = [f"resblocks.{stage * num_blocks + index}" for index in order]
        self._blocks = ResBlocks(f"{self._name}.blocks", names, config.resblock_dilations[0], packer)
        self._num_blocks = num_blocks

    @property
    def specs(self) -> list[BufferSpec]:
        columns, dtype = self._columns, self._precision.dtype
        up = self._upsample
        (context,) = up.margins
        edge = 1 if self.is_last else 0
        up_tails = (edge,) * edge if up.tails else ()
        before = self._columns_before.rate
        float32 = torch.float32
        own = (columns.rate, columns.extra)
        return [
            BufferSpec(
                f"{self._name}.in", up.channels, dtype, before, 0, context, tails=up.tails, num_ahead=up.num_ahead
            ),
            BufferSpec(f"{self._name}.up", self._channels, float32, columns.rate, 0, edge, tails=up_tails),
            BufferSpec(f"{self._name}.excitation", self._channels, float32, *own),
            BufferSpec(f"{self._name}.x", self._channels, float32, *own),
            BufferSpec(f"{self._name}.residuals", self._channels, float32, *own, 0, self._num_blocks),
            *self._source.specs(columns, dtype),
            *self._blocks.specs(columns, dtype),
        ]

    def input(self, space: Workspace) -> torch.Tensor:
        """Where the stage's input belongs, activated, behind its tail."""
        (context,) = self._upsample.margins
        return space.views[f"{self._name}.in"][:, :, context:]

    def excite(self, convolve: Convolutions, space: Workspace, spectra_margin: int) -> None:
        """spectra -> excitation, both in the workspace. Independent of all other stages and of the filter."""
        x = space.views[f"{self._name}.excitation"]
        first = Epilogue(raw=x, active=self._source.first_input(space), snake=self._source.first_snake)
        newest = spectra_margin - self._source_before + self._source_down.taps[0] - 1
        convolve.run(space.views["spectra"], self._source_down, self._columns, space.num_frames, first, origin=newest)
        self._source.run(convolve, space, self._columns, x, Epilogue(raw=x), residuals=x, is_mean=False)

    def upsample(self, convolve: Convolutions, space: Workspace) -> None:
        (context,) = self._upsample.margins
        up = space.views[f"{self._name}.up"]
        convolve.run(
            space.views[f"{self._name}.in"],
            self._upsample,
            self._columns_before,
            space.num_frames,
            Epilogue(raw=up[:, :, 1:] if self.is_last else up),
            origin=context,
        )

    def filter(
        self, convolve: Convolutions, space: Workspace, rows: torch.Tensor, following: torch.Tensor, slope: float
    ) -> None:
        """Join what `upsample` and `excite` made, and the mean of the resblocks -> leaky ReLU -> `following`."""
        up, excitation = space.views[f"{self._name}.up"], space.views[f"{self._name}.excitation"]
        x, first_input = space.views[f"{self._name}.x"], self._blocks.first_input(space)
        num_columns = self._columns.rate * space.num_frames + self._columns.extra
        join_kernel[(triton.cdiv(num_columns, JOIN_COLUMNS), space.num_streams)](
            up,
            excitation,
            x,
            first_input,
            self._blocks.first_snake.alpha,
            self._blocks.first_snake.inverse_alpha,
            rows,
            up.stride(1),
            excitation.stride(1),
            first_input.stride(1),
            first_input.stride(0),
            self._columns.rate,
            self._columns.extra,
            NUM_BLOCKS=self._num_blocks,
            HAS_EDGE=self.is_last,
            CHANNELS=self._channels,
            BLOCK_M=JOIN_COLUMNS,
            ROUND_TF32=self._precision.is_rounded_to_tf32,
            IS_FAST=self._precision.has_fast_sine,
            num_warps=4,
        )
        residuals = space.views[f"{self._name}.residuals"]
        last = Epilogue(active=following, leaky_slope=slope)
        self._blocks.run(convolve, space, self._columns, x, last, residuals=residuals, is_mean=True)
