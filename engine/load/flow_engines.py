"""TensorRT engines of a model's flow: which there must be."""

from collections.abc import Sequence

from voicegate.engine.backends.tensorrt.flow.shape import ENGINE_SHAPES, GRAPH_VERSION, FlowShape
from voicegate.engine.config import EngineConfig
from voicegate.engine.load.tensorrt_engines import WantedEngines
from voicegate.engine.model.config import ModelConfig


def flow_engines(
    config: EngineConfig, model: ModelConfig, shapes: Sequence[FlowShape] = ENGINE_SHAPES
) -> WantedEngines[FlowShape, FlowShape]:
    """`config` is resolved: engines compute in its precision. Float8 products are large batches' alone."""
    return WantedEngines(
        part="flow",
        shapes={shape: shape for shape in shapes},
        precision=config.precision,
        graph_version=GRAPH_VERSION,
        weights=config.model_dir / "flow.safetensors",
        described=model.cosyvoice3_flow,
    )
