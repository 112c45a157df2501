"""The speech LLM of an engine: the backend that the device has, or the user chose.

CUDA's runner needs Triton, which CPU installations lack: it is imported where it is chosen, as additions are.
"""

import torch

from voicegate.engine import additions
from voicegate.engine.config import EngineConfig
from voicegate.engine.core.voice_shelf import TEXT_ROOM
from voicegate.engine.device.lanes import CudaLane
from voicegate.engine.interface import EngineError
from voicegate.engine.llm.backend import LlmBackend
from voicegate.engine.llm.torch.runner import TorchLlmRunner
from voicegate.engine.load.devices import DTYPES, Device
from voicegate.engine.load.family import load_weights
from voicegate.engine.load.seams import LlmAddition
from voicegate.engine.load.startup import ModelStart
from voicegate.engine.model.config import ModelConfig


def llm_positions(config: EngineConfig, model: ModelConfig, num_prompt_tokens: int) -> int:
    """Positions of a slot."""
    return min(model.llm.max_positions, config.max_clause_tokens + num_prompt_tokens + TEXT_ROOM)


def load_llm(
    config: EngineConfig, model: ModelConfig, device: Device, *, num_prompt_tokens: int, start: ModelStart
) -> LlmBackend:
    """Raises WeightsError, ValueError, and EngineError for a backend that cannot run here."""
    num_positions = llm_positions(config, model, num_prompt_tokens)
    match config.llm_backend:
        case "torch":
            return _torch_llm(config, model, device, num_positions)
        case "auto" if not device.is_cuda:
            return _torch_llm(config, model, device, num_positions)
        case "auto" | "cuda":
            return _cuda_llm(config, model, device, num_positions, start)
        case name:
            return llm_addition(name).load(config, model, device, num_positions=num_positions)


def _torch_llm(config: EngineConfig, model: ModelConfig, device: Device, num_positions: int) -> LlmBackend:
    return TorchLlmRunner(
        model.llm,
        model.sampling,
        load_weights(config.model_dir, model, "llm"),
        num_slots=config.max_active_clauses,
        max_positions=num_positions,
        device=device.device,
        dtype=DTYPES[config.precision] if device.is_cuda else torch.float32,
        lane=device.llm_lane,
    )


def _cuda_llm(
    config: EngineConfig, model: ModelConfig, device: Device, num_positions: int, start: ModelStart
) -> LlmBackend:
    lane = device.llm_lane
    if not isinstance(lane, CudaLane):
        raise EngineError("--llm-backend cuda needs a GPU; on a CPU use torch, or auto")
    from voicegate.engine.llm.cuda.config import CudaLlmConfig  # noqa: PLC0415 - see the module's docstring
    from voicegate.engine.llm.cuda.runner import CudaLlmRunner  # noqa: PLC0415

    runner = CudaLlmRunner(
        model.llm,
        model.sampling,
        load_weights(config.model_dir, model, "llm"),
        num_slots=config.max_active_clauses,
        max_positions=num_positions,
        device=device.device,
        dtype=DTYPES[config.precision],
        cuda=CudaLlmConfig(has_graphs=not config.is_eager),
        lane=lane,
    )
    start.add("LLM", runner.graphs, lane)
    return runner


def llm_addition(name: str) -> LlmAddition:
    """Raises EngineError where it is not part of this installation."""
    try:
        found: LlmAddition = additions.load(name, "addition").ADDITION
    except additions.MissingAddition as error:
        raise EngineError(f"--llm-backend {name}: {error}") from error
    return found
