"""Checkpoint files -> state dicts, checked against the shapes that the module which takes them asks for."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open

Shape = tuple[int, ...]


_MAX_TOLD = 8  # faults of one file: weights of another model have thousands
_LFS_POINTER = b"version https://git-lfs"


class WeightsError(ValueError):
    """A weights file is missing, truncated or not what its name says. The message names the file or its tensors."""


def load_state_dict(path: Path) -> dict[str, torch.Tensor]:
    """All tensors of one .safetensors file, on the CPU, in the file's dtypes."""
    try:
        with safe_open(path, framework="pt") as file:
            return {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118 - not a dict
    except FileNotFoundError as error:
        raise WeightsError(f"{path} is missing: the model directory is incomplete") from error
    except (SafetensorError, OSError) as error:
        if is_lfs_pointer(path):
            raise WeightsError(f"{path} is a Git LFS pointer, not the file: fetch it with `git lfs pull`") from error
        raise WeightsError(f"{path} cannot be read, it may be truncated: {error}") from error


def is_lfs_pointer(path: Path) -> bool:
    """Whether `git clone` left a few lines there in the file's place. Raises OSError."""
    with path.open("rb") as file:
        return file.read(len(_LFS_POINTER)) == _LFS_POINTER


def load_metadata(path: Path) -> dict[str, str]:
    """The string table in a .safetensors header; empty where there is none. Raises WeightsError."""
    try:
        with safe_open(path, framework="pt") as file:
            return dict(file.metadata() or {})
    except (SafetensorError, OSError) as error:
        raise WeightsError(f"{path} cannot be read: {error}") from error


def shape_faults(
    found: Mapping[str, Any], expected: Mapping[str, Shape], optional: Mapping[str, Shape] | None = None
) -> list[str]:
    """A line for each tensor that is `missing`, `unknown` (or no tensor) or `misshaped`: its first word."""
    known = {**expected, **(optional or {})}
    faults = [f"missing: {name} {list(shape)}" for name, shape in expected.items() if name not in found]
    for name, value in found.items():
        if not isinstance(value, torch.Tensor):
            faults.append(f"unknown: {name}, a {type(value).__name__}")
        elif name not in known:
            faults.append(f"unknown: {name} {list(value.shape)}")
        elif tuple(value.shape) != known[name]:
            faults.append(f"misshaped: {name} is {list(value.shape)}, not {list(known[name])}")
    return faults


def check_shapes(
    part: str,
    state_dict: Mapping[str, torch.Tensor],
    expected: Mapping[str, Shape],
    optional: Mapping[str, Shape] | None = None,
) -> None:
    """Raises WeightsError with the first of `shape_faults` and their number."""
    faults = shape_faults(state_dict, expected, optional)
    if faults:
        rest = [f"and {len(faults) - _MAX_TOLD} more"] if len(faults) > _MAX_TOLD else []
        told = "; ".join([*faults[:_MAX_TOLD], *rest])
        raise WeightsError(f"these {part} weights do not fit model.json: {told}")
