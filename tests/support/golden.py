"""Golden data made by upstream's modules, and the name-keyed weights that they were made with.

The rule for weights and noise is in tests/golden/cosyvoice3/README.md; nothing is stored but checks.
"""

import hashlib
import json
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from voicegate.engine.model.config import VocoderConfig
from voicegate.engine.model.model_json import vocoder_config

GOLDEN_DIR = Path(__file__).parent.parent / "golden"
COSYVOICE3_DIR = GOLDEN_DIR / "cosyvoice3"
TINY_MODEL_DIR = Path(__file__).parent.parent.parent / "models" / "tiny"
TINY_VOICES = sorted(path.stem for path in (TINY_MODEL_DIR / "voices").glob("*.safetensors"))


def name_keyed_generator(name: str) -> np.random.Generator:
    return np.random.Generator(np.random.PCG64(int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "little")))


def load_arrays(file_name: str) -> dict[str, npt.NDArray[Any]]:
    """All arrays of one .npz under tests/golden/cosyvoice3."""
    with np.load(COSYVOICE3_DIR / file_name) as archive:
        return {key: archive[key] for key in archive.files}


def tiny_config() -> dict[str, Any]:
    """`tiny_config.json`: sizes of the modules that made the golden data (not those of models/tiny)."""
    config: dict[str, Any] = json.loads((COSYVOICE3_DIR / "tiny_config.json").read_text())
    return config


@cache
def _weights_check() -> dict[str, dict[str, dict[str, Any]]]:
    checks: dict[str, dict[str, dict[str, Any]]] = json.loads((COSYVOICE3_DIR / "weights_check.json").read_text())
    return checks


def weight(name: str, shape: tuple[int, ...], *, scale: float = 1.0, shift: float = 0.0) -> npt.NDArray[np.float32]:
    """One parameter by the golden README's weight rule, all arithmetic in float32."""
    normal = name_keyed_generator(name).standard_normal(shape).astype(np.float32)
    if name.endswith("parametrizations.weight.original0"):
        value = np.float32(1) + np.float32(0.1) * np.abs(normal)
    elif len(shape) >= 2:
        value = normal * np.float32(1 / np.sqrt(np.prod(shape[1:])))
    elif name.endswith((".weight", ".alpha")):
        value = np.float32(1) + np.float32(0.1) * normal
    else:
        value = np.float32(0.1) * normal
    return (value * np.float32(scale) + np.float32(shift)).astype(np.float32)


def golden_state_dict(part: str) -> dict[str, torch.Tensor]:
    """The state dict of `part` ("llm", "flow" or "hift") that the golden data were made with."""
    config = tiny_config()
    state: dict[str, torch.Tensor] = {}
    for name, check in _weights_check()[part].items():
        array = weight(
            name,
            tuple(check["shape"]),
            scale=config["override"].get(name, 1.0),
            shift=config["shift"].get(name, 0.0),
        )
        state[name] = torch.from_numpy(array)
    return state


def golden_vocoder_config() -> VocoderConfig:
    """Sizes of the vocoder whose weights are `golden_state_dict("hift")`."""
    raw = tiny_config()["hift"]
    return vocoder_config(raw, f0_channels=raw["f0_cond_channels"])
