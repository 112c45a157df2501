"""A device's FewAttention, if it can have one."""

from functools import cache
from typing import TYPE_CHECKING

import structlog
import torch

from voicegate.engine.device.cuda import is_of_bindings

if TYPE_CHECKING:
    from voicegate.engine.token2wav.flow.cuda.few.attention import FewAttention

log = structlog.get_logger(__name__)


@cache
def few_attention(device: torch.device) -> "FewAttention | None":
    """None before a Hopper; and where it cannot be compiled or loaded, which is logged."""
    if device.type != "cuda" or torch.cuda.get_device_capability(device) < (9, 0):
        return None
    try:
        # Needs cuda-bindings, which a CPU lacks.
        from voicegate.engine.token2wav.flow.cuda.few.attention import FewAttention  # noqa: PLC0415

        return FewAttention(device)
    except (ImportError, RuntimeError) as error:
        if isinstance(error, ImportError) and not is_of_bindings(error):
            raise
        log.warning("no_few_attention", error=str(error), cost="a block alone takes a fourteenth more")
        return None
