"""How `voicegate build` makes engines of a model's flow. It needs onnx."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType

import onnx
import torch

from voicegate.engine.backends.tensorrt.flow.check import FlowCheck
from voicegate.engine.backends.tensorrt.flow.shape import ENGINE_SHAPES, FlowShape
from voicegate.engine.backends.tensorrt.flow.step_graph import flow_step_model
from voicegate.engine.backends.tensorrt.library import LoadedEngine
from voicegate.engine.backends.tensorrt.wanted import flow_engines
from voicegate.engine.config import EngineConfig
from voicegate.engine.load.cosyvoice3 import load_flow_model
from voicegate.engine.model.config import ModelConfig


class FlowRecipe:
    """Implements Recipe."""

    # On the CPU the graphs of two layers are off by 1e-6 (float32), 1.4e-2 (bfloat16), and so are torch's bfloat16
    # operations of the released size, with random weights.
    max_errors: Mapping[str, float] = MappingProxyType({"float32": 5e-3, "bfloat16": 1e-1})

    def __init__(self, config: EngineConfig, model: ModelConfig, shapes: Sequence[FlowShape] = ENGINE_SHAPES) -> None:
        """Raises WeightsError, OSError."""
        self.wanted = flow_engines(config, model, shapes)
        self._flow = load_flow_model(config.model_dir, model, torch.device("cpu"), dtype=torch.float32)
        self._check = FlowCheck(self._flow)

    def graph(self, shape: FlowShape) -> onnx.ModelProto:
        return flow_step_model(
            self._flow.estimator, shape, cfg_rate=self._flow.config.cfg_rate, low=self.wanted.product_type
        )

    def error(self, engine: LoadedEngine, shape: FlowShape) -> float:
        return self._check.error(engine, shape)
