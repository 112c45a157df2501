"""An ONNX graph written node by node, with the type of every number chosen: what strongly typed networks are made of.

Nothing is traced, so nothing is typed by accident: products take operands of `low`, everything else is float32 unless a
caller casts. Static shapes alone.
"""

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import ml_dtypes
import numpy as np
import numpy.typing as npt
import onnx
import torch
from onnx import TensorProto, helper, numpy_helper

# The first with bfloat16 convolutions. TensorRT's parsers read 9 to 24 (10.15), to 25 (11).
OPSET: Final = 22
_IR_VERSION: Final = 10  # opset 22's own; older readers refuse newer files

Array = npt.NDArray[Any]
Value = str  # a tensor of the graph, by its name

DTYPES: Final = {
    "float32": (TensorProto.FLOAT, np.dtype(np.float32)),
    "float16": (TensorProto.FLOAT16, np.dtype(np.float16)),
    "bfloat16": (TensorProto.BFLOAT16, np.dtype(ml_dtypes.bfloat16)),
    "int32": (TensorProto.INT32, np.dtype(np.int32)),
    "bool": (TensorProto.BOOL, np.dtype(np.bool_)),
}
PRODUCT_TYPES: Final = ("float32", "float16", "bfloat16")


class Graph:
    def __init__(self, low: str) -> None:
        """`low`: of PRODUCT_TYPES."""
        self.low = low
        self._nodes: list[onnx.NodeProto] = []
        self._inputs: list[onnx.ValueInfoProto] = []
        self._outputs: list[onnx.ValueInfoProto] = []
        self._constants: dict[tuple[str, bytes, tuple[int, ...]], onnx.TensorProto] = {}

    # --- values -----------------------------------------------------------------------------------------------

    def input(self, name: str, shape: Sequence[int], dtype: str = "float32") -> Value:
        self._inputs.append(helper.make_tensor_value_info(name, DTYPES[dtype][0], list(shape)))
        return name

    def output(self, value: Value, name: str, shape: Sequence[int], dtype: str = "float32") -> None:
        self._nodes.append(helper.make_node("Identity", [value], [name]))
        self._outputs.append(helper.make_tensor_value_info(name, DTYPES[dtype][0], list(shape)))

    def constant(self, numbers: Array | torch.Tensor | float, dtype: str | None = None) -> Value:
        """One of `dtype`; integers as they are. Equal ones are kept once."""
        array = numbers.detach().float().cpu().numpy() if isinstance(numbers, torch.Tensor) else np.asarray(numbers)
        if array.dtype not in (np.int32, np.int64):
            array = array.astype(DTYPES[dtype or "float32"][1])
        array = np.array(array, order="C")
        key = (str(array.dtype), hashlib.sha256(array.tobytes()).digest(), array.shape)
        if key not in self._constants:
            self._constants[key] = numpy_helper.from_array(array, f"constant{len(self._constants)}")
        return str(self._constants[key].name)

    def op(self, kind: str, *inputs: Value, num_outputs: int = 1, **attributes: Any) -> Value:
        """The first output; of several, all are named alike with their number behind."""
        name = f"{kind.lower()}{len(self._nodes)}"
        outputs = [name] if num_outputs == 1 else [f"{name}.{index}" for index in range(num_outputs)]
        self._nodes.append(helper.make_node(kind, list(inputs), outputs, **attributes))
        return name

    # --- what several graphs use ------------------------------------------------------------------------------

    def cast(self, value: Value, dtype: str) -> Value:
        return self.op("Cast", value, to=DTYPES[dtype][0])

    def lowered(self, value: Value) -> Value:
        """float32 -> what products take."""
        return value if self.low == "float32" else self.cast(value, self.low)

    def raised(self, value: Value) -> Value:
        return value if self.low == "float32" else self.cast(value, "float32")

    def linear(self, value: Value, weight: torch.Tensor, bias: torch.Tensor | None = None) -> Value:
        """float32 [..., in] -> float32 [..., out]; the bias is added in float32."""
        product = self.raised(self.op("MatMul", self.lowered(value), self.constant(weight.float().T, self.low)))
        return product if bias is None else self.op("Add", product, self.constant(bias))

    def reshape(self, value: Value, *shape: int) -> Value:
        return self.op("Reshape", value, self.constant(np.array(shape, np.int64)))

    def transpose(self, value: Value, *axes: int) -> Value:
        return self.op("Transpose", value, perm=list(axes))

    def slice(self, value: Value, axis: int, start: int, stop: int) -> Value:
        """`stop` counts from the beginning."""
        ends = (np.array([number], np.int64) for number in (start, stop, axis))
        return self.op("Slice", value, *map(self.constant, ends))

    def row(self, value: Value, index: int) -> Value:
        """value[index], along the first axis."""
        return self.op("Gather", value, self.constant(np.array(index, np.int64)), axis=0)

    def concat(self, axis: int, *values: Value) -> Value:
        return self.op("Concat", *values, axis=axis)

    # --- the whole --------------------------------------------------------------------------------------------

    def model(self, name: str) -> onnx.ModelProto:
        """Checked, shapes and types inferred throughout. Raises what onnx's checker raises."""
        graph = helper.make_graph(
            self._nodes, name, self._inputs, self._outputs, initializer=list(self._constants.values())
        )
        opsets = [helper.make_opsetid("", OPSET)]
        made = helper.make_model(graph, opset_imports=opsets, ir_version=_IR_VERSION, producer_name="voicegate")
        if made.ByteSize() < onnx.checker.MAXIMUM_PROTOBUF:
            onnx.checker.check_model(made)
            made = onnx.shape_inference.infer_shapes(made, check_type=True, strict_mode=True, data_prop=True)
        return made


def save(model: onnx.ModelProto, path: Path) -> None:
    """With its weights in a file beside it: a protobuf holds 2 GiB at most."""
    path.with_name(f"{path.name}.data").unlink(missing_ok=True)  # it would be appended to
    onnx.save_model(model, path, save_as_external_data=True, location=f"{path.name}.data", size_threshold=1024)
