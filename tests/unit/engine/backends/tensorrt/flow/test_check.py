"""An engine's error is rounding's where it is right, and far more where any part of it is wrong."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import onnx
import pytest
import torch

from tests.support.flow import CPU, make_model
from tests.support.tensorrt.computing import computing_package
from tests.support.tensorrt.package import VERSIONS
from voicegate.engine.backends.tensorrt import graph
from voicegate.engine.backends.tensorrt.flow.check import FlowCheck
from voicegate.engine.backends.tensorrt.flow.shape import FlowShape
from voicegate.engine.backends.tensorrt.flow.step_graph import flow_step_model
from voicegate.engine.backends.tensorrt.library import LoadedEngine, build_plan
from voicegate.engine.flow.model import FlowModel

SHAPE = FlowShape(num_rows=2, num_frames=50, context_frames=100)


@pytest.fixture(scope="module")
def flow() -> FlowModel:
    return make_model()


@pytest.fixture
def error_of(flow: FlowModel, tmp_path: Path) -> Callable[..., float]:
    def error(model: onnx.ModelProto) -> float:
        package, path = computing_package(VERSIONS[-1]), tmp_path / "step.onnx"
        graph.save(model, path)
        return FlowCheck(flow).error(LoadedEngine(package, build_plan(package, path), CPU), SHAPE)

    return error


def step_model(flow: FlowModel, *, low: str = "float32", **changed: Any) -> onnx.ModelProto:
    named: dict[str, Any] = {"cfg_rate": flow.config.cfg_rate} | changed
    return flow_step_model(flow.estimator, SHAPE, low=low, **named)


@pytest.mark.parametrize(("low", "most"), [("float32", 5e-6), ("float16", 2e-3)])
def test_rounding(flow: FlowModel, error_of: Callable[..., float], low: str, most: float) -> None:
    assert 0 < error_of(step_model(flow, low=low)) < most  # 9e-7 and 4e-4 were seen


def zeroed(model: onnx.ModelProto, name: str) -> onnx.ModelProto:
    """With one of its outputs, or what it makes of an input, zeros."""
    scaled, zero = f"{name}.scaled", f"{name}.zero"
    wanted = next(each for each in (*model.graph.output, *model.graph.input) if each.name == name)
    model.graph.initializer.append(onnx.numpy_helper.from_array(torch.zeros(1).numpy(), zero))
    if wanted in model.graph.output:
        for node in model.graph.node:
            node.output[:] = [scaled if each == name else each for each in node.output]
        model.graph.node.append(onnx.helper.make_node("Mul", [scaled, zero], [name]))
    else:
        for node in model.graph.node:
            node.input[:] = [scaled if each == name else each for each in node.input]
        model.graph.node.insert(0, onnx.helper.make_node("Mul", [name, zero], [scaled]))
    return model


OUTPUTS = ["next_x", "new_tails", "new_context.0", "new_context.1"]
INPUTS = ["base", "context.0", "context.1", "mask", "modulation", "sin", "tails"]


@pytest.mark.parametrize("name", OUTPUTS + INPUTS)
def test_a_part_that_is_left_out(flow: FlowModel, error_of: Callable[..., float], name: str) -> None:
    assert error_of(zeroed(step_model(flow), name)) > 0.1  # what bfloat16 may be off by


def test_another_models_guidance(flow: FlowModel, error_of: Callable[..., float]) -> None:
    assert error_of(step_model(flow, cfg_rate=flow.config.cfg_rate / 2)) > 0.1


def test_a_model_of_other_weights(flow: FlowModel, error_of: Callable[..., float]) -> None:
    layers = tuple(replace(layer, ff_out_weight=-layer.ff_out_weight) for layer in flow.estimator.layers)
    kept, flow.estimator.layers = flow.estimator.layers, layers
    try:
        model = step_model(flow)
    finally:
        flow.estimator.layers = kept
    assert error_of(model) > 0.1
