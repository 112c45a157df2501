"""TensorRT-LLM's answers to the core. Its package is imported when it is loaded, not when it is checked."""

from typing import Final

import torch

from voicegate.engine.backends.legged.backend import LeggedLlm
from voicegate.engine.backends.legged.merged import check_first_gpu, merged_vocabulary, repetition_aware
from voicegate.engine.backends.legged.options import FLAGS, one_of, read_options, whole_number
from voicegate.engine.backends.tensorrt_llm.config import TensorrtLlmConfig
from voicegate.engine.backends.tensorrt_llm.library import open_library
from voicegate.engine.backends.tensorrt_llm.requirements import check_requirements
from voicegate.engine.config import EngineConfig
from voicegate.engine.llm.backend import LlmBackend
from voicegate.engine.load.devices import Device
from voicegate.engine.load.seams import LlmAddition
from voicegate.engine.model.config import ModelConfig
from voicegate.engine.model.qwen2 import MergedVocabulary

_SAMPLINGS: Final = {"nvidia": False, "repetition-aware": True}
# Options of `llm_options`, by name: the field of TensorrtLlmConfig, which tells the cost of each, and its reader.
_OPTIONS: Final = {
    "worker": ("has_worker_process", one_of(FLAGS)),
    "sampling": ("is_repetition_aware", one_of(_SAMPLINGS)),
    "stream-interval": ("stream_interval", whole_number),
    "overlap": ("has_overlap", one_of(FLAGS)),
    "reuse": ("has_reuse", one_of(FLAGS)),
}


class TensorrtLlmAddition:
    """Implements LlmAddition."""

    def check(self, config: EngineConfig, model: ModelConfig, device: torch.device) -> str:
        version, _ = _checked(config, model, device)
        return f"{version}, {config.merged_hf_dir}"

    def load(self, config: EngineConfig, model: ModelConfig, device: Device, *, num_positions: int) -> LlmBackend:
        sampling = repetition_aware(config, model)
        _, vocabulary = _checked(config, model, device.device)
        assert config.merged_hf_dir is not None
        settings = TensorrtLlmConfig(
            config.merged_hf_dir,
            num_slots=config.max_active_clauses,
            max_positions=num_positions,
            is_eager=config.is_eager,
            **read_options(config, _OPTIONS),
        )
        library = open_library(settings, model.llm, sampling, vocabulary)
        return LeggedLlm(model.llm, vocabulary, library, settings)


ADDITION: Final[LlmAddition] = TensorrtLlmAddition()


def _checked(config: EngineConfig, model: ModelConfig, device: torch.device) -> tuple[str, MergedVocabulary]:
    """The package's version, and what the checkpoint has. Raises EngineError, ValueError with the remedy."""
    repetition_aware(config, model)
    read_options(config, _OPTIONS)
    check_first_gpu("TensorRT-LLM", device)
    version = check_requirements(device)
    return version, merged_vocabulary(config, model)
