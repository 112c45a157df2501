"""Running a graph on a CPU, and asking it for its types."""

import hashlib
from collections.abc import Callable, Mapping
from typing import Any

import onnx
import onnxruntime
from onnx import helper
from onnx.reference import ReferenceEvaluator

from voicegate.engine.backends.tensorrt.graph import Array

Run = Callable[[Mapping[str, Array]], dict[str, Array]]


def runner_of(model: onnx.ModelProto, *, low: str) -> Run:
    """onnxruntime; but it has no bfloat16 kernels for a CPU: those run in onnx's own evaluator, slowly."""
    if low == "bfloat16":
        run: Any = ReferenceEvaluator(model).run
    else:
        run = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"]).run
    names = [output.name for output in model.graph.output]
    return lambda fed: dict(zip(names, run(names, dict(fed)), strict=True))


def types_of(model: onnx.ModelProto) -> dict[str, int]:
    """Types of every tensor, by its name."""
    known = (*model.graph.value_info, *model.graph.input, *model.graph.output)
    found = {value.name: value.type.tensor_type.elem_type for value in known}
    return found | {each.name: each.data_type for each in model.graph.initializer}


def graph_hash(model: onnx.ModelProto) -> str:
    """A hash of all that is computed, whatever the weights."""
    nodes = [
        (node.op_type, *node.input, *node.output, *map(helper.get_attribute_value, node.attribute))
        for node in model.graph.node
    ]
    ends = [(value.name, value.type.tensor_type.elem_type) for value in (*model.graph.input, *model.graph.output)]
    return hashlib.sha256(repr((nodes, ends)).encode()).hexdigest()[:16]
