"""Looks after the engine from the event loop, several times a second: silence is told before clients notice it."""

import asyncio
from collections.abc import Callable

from voicegate.engine.interface import Engine
from voicegate.engine.pulse import LOOK_S, PulseWatch
from voicegate.gateway.logs import get_logger
from voicegate.gateway.server.service_manager import ServiceManager

log = get_logger(__name__)


class Watchdog:
    """`on_change` is told what is wrong when the engine hangs, and None when it goes on.

    `on_lag` is told of each look, by how much the event loop was late for it; `manager` that all is well.
    """

    def __init__(
        self,
        engine: Engine,
        limit_s: float,
        *,
        on_change: Callable[[str | None], None],
        on_lag: Callable[[float], None],
        manager: ServiceManager,
    ) -> None:
        self._engine = engine
        self._limit_s = limit_s
        self._watch = PulseWatch(limit_s)
        self._on_change = on_change
        self._on_lag = on_lag
        self._manager = manager
        self.trouble: str | None = None  # with the engine

    async def run(self) -> None:
        """Until it is cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            due_s = loop.time() + LOOK_S
            await asyncio.sleep(LOOK_S)
            now_s = loop.time()
            self._on_lag(max(0.0, now_s - due_s))
            self._look(now_s)

    def _look(self, now_s: float) -> None:
        hangs = self._watch.look(self._engine.pulse, now_s)
        if not hangs:
            self._manager.alive(now_s)
        if hangs is (self.trouble is not None):
            return
        if hangs:
            whereabouts = self._engine.stats().whereabouts
            where = f" at {whereabouts}" if whereabouts else ""
            self.trouble = f"the engine hangs{where}: it has got nothing done for {self._limit_s:g} s"
            log.error("engine hangs", limit_s=self._limit_s, device=whereabouts or None)
        else:
            self.trouble = None
            log.warning("engine goes on")
        self._on_change(self.trouble)
