"""A device's LoneAttention, if it can have one."""

from functools import cache
from typing import TYPE_CHECKING

import structlog
import torch

from voicegate.engine.device.cuda import is_mistake

if TYPE_CHECKING:
    from voicegate.engine.token2wav.flow.cuda.lone.attention import LoneAttention

log = structlog.get_logger(__name__)


@cache
def lone_attention(device: torch.device) -> "LoneAttention | None":
    """None before a Hopper; and where it cannot be compiled or loaded, which is logged."""
    if device.type != "cuda" or torch.cuda.get_device_capability(device) < (9, 0):
        return None
    try:
        # Needs cuda-bindings, which a CPU lacks.
        from voicegate.engine.token2wav.flow.cuda.lone.attention import LoneAttention  # noqa: PLC0415

        return LoneAttention(device)
    except (ImportError, RuntimeError) as error:
        if is_mistake(error):
            raise
        log.warning("no_lone_attention", error=str(error), cost="a block alone takes a fourteenth more")
        return None
