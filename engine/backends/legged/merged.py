"""The merged checkpoint of such a package: which ids it knows, and whether it is this model's."""

import json
from pathlib import Path

from voicegate.engine.model.config import LlmConfig
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
