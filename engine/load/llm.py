"""The speech LLM of an engine: the backend that the device has, or the user chose.

CUDA's runner needs Triton, which CPU installations lack: it is imported where it is chosen, as additions are.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

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
    """Of a slot."""
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


# --- `llm_options`, for additions -----------------------------------------------------------------------------

Reader = Callable[[str], Any]  # raises ValueError that says what it must be

FLAGS: Final = {"true": True, "false": False}


def one_of(choices: Mapping[str, Any]) -> Reader:
    def read(text: str) -> Any:
        if text not in choices:
            raise ValueError(" or ".join(choices))
        return choices[text]

    return read


def whole_number(text: str) -> int:
    if not text.isdecimal() or not int(text):
        raise ValueError("a whole number from 1 on")
    return int(text)


def read_options(config: EngineConfig, known: Mapping[str, tuple[str, Reader]]) -> dict[str, Any]:
    """`known`: by an option's name the field that it sets, and its reader. Raises EngineError with what there is."""
    values = {}
    for option in config.llm_options:
        name, equals, text = option.partition("=")
        if not equals or name not in known:
            raise EngineError(
                f"llm_options has {option!r}; --llm-backend {config.llm_backend} has {', '.join(sorted(known))}"
            )
        field, read = known[name]
        try:
            values[field] = read(text)
        except ValueError as error:
            raise EngineError(f"llm_options: {name} is {text!r}; it must be {error}") from error
    return values
