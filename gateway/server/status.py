"""How the server stands, as probes, balancers and refusals tell it. Pure."""

from math import ceil
from typing import Final

import msgspec

from voicegate.engine.interface import EngineInfo

# Lower makes refused clients come back sooner and in greater numbers; higher keeps them silent for longer.
RETRY_AFTER_S: Final = 1


class Load(msgspec.Struct, frozen=True):
    """How much of the server is taken. Fields are the names in /v1/capacity."""

    sockets: int = 0
    max_sockets: int = 1
    contexts: int = 0
    max_contexts: int = 1
    utterances: int = 0  # contexts with something to say, those that wait for room included
    max_utterances: int = 1
    room: int = 1  # so many more utterances the engine would take at once
    waiting: int = 0
    max_waiting: int = 0
    retry_after_ms: int = 0  # for who is turned away now


class Status(msgspec.Struct, frozen=True):
    """Status for the pages, at the moment of the request."""

    unready_reason: str | None  # None: ready
    info: EngineInfo | None  # None: not known yet
    load: Load = Load()
    hang: str | None = None  # of the engine: only a restart helps, if that does
    num_absent: int = 0  # sessions that wait for their clients to come back
    is_in_vain: bool = False  # to wait for room: others did, and nothing has moved since

    @property
    def refusal(self) -> str | None:
        """Why no new socket is let in."""
        if self.unready_reason is not None:
            return self.unready_reason
        if self.load.sockets >= self.load.max_sockets:
            return "all sockets are taken"
        if self.load.waiting >= self.load.max_waiting > 0:
            return "no room for speech: as many wait for it as may"
        if self.load.room <= 0 and self.is_in_vain:
            return "no room for speech: waiting contexts got none"
        return None

    @property
    def retry_after_s(self) -> int:
        """For who is refused."""
        is_busy = self.unready_reason is None
        return max(RETRY_AFTER_S, ceil(self.load.retry_after_ms / 1000)) if is_busy else RETRY_AFTER_S
