"""Work that a server still has once all clients have left. Asked of a voicegate; others do not tell."""

import asyncio
import time
from typing import Any, Final

from voicegate.clients.bench.inquiry import ask
from voicegate.clients.bench.plan import Target

# For what was cancelled to end. Lower takes a busy server's last cancels for forgotten ones.
_PATIENCE_S: Final = 3.0
_POLL_S: Final = 0.05


async def left_behind(target: Target) -> dict[str, Any] | None:
    """Utterances and contexts that go on, and how long it took until there were none; None: it does not say."""
    begun_s = time.monotonic()
    while True:
        answer = await ask(target, "/v1/capacity")
        if answer is None or not {"utterances", "contexts"} <= answer.told.keys():
            return None
        waited_s = time.monotonic() - begun_s
        left = {name: answer.told[name] for name in ("utterances", "contexts")}
        if not any(left.values()) or waited_s > _PATIENCE_S:
            return {**left, "after_ms": round(waited_s * 1000)}
        await asyncio.sleep(_POLL_S)
