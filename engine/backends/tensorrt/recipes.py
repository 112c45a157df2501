"""How `voicegate build` makes engines of a model's parts. It needs onnx."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final

import onnx
import torch

from voicegate.engine.backends.tensorrt.flow.check import FlowCheck
from voicegate.engine.backends.tensorrt.flow.shape import ENGINE_SHAPES, FlowShape
from voicegate.engine.backends.tensorrt.flow.step_graph import flow_step_model
from voicegate.engine.backends.tensorrt.library import LoadedEngine
from voicegate.engine.backends.tensorrt.vocoder.check import FilterCheck
from voicegate.engine.backends.tensorrt.vocoder.filter_graph import filter_model
from voicegate.engine.backends.tensorrt.vocoder.shape import FilterShape
from voicegate.engine.backends.tensorrt.wanted import flow_engines, vocoder_engines
from voicegate.engine.config import EngineConfig
from voicegate.engine.load.cosyvoice3 import load_flow_model
from voicegate.engine.model.config import ModelConfig
from voicegate.engine.model.weights import load_state_dict
from voicegate.engine.vocoder.cuda.config import VocoderCudaConfig
from voicegate.engine.vocoder.weights import load_vocoder_weights

_CPU: Final = torch.device("cpu")


class VocoderRecipe:
    """Implements Recipe."""

    # On the CPU the graphs are off by 1e-5 (float32), 6e-3 (float16).
    max_errors: Mapping[str, float] = MappingProxyType(
        {"float32": 5e-3, "tf32": 3e-2, "float16": 3e-2, "bfloat16": 2e-1}
    )

    def __init__(self, config: EngineConfig, model: ModelConfig, cuda: VocoderCudaConfig | None = None) -> None:
        """`cuda`: whose buckets and precision; None: those that the engine runs with. Raises WeightsError, OSError."""
        self.wanted = vocoder_engines(config, model, cuda)
        self._vocoder = model.vocoder
        state = load_state_dict(self.wanted.weights)
        self._weights = load_vocoder_weights(model.vocoder, state, device=_CPU)
        self._check = FilterCheck(model.vocoder, self._weights)

    def graph(self, shape: FilterShape) -> onnx.ModelProto:
        return filter_model(self._vocoder, self._weights, shape, low=self.wanted.product_type)

    def error(self, engine: LoadedEngine, shape: FilterShape) -> float:
        return self._check.error(engine, shape)


class FlowRecipe:
    """Implements Recipe."""

    # On the CPU the graphs of two layers are off by 1e-6 (float32), 1.4e-2 (bfloat16), and so are torch's bfloat16
    # operations of the released size, with random weights.
    max_errors: Mapping[str, float] = MappingProxyType({"float32": 5e-3, "bfloat16": 1e-1})

    def __init__(self, config: EngineConfig, model: ModelConfig, shapes: Sequence[FlowShape] = ENGINE_SHAPES) -> None:
        """Raises WeightsError, OSError."""
        self.wanted = flow_engines(config, model, shapes)
        self._flow = load_flow_model(config.model_dir, model, _CPU, dtype=torch.float32)
        self._check = FlowCheck(self._flow)

    def graph(self, shape: FlowShape) -> onnx.ModelProto:
        return flow_step_model(
            self._flow.estimator, shape, cfg_rate=self._flow.config.cfg_rate, low=self.wanted.product_type
        )

    def error(self, engine: LoadedEngine, shape: FlowShape) -> float:
        return self._check.error(engine, shape)
