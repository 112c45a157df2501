"""What the scheduler goes by in an engine with these stages."""

from typing import Final

from voicegate.engine.config import EngineConfig
from voicegate.engine.core.policy.urgency import Limits
from voicegate.engine.core.stages import Stages

# See Limits.light_guard_s. Simulated, 60 ms are as good. A CPU's blocks take no less where few have work.
_GPU_LIGHT_GUARD_S: Final = 0.08


def limits_of(config: EngineConfig, stages: Stages) -> Limits:
    """`config`: resolved for the device."""
    guard_s = config.guard_ms / 1000
    return Limits(
        flow_batch=stages.flow.batch_size(config.max_flow_batch),
        calm_flow_batch=stages.flow.batch_size(max(config.max_flow_batch, config.max_calm_flow_batch)),
        guard_s=guard_s,
        light_guard_s=min(guard_s, _GPU_LIGHT_GUARD_S) if stages.is_concurrent else guard_s,
        room_guard_s=config.room_guard_ms / 1000,
        is_concurrent=stages.is_concurrent,
        is_llm_apart=stages.is_llm_apart,
    )
