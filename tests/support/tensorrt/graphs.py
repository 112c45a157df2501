"""The types that a graph computes in, and a hash of all that it computes."""

import hashlib

import onnx
from onnx import helper


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
