"""Whether TensorRT-LLM can run here, asked before anything of it is imported: importing takes long, and starts MPI."""

import re
from typing import Final

import torch

from voicegate.engine.backends.legged.addition import installed_version
from voicegate.engine.interface import EngineError

SERIES: Final = "1.2"
# Mended in 1.2.1, by NVIDIA's notes: a cache of keys and values that gets corrupted.
_CORRUPTING: Final = re.compile(r"1\.2\.0(?!\d)")
_INSTALL: Final = "NVIDIA's container of release 1.2.1 has it (docs/operations/tensorrt.md)"

# NVIDIA's list for 1.2: A100, Ada (L20, L40), Hopper, Blackwell (B200, B300, RTX and DGX Spark).
_CAPABILITIES: Final = ((8, 0), (8, 9), (9, 0), (10, 0), (10, 3), (12, 0), (12, 1))


def check_requirements(device: torch.device) -> str:
    """The package's version. `device`: a GPU. Raises EngineError that says what does not fit, and what to do."""
    capability = torch.cuda.get_device_capability(device)
    if capability not in _CAPABILITIES:
        known = ", ".join(f"{major}.{minor}" for major, minor in _CAPABILITIES)
        found = ".".join(map(str, capability))
        raise EngineError(
            f"TensorRT-LLM {SERIES} runs on GPUs of compute capability {known}; this one has {found}: "
            "use --llm-backend cuda"
        )
    version = installed_version("tensorrt_llm", SERIES, _INSTALL)
    if _CORRUPTING.match(version):
        raise EngineError(f"tensorrt_llm {version} corrupts its cache, and speech with it: {_INSTALL}")
    return version
