"""TensorRT engines of a model's vocoder: which there must be, whether those on disk do, and how they are loaded."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from voicegate.engine.config import EngineConfig
from voicegate.engine.device.tensorrt.engine_files import EngineFiles, EngineFilesError, Fingerprint
from voicegate.engine.device.tensorrt.library import LoadedEngine, TensorrtError, load_tensorrt
from voicegate.engine.interface import EngineError
from voicegate.engine.model.config import FlowConfig, ModelConfig
from voicegate.engine.token2wav.vocoder.cuda.config import PRECISIONS, VocoderCudaConfig
from voicegate.engine.token2wav.vocoder.cuda.packing import Packer
from voicegate.engine.token2wav.vocoder.tensorrt.shape import GRAPH_VERSION, FilterShape
from voicegate.engine.units import NUM_MELS

Bucket = tuple[int, int]  # streams, frames


def check_family(model: ModelConfig) -> None:
    """Raises EngineError for a vocoder that there is no graph of."""
    if not isinstance(model.flow, FlowConfig):
        raise EngineError(
            f"TensorRT runs the vocoder of CosyVoice3 alone; {model.name} is a {model.family} model: there is nothing "
            "to build"
        )


def engine_files(config: EngineConfig) -> EngineFiles:
    return EngineFiles(config.tensorrt_dir or config.model_dir / "tensorrt")


def filter_shapes(model: ModelConfig, cuda: VocoderCudaConfig) -> dict[Bucket, FilterShape]:
    """The least first."""
    channels = Packer({}, PRECISIONS[cuda.precision]).channels
    mel, spectrum = channels(NUM_MELS), channels(model.vocoder.stft_size + 2)
    return {
        (num_rows, num_frames): FilterShape(num_rows, num_frames, mel, spectrum)
        for num_rows in cuda.batch_buckets
        for num_frames in cuda.frame_buckets
    }


def product_type(precision: str) -> str:
    """Of the graph's products, as the `vocoder_precision` has them."""
    return "float32" if precision == "tf32" else precision


def fingerprint(model_dir: Path, model: ModelConfig, *, precision: str, version: str, gpu: str) -> Fingerprint:
    """Raises OSError. `version`: of TensorRT."""
    described = json.dumps(asdict(model.vocoder), sort_keys=True)
    with (model_dir / "vocoder.safetensors").open("rb") as weights:
        digest = hashlib.file_digest(weights, "sha256")
    digest.update(described.encode())
    return Fingerprint(GRAPH_VERSION, digest.hexdigest(), precision, version, gpu)


def gpu_name(device: torch.device) -> str:
    """Of all that engines are built for."""
    found = torch.cuda.get_device_properties(device)
    return f"{found.name}, sm {found.major}.{found.minor}, {found.multi_processor_count} multiprocessors"


@dataclass(frozen=True, slots=True)
class FoundEngines:
    """On disk, not read yet: of this model, for this TensorRT and this GPU."""

    trt: Any
    files: EngineFiles
    shapes: Mapping[Bucket, FilterShape]

    def load(self, device: torch.device) -> dict[Bucket, LoadedEngine]:
        """Raises EngineFilesError, TensorrtError."""
        return {
            bucket: LoadedEngine(self.trt, self.files.read(shape.name), device) for bucket, shape in self.shapes.items()
        }


def find_engines(
    config: EngineConfig, model: ModelConfig, cuda: VocoderCudaConfig, device: torch.device
) -> FoundEngines:
    """Raises EngineFilesError, TensorrtError, OSError."""
    trt, files, shapes = load_tensorrt(), engine_files(config), filter_shapes(model, cuda)
    wanted = fingerprint(
        config.model_dir, model, precision=cuda.precision, version=trt.__version__, gpu=gpu_name(device)
    )
    files.check([shape.name for shape in shapes.values()], wanted)
    return FoundEngines(trt, files, shapes)


def usable_engines(config: EngineConfig, model: ModelConfig, device: torch.device) -> str:
    """What they are, in a few words. Raises EngineError that says why they cannot be used."""
    check_family(model)
    if device.type != "cuda":
        raise EngineError("TensorRT's engines need a GPU, and torch sees none, or device is cpu")
    try:
        found = find_engines(config, model, VocoderCudaConfig(config.vocoder_precision), device)
    except (EngineFilesError, TensorrtError, OSError) as error:
        raise EngineError(str(error)) from error
    return f"{len(found.shapes)} engines of TensorRT {found.trt.__version__} in {found.files.directory}"
