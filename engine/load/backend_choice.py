"""What choosing between our kernels and TensorRT's engines has in common, whatever part of a model it is."""

import gc
from typing import Final

import torch

from voicegate.engine.device.tensorrt.engine_files import EngineFilesError
from voicegate.engine.device.tensorrt.library import TensorrtError
from voicegate.engine.interface import EngineError
from voicegate.engine.model.config import FlowConfig, ModelConfig

CUDA: Final = "cuda"
TENSORRT: Final = "tensorrt"
# Why engines cannot be had, and why they cannot be measured: CUDA's own errors as well.
UNUSABLE: Final = (TensorrtError, EngineFilesError, OSError, torch.OutOfMemoryError)
UNMEASURABLE: Final = (EngineError, EngineFilesError, OSError, RuntimeError)


def check_backend(part: str, backend: str, model: ModelConfig, device: torch.device) -> None:
    """`backend`: as the user has it for that part. Raises EngineError where this model or device has no such choice."""
    if backend == "auto":
        return
    if device.type != "cuda":
        raise EngineError(f"--{part}-backend {backend} needs a GPU; on a CPU use auto")
    if not isinstance(model.flow, FlowConfig):
        raise EngineError(
            f"--{part}-backend {backend} runs CosyVoice3's {part} alone; "
            f"{model.name} is a {model.family} model: use auto"
        )


def refused(part: str, error: Exception) -> EngineError:
    """To be raised where engines were named and there are none."""
    return EngineError(f"--{part}-backend tensorrt: {reason_of(error)}, or use auto or cuda")


def reason_of(error: Exception) -> str:
    """Without the advice that CUDA gives behind it."""
    return str(error).partition("\n")[0]


def give_back() -> None:
    """The memory of what is not used any more: the flow takes all that is left."""
    gc.collect()  # what has CUDA graphs and the graphs hold each other
    torch.cuda.empty_cache()
