"""The int8 export of Kokoro-82M, read back into the PyTorch modules that it was made from, so that a GPU can run it.

The export keeps most names of parameters; of the rest, its nodes' names tell the module:
`/encoder/F0.0/conv1/Conv_quant` is `predictor.F0.0.conv1`. Weights are int8 or uint8 with a scale and a zero point, a
number or one for each column.
"""

from collections.abc import Mapping
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import torch

Array = npt.NDArray[np.float32]

_NODE_ENDINGS: Final = ("ConvInteger", "MatMulInteger", "MatMul", "Conv", "ConvTranspose")


class _Export:
    def __init__(self, graph: Any, shapes: Mapping[str, tuple[int, ...]]) -> None:
        from onnx import numpy_helper  # noqa: PLC0415 - where a corpus is made

        self.values = {each.name: numpy_helper.to_array(each) for each in graph.initializer}
        self.nodes = list(graph.node)
        self.found: dict[str, torch.Tensor] = {}
        self._shapes = shapes

    def put(self, name: str, value: npt.NDArray[Any]) -> None:
        """`name` without the export's outermost part; what fits no parameter is not one."""
        for candidate in (name, f"predictor.{name}"):
            if self._shapes.get(candidate) == value.shape and candidate not in self.found:
                self.found[candidate] = torch.from_numpy(np.array(value, np.float32))
                return

    def dequantised(self, weight: str, zero_point: str) -> Array:
        scale = self.values[weight.removesuffix("_quantized") + "_scale"]
        value: Array = (self.values[weight].astype(np.float32) - self.values[zero_point].astype(np.float32)) * scale
        return value


def torch_state(graph: Any, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, torch.Tensor]:
    """Every parameter of `shapes` that the export holds; weight norm is folded in it."""
    export = _Export(graph, shapes)
    for name, value in export.values.items():
        if name.startswith(("encoder.", "decoder.")):
            export.put(name.partition(".")[2], value)
    rows = {node.input[0]: node.input[2] for node in export.nodes if node.op_type == "DequantizeLinear"}
    for node in export.nodes:
        module = _module(node.name)
        if node.op_type == "DynamicQuantizeLSTM":
            _put_lstm(export, module, node.input)
        elif node.op_type == "Gather" and node.output[0] in rows:
            export.put(f"{module}.weight", export.dequantised(node.input[0], rows[node.output[0]]))
        elif node.op_type in _NODE_ENDINGS and node.input[1] in export.values:
            is_quantised = node.op_type.endswith("Integer")
            weight = export.dequantised(node.input[1], node.input[3]) if is_quantised else export.values[node.input[1]]
            export.put(f"{module}.weight", weight.T if node.op_type.startswith("MatMul") else weight)
    return export.found


def _module(node_name: str) -> str:
    """`/decoder/decoder/asr_res/asr_res.0/Conv_quant` -> `decoder.asr_res.0`"""
    parts: list[str] = []
    for part in node_name.strip("/").split("/")[1:-1]:
        if parts and part.startswith(parts[-1] + "."):
            parts[-1] = part
        else:
            parts.append(part)
    return ".".join(parts)


def _put_lstm(export: _Export, module: str, inputs: Any) -> None:
    scales = [export.values[name].astype(np.float32) for name in inputs[8:12]]
    for direction, suffix in enumerate(("", "_reverse")):
        kinds = (("weight_ih", inputs[1], *scales[:2]), ("weight_hh", inputs[2], *scales[2:]))
        for kind, name, scale, zero_point in kinds:
            matrix = export.values[name][direction].astype(np.float32)
            matrix = (matrix - zero_point[direction]) * scale[direction]
            export.put(f"{module}.{kind}_l0{suffix}", _torch_gates(matrix.T))
        biases = np.split(export.values[inputs[3]][direction], 2)
        for kind, bias in zip(("bias_ih", "bias_hh"), biases, strict=True):
            export.put(f"{module}.{kind}_l0{suffix}", _torch_gates(bias))


def _torch_gates(rows: Array) -> Array:
    """ONNX has the gates in the order input, output, forget, cell; torch input, forget, cell, output."""
    into, out, forget, cell = np.split(rows, 4)
    return np.concatenate((into, forget, cell, out))
