"""TensorRT engines of a model's parts: which there must be, whether those on disk do, and how they are loaded."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

import torch

from voicegate.engine.config import EngineConfig
from voicegate.engine.device.tensorrt.engine_files import EngineFiles, Fingerprint
from voicegate.engine.device.tensorrt.library import LoadedEngine, load_tensorrt
from voicegate.engine.interface import EngineError
from voicegate.engine.model.config import FlowConfig, ModelConfig, VocoderConfig


class EngineShape(Protocol):
    @property
    def name(self) -> str: ...


Key = TypeVar("Key")
Shape = TypeVar("Shape", bound=EngineShape)


@dataclass(frozen=True, slots=True)
class WantedEngines(Generic[Key, Shape]):
    """Of one part of a model, as a configuration would run it."""

    part: str
    shapes: Mapping[Key, Shape]  # the least first
    precision: str
    graph_version: str
    weights: Path
    described: FlowConfig | VocoderConfig

    @property
    def product_type(self) -> str:
        """Of the graph's products."""
        return "float32" if self.has_tf32 else self.precision

    @property
    def has_tf32(self) -> bool:
        return self.precision == "tf32"

    def fingerprint(self, version: str, gpu: str) -> Fingerprint:
        """`version`: of TensorRT. Raises OSError."""
        with self.weights.open("rb") as weights:
            digest = hashlib.file_digest(weights, "sha256")
        digest.update(json.dumps(asdict(self.described), sort_keys=True).encode())
        return Fingerprint(self.graph_version, digest.hexdigest(), self.precision, version, gpu)

    def files(self, config: EngineConfig) -> EngineFiles:
        return EngineFiles(config.tensorrt_dir or config.model_dir / "tensorrt", self.part)

    def find(self, config: EngineConfig, device: torch.device) -> "FoundEngines[Key, Shape]":
        """Raises EngineFilesError, TensorrtError, OSError."""
        trt, files = load_tensorrt(), self.files(config)
        files.check([shape.name for shape in self.shapes.values()], self.fingerprint(trt.__version__, gpu_name(device)))
        return FoundEngines(trt, files, self.shapes)


@dataclass(frozen=True, slots=True)
class FoundEngines(Generic[Key, Shape]):
    """On disk, not read yet: of this model, for this TensorRT and this GPU."""

    trt: Any
    files: EngineFiles
    shapes: Mapping[Key, Shape]

    @property
    def described(self) -> str:
        return f"{len(self.shapes)} engines of TensorRT {self.trt.__version__} in {self.files.directory}"

    def load(self, device: torch.device) -> dict[Key, LoadedEngine]:
        """Raises EngineFilesError, TensorrtError."""
        return {key: LoadedEngine(self.trt, self.files.read(shape.name), device) for key, shape in self.shapes.items()}


def gpu_name(device: torch.device) -> str:
    """Of all that engines are built for."""
    found = torch.cuda.get_device_properties(device)
    return f"{found.name}, sm {found.major}.{found.minor}, {found.multi_processor_count} multiprocessors"


def check_family(model: ModelConfig) -> None:
    """Raises EngineError for models that there are no graphs of."""
    if not isinstance(model.flow, FlowConfig):
        raise EngineError(
            f"TensorRT runs vocoder and flow of CosyVoice3 alone; {model.name} is a {model.family} model: there is "
            "nothing to build"
        )
