"""The vocoder's filter as a fixed-shape ONNX graph: a call's mel frames and spectra in, the signal's spectra out.

The same numbers as VocoderNetwork's filter, for rows that advance by as many frames as each has. Pitch and source stay
outside: they need float64, which TensorRT has not. Convolutions, and what streams carry for them, of `low`; float32
islands: Snake, residuals and sums. Inside columns are last, [B, channels, columns], as convolutions want it here.
"""

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np
import onnx
import torch

from voicegate.engine import units
from voicegate.engine.backends.tensorrt.graph import Graph, Value
from voicegate.engine.backends.tensorrt.vocoder.shape import FilterShape
from voicegate.engine.model.config import VocoderConfig
from voicegate.engine.vocoder.torch.network import POST_SLOPE
from voicegate.engine.vocoder.weights import POST_KERNEL, source_stride, stage_rate

Weights = Mapping[str, torch.Tensor]

# As layers.SnakeConv has it: no division by zero.
_LEAST_ALPHA: Final = 1e-9


def filter_model(config: VocoderConfig, weights: Weights, shape: FilterShape, *, low: str) -> onnx.ModelProto:
    """Inputs, of `low` where nothing else is said, laid out as the CUDA network's buffers are:

    mel [B, n + 4, mel channels]; spectra [B, margin + 120 n + 1, spectrum channels], of both more channels than are
    read; frames, is_first [B] int32: by how many frames a row advances, and whether it is its stream's first call;
    state [B, S] and edge [B, C, 1] float32: what a stream carries from call to call, zeros at its start.

    Outputs: filtered [B, 120 n + 1, 18] float32, new_state, new_edge.
    """
    return _Filter(config, weights, shape, low).model()


class _Filter:
    def __init__(self, config: VocoderConfig, weights: Weights, shape: FilterShape, low: str) -> None:
        self._config = config
        self._weights = weights
        self._shape = shape
        self._graph = Graph(low)
        self._spectra_per_frame = units.SAMPLES_PER_FRAME // config.stft_hop
        self._num_bins = config.stft_size + 2
        self._advances: Value = ""  # [B, 1, 1] int32
        self._columns: dict[tuple[int, int], Value] = {}
        self._new_state: list[Value] = []
        self._state_size = 0

    def model(self) -> onnx.ModelProto:
        graph, config, shape, rows = self._graph, self._config, self._shape, self._shape.num_rows
        num_spectra = self._spectra_per_frame * shape.num_frames + 1
        margin = source_stride(config, 0) - 1
        mel_columns = shape.num_frames + config.look_right_frames
        mel = graph.input("mel", (rows, mel_columns, shape.mel_channels), graph.low)
        spectra = graph.input("spectra", (rows, margin + num_spectra, shape.spectrum_channels), graph.low)
        self._advances = graph.reshape(graph.input("frames", (rows,), "int32"), rows, 1, 1)
        is_first = graph.reshape(graph.input("is_first", (rows,), "int32"), rows, 1, 1)
        known = self._columns_last(spectra, self._num_bins)
        x = self._conv(self._columns_last(mel, units.NUM_MELS), "conv_pre")
        num_stages = len(config.upsample_rates)
        for stage in range(num_stages):
            x = graph.op("LeakyRelu", x, alpha=config.leaky_relu_slope)
            x = self._upsample(x, stage)
            if stage == num_stages - 1:
                x = self._join_edge(x, graph.cast(is_first, "bool"))
            x = graph.op("Add", self._source(known, margin, num_spectra, stage), x)
            x = self._blocks(x, stage)
        x = graph.op("LeakyRelu", x, alpha=POST_SLOPE)
        channels = self._weights["conv_post.weight"].shape[1]
        x = self._conv(self._behind(x, channels, POST_KERNEL - 1, self._spectra_per_frame), "conv_post")
        graph.output(graph.transpose(x, 0, 2, 1), "filtered", (rows, num_spectra, self._num_bins))
        state_shape = (rows, self._state_size)
        graph.input("state", state_shape, graph.low)
        graph.output(graph.concat(1, *self._new_state), "new_state", state_shape, graph.low)
        return graph.model(shape.name)

    def _columns_last(self, buffer: Value, channels: int) -> Value:
        """[B, columns, more channels] -> [B, channels, columns]."""
        return self._graph.transpose(self._graph.slice(buffer, 2, 0, channels), 0, 2, 1)

    def _behind(self, x: Value, channels: int, width: int, rate: int) -> Value:
        """[B, channels, N] -> the same in `low`, behind the `width` columns before: a stretch of the state."""
        graph, rows = self._graph, self._shape.num_rows
        x = graph.lowered(x)
        if not width:
            return x
        start, self._state_size = self._state_size, self._state_size + channels * width
        tail = graph.reshape(graph.slice("state", 1, start, self._state_size), rows, channels, width)
        buffer = graph.concat(2, tail, x)
        new_tail = self._window(buffer, channels, width, rate)
        self._new_state.append(graph.reshape(new_tail, rows, channels * width))
        return buffer

    def _window(self, buffer: Value, channels: int, width: int, rate: int) -> Value:
        """[B, channels, N] -> [B, channels, width]: of each row what follows the columns that it advances by."""
        graph, key = self._graph, (width, rate)
        if key not in self._columns:
            first = graph.op("Mul", self._advances, graph.constant(np.array(rate, np.int32)))
            self._columns[key] = graph.op("Add", first, graph.constant(np.arange(width, dtype=np.int32)))
        size = graph.constant(np.array((self._shape.num_rows, channels, width), np.int64))
        return graph.op("GatherElements", buffer, graph.op("Expand", self._columns[key], size), axis=2)

    def _conv(self, x: Value, name: str, *, dilation: int = 1, stride: int = 1) -> Value:
        """x of `low` -> float32."""
        return self._convolve(x, self._weights[f"{name}.weight"], self._weights[f"{name}.bias"], dilation, stride)

    def _convolve(
        self, x: Value, weight: torch.Tensor, bias: torch.Tensor, dilation: int = 1, stride: int = 1
    ) -> Value:
        graph = self._graph
        kernel = graph.constant(weight, graph.low)
        product = graph.op("Conv", x, kernel, dilations=[dilation], strides=[stride])
        return graph.op("Add", graph.raised(product), graph.constant(bias.float()[:, None]))

    def _upsample(self, x: Value, stage: int) -> Value:
        """Each column `factor` times, then a left-looking convolution: folded into one, as layers.Upsample does."""
        graph, factor = self._graph, self._config.upsample_rates[stage]
        weight = self._weights[f"ups.{stage}.weight"]
        outputs, inputs, kernel = weight.shape
        context = -(-(kernel - 1) // factor)
        folded = weight.new_zeros((outputs, factor, inputs, context + 1), dtype=torch.float64)
        for phase in range(factor):
            for tap in range(kernel):
                folded[:, phase, :, context + (phase - (kernel - 1) + tap) // factor] += weight[:, :, tap]
        rate_before = stage_rate(self._config, stage) // factor
        known = self._behind(x, inputs, context, rate_before)
        bias = self._weights[f"ups.{stage}.bias"].repeat_interleave(factor)
        phases = self._convolve(known, folded.flatten(0, 1).float(), bias)  # [B, outputs * factor, N]
        split = graph.reshape(phases, self._shape.num_rows, outputs, factor, self._shape.num_frames * rate_before)
        return graph.reshape(graph.transpose(split, 0, 1, 3, 2), self._shape.num_rows, outputs, -1)

    def _join_edge(self, x: Value, is_first: Value) -> Value:
        """One column more in front: the one before, or at a stream's start the mirror image of column 1."""
        graph = self._graph
        channels = self._weights["conv_post.weight"].shape[1]
        shape = (self._shape.num_rows, channels, 1)
        joined = graph.concat(2, graph.op("Where", is_first, graph.slice(x, 2, 1, 2), graph.input("edge", shape)), x)
        graph.output(self._window(joined, channels, 1, self._spectra_per_frame), "new_edge", shape)
        return joined

    def _source(self, known: Value, margin: int, num_spectra: int, stage: int) -> Value:
        stride = source_stride(self._config, stage)
        heard = self._graph.slice(known, 2, margin - stride + 1, margin + num_spectra)
        x = self._conv(heard, f"source_downs.{stage}", stride=stride)
        return self._residual(x, f"source_resblocks.{stage}", self._config.source_resblock_dilations[stage], stage)

    def _blocks(self, x: Value, stage: int) -> Value:
        graph, count = self._graph, len(self._config.resblock_kernels)
        parts = [
            self._residual(x, f"resblocks.{stage * count + index}", dilations, stage)
            for index, dilations in enumerate(self._config.resblock_dilations)
        ]
        total = parts[0]
        for part in parts[1:]:
            total = graph.op("Add", total, part)
        return graph.op("Mul", total, graph.constant(1 / count))

    def _residual(self, x: Value, name: str, dilations: Sequence[int], stage: int) -> Value:
        graph = self._graph
        for index, dilation in enumerate(dilations):
            hidden = self._snake_conv(x, name, 1, index, dilation, stage)
            x = graph.op("Add", self._snake_conv(hidden, name, 2, index, 1, stage), x)
        return x

    def _snake_conv(self, x: Value, name: str, half: int, index: int, dilation: int, stage: int) -> Value:
        graph, conv = self._graph, f"{name}.convs{half}.{index}"
        alpha = self._weights[f"{name}.activations{half}.{index}.alpha"].float()[:, None]
        wave = graph.op("Sin", graph.op("Mul", x, graph.constant(alpha)))
        squared = graph.op("Mul", wave, wave)
        active = graph.op("Add", x, graph.op("Mul", squared, graph.constant(1 / (alpha + _LEAST_ALPHA))))
        _, channels, kernel = self._weights[f"{conv}.weight"].shape
        known = self._behind(active, channels, (kernel - 1) * dilation, stage_rate(self._config, stage))
        return self._conv(known, conv, dilation=dilation)
