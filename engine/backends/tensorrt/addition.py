"""TensorRT's answers to the core: a renderer, engines of the flow's step, the room that they take, and the build."""

from typing import TYPE_CHECKING, Final

import torch

from voicegate.engine.backends.tensorrt.choice import TENSORRT
from voicegate.engine.backends.tensorrt.engine_files import EngineFilesError
from voicegate.engine.backends.tensorrt.flow.shape import ENGINE_SHAPES
from voicegate.engine.backends.tensorrt.library import TensorrtError
from voicegate.engine.backends.tensorrt.wanted import check_family, flow_engines, vocoder_engines
from voicegate.engine.config import EngineConfig
from voicegate.engine.flow.block_pool import CFG_HALVES
from voicegate.engine.flow.weights import ESTIMATOR_PREFIX, flow_shapes
from voicegate.engine.interface import EngineError
from voicegate.engine.load.devices import DTYPES, Device
from voicegate.engine.load.progress import Progress
from voicegate.engine.load.seams import Token2wavAddition
from voicegate.engine.model.config import FlowConfig, ModelConfig
from voicegate.engine.model.weights import num_weights
from voicegate.engine.vocoder.cuda.config import VocoderCudaConfig
from voicegate.engine.vocoder.model import VocoderModel
from voicegate.engine.vocoder.weights import vocoder_shapes

if TYPE_CHECKING:  # they need Triton, which a machine that is asked for its room alone may lack
    from voicegate.engine.backends.tensorrt.flow.engines import FlowEngines
    from voicegate.engine.flow.cuda.config import FlowCudaConfig
    from voicegate.engine.vocoder.cuda.renderer import CudaRenderer

_OUTSIDE_THE_FILTER: Final = ("f0_predictor.", "m_source.")  # of the vocoder's weights
_OUTSIDE_THE_STEP: Final = ("time_embed.", "attn_norm.", "norm_out.")  # of the estimator's: they make modulations


class Tensorrt:
    """Implements Token2wavAddition."""

    def renderer(
        self,
        config: EngineConfig,
        model: ModelConfig,
        loaded: VocoderModel,
        device: Device,
        cuda: VocoderCudaConfig,
        progress: Progress,
    ) -> "CudaRenderer | None":
        from voicegate.engine.backends.tensorrt.vocoder.choice import (  # noqa: PLC0415 - see above
            VocoderParts,
            choose_renderer,
        )

        return choose_renderer(VocoderParts(config, model, loaded, device, cuda), progress)

    def step_engines(
        self, config: EngineConfig, model: ModelConfig, device: Device, cuda: "FlowCudaConfig", progress: Progress
    ) -> "FlowEngines | None":
        from voicegate.engine.backends.tensorrt.flow.choice import FlowParts, choose_engines  # noqa: PLC0415 - as above

        return choose_engines(FlowParts(config, model, device, cuda), progress)

    def gpu_bytes(self, config: EngineConfig, model: ModelConfig) -> int:
        """Nobody has measured the engines' scratch memory."""
        num_bytes = _vocoder_bytes(config, model) if config.vocoder_backend == TENSORRT else 0
        return num_bytes + (_flow_bytes(config, model.cosyvoice3_flow) if config.flow_backend == TENSORRT else 0)

    def usable(self, part: str, config: EngineConfig, model: ModelConfig, device: torch.device) -> str:
        check_family(model)
        if device.type != "cuda":
            raise EngineError("TensorRT's engines need a GPU, and torch sees none, or device is cpu")
        try:
            if part == "vocoder":
                return vocoder_engines(config, model).find(config, device).described
            return flow_engines(config, model).find(config, device).described
        except (EngineFilesError, TensorrtError, OSError) as error:
            raise EngineError(str(error)) from error


ADDITION: Final[Token2wavAddition] = Tensorrt()


def _vocoder_bytes(config: EngineConfig, model: ModelConfig) -> int:
    """Each bucket's engine has the weights of the vocoder's filter (docs/adr/0016)."""
    cuda = VocoderCudaConfig(config.vocoder_precision)
    num_engines = len(cuda.batch_buckets) * len(cuda.frame_buckets)
    shapes = {
        name: shape for name, shape in vocoder_shapes(model.vocoder).items() if not name.startswith(_OUTSIDE_THE_FILTER)
    }
    num_bytes = 2 if config.vocoder_precision in ("float16", "bfloat16") else 4
    return num_engines * num_bytes * num_weights(shapes)


def _flow_bytes(config: EngineConfig, flow: FlowConfig) -> int:
    """Each shape's engine has the estimator's weights; all share a place for context, as large as the largest's."""
    shapes = {
        name: shape
        for name, shape in flow_shapes(flow).items()
        if name.startswith(ESTIMATOR_PREFIX) and not any(part in name for part in _OUTSIDE_THE_STEP)
    }
    most_frames = max(shape.num_rows * (shape.context_frames + shape.num_frames) for shape in ENGINE_SHAPES)
    estimator = flow.estimator
    num_kept = most_frames * estimator.depth * 2 * CFG_HALVES * estimator.num_heads * estimator.head_dim
    return DTYPES[config.precision].itemsize * (len(ENGINE_SHAPES) * num_weights(shapes) + num_kept)
