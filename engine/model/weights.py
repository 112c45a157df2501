"""Checkpoint files -> state dicts, checked against the shapes that the module which takes them asks for."""

import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open

from voicegate.engine.model.config import FLOW_BLOCK_FRAMES
from voicegate.engine.units import NUM_MELS

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


def load_checked(path: Path, check: Callable[[Mapping[str, torch.Tensor]], None]) -> dict[str, torch.Tensor]:
    """`load_state_dict`, and `check` has seen it. Raises WeightsError, which names the file."""
    state = load_state_dict(path)
    try:
        check(state)
    except ValueError as error:
        raise WeightsError(f"{path}: {error}") from error
    return state


def stored_noise(model_dir: Path) -> torch.Tensor | None:
    """Converted models may bring it, for the CPUs whose torch draws other bits; None: it is drawn here."""
    path = model_dir / "flow_noise.safetensors"
    if not path.exists():
        return None
    noise = load_state_dict(path).get("noise")
    if noise is None or noise.dim() != 2 or noise.shape[0] != NUM_MELS or noise.shape[1] % FLOW_BLOCK_FRAMES:
        raise WeightsError(f"{path} holds no noise [{NUM_MELS}, a multiple of {FLOW_BLOCK_FRAMES}]: convert anew")
    return noise


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


def num_weights(shapes: Mapping[str, Shape]) -> int:
    return sum(map(math.prod, shapes.values()))


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
