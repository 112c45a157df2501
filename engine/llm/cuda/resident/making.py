"""The resident step of a decoder, where the device and the model allow one."""

from collections.abc import Callable

import structlog
import torch

from voicegate.engine.device.cuda import is_mistake
from voicegate.engine.llm.cuda.config import TileTable
from voicegate.engine.llm.cuda.resident.arguments import Buffers
from voicegate.engine.llm.cuda.resident.plan import make_plan
from voicegate.engine.llm.cuda.weights import DecoderWeights
from voicegate.engine.model.config import LlmConfig

log = structlog.get_logger(__name__)


def make_resident_step(
    config: LlmConfig,
    weights: DecoderWeights,
    tiles: TileTable,
    buffers: Buffers,
    *,
    shared_memory_bytes: int,
    scale: float,
) -> Callable[[], None] | None:
    """Its launch: see ResidentStep. None, so that lone lines go as all others, for another GPU, model or precision.

    And where it cannot be compiled or loaded here, which is logged. `shared_memory_bytes` that a program may take.
    """
    if buffers.cache.dtype != torch.bfloat16:
        return None
    plan = make_plan(
        config,
        num_programs=torch.cuda.get_device_properties(buffers.cache.device).multi_processor_count,
        shared_memory_bytes=shared_memory_bytes,
        num_splits=tiles.down[0][1].num_splits,
        decode_keys=tiles.attention.decode_keys,
    )
    if plan is None:
        return None
    try:
        # Needs cuda-bindings, which a CPU lacks.
        from voicegate.engine.llm.cuda.resident.step import ResidentStep  # noqa: PLC0415

        return ResidentStep(config, weights, plan, buffers, scale=scale).launch
    except (ImportError, RuntimeError) as error:
        if is_mistake(error):
            raise
        log.warning("no_resident_step", error=str(error), cost="a lone line's step takes a quarter more")
        return None
