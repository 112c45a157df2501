"""One way to choose between our kernels and TensorRT's engines, whatever part of a model they compute.

`auto` takes engines where they lie beside the model and were the quicker ones, measured here and now. What is named and
cannot be had is an error; what `auto` does not take, it says.
"""

import gc
from collections.abc import Callable
from typing import Final, TypeVar

import structlog
import torch

from voicegate.engine.backends.tensorrt.engine_files import EngineFilesError
from voicegate.engine.backends.tensorrt.library import TensorrtError
from voicegate.engine.interface import EngineError
from voicegate.engine.load.cosyvoice3 import KERNELS
from voicegate.engine.load.progress import Progress

log = structlog.get_logger()

TENSORRT: Final = "tensorrt"
# Why engines cannot be had, and why they cannot be measured: CUDA's own errors as well.
_UNUSABLE: Final = (TensorrtError, EngineFilesError, OSError, torch.OutOfMemoryError)
_UNMEASURABLE: Final = (EngineError, EngineFilesError, OSError, RuntimeError)

Found = TypeVar("Found")


def choose(
    part: str,
    backend: str,
    progress: Progress,
    *,
    is_built: bool,
    named: Callable[[], Found],
    quicker: Callable[[], Found | None],
) -> Found | None:
    """`named`: takes the engines. `quicker`: measures, and takes them where that pays. None: our kernels.

    Raises EngineError for engines that were named and cannot be had.
    """
    if backend == TENSORRT:
        try:
            return named()
        except _UNUSABLE as error:
            raise EngineError(f"--{part}-backend {TENSORRT}: {reason_of(error)}, or use auto or cuda") from error
    if backend == KERNELS or not is_built:
        return None
    try:
        return quicker()
    except _UNMEASURABLE as error:
        reason = reason_of(error)
    give_back()
    log.warning(f"{part}_engines_unused", reason=reason, **{part: KERNELS})
    progress.line(f"{part}: TensorRT's engines are not used: {reason}")
    return None


def reason_of(error: Exception) -> str:
    """Without the advice that CUDA gives behind it."""
    return str(error).partition("\n")[0]


def give_back() -> None:
    """The memory of what is not used any more: the flow takes all that is left."""
    gc.collect()  # what has CUDA graphs and the graphs hold each other
    torch.cuda.empty_cache()
