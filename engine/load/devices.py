"""The devices that the models run on, their lanes, and the precisions that a configuration may name."""

import importlib.util
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import torch

from voicegate.engine import additions
from voicegate.engine.config import EngineConfig, Gpu
from voicegate.engine.cores import usable_cores
from voicegate.engine.device.lanes import CudaLane, Lane, on_device
from voicegate.engine.device.shared_cores import SharedCores, SharedHostLane
from voicegate.engine.interface import EngineError
from voicegate.engine.llm.cpu.decoder import can_decode

if TYPE_CHECKING:
    from voicegate.engine.load.seams import Layout

NO_TRITON: Final = "the GPU's kernels need Triton: `pip install triton`, or use device cpu"

DTYPES: Final = {"bfloat16": torch.bfloat16, "float32": torch.float32}
KV_DTYPES: Final = {**DTYPES, "float8": torch.float8_e4m3fn}
PRODUCT_DTYPES: Final = {"precision": None, "float8": torch.float8_e4m3fn}


@dataclass(frozen=True, slots=True, eq=False)
class Device:
    """Where models run, and on which lanes."""

    device: torch.device
    llm_lane: Lane
    token2wav_lane: Lane

    @property
    def is_cuda(self) -> bool:
        return self.device.type == "cuda"

    def current(self) -> AbstractContextManager[object]:
        """As `on_device`."""
        return on_device(self.device)


def choose_device(name: str) -> torch.device:
    """auto: CUDA where there is one. Raises EngineError for a device that is not there."""
    if name == "cuda" and not torch.cuda.is_available():
        raise EngineError("a GPU was asked for (device cuda, or gpus), but torch sees no CUDA device; use --device cpu")
    if name not in ("auto", "cpu", "cuda"):
        raise EngineError(f"unknown device {name!r}; use auto, cpu or cuda")
    if name == "cpu" or not torch.cuda.is_available():
        return torch.device("cpu")
    return torch.device("cuda", torch.cuda.current_device())


def named_device(name: str) -> torch.device:
    """A device of a layout: cpu, or cuda:N. Raises EngineError for a GPU that is not there."""
    device = torch.device(name)
    if device.type == "cuda":
        num_gpus = torch.cuda.device_count() if torch.cuda.is_available() else 0
        if device.index >= num_gpus:
            raise EngineError(f"there is no {name}: torch sees {num_gpus} GPUs, counted from 0")
    return device


def layout_of(config: EngineConfig) -> "Layout | None":
    """A layout that places the models on several devices, where that is asked for; None: all are on one."""
    if config.llm_device is None:
        return None
    found: Layout = additions.load("disaggregated", "addition").ADDITION
    return found


def resolved_for_device(config: EngineConfig) -> EngineConfig:
    """With what suits the device where `config` leaves it open. Raises EngineError for a device that is not there."""
    if (layout := layout_of(config)) is not None:
        return layout.resolved(config)
    device = choose_device(config.device)
    return config.resolved("cuda", gpu_of(device)) if device.type == "cuda" else resolved_for_cpu(config)


def resolved_for_cpu(config: EngineConfig) -> EngineConfig:
    return config.resolved("cpu", decodes_in_c=can_decode())


def gpu_of(device: torch.device) -> Gpu:
    properties = torch.cuda.get_device_properties(device)
    return Gpu(
        memory_bytes=properties.total_memory,
        num_multiprocessors=properties.multi_processor_count,
        has_float8=_has_float8(device),
    )


def free_gpu_bytes(device: torch.device) -> int:
    free_bytes, _ = torch.cuda.mem_get_info(device)
    return free_bytes


def flow_dtypes(config: EngineConfig, device: Device) -> tuple[torch.dtype, torch.dtype]:
    """Types of computed values, and of the keys and values that are kept."""
    if device.is_cuda:
        return DTYPES[config.precision], KV_DTYPES[config.kv_dtype]
    return torch.float32, torch.float32


def _has_float8(device: torch.device) -> bool:
    return torch.cuda.get_device_capability(device) >= (8, 9)


def open_device(config: EngineConfig) -> Device:
    """Raises as `choose_device`, and EngineError for a GPU without Triton, or without what `config` asks of it."""
    device = choose_device(config.device)
    return opened(config, device)


def opened(config: EngineConfig, device: torch.device) -> Device:
    """Raises EngineError for a GPU without Triton, or without what `config` asks of it."""
    _check_products(config, device)
    if device.type == "cpu":
        lane = SharedHostLane(SharedCores(len(usable_cores())))
        return Device(device, lane, lane)
    if importlib.util.find_spec("triton") is None:
        raise EngineError(NO_TRITON)
    # The LLM's steps are the shorter ones.
    return Device(device, CudaLane(device, urgency=1), CudaLane(device, urgency=0))


def _check_products(config: EngineConfig, device: torch.device) -> None:
    if PRODUCT_DTYPES[config.flow_products] is None:
        return
    if device.type != "cuda" or not _has_float8(device):
        raise EngineError("flow_products float8 needs a GPU of compute capability 8.9 or later (Ada, Hopper)")
    if config.precision != "bfloat16":
        raise EngineError(f"flow_products float8 needs precision bfloat16, not {config.precision}")
