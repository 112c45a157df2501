"""The three models of an engine on their device: the one place that knows which runner a device gets.

CUDA's runners need Triton, which CPU installations lack, so they are imported when a GPU is used.
"""

import importlib.util
import math
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import torch

from voicegate.engine.config import EngineConfig, Gpu
from voicegate.engine.device.lanes import HOST_LANE, CudaLane, Lane
from voicegate.engine.interface import EngineError
from voicegate.engine.llm.backend import LlmBackend
from voicegate.engine.llm.model import llm_shapes
from voicegate.engine.llm.stepped import SteppedLlm
from voicegate.engine.llm.torch_runner import TorchLlmRunner
from voicegate.engine.loading.startup import ModelStart, Progress
from voicegate.engine.model.config import ModelConfig
from voicegate.engine.model.weights import Shape, load_state_dict
from voicegate.engine.token2wav import chunking
from voicegate.engine.token2wav.flow.block_pool import bytes_per_block
from voicegate.engine.token2wav.flow.runner import FlowRunner
from voicegate.engine.token2wav.flow.weights import flow_shapes
from voicegate.engine.token2wav.vocoder.runner import VocoderRunner
from voicegate.engine.token2wav.vocoder.weights import vocoder_shapes
from voicegate.engine.units import SAMPLES_PER_TOKEN

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

# Text tokens of the longest clause, its prompt and the special ids around them, on top of its speech tokens.
_LLM_TEXT_ROOM = 512

NO_TRITON = "the GPU's kernels need Triton: `pip install 'voicegate[gpu]'`, or use device cpu"

# What the flow's blocks leave of the GPU's free memory: all three models' kernels, graphs and activations (none has run
# when the flow is loaded, unless start.compiles_side_by_side is off), a voice that is enrolled later. An H200's process
# had 0.9 GiB outside torch's allocator, the CUDA context included, and 2 GiB reserved in it beyond what was in use.
_SPARE_GPU_BYTES = 6 << 30

_DTYPES = {"bfloat16": torch.bfloat16, "float32": torch.float32}
_KV_DTYPES = {**_DTYPES, "float8": torch.float8_e4m3fn}
_PRODUCT_DTYPES = {"precision": None, "float8": torch.float8_e4m3fn}


@dataclass(frozen=True, slots=True)
class StartSwitches:
    compiles_side_by_side: bool = True  # the models in a thread each; off: each as it is loaded, then its graphs
    freezes_heap: bool = True  # see startup.freeze_heap


@dataclass(frozen=True, slots=True)
class Device:
    """Where the models run, and on which lanes."""

    device: torch.device
    llm_lane: Lane
    token2wav_lane: Lane

    @property
    def is_cuda(self) -> bool:
        return self.device.type == "cuda"


def choose_device(name: str) -> torch.device:
    """auto: CUDA where there is one. Raises EngineError for a device that is not there."""
    if name == "cuda" and not torch.cuda.is_available():
        raise EngineError("device 'cuda' was asked for, but torch sees no CUDA device; use --device cpu")
    if name not in ("auto", "cpu", "cuda"):
        raise EngineError(f"unknown device {name!r}; use auto, cpu or cuda")
    if name == "cpu" or not torch.cuda.is_available():
        return torch.device("cpu")
    return torch.device("cuda", torch.cuda.current_device())


def resolved_for_device(config: EngineConfig) -> EngineConfig:
    """With what suits the device where `config` leaves it open. Raises as `choose_device`."""
    device = choose_device(config.device)
    return config.resolved("cuda", gpu_of(device)) if device.type == "cuda" else config.resolved(device.type)


def gpu_of(device: torch.device) -> Gpu:
    properties = torch.cuda.get_device_properties(device)
    return Gpu(memory_bytes=properties.total_memory, num_multiprocessors=properties.multi_processor_count)


def open_device(config: EngineConfig) -> Device:
    """Raises as `choose_device`, and EngineError for a GPU without Triton, or without what `config` asks of it."""
    device = choose_device(config.device)
    _check_products(config, device)
    if device.type == "cpu":
        return Device(device, HOST_LANE, HOST_LANE)
    if importlib.util.find_spec("triton") is None:
        raise EngineError(NO_TRITON)
    # The LLM's steps are the shorter ones.
    return Device(device, CudaLane(device, urgency=1), CudaLane(device, urgency=0))


def _check_products(config: EngineConfig, device: torch.device) -> None:
    if _PRODUCT_DTYPES[config.flow_products] is None:
        return
    if device.type != "cuda" or torch.cuda.get_device_capability(device) < (8, 9):
        raise EngineError("flow_products float8 needs a GPU of compute capability 8.9 or later (Ada, Hopper)")
    if config.precision != "bfloat16":
        raise EngineError(f"flow_products float8 needs precision bfloat16, not {config.precision}")


def begin_start(config: EngineConfig, device: Device, progress: Progress) -> ModelStart:
    """For the loaders below, who add to it what must be compiled and captured. Raises EngineError."""
    is_side_by_side = start_switches(config).compiles_side_by_side
    return ModelStart(device.device, progress, is_side_by_side=is_side_by_side)


def start_switches(config: EngineConfig) -> StartSwitches:
    """Raises EngineError for a switch that there is not."""
    return _switched(StartSwitches(), "start", config)


def least_gpu_bytes(config: EngineConfig, model: ModelConfig) -> int:
    """About what a resolved `config` takes of a GPU before a second clause and any voice have their flow blocks."""
    dtype = _DTYPES[config.precision]
    llm, num_layers = model.llm, model.llm.num_layers
    cache = (
        num_layers * 2 * config.max_active_clauses * _llm_positions(config, model, 0) * llm.num_kv_heads * llm.head_dim
    )
    block_bytes = bytes_per_block(
        model.flow.estimator, num_steps=model.flow.num_euler_steps, dtype=dtype, kv_dtype=_KV_DTYPES[config.kv_dtype]
    )
    return (
        dtype.itemsize * (_num_weights(llm_shapes(llm)) + cache)
        + 4 * _num_weights(vocoder_shapes(model.vocoder))
        + 2 * 4 * _num_weights(flow_shapes(model.flow))
        + block_bytes * (chunking.max_blocks(0, config.max_clause_tokens) + 1)
        + _SPARE_GPU_BYTES
    )


def _num_weights(shapes: Mapping[str, Shape]) -> int:
    return sum(map(math.prod, shapes.values()))


def _llm_positions(config: EngineConfig, model: ModelConfig, num_prompt_tokens: int) -> int:
    return min(model.llm.max_positions, config.max_clause_tokens + num_prompt_tokens + _LLM_TEXT_ROOM)


def load_llm(
    config: EngineConfig, model: ModelConfig, device: Device, *, num_prompt_tokens: int, start: ModelStart
) -> LlmBackend:
    """Raises WeightsError, ValueError, EngineError, and what compiling raises if it is not left to `start.finish`."""
    state_dict = load_state_dict(config.model_dir / "llm.safetensors")
    num_positions = _llm_positions(config, model, num_prompt_tokens)
    if not isinstance(device.llm_lane, CudaLane):
        runner = TorchLlmRunner(
            model.llm,
            model.sampling,
            state_dict,
            num_slots=config.max_active_clauses,
            max_positions=num_positions,
            device=device.device,
        )
        return SteppedLlm(runner, device.llm_lane)
    from voicegate.engine.llm.cuda.config import CudaLlmConfig  # noqa: PLC0415 - see the module's docstring
    from voicegate.engine.llm.cuda.runner import CudaLlmRunner  # noqa: PLC0415

    cuda_runner = CudaLlmRunner(
        model.llm,
        model.sampling,
        state_dict,
        num_slots=config.max_active_clauses,
        max_positions=num_positions,
        device=device.device,
        dtype=_DTYPES[config.precision],
        cuda=_switched(CudaLlmConfig(), "llm", config),
        stream=device.llm_lane.stream,
    )
    start.add("LLM", cuda_runner, device.llm_lane)
    return SteppedLlm(cuda_runner, device.llm_lane)


def load_vocoder(config: EngineConfig, model: ModelConfig, device: Device, *, start: ModelStart) -> VocoderRunner:
    """Raises WeightsError, ValueError, EngineError, and what compiling raises if it is not left to `start.finish`."""
    state_dict = load_state_dict(config.model_dir / "vocoder.safetensors")
    max_samples = 2 * config.max_clause_tokens * SAMPLES_PER_TOKEN  # at half speed
    if not isinstance(device.token2wav_lane, CudaLane):
        return VocoderRunner(
            model.vocoder,
            state_dict,
            max_samples=max_samples,
            max_streams=config.max_active_clauses,
            device=device.device,
        )
    from voicegate.engine.token2wav.vocoder.cuda.config import VocoderCudaConfig  # noqa: PLC0415 - see the module's docstring
    from voicegate.engine.token2wav.vocoder.cuda.runner import CudaVocoderRunner  # noqa: PLC0415

    cuda = VocoderCudaConfig(
        precision=config.vocoder_precision, num_multiprocessors=gpu_of(device.device).num_multiprocessors
    )
    runner = CudaVocoderRunner(
        model.vocoder,
        state_dict,
        max_samples=max_samples,
        max_streams=config.max_active_clauses,
        device=device.device,
        cuda=_switched(cuda, "vocoder", config),
        stream=device.token2wav_lane.stream,
    )
    start.add("vocoder", runner, device.token2wav_lane)
    return runner


def load_flow(
    config: EngineConfig, model: ModelConfig, device: Device, *, num_voice_blocks: int, start: ModelStart
) -> FlowRunner:
    """Last of the three: on a GPU its blocks take the memory that is left. Raises WeightsError, ValueError."""
    state_dict = load_state_dict(config.model_dir / "flow.safetensors")
    blocks_per_clause = chunking.max_blocks(0, config.max_clause_tokens) + 1
    num_blocks = num_voice_blocks + config.max_active_clauses * blocks_per_clause
    noise = _stored_noise(config.model_dir)
    if not device.is_cuda:
        return FlowRunner(
            model.flow,
            state_dict,
            num_blocks=num_blocks,
            max_streams=config.max_active_clauses,
            device=device.device,
            noise=noise,
        )
    from voicegate.engine.token2wav.flow.cuda.config import FlowCudaConfig  # noqa: PLC0415 - see the module's docstring

    kv_dtype, product_dtype = _KV_DTYPES[config.kv_dtype], _PRODUCT_DTYPES[config.flow_products]
    block_bytes = bytes_per_block(
        model.flow.estimator, num_steps=model.flow.num_euler_steps, dtype=_DTYPES[config.precision], kv_dtype=kv_dtype
    )
    weight_bytes = sum(tensor.numel() * tensor.element_size() for tensor in state_dict.values())
    free_bytes, _ = torch.cuda.mem_get_info(device.device)
    fitting = (free_bytes - _SPARE_GPU_BYTES - 2 * weight_bytes) // block_bytes
    if fitting < num_voice_blocks + blocks_per_clause:
        raise EngineError(
            f"{free_bytes >> 20} MiB are free on the GPU: too little for the voices and one clause "
            f"({block_bytes >> 20} MiB a second of context); free memory or use kv_dtype float8"
        )
    runner = FlowRunner(
        model.flow,
        state_dict,
        num_blocks=min(num_blocks, fitting),
        max_streams=config.max_active_clauses,
        device=device.device,
        dtype=_DTYPES[config.precision],
        cuda=_switched(FlowCudaConfig(kv_dtype=kv_dtype, product_dtype=product_dtype), "flow", config),
        noise=noise,
    )
    start.progress.line(f"flow: {min(num_blocks, fitting)} blocks of {block_bytes >> 20} MiB, a second of context each")
    start.add("flow", runner, device.token2wav_lane)
    return runner


def _stored_noise(model_dir: Path) -> torch.Tensor | None:
    """Converted models bring it, for the CPUs whose torch draws other bits; None: it is drawn here."""
    path = model_dir / "flow_noise.safetensors"
    return load_state_dict(path)["noise"] if path.exists() else None


_Switches = TypeVar("_Switches", bound="DataclassInstance")


def _switched(part: _Switches, name: str, config: EngineConfig) -> _Switches:
    """The part's configuration without the optimisations that `config.without` names as `part.switch`."""
    switches = [field.name for field in fields(part) if isinstance(getattr(part, field.name), bool)]
    off = {switch.partition(".")[2] for switch in config.without if switch.partition(".")[0] == name}
    unknown = off - set(switches)
    if unknown:
        raise EngineError(f"{name} has no optimisation {', '.join(sorted(unknown))}; it has {', '.join(switches)}")
    return replace(part, **dict.fromkeys(off, False))
