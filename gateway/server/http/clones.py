"""Voices of the recordings that requests bring: each is made once, and kept while its place is needed for no other."""

import asyncio
import hashlib
import secrets
from collections import OrderedDict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Final

from voicegate.engine.interface import (
    Engine,
    EngineError,
    EngineStopped,
    NewVoice,
    Overloaded,
    UnknownVoice,
    Unsupported,
    VoiceConflict,
    VoiceRefused,
)
from voicegate.gateway.logs import get_logger
from voicegate.gateway.server.http.enrolment import Enrolment, decoded
from voicegate.gateway.session.quota import Owner
from voicegate.protocol.dialects.one_shot import Problem, Reference
from voicegate.protocol.errors import ErrorCode

# Half a megabyte each. Lower -> clients with many recordings wait for each of them again.
_MAX_CLONES: Final = 32

log = get_logger(__name__)


@dataclass(slots=True, eq=False)
class _Clone:
    name: str  # not to be guessed: a client that knows it speaks with it
    making: "asyncio.Task[None]"
    num_users: int = 0

    @property
    def is_made(self) -> bool:
        return self.making.done() and not self.making.cancelled() and self.making.exception() is None


class Clones:
    def __init__(self, engine: Engine, enrolment: Enrolment) -> None:
        self._engine = engine
        self._enrolment = enrolment
        self._clones: OrderedDict[bytes, _Clone] = OrderedDict()  # by content; the one that was used last is last

    @asynccontextmanager
    async def voice_of(self, reference: Reference, owner: Owner) -> AsyncIterator[str]:
        """The name of a voice that is there while this is held. Raises Refused, EngineError."""
        digest = await asyncio.to_thread(_digest, reference)
        clone = self._find(digest) or self._begin(digest, reference, owner)
        clone.num_users += 1
        try:
            self._clones.move_to_end(digest)
            await asyncio.shield(clone.making)  # others may wait for it, or ask again
            yield clone.name
        finally:
            clone.num_users -= 1

    async def give_way(self) -> bool:
        """The one that was not used for longest goes. False: all are in use, or there is none."""
        for digest, clone in self._clones.items():
            if clone.is_made and not clone.num_users:
                del self._clones[digest]
                with suppress(UnknownVoice):
                    await self._engine.remove_voice(clone.name)
                return True
        return False

    def _find(self, digest: bytes) -> _Clone | None:
        """Unless its engine has lost it."""
        clone = self._clones.get(digest)
        is_lost = clone is not None and clone.is_made and clone.name not in self._engine.info.clones
        return None if is_lost else clone

    def _begin(self, digest: bytes, reference: Reference, owner: Owner) -> _Clone:
        name = f"clone-{secrets.token_hex(16)}"
        making = asyncio.get_running_loop().create_task(self._make(name, reference, owner))
        clone = self._clones[digest] = _Clone(name, making)

        def forget_a_failure(_: "asyncio.Task[None]") -> None:
            if not clone.is_made and self._clones.get(digest) is clone:
                del self._clones[digest]

        making.add_done_callback(forget_a_failure)
        return clone

    async def _make(self, name: str, reference: Reference, owner: Owner) -> None:
        """Raises Refused, EngineError."""
        async with self._enrolment.making(owner):
            recording = await decoded(reference.recording)
            while True:
                try:
                    await self._engine.add_voice(NewVoice(name, recording, reference.transcript, is_clone=True))
                    break
                except VoiceConflict as error:
                    if not await self.give_way():
                        raise Overloaded(str(error)) from error
        log.info("voice cloned", voice=name, has_transcript=bool(reference.transcript))
        if len(self._clones) > _MAX_CLONES:
            await self.give_way()


def _digest(reference: Reference) -> bytes:
    content = hashlib.sha256(reference.transcript.encode())
    content.update(b"\0")
    content.update(reference.recording.encode())
    return content.digest()


def problem_of(error: EngineError) -> Problem:
    """Why there is no voice of a recording."""
    match error:
        case VoiceRefused():
            return Problem(ErrorCode.BAD_MESSAGE, f"ref_audio: {error}", field="ref_audio")
        case Overloaded():
            return Problem(ErrorCode.OVERLOADED, str(error), error.retry_after_ms)
        case EngineStopped():
            return Problem(ErrorCode.OVERLOADED, str(error), retry_after_ms=1000)
        case Unsupported():
            return Problem(ErrorCode.UNSUPPORTED, f"ref_audio: {error}", field="ref_audio")
        case _:
            return Problem(ErrorCode.ENGINE_FAILED, str(error))
