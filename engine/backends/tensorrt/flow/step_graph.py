"""One Euler step of the flow as a fixed-shape ONNX graph: estimator in both guidance halves, guidance, and the update.

The same numbers as flow/estimator.py over block contexts, with what changes from step to step as inputs, so
that one engine does all ten. Finished blocks come as keys and values in one piece, padded to `context_frames`.
Products of `low`; float32 islands: residual, norms, modulations, rotation, GELU, mish, guidance, the ODE's state.
"""

from collections.abc import Sequence

import numpy as np
import onnx
import torch

from voicegate.engine import units
from voicegate.engine.backends.tensorrt.flow.shape import FlowShape
from voicegate.engine.backends.tensorrt.graph import Graph, Value
from voicegate.engine.flow.block_pool import CFG_HALVES, NUM_CONVS
from voicegate.engine.flow.estimator import CONV_HISTORY, NORM_EPS, Estimator, EstimatorLayer
from voicegate.engine.flow.modulation import ROWS_PER_LAYER
from voicegate.engine.flow.weights import CONV_GROUPS


def flow_step_model(estimator: Estimator, shape: FlowShape, *, cfg_rate: float, low: str) -> onnx.ModelProto:
    """Inputs (float32, but tails and context, which are of `low`):

    x [B, n, 80]; base [B, n, D], see Estimator.conditioned_base; cos, sin [B, n, d / 2];
    modulation [6 * depth + 2, D], the step's rows of Estimator.modulation_table; width [1];
    tails [B, 2 (convolutions), 2 (halves), 30, D]: the convolutions' inputs before the block;
    context.0 .. [2 (keys, values), 2 (halves), B, H, L, d] for each layer;
    mask [B, 1, 1, L + n], added to scores: 0, or NEVER where there is nothing.

    Outputs: next_x; new_tails, as the pool has them; new_context.0 .. [B, 2, 2, H, n, d], the new keys and values so.
    """
    return _FlowStep(estimator, shape, low).model(cfg_rate)


class _FlowStep:
    def __init__(self, estimator: Estimator, shape: FlowShape, low: str) -> None:
        self._estimator = estimator
        self._shape = shape
        self._graph = Graph(low)
        self._lines = (CFG_HALVES, shape.num_rows, shape.num_frames)

    def model(self, cfg_rate: float) -> onnx.ModelProto:
        graph, config = self._graph, self._estimator.config
        rows, frames = self._shape.num_rows, self._shape.num_frames
        x = graph.input("x", (rows, frames, units.NUM_MELS))
        base = graph.input("base", (rows, frames, config.dim))
        angles = [graph.input(name, (rows, frames, config.head_dim // 2)) for name in ("cos", "sin")]
        modulation = graph.input("modulation", (ROWS_PER_LAYER * config.depth + 2, config.dim))
        width = graph.input("width", (1,))
        mask = graph.input("mask", (rows, 1, 1, self._shape.context_frames + frames))
        rotation = [graph.reshape(each, 1, rows, frames, 1, config.head_dim // 2, 1) for each in angles]

        tails = graph.input("tails", (rows, NUM_CONVS, CFG_HALVES, CONV_HISTORY, config.dim), graph.low)
        hidden = self._embed(x, base, tails)
        for layer, weights in enumerate(self._estimator.layers):
            parts = [graph.row(modulation, ROWS_PER_LAYER * layer + index) for index in range(ROWS_PER_LAYER)]
            hidden = self._transform(hidden, weights, parts, rotation, graph.lowered(mask), layer)
        first_out = ROWS_PER_LAYER * config.depth
        normed = self._norm(hidden, graph.row(modulation, first_out), graph.row(modulation, first_out + 1))
        velocity = graph.linear(normed, self._estimator.out_weight, self._estimator.out_bias)
        guided = graph.op(
            "Sub",
            graph.op("Mul", graph.row(velocity, 0), graph.constant(1 + cfg_rate)),
            graph.op("Mul", graph.row(velocity, 1), graph.constant(cfg_rate)),
        )
        graph.output(graph.op("Add", x, graph.op("Mul", guided, width)), "next_x", (rows, frames, units.NUM_MELS))
        return graph.model(self._shape.name)

    def _embed(self, x: Value, base: Value, tails: Value) -> Value:
        """The two halves share x, so it is projected once; of all else the unconditioned one has the bias alone."""
        graph, estimator = self._graph, self._estimator
        projected = graph.linear(x, estimator.x_weight)
        conditioned = graph.op("Add", projected, base)
        hidden = self._stacked(conditioned, graph.op("Add", projected, graph.constant(estimator.input_bias)))
        position, new_tails = hidden, []
        histories = graph.transpose(tails, 1, 2, 0, 3, 4)
        for conv, (weight, bias) in enumerate(estimator.convs):
            convolved, new_tail = self._convolve(position, graph.row(histories, conv), weight, bias)
            position = self._mish(convolved)
            new_tails.append(new_tail)
        kept = graph.transpose(self._stacked(*new_tails), 2, 0, 1, 3, 4)
        shape = (self._shape.num_rows, NUM_CONVS, CFG_HALVES, CONV_HISTORY, estimator.config.dim)
        graph.output(kept, "new_tails", shape, graph.low)
        return graph.op("Add", hidden, position)

    def _stacked(self, *values: Value) -> Value:
        axis = self._graph.constant(np.array([0], np.int64))
        return self._graph.concat(0, *(self._graph.op("Unsqueeze", value, axis) for value in values))

    def _convolve(self, hidden: Value, history: Value, weight: torch.Tensor, bias: torch.Tensor) -> tuple[Value, Value]:
        """Causal, behind the 30 inputs of the block before: [2, B, n, D] -> the same, and the last 30 inputs."""
        graph, dim = self._graph, self._estimator.config.dim
        halves, rows, frames = self._lines
        window = graph.concat(2, history, graph.lowered(hidden))
        lines = graph.transpose(graph.reshape(window, halves * rows, CONV_HISTORY + frames, dim), 0, 2, 1)
        kernel = graph.constant(weight.float().squeeze(2), graph.low)
        out = graph.raised(graph.op("Conv", lines, kernel, group=CONV_GROUPS))
        out = graph.op("Add", graph.transpose(out, 0, 2, 1), graph.constant(bias.float()))
        return graph.reshape(out, halves, rows, frames, dim), graph.slice(window, 2, frames, frames + CONV_HISTORY)

    def _mish(self, value: Value) -> Value:
        graph = self._graph
        return graph.op("Mul", value, graph.op("Tanh", graph.op("Softplus", value)))

    def _norm(self, hidden: Value, scale: Value, shift: Value) -> Value:
        """The modulation is the step's, so it is no weight of the norm."""
        graph = self._graph
        ones = graph.constant(np.ones(self._estimator.config.dim))
        normed = graph.op("LayerNormalization", hidden, ones, axis=-1, epsilon=NORM_EPS)
        return graph.op("Add", graph.op("Mul", normed, scale), shift)

    def _transform(
        self,
        hidden: Value,
        weights: EstimatorLayer,
        modulation: Sequence[Value],
        rotation: Sequence[Value],
        mask: Value,
        layer: int,
    ) -> Value:
        graph = self._graph
        attn_scale, attn_shift, attn_gate, ff_scale, ff_shift, ff_gate = modulation
        attended = self._attend(self._norm(hidden, attn_scale, attn_shift), weights, rotation, mask, layer)
        hidden = graph.op("Add", hidden, graph.op("Mul", attended, attn_gate))
        wide = graph.linear(self._norm(hidden, ff_scale, ff_shift), weights.ff_in_weight, weights.ff_in_bias)
        narrow = graph.linear(graph.op("Gelu", wide, approximate="tanh"), weights.ff_out_weight, weights.ff_out_bias)
        return graph.op("Add", hidden, graph.op("Mul", narrow, ff_gate))

    def _attend(
        self, normed: Value, weights: EstimatorLayer, rotation: Sequence[Value], mask: Value, layer: int
    ) -> Value:
        graph, config = self._graph, self._estimator.config
        halves, rows, frames = self._lines
        heads, channels, width = config.num_heads, config.head_dim, config.num_heads * config.head_dim
        qkv = graph.linear(normed, weights.qkv_weight, weights.qkv_bias)
        parts = [graph.slice(qkv, 3, index * width, (index + 1) * width) for index in range(3)]
        split = [graph.reshape(part, *self._lines, heads, channels) for part in parts]
        query, key, value = (
            graph.lowered(graph.transpose(part, 0, 1, 3, 2, 4))
            for part in (self._rotated(split[0], rotation), self._rotated(split[1], rotation), split[2])
        )
        before = graph.input(
            f"context.{layer}", (2, halves, rows, heads, self._shape.context_frames, channels), graph.low
        )
        new = self._stacked(key, value)
        kept = graph.transpose(new, 2, 0, 1, 3, 4, 5)
        graph.output(kept, f"new_context.{layer}", (rows, 2, halves, heads, frames, channels), graph.low)
        known = graph.concat(4, before, new)
        keys = graph.transpose(graph.row(known, 0), 0, 1, 2, 4, 3)
        # In the dtype of the products, as TensorRT's fused attention wants it; it adds up in float32.
        scores = graph.op("Add", graph.op("MatMul", query, keys), mask)
        attended = graph.op("MatMul", graph.op("Softmax", scores, axis=-1), graph.row(known, 1))
        lines = graph.reshape(graph.transpose(attended, 0, 1, 3, 2, 4), *self._lines, width)
        return graph.linear(graph.raised(lines), weights.attn_out_weight, weights.attn_out_bias)

    def _rotated(self, split: Value, rotation: Sequence[Value]) -> Value:
        """[2, B, n, H, d], of which upstream rotates head 0 alone: channels (2i, 2i + 1) are one complex number."""
        graph, config = self._graph, self._estimator.config
        cos, sin = rotation
        first = graph.reshape(graph.slice(split, 3, 0, 1), *self._lines, 1, config.head_dim // 2, 2)
        real, imaginary = (graph.slice(first, 5, index, index + 1) for index in range(2))
        turned = graph.concat(
            5,
            graph.op("Sub", graph.op("Mul", real, cos), graph.op("Mul", imaginary, sin)),
            graph.op("Add", graph.op("Mul", real, sin), graph.op("Mul", imaginary, cos)),
        )
        turned = graph.reshape(turned, *self._lines, 1, config.head_dim)
        if config.num_heads == 1:
            return turned
        return graph.concat(3, turned, graph.slice(split, 3, 1, config.num_heads))
