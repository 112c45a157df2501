"""A package's answers to the core. It is imported when it is loaded, not when it is checked."""

import importlib.metadata
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import torch

from voicegate.engine.backends.legged.backend import LeggedLlm
from voicegate.engine.backends.legged.config import LeggedConfig
from voicegate.engine.backends.legged.executor import Library
from voicegate.engine.backends.legged.merged import read_vocabulary
from voicegate.engine.backends.legged.options import Reader, read_options
from voicegate.engine.config import EngineConfig
from voicegate.engine.interface import EngineError
from voicegate.engine.llm.backend import LlmBackend
from voicegate.engine.load.devices import Device
from voicegate.engine.model.config import COSYVOICE3, LlmConfig, ModelConfig, SamplingConfig
from voicegate.engine.model.qwen2 import MergedVocabulary

Settings = TypeVar("Settings", bound=LeggedConfig)
Given = Mapping[str, Any]  # fields of its settings


@dataclass(frozen=True, slots=True)
class LeggedAddition(Generic[Settings]):
    """Implements LlmAddition."""

    name: str  # for messages
    # Options of `llm_options`, by name: the field of its settings, which tells the cost of each, and its reader.
    options: Mapping[str, tuple[str, Reader]]
    version: Callable[[torch.device], str]  # of the package, if it runs there. Raises EngineError
    settings: Callable[[Given, LlmConfig, MergedVocabulary, torch.device], Settings]  # raises EngineError
    # It is imported, and has its checkpoint. Raises EngineError, with the remedy.
    opened: Callable[[Settings, LlmConfig, SamplingConfig, MergedVocabulary], Library]

    def check(self, config: EngineConfig, model: ModelConfig, device: torch.device) -> str:
        version, _, _ = self._checked(config, model, device)
        return f"{version}, {config.merged_hf_dir}"

    def load(self, config: EngineConfig, model: ModelConfig, device: Device, *, num_positions: int) -> LlmBackend:
        _, sampling, vocabulary = self._checked(config, model, device.device)
        given = {
            "checkpoint_dir": config.merged_hf_dir,
            "num_slots": config.max_active_clauses,
            "max_positions": num_positions,
            "is_eager": config.is_eager,
        }
        settings = self.settings(given | read_options(config, self.options), model.llm, vocabulary, device.device)
        return LeggedLlm(model.llm, vocabulary, self.opened(settings, model.llm, sampling, vocabulary), settings)

    def _checked(
        self, config: EngineConfig, model: ModelConfig, device: torch.device
    ) -> tuple[str, SamplingConfig, MergedVocabulary]:
        """And what the checkpoint has. Raises EngineError, ValueError with the remedy."""
        backend = f"--llm-backend {config.llm_backend}"
        if model.family != COSYVOICE3 or not isinstance(model.sampling, SamplingConfig):
            raise EngineError(
                f"{backend} serves CosyVoice3 with its own sampling alone; {model.name} is a {model.family} model, or "
                "sampled in another way: use another backend"
            )
        read_options(config, self.options)
        if device.type != "cuda":
            raise EngineError(f"{backend} needs a GPU; on a CPU use torch, or auto")
        if device.index:
            raise EngineError(
                f"{self.name} runs on the first GPU, not on {device}: use llm_device cuda:0 "
                "(CUDA_VISIBLE_DEVICES says which GPU that is)"
            )
        version = self.version(device)
        if config.merged_hf_dir is None:
            raise EngineError(
                f"{backend} needs --merged-hf-dir DIR, which `voicegate convert SRC DST --merged-hf DIR` writes"
            )
        if config.precision != "bfloat16":
            wanted = f"precision {config.precision} needs another LLM backend"
            raise EngineError(f"the merged checkpoint is bfloat16: {wanted}")
        return version, model.sampling, read_vocabulary(config.merged_hf_dir, model.llm)


def installed_version(package: str, series: str, install: str) -> str:
    """`install`: how to have it. Raises EngineError for none, or one of another series."""
    try:
        version = importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError as error:
        raise EngineError(f"{package} is not installed: {install}, or use --llm-backend auto") from error
    if not version.startswith(f"{series}."):
        raise EngineError(f"{package} {version} is installed; this engine knows {series}.x: {install}")
    return version
