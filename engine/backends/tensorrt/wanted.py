"""TensorRT engines of a model's parts: which there must be, whether those on disk do, and how they are loaded."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

import torch

from voicegate.engine.backends.tensorrt.engine_files import EngineFiles, Fingerprint
from voicegate.engine.backends.tensorrt.flow import shape as flow_shape
from voicegate.engine.backends.tensorrt.flow.shape import ENGINE_SHAPES, FlowShape
from voicegate.engine.backends.tensorrt.library import LoadedEngine, load_tensorrt
from voicegate.engine.backends.tensorrt.vocoder import shape as vocoder_shape
from voicegate.engine.backends.tensorrt.vocoder.shape import FilterShape
from voicegate.engine.config import EngineConfig
from voicegate.engine.interface import EngineError
from voicegate.engine.model.config import COSYVOICE3, FlowConfig, ModelConfig, VocoderConfig
from voicegate.engine.units import NUM_MELS
from voicegate.engine.vocoder.cuda.config import PRECISIONS, VocoderCudaConfig
from voicegate.engine.vocoder.cuda.packing import Packer

Bucket = tuple[int, int]  # of the vocoder: streams, frames


class EngineShape(Protocol):
    @property
    def name(self) -> str: ...


Key = TypeVar("Key")
Shape = TypeVar("Shape", bound=EngineShape)


@dataclass(frozen=True, slots=True)
class WantedEngines(Generic[Key, Shape]):
    """Engines of one part of a model, as a configuration would run it."""

    part: str
    shapes: Mapping[Key, Shape]  # the least first
    precision: str
    graph_version: str
    weights: Path
    described: FlowConfig | VocoderConfig

    @property
    def product_type(self) -> str:
        """Type of the graph's products."""
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


def vocoder_engines(
    config: EngineConfig, model: ModelConfig, cuda: VocoderCudaConfig | None = None
) -> WantedEngines[Bucket, FilterShape]:
    """`cuda`: whose buckets and precision; None: those that the engine runs with."""
    cuda = cuda or VocoderCudaConfig(config.vocoder_precision)
    return WantedEngines(
        part="vocoder",
        shapes=filter_shapes(model.vocoder, cuda),
        precision=cuda.precision,
        graph_version=vocoder_shape.GRAPH_VERSION,
        weights=config.model_dir / "vocoder.safetensors",
        described=model.vocoder,
    )


def filter_shapes(vocoder: VocoderConfig, cuda: VocoderCudaConfig) -> dict[Bucket, FilterShape]:
    """The least first."""
    channels = Packer({}, PRECISIONS[cuda.precision]).channels
    mel, spectrum = channels(NUM_MELS), channels(vocoder.stft_size + 2)
    return {
        (num_rows, num_frames): FilterShape(num_rows, num_frames, mel, spectrum)
        for num_rows in cuda.batch_buckets
        for num_frames in cuda.frame_buckets
    }


def flow_engines(
    config: EngineConfig, model: ModelConfig, shapes: Sequence[FlowShape] = ENGINE_SHAPES
) -> WantedEngines[FlowShape, FlowShape]:
    """`config` is resolved: engines compute in its precision. Float8 products are large batches' alone."""
    return WantedEngines(
        part="flow",
        shapes={shape: shape for shape in shapes},
        precision=config.precision,
        graph_version=flow_shape.GRAPH_VERSION,
        weights=config.model_dir / "flow.safetensors",
        described=model.cosyvoice3_flow,
    )


def gpu_name(device: torch.device) -> str:
    """Name of the GPU that engines are built for."""
    found = torch.cuda.get_device_properties(device)
    return f"{found.name}, sm {found.major}.{found.minor}, {found.multi_processor_count} multiprocessors"


def check_family(model: ModelConfig) -> None:
    """Raises EngineError for models that there are no graphs of."""
    if model.family != COSYVOICE3:
        raise EngineError(
            f"TensorRT runs vocoder and flow of CosyVoice3 alone; {model.name} is a {model.family} model: there is "
            "nothing to build"
        )
