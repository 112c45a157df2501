"""The vocoder's filter as a fixed-shape ONNX graph: mel frames and the source's spectra in, the signal's spectra out.

The same numbers as VocoderNetwork's `_filter` for rows that all advance by the same frames. Pitch and source stay
outside: they need float64, which TensorRT has not. Convolutions of `low`; float32 islands: Snake, residuals, sums and
state. Columns last, [B, channels, columns], as convolutions want it here.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import onnx
import torch

from voicegate.bench.tensorrt.graph import Array, Graph, Value
from voicegate.engine import units
from voicegate.engine.model.config import VocoderConfig
from voicegate.engine.token2wav.vocoder.network import POST_SLOPE
from voicegate.engine.token2wav.vocoder.weights import POST_KERNEL, source_stride, stage_rate

Weights = Mapping[str, torch.Tensor]

# As layers.SnakeConv has it: no division by zero.
_LEAST_ALPHA: Final = 1e-9


@dataclass(frozen=True, slots=True)
class VocoderShape:
    num_rows: int
    num_frames: int  # by which each row advances

    @property
    def name(self) -> str:
        return f"vocoder_filter_{self.num_rows}x{self.num_frames}"


def vocoder_filter_model(config: VocoderConfig, weights: Weights, shape: VocoderShape, *, low: str) -> onnx.ModelProto:
    """Inputs, all float32: mel [B, 80, n + 4]; spectra [B, 18, 120 n + 1]; is_first [B, 1, 1], 1 or 0.

    And of every layer that looks back what it saw last, [B, channels, columns], under its name in VocoderNetwork's
    layout, but `spectra_before` for the spectra. Outputs: filtered [B, 18, 120 n + 1], and `new.NAME` for each of them.
    """
    return _Filter(config, weights, shape, low).model()


def state_shapes(config: VocoderConfig, weights: Weights, shape: VocoderShape) -> dict[str, tuple[int, ...]]:
    """Inputs that carry a stream's past, by name."""
    made = vocoder_filter_model(config, weights, VocoderShape(shape.num_rows, 1), low="float32")
    return {
        each.name: tuple(dim.dim_value for dim in each.type.tensor_type.shape.dim)
        for each in made.graph.input
        if each.name not in ("mel", "spectra", "is_first")
    }


class _Filter:
    def __init__(self, config: VocoderConfig, weights: Weights, shape: VocoderShape, low: str) -> None:
        self._config = config
        self._weights = weights
        self._shape = shape
        self._graph = Graph(low)
        self._spectra_per_frame = units.SAMPLES_PER_FRAME // config.stft_hop
        self._num_bins = config.stft_size + 2

    def model(self) -> onnx.ModelProto:
        graph, config, rows = self._graph, self._config, self._shape.num_rows
        num_spectra = self._spectra_per_frame * self._shape.num_frames + 1
        mel = graph.input("mel", (rows, units.NUM_MELS, self._shape.num_frames + config.look_right_frames))
        spectra = graph.input("spectra", (rows, self._num_bins, num_spectra))
        is_first = graph.input("is_first", (rows, 1, 1))
        longest = source_stride(config, 0) - 1
        known = self._behind("spectra_before", spectra, self._num_bins, longest, self._spectra_per_frame)
        x = self._conv(mel, "conv_pre")
        num_stages = len(config.upsample_rates)
        for stage in range(num_stages):
            x = graph.op("LeakyRelu", x, alpha=config.leaky_relu_slope)
            x = self._upsample(x, stage)
            if stage == num_stages - 1:
                x = self._join_edge(x, is_first)
            x = graph.op("Add", self._source(known, longest, num_spectra, stage), x)
            x = self._blocks(x, stage)
        x = graph.op("LeakyRelu", x, alpha=POST_SLOPE)
        channels = self._weights["conv_post.weight"].shape[1]
        x = self._conv(self._behind("conv_post", x, channels, POST_KERNEL - 1, self._spectra_per_frame), "conv_post")
        graph.output(x, "filtered", (rows, self._num_bins, num_spectra))
        return graph.model(self._shape.name)

    def _behind(self, name: str, x: Value, channels: int, width: int, rate: int) -> Value:
        """[B, channels, N] -> the same behind the `width` columns before; those of the next call are an output."""
        if not width:
            return x
        graph, shape = self._graph, (self._shape.num_rows, channels, width)
        buffer = graph.concat(2, graph.input(name, shape), x)
        end = self._shape.num_frames * rate
        graph.output(graph.slice(buffer, 2, end, end + width), f"new.{name}", shape)
        return buffer

    def _conv(self, x: Value, name: str, *, dilation: int = 1, stride: int = 1) -> Value:
        return self._convolve(x, self._weights[f"{name}.weight"], self._weights[f"{name}.bias"], dilation, stride)

    def _convolve(
        self, x: Value, weight: torch.Tensor, bias: torch.Tensor, dilation: int = 1, stride: int = 1
    ) -> Value:
        graph = self._graph
        kernel = graph.constant(weight, graph.low)
        product = graph.op("Conv", graph.lowered(x), kernel, dilations=[dilation], strides=[stride])
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
        known = self._behind(f"ups.{stage}", x, inputs, context, rate_before)
        bias = self._weights[f"ups.{stage}.bias"].repeat_interleave(factor)
        phases = self._convolve(known, folded.flatten(0, 1).float(), bias)  # [B, outputs * factor, N]
        split = graph.reshape(phases, self._shape.num_rows, outputs, factor, self._shape.num_frames * rate_before)
        return graph.reshape(graph.transpose(split, 0, 1, 3, 2), self._shape.num_rows, outputs, -1)

    def _join_edge(self, x: Value, is_first: Value) -> Value:
        """One column more in front: the one before, or at a stream's start the mirror image of column 1."""
        graph = self._graph
        channels = self._weights["conv_post.weight"].shape[1]
        tail = graph.input("edge", (self._shape.num_rows, channels, 1))
        mirrored = graph.op("Sub", graph.slice(x, 2, 1, 2), tail)
        joined = graph.concat(2, graph.op("Add", tail, graph.op("Mul", mirrored, is_first)), x)
        end = self._shape.num_frames * self._spectra_per_frame
        graph.output(graph.slice(joined, 2, end, end + 1), "new.edge", (self._shape.num_rows, channels, 1))
        return joined

    def _source(self, known: Value, longest: int, num_spectra: int, stage: int) -> Value:
        stride = source_stride(self._config, stage)
        heard = self._graph.slice(known, 2, longest - stride + 1, longest + num_spectra)
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
        known = self._behind(conv, active, channels, (kernel - 1) * dilation, stage_rate(self._config, stage))
        return self._conv(known, conv, dilation=dilation)


def empty_inputs(config: VocoderConfig, weights: Weights, shape: VocoderShape) -> dict[str, Array]:
    """Of streams that begin."""
    num_spectra = units.SAMPLES_PER_FRAME // config.stft_hop * shape.num_frames + 1
    return {
        "mel": np.zeros((shape.num_rows, units.NUM_MELS, shape.num_frames + config.look_right_frames), np.float32),
        "spectra": np.zeros((shape.num_rows, config.stft_size + 2, num_spectra), np.float32),
        "is_first": np.ones((shape.num_rows, 1, 1), np.float32),
        **{name: np.zeros(size, np.float32) for name, size in state_shapes(config, weights, shape).items()},
    }
