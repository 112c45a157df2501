"""An engine in this process as `clients.bench` speaks with a server: a dialect without sockets."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from itertools import count
from typing import Final

from voicegate.clients.bench.dialects.conversation import Chunk, ConversationLost, Ended
from voicegate.clients.bench.plan import Reader, Target, Turn
from voicegate.engine.interface import (
    AudioFormat,
    AudioReady,
    Cancelled,
    Done,
    Engine,
    EngineError,
    EngineEvent,
    EngineStopped,
    Failed,
    Overloaded,
    SpeakingMode,
    UtteranceId,
    UtteranceRequest,
)

_AUDIO: Final = AudioFormat()


class Seam:
    """Made by `listening_to`; `connect` is what a dialect gives."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self._numbers = count()
        self._heard: dict[UtteranceId, asyncio.Queue[EngineEvent | EngineError]] = {}

    async def connect(self, _target: Target, _reader: Reader) -> "SeamConversation":
        return SeamConversation(self)

    def begin(self, turn: Turn, heard: "asyncio.Queue[EngineEvent | EngineError]") -> UtteranceId | None:
        """None: the engine refused it, which is all that is heard."""
        number = next(self._numbers)
        utterance_id = UtteranceId(f"bench {number}")
        info = self.engine.info
        lead_ms = info.max_lead_ms if turn.is_hurried else None
        voice, mode = turn.voice or info.default_voice, SpeakingMode(turn.mode)
        seed = number if info.is_reproducible else None
        try:
            self.engine.submit(UtteranceRequest(utterance_id, voice, _AUDIO, mode, seed=seed, lead_ms=lead_ms))
        except EngineError as error:
            heard.put_nowait(error)
            return None
        self._heard[utterance_id] = heard
        return utterance_id

    def forget(self, utterance_id: UtteranceId) -> None:
        self._heard.pop(utterance_id, None)

    async def pump(self) -> None:
        """Until the engine stops, which is the end of all who listen."""
        try:
            while True:
                event = await self.engine.next_event()
                if (heard := self._heard.get(event.utterance_id)) is not None:
                    heard.put_nowait(event)
        except EngineStopped as error:
            for heard in self._heard.values():
                heard.put_nowait(error)


class SeamConversation:
    is_spent = False

    def __init__(self, seam: Seam) -> None:
        self._seam = seam
        self._utterance_id: UtteranceId | None = None
        self._heard: asyncio.Queue[EngineEvent | EngineError] = asyncio.Queue()

    async def begin(self, turn: Turn) -> None:
        await self.close()
        self._utterance_id = self._seam.begin(turn, self._heard)

    async def say(self, text: str) -> None:
        if self._utterance_id is not None:
            self._seam.engine.push_text(self._utterance_id, text)

    async def end(self) -> None:
        if self._utterance_id is not None:
            self._seam.engine.end_text(self._utterance_id)

    async def cancel(self, played_ms: int) -> bool:
        if self._utterance_id is not None:
            self._seam.engine.cancel(self._utterance_id, played_ms)
        return self._utterance_id is None

    async def receive(self) -> Chunk | Ended:
        while True:
            match await self._heard.get():
                case AudioReady(packets=packets):
                    return Chunk(len(packets) * _AUDIO.frame_ms * 48)
                case Done():
                    return self._ended(Ended())
                case Cancelled():
                    return self._ended(Ended(is_cancelled=True))
                case Failed(message=message):
                    return self._ended(Ended(message=message))
                case EngineStopped() as error:
                    raise ConversationLost(str(error))
                case EngineError() as error:
                    return self._ended(Ended(is_refused=isinstance(error, Overloaded), message=str(error)))
                case _:  # words
                    pass

    async def close(self) -> None:
        """A turn that still runs is cancelled: it is of no interest."""
        if self._utterance_id is not None:
            self._seam.engine.cancel(self._utterance_id)
            self._ended(Ended())

    def _ended(self, ended: Ended) -> Ended:
        if self._utterance_id is not None:
            self._seam.forget(self._utterance_id)
            self._utterance_id = None
        return ended


@asynccontextmanager
async def listening_to(engine: Engine) -> AsyncIterator[Seam]:
    """An engine that has been started; it is closed with the block, in which somebody hears its events."""
    seam = Seam(engine)
    pump = asyncio.create_task(seam.pump())
    try:
        yield seam
    finally:
        await engine.close()
        pump.cancel()
        with suppress(asyncio.CancelledError):
            await pump
