"""GPU memory that an engine's room costs: the differences between engines with more streams and with longer passes.

Measured at the seam's own numbers (max_active_clauses, max_clause_tokens), so whatever pools the engine has count.
"""

import gc
from dataclasses import replace
from typing import Any, Final

import torch

from voicegate.engine import units
from voicegate.engine.config import EngineConfig
from voicegate.engine.load.build import create_engine

# Small enough to load fast, large enough to be seen beside what an allocator rounds.
_NUM_STREAMS: Final = 8
_NUM_TOKENS: Final = 250


def free_gpu_memory() -> None:
    """After an engine was closed: give back what it held."""
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


async def memory_growth(config: EngineConfig) -> dict[str, Any]:
    """MiB for each second of context of each stream, and for a stream beside its context.

    Loads three engines, one after the other; nothing else may be loaded. Without a CUDA device: says so.
    """
    if not torch.cuda.is_available():
        return {"not_measured": "no CUDA device"}
    base = await _allocated(config, _NUM_STREAMS, _NUM_TOKENS)
    longer = await _allocated(config, _NUM_STREAMS, 2 * _NUM_TOKENS)
    more = await _allocated(config, 2 * _NUM_STREAMS, _NUM_TOKENS)
    return growth(base, longer, more, num_streams=_NUM_STREAMS, num_tokens=_NUM_TOKENS)


def growth(base: int, longer: int, more: int, *, num_streams: int, num_tokens: int) -> dict[str, Any]:
    """From bytes with (n streams, t tokens), (n, 2t) and (2n, t). What a stream costs is a + b t: solved for a, b."""
    context_s = num_tokens * units.MS_PER_TOKEN / 1000
    a_second = (longer - base) / (num_streams * context_s)
    a_stream = (more - base) / num_streams - a_second * context_s
    return {
        "mib_per_stream_second": round(a_second / 2**20, 3),
        "mib_per_stream": round(a_stream / 2**20, 3),
        "from": {
            "num_streams": num_streams,
            "num_tokens": num_tokens,
            "gib": [round(each / 2**30, 4) for each in (base, longer, more)],
        },
    }


async def _allocated(config: EngineConfig, num_streams: int, num_tokens: int) -> int:
    engine = create_engine(replace(config, max_active_clauses=num_streams, max_clause_tokens=num_tokens))
    await engine.start()
    allocated = torch.cuda.memory_allocated()
    await engine.close()
    del engine
    free_gpu_memory()
    return allocated
