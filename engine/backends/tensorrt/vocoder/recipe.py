"""How `voicegate build` makes engines of a model's vocoder. It needs onnx."""

from collections.abc import Mapping
from types import MappingProxyType

import onnx
import torch

from voicegate.engine.backends.tensorrt.library import LoadedEngine
from voicegate.engine.backends.tensorrt.vocoder.check import FilterCheck
from voicegate.engine.backends.tensorrt.vocoder.filter_graph import filter_model
from voicegate.engine.backends.tensorrt.vocoder.shape import FilterShape
from voicegate.engine.backends.tensorrt.wanted import vocoder_engines
from voicegate.engine.config import EngineConfig
from voicegate.engine.model.config import ModelConfig
from voicegate.engine.model.weights import load_state_dict
from voicegate.engine.vocoder.cuda.config import VocoderCudaConfig
from voicegate.engine.vocoder.weights import load_vocoder_weights


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
        self._weights = load_vocoder_weights(model.vocoder, state, device=torch.device("cpu"))
        self._check = FilterCheck(model.vocoder, self._weights)

    def graph(self, shape: FilterShape) -> onnx.ModelProto:
        return filter_model(self._vocoder, self._weights, shape, low=self.wanted.product_type)

    def error(self, engine: LoadedEngine, shape: FilterShape) -> float:
        return self._check.error(engine, shape)
