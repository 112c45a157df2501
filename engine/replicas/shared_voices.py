"""The voices of several engine processes: those that come and go while they run, also for those that start later."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

import structlog

from voicegate.engine.interface import EngineError, EngineInfo, Overloaded, UnknownVoice, VoiceInfo
from voicegate.engine.replicas.replica import Replica, ReplicaLost
from voicegate.engine.replicas.wire import NewVoice

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class _Added:
    voice: NewVoice
    recording: bytes


class SharedVoices:
    """One change at a time. A voice is there once one process speaks with it; the others are told next."""

    def __init__(self) -> None:
        self.lock = asyncio.Lock()  # over a process's coming into service, too
        self._names: dict[str, VoiceInfo] = {}
        self._at_start: frozenset[str] = frozenset()
        self._changed: dict[str, _Added | None] = {}  # since the first start; None: taken away

    @property
    def infos(self) -> tuple[VoiceInfo, ...]:
        return tuple(self._names.values())

    def begin(self, info: EngineInfo) -> None:
        """With those of the first process that is ready."""
        self._names = {voice.name: voice for voice in info.voices}
        self._at_start = frozenset(self._names)

    async def bring_up_to_date(self, replica: Replica) -> None:
        """Of a process that starts: what changed while it was not there. Raises ReplicaLost."""
        for name, added in self._changed.items():
            if added is None:
                await self._remove(replica, name)
            else:
                await self._add(replica, added)
        replica.voices &= self._names.keys()

    async def add(self, replicas: Sequence[Replica], voice: NewVoice, recording: bytes) -> VoiceInfo:
        """Raises what the first process raises that answers; then nothing has changed. Raises Overloaded."""
        # Whether there may be one already has been asked here. A process may have more: an addition that was given up.
        added = _Added(NewVoice(voice.name, voice.transcript, voice.description, is_replacing=True), recording)
        left = list(replicas)
        while left:
            first = left.pop(0)
            try:
                info = await first.add_voice(added.voice, recording)
            except ReplicaLost:
                continue
            first.voices.add(voice.name)
            others = [other for other in left if not other.lost.is_set()]
            for other in others:
                other.voices.discard(voice.name)  # until it speaks with the new one
            self._names.pop(voice.name, None)
            self._names[voice.name] = info
            self._changed[voice.name] = added
            async with asyncio.TaskGroup() as tasks:
                for other in others:
                    tasks.create_task(self._add(other, added))
            return info
        raise Overloaded("no engine process is there to make it; try again shortly")

    async def remove(self, replicas: Sequence[Replica], name: str) -> None:
        """First here, so that no further utterance names it; those submitted are ahead of the command."""
        del self._names[name]
        self._changed.pop(name, None)
        if name in self._at_start:
            self._changed[name] = None
        async with asyncio.TaskGroup() as tasks:
            for replica in replicas:
                replica.voices.discard(name)
                tasks.create_task(self._remove(replica, name))

    async def _add(self, replica: Replica, added: _Added) -> None:
        """One that does not take it is asked for no speech with it."""
        replica.voices.discard(added.voice.name)
        try:
            await replica.add_voice(added.voice, added.recording)
        except ReplicaLost:
            return  # the next one in its place is told
        except EngineError as error:
            log.warning("voice_not_everywhere", voice=added.voice.name, replica=replica.name, reason=str(error))
            return
        replica.voices.add(added.voice.name)

    async def _remove(self, replica: Replica, name: str) -> None:
        try:
            await replica.remove_voice(name)
        except (ReplicaLost, UnknownVoice):
            return
        except EngineError as error:
            log.warning("voice_not_removed", voice=name, replica=replica.name, reason=str(error))
