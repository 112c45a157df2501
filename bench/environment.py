"""The environment of a measurement, torch's share of it included. Goes into every result file."""

from importlib import metadata
from pathlib import Path
from typing import Any

import torch

from voicegate.clients.bench import environment

REPOSITORY = Path(__file__).resolve().parent.parent


def describe() -> dict[str, Any]:
    """Plain data for JSON. None: not known here, or there is none."""
    return {
        **environment.describe(),
        "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
        "torch": torch.__version__,
        "torch_threads": torch.get_num_threads(),
        "cuda": torch.version.cuda,
        "triton": _version("triton"),
        "vllm": _version("vllm"),
    }


def _version(distribution: str) -> str | None:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None
