"""vLLM's answers to the core."""

import math
from typing import Final

import torch

from voicegate.engine.backends.legged.addition import Given, LeggedAddition, installed_version
from voicegate.engine.backends.legged.options import FLAGS, one_of
from voicegate.engine.backends.vllm.config import VllmConfig, gpu_bytes
from voicegate.engine.backends.vllm.library import open_library
from voicegate.engine.interface import EngineError
from voicegate.engine.load.devices import gpu_of
from voicegate.engine.load.seams import LlmAddition
from voicegate.engine.model.config import LlmConfig
from voicegate.engine.model.qwen2 import MergedVocabulary

SERIES: Final = "0.26"
_INSTALL: Final = "pip install '.[vllm]' in a clone of this server"


def _share(text: str) -> float:
    try:
        share = float(text)
    except ValueError:
        share = math.nan
    if not 0 < share < 1:
        raise ValueError("a number between 0 and 1")
    return share


def _settings(given: Given, llm: LlmConfig, vocabulary: MergedVocabulary, device: torch.device) -> VllmConfig:
    if llm.num_heads * llm.head_dim != llm.hidden_size:
        raise EngineError(
            f"vLLM takes a head of this model as {llm.hidden_size} / {llm.num_heads} numbers wide, where it has "
            f"{llm.head_dim}, and cuts its weights without a word: use another LLM backend"
        )
    num_slots, max_positions = given["num_slots"], given["max_positions"]
    needed = gpu_bytes(llm, vocabulary, num_slots=num_slots, max_positions=max_positions)
    share = math.ceil(1000 * needed / gpu_of(device).memory_bytes) / 1000
    if share >= 1:
        raise EngineError(
            f"vLLM would take {needed / (1 << 30):.1f} GiB, which is more than the GPU has: set max_active_clauses "
            f"to fewer (it is {num_slots})"
        )
    return VllmConfig(**{"gpu_memory_utilization": share, **given})


ADDITION: Final[LlmAddition] = LeggedAddition(
    "vLLM",
    {
        "sampling": ("is_repetition_aware", one_of({"repetition-aware": True, "nucleus": False})),
        "gpu-memory-utilization": ("gpu_memory_utilization", _share),
        "reuse": ("has_reuse", one_of(FLAGS)),
    },
    version=lambda _: installed_version("vllm", SERIES, _INSTALL),
    settings=_settings,
    opened=open_library,
)
