"""The vocoder's filter as ONNX: how far it is off in two calls, which types it computes in, and its version."""

from pathlib import Path

import onnx
import pytest
import torch

from tests.support.tensorrt.computing import computing_package
from tests.support.tensorrt.graphs import graph_hash, types_of
from tests.support.tensorrt.package import VERSIONS
from tests.support.vocoder import golden_model
from voicegate.engine.backends.tensorrt import graph
from voicegate.engine.backends.tensorrt.graph import OPSET
from voicegate.engine.backends.tensorrt.library import LoadedEngine, build_plan
from voicegate.engine.backends.tensorrt.vocoder.check import FilterCheck
from voicegate.engine.backends.tensorrt.vocoder.filter_graph import filter_model
from voicegate.engine.backends.tensorrt.vocoder.shape import GRAPH_VERSION, FilterShape
from voicegate.engine.vocoder.model import VocoderModel

CPU = torch.device("cpu")
SHAPE = FilterShape(num_rows=2, num_frames=4, mel_channels=96, spectrum_channels=32)


@pytest.fixture(scope="module")
def model() -> VocoderModel:
    return golden_model(48_000)


def error_of(model: VocoderModel, made: onnx.ModelProto, directory: Path) -> float:
    package, path = computing_package(VERSIONS[-1]), directory / "filter.onnx"
    graph.save(made, path)
    engine = LoadedEngine(package, build_plan(package, path), CPU)
    return FilterCheck(model.config, model.weights).error(engine, SHAPE)


@pytest.mark.parametrize(("low", "most"), [("float32", 5e-5), ("float16", 2e-2)])
def test_rounding(model: VocoderModel, tmp_path: Path, low: str, most: float) -> None:
    """The second call looks back at what the first has left. How far each row goes on: test_filter.py."""
    made = filter_model(model.config, model.weights, SHAPE, low=low)
    assert 0 < error_of(model, made, tmp_path) < most  # 9.8e-6 and 5.5e-3 were seen


def test_a_model_of_other_weights(model: VocoderModel, tmp_path: Path) -> None:
    other = {**model.weights, "conv_post.weight": -model.weights["conv_post.weight"]}
    assert error_of(model, filter_model(model.config, other, SHAPE, low="float32"), tmp_path) > 0.1


@pytest.mark.parametrize("low", ["float16", "bfloat16"])
def test_convolutions_are_low_and_what_adds_up_is_float32(model: VocoderModel, low: str) -> None:
    made = filter_model(model.config, model.weights, SHAPE, low=low)
    assert [(opset.domain, opset.version) for opset in made.opset_import] == [("", OPSET)]
    types = types_of(made)
    wanted = onnx.TensorProto.FLOAT16 if low == "float16" else onnx.TensorProto.BFLOAT16
    indices = {onnx.TensorProto.INT32}
    for node in made.graph.node:
        found = {types[name] for name in node.input}
        if node.op_type == "Conv":
            assert found == {wanted}, node.name
        if node.op_type in ("Sin", "LeakyRelu", "Add"):
            assert found in ({onnx.TensorProto.FLOAT}, indices), node.name


def test_another_graph_has_another_version(model: VocoderModel) -> None:
    """Engines on disk are told by it: whoever changes the graph raises GRAPH_VERSION, and puts the new hash here."""
    made = filter_model(model.config, model.weights, SHAPE, low="float16")
    assert {GRAPH_VERSION: graph_hash(made)} == {"1": "26b926b78ddeb1e1"}
