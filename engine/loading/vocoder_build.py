"""`voicegate build`: TensorRT engines of a model's vocoder, for this GPU, each checked against float32 and then kept.

It needs onnx, which who serves does without.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import torch

from voicegate.engine.config import EngineConfig
from voicegate.engine.device.lanes import on_device
from voicegate.engine.device.tensorrt import graph
from voicegate.engine.device.tensorrt.engine_files import EngineFiles, EngineFilesError, Fingerprint
from voicegate.engine.device.tensorrt.library import LoadedEngine, TensorrtError, build_plan, load_tensorrt
from voicegate.engine.interface import EngineError
from voicegate.engine.loading.devices import choose_device
from voicegate.engine.loading.progress import Progress
from voicegate.engine.loading.vocoder_engines import (
    check_family,
    engine_files,
    filter_shapes,
    fingerprint,
    gpu_name,
    product_type,
)
from voicegate.engine.model.config import ModelConfig
from voicegate.engine.model.model_json import load_model_config
from voicegate.engine.model.weights import load_state_dict
from voicegate.engine.token2wav.vocoder.cuda.config import VocoderCudaConfig
from voicegate.engine.token2wav.vocoder.tensorrt.check import FilterCheck
from voicegate.engine.token2wav.vocoder.tensorrt.filter_graph import filter_model
from voicegate.engine.token2wav.vocoder.tensorrt.shape import FilterShape
from voicegate.engine.token2wav.vocoder.weights import load_vocoder_weights

# RMS of what an engine may be off by, relative. On the CPU the graphs are off by 1e-5 (float32), 6e-3 (float16): these
# tell a wrong engine from a rounded one. Higher -> noise passes; lower -> a kernel that rounds otherwise is refused.
_MAX_ERRORS: Final = {"float32": 5e-3, "tf32": 3e-2, "float16": 3e-2, "bfloat16": 2e-1}


@dataclass(frozen=True, slots=True)
class Built:
    directory: Path
    num_built: int
    num_kept: int  # that were there and did
    num_bytes: int  # of those that were built


def build_vocoder(
    config: EngineConfig, progress: Progress, *, is_forced: bool = False, cuda: VocoderCudaConfig | None = None
) -> Built:
    """`cuda`: whose buckets and precision; None: those that the engine would run with.

    Raises EngineError that says what does not fit, and what to do.
    """
    try:
        model = load_model_config(config.model_dir)
        check_family(model)
        device = choose_device(config.device)
        if device.type != "cuda":
            raise EngineError("engines are built for the GPU that they run on, and torch sees none here")
        job = _Job(
            config, model, load_tensorrt(), device, cuda or VocoderCudaConfig(config.vocoder_precision), progress
        )
        with job.files.being_built():
            return job.run(is_forced=is_forced)
    except (TensorrtError, EngineFilesError) as error:
        raise EngineError(str(error)) from error
    except (ValueError, OSError) as error:
        raise EngineError(f"cannot build engines of {config.model_dir}: {error}") from error


class _Job:
    def __init__(
        self,
        config: EngineConfig,
        model: ModelConfig,
        trt: Any,
        device: torch.device,
        cuda: VocoderCudaConfig,
        progress: Progress,
    ) -> None:
        self._model = model
        self._trt = trt
        self._device = device
        self._precision = cuda.precision
        self._progress = progress
        self.files: EngineFiles = engine_files(config)
        self._shapes = list(filter_shapes(model, cuda).values())
        self._wanted: Fingerprint = fingerprint(
            config.model_dir, model, precision=cuda.precision, version=trt.__version__, gpu=gpu_name(device)
        )
        state = load_state_dict(config.model_dir / "vocoder.safetensors")
        self._weights = load_vocoder_weights(model.vocoder, state, device=torch.device("cpu"))
        self._check = FilterCheck(model.vocoder, self._weights)

    def run(self, *, is_forced: bool) -> Built:
        missing = [shape for shape in self._shapes if is_forced or not self.files.is_whole(shape.name, self._wanted)]
        self._progress.line(
            f"{len(missing)} of {len(self._shapes)} engines to build: TensorRT {self._trt.__version__}, "
            f"{self._precision}, {self._wanted.gpu}"
        )
        num_bytes = self._build(missing)
        return Built(self.files.directory, len(missing), len(self._shapes) - len(missing), num_bytes)

    def _build(self, shapes: Sequence[FilterShape]) -> int:
        num_bytes = 0
        for number, shape in enumerate(shapes):
            self._progress.share("engines", number, len(shapes))
            started_s = time.monotonic()
            plan = self._plan(shape)
            error = self._error(plan, shape)
            size = self.files.keep(shape.name, plan, self._wanted)
            num_bytes += size
            seconds = time.monotonic() - started_s
            self._progress.line(f"{shape.name}: {seconds:.1f} s, {size >> 20} MiB, error {error:.1e}")
        if shapes:
            self._progress.share("engines", len(shapes), len(shapes))
        return num_bytes

    def _plan(self, shape: FilterShape) -> Any:
        model = filter_model(self._model.vocoder, self._weights, shape, low=product_type(self._precision))
        with TemporaryDirectory() as directory, on_device(self._device):
            path = Path(directory) / f"{shape.name}.onnx"
            graph.save(model, path)
            return build_plan(self._trt, path, has_tf32=self._precision == "tf32")

    def _error(self, plan: Any, shape: FilterShape) -> float:
        """Raises TensorrtError for an engine that computes something else."""
        error = self._check.error(LoadedEngine(self._trt, plan, self._device), shape)
        if not error <= _MAX_ERRORS[self._precision]:  # NaN too
            raise TensorrtError(
                f"{shape.name} computes something else than the model, and is not kept: error {error:.1e}, of which "
                f"{_MAX_ERRORS[self._precision]:.0e} is rounding; try another --vocoder-precision or TensorRT"
            )
        return error
