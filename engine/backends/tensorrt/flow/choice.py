"""Choice of CosyVoice3's flow on a GPU: our kernels, and TensorRT's engines for a block or two, each measured."""

from collections.abc import Mapping
from dataclasses import dataclass

import structlog

from voicegate.engine.backends.tensorrt.choice import choose, give_back
from voicegate.engine.backends.tensorrt.flow.engines import FlowEngines
from voicegate.engine.backends.tensorrt.flow.shape import FlowShape
from voicegate.engine.backends.tensorrt.flow.trial import FlowTrial
from voicegate.engine.backends.tensorrt.library import LoadedEngine
from voicegate.engine.backends.tensorrt.wanted import WantedEngines, flow_engines
from voicegate.engine.config import EngineConfig
from voicegate.engine.flow.cuda.config import FlowCudaConfig
from voicegate.engine.load.cosyvoice3 import load_flow_model
from voicegate.engine.load.devices import Device, flow_dtypes
from voicegate.engine.load.progress import Progress
from voicegate.engine.model.config import ModelConfig

log = structlog.get_logger()

Engines = dict[FlowShape, LoadedEngine]


@dataclass(frozen=True, slots=True)
class FlowParts:
    """Parts that every way of running it is made of."""

    config: EngineConfig
    model: ModelConfig
    device: Device
    cuda: FlowCudaConfig

    @property
    def wanted(self) -> WantedEngines[FlowShape, FlowShape]:
        return flow_engines(self.config, self.model)

    def engines(self) -> Engines:
        """Raises TensorrtError, EngineFilesError, OSError."""
        return self.wanted.find(self.config, self.device.device).load(self.device.device)

    def bound(self, engines: Engines) -> FlowEngines:
        """With our kernels for all other shapes. Takes what memory they need. Raises TensorrtError."""
        return FlowEngines(engines, self.device.device, shapes=self.wanted.shapes)

    def block_ms(self, engines: Engines) -> tuple[dict[FlowShape, float], dict[FlowShape, float]]:
        """TensorRT's and ours, of each shape. The model is there meanwhile. Raises TensorrtError, what CUDA raises."""
        dtype, kv_dtype = flow_dtypes(self.config, self.device)
        model = load_flow_model(self.config.model_dir, self.model, self.device.device, dtype=dtype)
        with self.device.token2wav_lane.active():
            trial = FlowTrial(model, self.cuda, list(engines), kv_dtype=kv_dtype)
            return trial.block_ms(self.bound(engines)), trial.block_ms(None)


def choose_engines(parts: FlowParts, progress: Progress) -> FlowEngines | None:
    """See choice.choose."""

    def quicker() -> FlowEngines | None:
        kept = _measured(parts, progress)
        give_back()
        return parts.bound(kept) if kept else None

    return choose(
        "flow",
        parts.config.flow_backend,
        progress,
        is_built=parts.wanted.files(parts.config).are_there(),
        named=lambda: parts.bound(parts.engines()),
        quicker=quicker,
    )


def _measured(parts: FlowParts, progress: Progress) -> Engines:
    """The engines that are quicker than our kernels."""
    engines = parts.engines()
    progress.line("flow: TensorRT and our kernels are measured")
    theirs, ours = parts.block_ms(engines)
    for shape in engines:
        log.info(
            "flow_measured",
            rows=shape.num_rows,
            context_frames=shape.context_frames,
            tensorrt_ms=round(theirs[shape], 3),
            cuda_ms=round(ours[shape], 3),
        )
    kept = {shape: engine for shape, engine in engines.items() if theirs[shape] < ours[shape]}
    log.info("flow_chosen", tensorrt=[shape.name for shape in kept], of=len(engines))
    progress.line(f"flow: {_told(kept, theirs, ours)}")
    return kept


def _told(kept: Engines, theirs: Mapping[FlowShape, float], ours: Mapping[FlowShape, float]) -> str:
    if not kept:
        best = min(theirs[shape] / ours[shape] for shape in theirs)
        return f"our kernels; TensorRT's blocks take {best:.2f} times theirs at the least"
    parts = [
        f"{shape.num_rows} after up to {shape.context_frames} frames ({theirs[shape] / ours[shape]:.2f} times ours)"
        for shape in kept
    ]
    return f"TensorRT for batches of {', '.join(parts)}; our kernels for all others"
