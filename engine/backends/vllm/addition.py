"""vLLM's answers to the core. Its package is imported when it is loaded, not when it is checked."""

import importlib.metadata
import math
from typing import Final

import torch

from voicegate.engine.backends.legged.backend import LeggedLlm
from voicegate.engine.backends.legged.merged import check_first_gpu, merged_vocabulary, repetition_aware
from voicegate.engine.backends.legged.options import FLAGS, one_of, read_options
from voicegate.engine.backends.vllm.config import VllmConfig, gpu_bytes
from voicegate.engine.backends.vllm.library import open_library
from voicegate.engine.config import EngineConfig
from voicegate.engine.interface import EngineError
from voicegate.engine.llm.backend import LlmBackend
from voicegate.engine.load.devices import Device, gpu_of
from voicegate.engine.load.seams import LlmAddition
from voicegate.engine.model.config import ModelConfig
from voicegate.engine.model.qwen2 import MergedVocabulary

SERIES: Final = "0.26"
_SAMPLINGS: Final = {"repetition-aware": True, "nucleus": False}


def _share(text: str) -> float:
    try:
        share = float(text)
    except ValueError:
        share = math.nan
    if not 0 < share < 1:
        raise ValueError("a number between 0 and 1")
    return share


# Options of `llm_options`, by name: the field of VllmConfig, which tells the cost of each, and its reader.
_OPTIONS: Final = {
    "sampling": ("is_repetition_aware", one_of(_SAMPLINGS)),
    "gpu-memory-utilization": ("gpu_memory_utilization", _share),
    "reuse": ("has_reuse", one_of(FLAGS)),
}


class VllmAddition:
    """Implements LlmAddition."""

    def check(self, config: EngineConfig, model: ModelConfig, device: torch.device) -> str:
        version, _ = _checked(config, model, device)
        return f"{version}, {config.merged_hf_dir}"

    def load(self, config: EngineConfig, model: ModelConfig, device: Device, *, num_positions: int) -> LlmBackend:
        sampling = repetition_aware(config, model)
        _, vocabulary = _checked(config, model, device.device)
        assert config.merged_hf_dir is not None
        num_slots = config.max_active_clauses
        needed = gpu_bytes(model.llm, vocabulary, num_slots=num_slots, max_positions=num_positions)
        share = math.ceil(1000 * needed / gpu_of(device.device).memory_bytes) / 1000
        if share >= 1:
            raise EngineError(
                f"vLLM would take {needed / (1 << 30):.1f} GiB, which is more than the GPU has: set max_active_clauses "
                f"to fewer (it is {num_slots})"
            )
        settings = VllmConfig(
            config.merged_hf_dir,
            num_slots=num_slots,
            max_positions=num_positions,
            is_eager=config.is_eager,
            **{"gpu_memory_utilization": share, **read_options(config, _OPTIONS)},
        )
        library = open_library(settings, model.llm, sampling, vocabulary)
        return LeggedLlm(model.llm, vocabulary, library, settings)


ADDITION: Final[LlmAddition] = VllmAddition()


def _checked(config: EngineConfig, model: ModelConfig, device: torch.device) -> tuple[str, MergedVocabulary]:
    """The package's version, and what the checkpoint has. Raises EngineError, ValueError with the remedy."""
    repetition_aware(config, model)
    read_options(config, _OPTIONS)
    if device.type != "cuda":
        raise EngineError("--llm-backend vllm needs a GPU; on a CPU use torch, or auto")
    check_first_gpu("vLLM", device)
    try:
        version = importlib.metadata.version("vllm")
    except importlib.metadata.PackageNotFoundError as error:
        raise EngineError(
            "vllm is not installed: pip install 'voicegate-tts[vllm]', or use --llm-backend auto"
        ) from error
    if not version.startswith(f"{SERIES}."):
        raise EngineError(f"vllm {version} is installed; this engine knows {SERIES}.x: pip install 'vllm=={SERIES}.*'")
    return version, merged_vocabulary(config, model)
