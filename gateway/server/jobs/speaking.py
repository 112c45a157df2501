"""One part of a job in the engine: an utterance that nobody plays, whose audio is kept until it is whole."""

import asyncio

from voicegate.engine.interface import (
    AudioReady,
    Cancelled,
    Done,
    Engine,
    EngineEvent,
    Failed,
    UtteranceRequest,
)
from voicegate.gateway.server.conversations.dispatch import Dispatcher
from voicegate.gateway.server.jobs.files import PartAudio


class PartFailed(Exception):
    """`is_final`: to try again would be in vain."""

    def __init__(self, message: str, *, is_final: bool) -> None:
        super().__init__(message)
        self.is_final = is_final


class Speaking:
    def __init__(self, engine: Engine, dispatcher: Dispatcher, request: UtteranceRequest) -> None:
        self._engine = engine
        self._dispatcher = dispatcher
        self._request = request
        self._packets: list[bytes] = []
        self._end: asyncio.Future[Done | Cancelled | Failed] = asyncio.get_running_loop().create_future()
        self.is_stopped = False

    def stop(self) -> None:
        """Its place goes to somebody who waits."""
        if not self.is_stopped and self.has_place:
            self.is_stopped = True
            self._engine.cancel(self._request.utterance_id)

    @property
    def has_place(self) -> bool:
        return not self._end.done()

    async def audio(self, text: str) -> PartAudio | None:
        """None: it was stopped. Raises EngineError, PartFailed."""
        utterance_id = self._request.utterance_id
        self._engine.submit(self._request)
        self._dispatcher.claim(utterance_id, self._take)
        self._engine.push_text(utterance_id, text)
        self._engine.end_text(utterance_id)
        try:
            end = await self._end
        except asyncio.CancelledError:
            self._dispatcher.release(utterance_id)
            self._engine.cancel(utterance_id)
            raise
        match end:
            case Done():
                return PartAudio(self._packets, end.end_pts_48k, end.audio_ms, end.is_truncated)
            case Cancelled():
                return None
            case Failed():
                raise PartFailed(end.message, is_final=end.is_of_text)

    def _take(self, event: EngineEvent) -> None:
        match event:
            case AudioReady(packets=packets):
                self._packets += packets
            case Done() | Cancelled() | Failed():
                if not self._end.done():
                    self._end.set_result(event)
            case _:
                pass  # words, which a file has no place for
