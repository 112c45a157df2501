"""The merged checkpoint of such a package: which ids it knows, whether it is this model's; and the GPU it takes."""

import json
from pathlib import Path

import torch

from voicegate.engine.config import EngineConfig
from voicegate.engine.interface import EngineError
from voicegate.engine.model.config import COSYVOICE3, LlmConfig, ModelConfig, SamplingConfig
from voicegate.engine.model.qwen2 import MergedVocabulary, qwen2_sizes


def read_vocabulary(directory: Path, config: LlmConfig) -> MergedVocabulary:
    """Raises ValueError with the remedy where the directory is not of this model."""
    remedy = "make it with `voicegate convert SRC DST --merged-hf DIR` from this model's own source"
    path = directory / "config.json"
    try:
        found = json.loads(path.read_bytes())
    except (OSError, ValueError) as error:
        raise ValueError(f"{path} cannot be read ({error}): {remedy}") from error
    if not isinstance(found, dict) or not isinstance(found.get("eos_token_id"), int):
        raise ValueError(f"{path} names no eos_token_id: {remedy}")
    try:
        vocabulary = MergedVocabulary(config, found["eos_token_id"] - config.eos_id)
    except ValueError as error:
        raise ValueError(f"{path}: {error}: {remedy}") from error
    wanted = {**qwen2_sizes(config), "vocab_size": vocabulary.num_rows}
    wrong = [
        f"{name} is {found.get(name)!r}, not {value}" for name, value in wanted.items() if found.get(name) != value
    ]
    if wrong:
        raise ValueError(f"{path} is of another model ({'; '.join(wrong)}): {remedy}")
    return vocabulary


def merged_vocabulary(config: EngineConfig, model: ModelConfig) -> MergedVocabulary:
    """Vocabulary of the configured checkpoint. Raises EngineError, ValueError with the remedy."""
    if config.merged_hf_dir is None:
        raise EngineError(
            f"--llm-backend {config.llm_backend} needs --merged-hf-dir DIR, "
            "which `voicegate convert SRC DST --merged-hf DIR` writes"
        )
    if config.precision != "bfloat16":
        raise EngineError(f"the merged checkpoint is bfloat16: precision {config.precision} needs another LLM backend")
    return read_vocabulary(config.merged_hf_dir, model.llm)


def repetition_aware(config: EngineConfig, model: ModelConfig) -> SamplingConfig:
    """Known by the merged checkpoint's backends alone. Raises EngineError."""
    if model.family != COSYVOICE3 or not isinstance(model.sampling, SamplingConfig):
        raise EngineError(
            f"--llm-backend {config.llm_backend} serves CosyVoice3 with its own sampling alone; "
            f"{model.name} is a {model.family} model, or sampled in another way: use another backend"
        )
    return model.sampling


def check_first_gpu(package: str, device: torch.device) -> None:
    """Such a package takes no other. Raises EngineError."""
    if device.index:
        raise EngineError(
            f"{package} runs on the first GPU, not on {device}: use llm_device cuda:0 "
            "(CUDA_VISIBLE_DEVICES says which GPU that is)"
        )
