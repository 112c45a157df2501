"""The devices that the models run on, their lanes, and the precisions that a configuration may name."""

import importlib.util
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Final

import torch

from voicegate.engine.config import EngineConfig, Gpu
from voicegate.engine.cores import usable_cores
from voicegate.engine.device.lanes import CudaLane, Lane, on_device
from voicegate.engine.device.shared_cores import SharedCores, SharedHostLane
from voicegate.engine.interface import EngineError

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


@dataclass(frozen=True, slots=True)
class Devices:
    """Which device has which models."""

    llm: Device
    token2wavs: tuple[Device, ...]  # each with a flow and a vocoder

    @property
    def is_llm_apart(self) -> bool:
        return self.llm not in self.token2wavs

    @property
    def all(self) -> tuple[Device, ...]:
        return (self.llm, *self.token2wavs) if self.is_llm_apart else self.token2wavs


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
    """Of a disaggregated configuration: cpu, or cuda:N. Raises EngineError for a GPU that is not there."""
    device = torch.device(name)
    if device.type == "cuda":
        num_gpus = torch.cuda.device_count() if torch.cuda.is_available() else 0
        if device.index >= num_gpus:
            raise EngineError(f"there is no {name}: torch sees {num_gpus} GPUs, counted from 0")
    return device


def resolved_for_device(config: EngineConfig) -> EngineConfig:
    """With what suits the device where `config` leaves it open. Raises as `choose_device` and `named_device`.

    Of several token2wavs each takes as much as suits the smallest of their GPUs.
    """
    if not config.is_disaggregated:
        device = choose_device(config.device)
        return config.resolved("cuda", gpu_of(device)) if device.type == "cuda" else _resolved_for_cpu(config)
    gpus = [gpu_of(device) for device in map(named_device, config.token2wav_devices) if device.type == "cuda"]
    return with_slots_for_all(config, config.resolved("cuda", smallest(gpus))) if gpus else _resolved_for_cpu(config)


def _resolved_for_cpu(config: EngineConfig) -> EngineConfig:
    return config.resolved("cpu", has_wide_vectors=torch.backends.cpu.get_cpu_capability().startswith("AVX512"))


def with_slots_for_all(config: EngineConfig, resolved: EngineConfig) -> EngineConfig:
    """Raises EngineError where one LLM cannot have as many slots as were asked for."""
    from voicegate.engine.llm.cuda.config import LINE_BUCKETS  # noqa: PLC0415 - a CPU imports nothing of CUDA's

    num_token2wavs = len(config.token2wav_devices)
    most = LINE_BUCKETS[-1] // num_token2wavs
    if config.max_active_clauses > most:
        raise EngineError(
            f"max_active_clauses is {config.max_active_clauses} for each of {num_token2wavs} token2wavs; one LLM "
            f"takes {LINE_BUCKETS[-1]} at once, which is {most} for each"
        )
    return replace(resolved, max_active_clauses=min(resolved.max_active_clauses, most))


def smallest(gpus: Sequence[Gpu]) -> Gpu:
    """What all of them have."""
    return Gpu(
        memory_bytes=min(gpu.memory_bytes for gpu in gpus),
        num_multiprocessors=min(gpu.num_multiprocessors for gpu in gpus),
        has_float8=all(gpu.has_float8 for gpu in gpus),
    )


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
    """Of what is computed, and of the keys and values that are kept."""
    if device.is_cuda:
        return DTYPES[config.precision], KV_DTYPES[config.kv_dtype]
    return torch.float32, torch.float32


def _has_float8(device: torch.device) -> bool:
    return torch.cuda.get_device_capability(device) >= (8, 9)


def open_devices(config: EngineConfig) -> Devices:
    """Raises as `named_device` and `open_device`."""
    if config.llm_device is None:
        only = open_device(config)
        return Devices(only, (only,))
    chosen = [named_device(name) for name in (config.llm_device, *config.token2wav_devices)]
    for token2wav in chosen[1:]:
        _check_products(config, token2wav)
    llm, *token2wavs = map(_opened, chosen)
    return Devices(llm, tuple(token2wavs))


def open_device(config: EngineConfig) -> Device:
    """Raises as `choose_device`, and EngineError for a GPU without Triton, or without what `config` asks of it."""
    device = choose_device(config.device)
    _check_products(config, device)
    return _opened(device)


def _opened(device: torch.device) -> Device:
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
