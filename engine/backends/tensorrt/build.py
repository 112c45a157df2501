"""`voicegate build`: TensorRT engines of a model, for this GPU, each checked against float32 and then kept.

It needs onnx, which who serves does without.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Protocol

import onnx
import torch

from voicegate.engine.backends.tensorrt import graph
from voicegate.engine.backends.tensorrt.choice import reason_of
from voicegate.engine.backends.tensorrt.engine_files import EngineFilesError
from voicegate.engine.backends.tensorrt.library import LoadedEngine, TensorrtError, build_plan, load_tensorrt
from voicegate.engine.backends.tensorrt.recipes import FlowRecipe, VocoderRecipe
from voicegate.engine.backends.tensorrt.wanted import WantedEngines, check_family, gpu_name
from voicegate.engine.config import EngineConfig
from voicegate.engine.device.lanes import on_device
from voicegate.engine.interface import EngineError
from voicegate.engine.load.devices import choose_device
from voicegate.engine.load.progress import Progress
from voicegate.engine.model.model_json import load_model_config


@dataclass(frozen=True, slots=True)
class Built:
    directory: Path
    num_built: int
    num_kept: int  # that were there and did
    num_bytes: int  # of those that were built


class Recipe(Protocol):
    """How one part's engines are made. Two: the vocoder's, the flow's."""

    @property
    def wanted(self) -> WantedEngines[Any, Any]: ...

    @property
    def max_errors(self) -> Mapping[str, float]:
        """By precision, what `error` may be: enough for rounding, too little for an engine that is wrong.

        Higher -> noise passes; lower -> a kernel that rounds otherwise is refused.
        """

    def graph(self, shape: Any) -> onnx.ModelProto:
        """The graph of one of the wanted shapes."""

    def error(self, engine: LoadedEngine, shape: Any) -> float:
        """RMS against float32 on the CPU, relative; NaN where there is one."""


def build_engines(
    config: EngineConfig, progress: Progress, *, is_forced: bool = False, recipes: Sequence[Recipe] | None = None
) -> Built:
    """`recipes`: of which parts; None: all that the engine could run with.

    Raises EngineError that says what does not fit, and what to do.
    """
    try:
        model = load_model_config(config.model_dir)
        check_family(model)
        device = choose_device(config.device)
        if device.type != "cuda":
            raise EngineError("engines are built for the GPU that they run on, and torch sees none here")
        trt = load_tensorrt()
        if recipes is None:
            recipes = [VocoderRecipe(config, model), FlowRecipe(config, model)]
        jobs = [_Job(config, recipe, trt, device, progress) for recipe in recipes]
        files = jobs[0].files
        with files.being_built():
            parts = [job.run(is_forced=is_forced) for job in jobs]
    except (TensorrtError, EngineFilesError) as error:
        raise EngineError(str(error)) from error
    except (ValueError, OSError, RuntimeError) as error:  # CUDA's own among them, as where a gateway has the memory
        raise EngineError(f"cannot build engines of {config.model_dir}: {reason_of(error)}") from error
    built, kept, num_bytes = (sum(numbers) for numbers in zip(*parts, strict=True))
    return Built(files.directory, built, kept, num_bytes)


class _Job:
    def __init__(
        self, config: EngineConfig, recipe: Recipe, trt: Any, device: torch.device, progress: Progress
    ) -> None:
        self._recipe = recipe
        self._trt = trt
        self._device = device
        self._progress = progress
        self._wanted = recipe.wanted
        self.files = self._wanted.files(config)
        self._fingerprint = self._wanted.fingerprint(trt.__version__, gpu_name(device))

    def run(self, *, is_forced: bool) -> tuple[int, int, int]:
        """Engines built, engines kept, bytes of the built ones."""
        shapes = list(self._wanted.shapes.values())
        missing = [shape for shape in shapes if is_forced or not self.files.is_whole(shape.name, self._fingerprint)]
        self._progress.line(
            f"{self._wanted.part}: {len(missing)} of {len(shapes)} engines to build: "
            f"TensorRT {self._trt.__version__}, {self._wanted.precision}, {self._fingerprint.gpu}"
        )
        return len(missing), len(shapes) - len(missing), self._build(missing)

    def _build(self, shapes: Sequence[Any]) -> int:
        num_bytes = 0
        for number, shape in enumerate(shapes):
            self._progress.share(f"{self._wanted.part} engines", number, len(shapes))
            started_s = time.monotonic()
            plan = self._plan(shape)
            error = self._error(plan, shape)
            size = self.files.keep(shape.name, plan, self._fingerprint)
            num_bytes += size
            seconds = time.monotonic() - started_s
            self._progress.line(f"{shape.name}: {seconds:.1f} s, {size >> 20} MiB, error {error:.1e}")
        if shapes:
            self._progress.share(f"{self._wanted.part} engines", len(shapes), len(shapes))
        return num_bytes

    def _plan(self, shape: Any) -> Any:
        model = self._recipe.graph(shape)
        with TemporaryDirectory() as directory, on_device(self._device):
            path = Path(directory) / f"{shape.name}.onnx"
            graph.save(model, path)
            return build_plan(self._trt, path, has_tf32=self._wanted.has_tf32)

    def _error(self, plan: Any, shape: Any) -> float:
        """Raises TensorrtError for an engine that computes something else."""
        most = self._recipe.max_errors[self._wanted.precision]
        error = self._recipe.error(LoadedEngine(self._trt, plan, self._device), shape)
        if not error <= most:  # NaN too
            raise TensorrtError(
                f"{shape.name} computes something else than the model, and is not kept: error {error:.1e}, of which "
                f"{most:.0e} is rounding; try another precision or TensorRT"
            )
        return error
