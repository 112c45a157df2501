"""What the core asks TensorRT-LLM for. Its package is imported when it is loaded, not when it is checked."""

from typing import Final

import torch

from voicegate.engine.backends.tensorrt_llm.backend import TensorrtLlm
from voicegate.engine.backends.tensorrt_llm.checkpoint import read_vocabulary
from voicegate.engine.backends.tensorrt_llm.config import TensorrtLlmConfig
from voicegate.engine.backends.tensorrt_llm.library import open_library
from voicegate.engine.backends.tensorrt_llm.requirements import check_requirements
from voicegate.engine.config import EngineConfig
from voicegate.engine.interface import EngineError
from voicegate.engine.llm.backend import LlmBackend
from voicegate.engine.load.devices import Device
from voicegate.engine.load.llm import FLAGS, one_of, read_options, whole_number
from voicegate.engine.load.seams import LlmAddition
from voicegate.engine.model.config import COSYVOICE3, ModelConfig, SamplingConfig
from voicegate.engine.model.qwen2 import MergedVocabulary

_SAMPLINGS: Final = {"nvidia": False, "repetition-aware": True}
# Of `llm_options`, by name: the field of TensorrtLlmConfig that it is, where what each costs is told, and its reader.
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
        sampling = _repetition_aware(model)
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
        return TensorrtLlm(model.llm, vocabulary, library, settings)


ADDITION: Final[LlmAddition] = TensorrtLlmAddition()


def _checked(config: EngineConfig, model: ModelConfig, device: torch.device) -> tuple[str, MergedVocabulary]:
    """The package's version, and what the checkpoint has. Raises EngineError, ValueError with the remedy."""
    _repetition_aware(model)
    read_options(config, _OPTIONS)
    if device.index:
        raise EngineError(
            f"TensorRT-LLM runs on the first GPU, not on {device}: use llm_device cuda:0 "
            "(CUDA_VISIBLE_DEVICES says which GPU that is)"
        )
    version = check_requirements(device)
    if config.merged_hf_dir is None:
        raise EngineError(
            "--llm-backend tensorrt-llm needs --merged-hf-dir DIR, "
            "which `voicegate convert SRC DST --merged-hf DIR` writes"
        )
    if config.precision != "bfloat16":
        raise EngineError(f"the merged checkpoint is bfloat16: precision {config.precision} needs another LLM backend")
    return version, read_vocabulary(config.merged_hf_dir, model.llm)


def _repetition_aware(model: ModelConfig) -> SamplingConfig:
    """What alone the merged checkpoint's backend knows of. Raises EngineError."""
    if model.family != COSYVOICE3 or not isinstance(model.sampling, SamplingConfig):
        raise EngineError(
            "--llm-backend tensorrt-llm serves CosyVoice3 with its own sampling alone; "
            f"{model.name} is a {model.family} model, or sampled in another way: use another backend"
        )
    return model.sampling
