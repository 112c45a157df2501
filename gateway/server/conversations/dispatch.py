"""Engine events -> the socket that owns the utterance. Never waits for a socket."""

import asyncio
from collections.abc import Callable
from typing import Final

from voicegate.engine.interface import AtRest, Cancelled, Done, Engine, EngineEvent, EngineStopped, Failed, UtteranceId

# Time in a row before sockets are read. Lower -> a burst of events is out later; higher -> it holds up a cancel.
_TURN_S: Final = 0.001

Deliver = Callable[[EngineEvent], None]


class Dispatcher:
    def __init__(self, engine: Engine, on_place: Callable[[], None] = lambda: None) -> None:
        """`on_place` is called when an utterance has ended, or rests, before its owner hears of it."""
        self._engine = engine
        self._on_place = on_place
        self._owners: dict[UtteranceId, Deliver] = {}

    @property
    def num_claimed(self) -> int:
        return len(self._owners)

    def claim(self, utterance_id: UtteranceId, deliver: Deliver) -> None:
        """Events of this utterance go to `deliver`, which must return at once, until its end event."""
        self._owners[utterance_id] = deliver

    def release(self, utterance_id: UtteranceId) -> None:
        """No one waits for this utterance any more; what still comes of it is dropped."""
        self._owners.pop(utterance_id, None)

    async def run(self) -> None:
        """Returns when the engine has stopped."""
        loop = asyncio.get_running_loop()
        turn_over_s = loop.time() + _TURN_S
        while True:
            try:
                event = await self._engine.next_event()
            except EngineStopped:
                return
            self._route(event)
            if loop.time() >= turn_over_s:
                await asyncio.sleep(0)  # gives way; nothing is waited for
                turn_over_s = loop.time() + _TURN_S

    def _route(self, event: EngineEvent) -> None:
        deliver = self._owners.get(event.utterance_id)
        if isinstance(event, Done | Cancelled | Failed):
            self.release(event.utterance_id)
        if isinstance(event, AtRest | Done | Cancelled | Failed):
            self._on_place()
        if deliver is not None:
            deliver(event)
