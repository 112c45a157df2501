"""Checkpoint files -> state dicts. Checking keys and shapes is the business of the module that takes them."""

from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open


class WeightsError(ValueError):
    """A weights file is missing, truncated or not what its name says. The message names the file."""


def load_state_dict(path: Path) -> dict[str, torch.Tensor]:
    """All tensors of one .safetensors file, on the CPU, in the file's dtypes."""
    try:
        with safe_open(path, framework="pt") as file:
            return {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118 - not a dict
    except FileNotFoundError as error:
        raise WeightsError(f"{path} is missing: the model directory is incomplete") from error
    except (SafetensorError, OSError) as error:
        raise WeightsError(f"{path} cannot be read, it may be truncated: {error}") from error


def load_metadata(path: Path) -> dict[str, str]:
    """The string table in a .safetensors header; empty where there is none. Raises WeightsError."""
    try:
        with safe_open(path, framework="pt") as file:
            return dict(file.metadata() or {})
    except (SafetensorError, OSError) as error:
        raise WeightsError(f"{path} cannot be read: {error}") from error
