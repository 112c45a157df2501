"""The flow's Euler step as ONNX: which types it computes in, and its version. Its numbers: test_check.py."""

import onnx
import pytest

from tests.support.flow import make_model
from tests.support.tensorrt.graphs import graph_hash, types_of
from voicegate.engine.backends.tensorrt.flow.shape import GRAPH_VERSION, FlowShape
from voicegate.engine.backends.tensorrt.flow.step_graph import flow_step_model
from voicegate.engine.backends.tensorrt.graph import OPSET

SHAPE = FlowShape(num_rows=2, num_frames=50, context_frames=100)


def step_model(low: str) -> onnx.ModelProto:
    flow = make_model()
    return flow_step_model(flow.estimator, SHAPE, cfg_rate=flow.config.cfg_rate, low=low)


@pytest.mark.parametrize("low", ["float16", "bfloat16"])
def test_products_are_low_and_what_adds_up_is_float32(low: str) -> None:
    model = step_model(low)
    assert [(opset.domain, opset.version) for opset in model.opset_import] == [("", OPSET)]
    types = types_of(model)
    wanted = onnx.TensorProto.FLOAT16 if low == "float16" else onnx.TensorProto.BFLOAT16
    kinds = {node.op_type for node in model.graph.node}
    assert {"MatMul", "Conv", "LayerNormalization", "Gelu", "Softmax"} <= kinds
    for node in model.graph.node:
        if node.op_type in ("MatMul", "Conv", "Softmax"):
            assert {types[name] for name in node.input} == {wanted}, node.name
        if node.op_type in ("LayerNormalization", "Gelu", "Softplus", "Tanh"):
            assert {types[name] for name in node.input} == {onnx.TensorProto.FLOAT}, node.name
    assert types["next_x"] == onnx.TensorProto.FLOAT


def test_another_graph_has_another_version() -> None:
    """Engines on disk are told by it: whoever changes the graph raises GRAPH_VERSION, and puts the new hash here."""
    assert {GRAPH_VERSION: graph_hash(step_model("bfloat16"))} == {"1": "5ad2a196578e8545"}
