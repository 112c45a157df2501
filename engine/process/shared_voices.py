"""The voices of several engine processes: those that come and go while they run, also for those that start later."""

import asyncio
from collections.abc import Sequence

from msgspec import structs

from voicegate.engine.interface import EngineInfo, Overloaded, VoiceInfo
from voicegate.engine.process.replica import Replica, ReplicaLost
from voicegate.engine.process.voice_follower import Enrolled, Follower, VoiceTable
from voicegate.engine.process.wire import NewVoice


class SharedVoices:
    """A voice is there once one process speaks with it; each of the others follows as soon as it can."""

    def __init__(self) -> None:
        self._table = VoiceTable()
        self._followers: dict[Replica, Follower] = {}
        self._has_moved = asyncio.Event()

    @property
    def infos(self) -> tuple[VoiceInfo, ...]:
        return tuple(self._table.names.values())

    @property
    def clones(self) -> tuple[str, ...]:
        return tuple(self._table.clones)

    def begin(self, info: EngineInfo) -> None:
        """With those of the first process that is ready."""
        self._table = VoiceTable({voice.name: voice for voice in info.voices})

    def meet(self, replica: Replica, info: EngineInfo) -> None:
        """It may serve with what it has of them; `follow` has it given the others."""
        self._followers[replica] = Follower(replica, info, self._table, on_step=self._has_moved.set)

    async def follow(self, replica: Replica) -> None:
        """Until it is lost."""
        try:
            await self._followers[replica].run()
        finally:
            del self._followers[replica]
            self._has_moved.set()

    async def add(self, replicas: Sequence[Replica], voice: NewVoice, recording: bytes) -> VoiceInfo:
        """One at a time of a name. Raises what the first process raises that answers; then nothing has changed. Raises
        Overloaded."""
        # Whether there may be one already has been asked here. A process may have more: an addition that was given up.
        enrolled = Enrolled(structs.replace(voice, is_replacing=True), recording)
        left = set(replicas)
        while (follower := await self._readiest(left)) is not None:
            left.discard(follower.replica)
            try:
                info = await follower.add(enrolled)
                self._table.put(info, enrolled)
                self._tell_all()
            except ReplicaLost:
                continue
            return info
        raise Overloaded("no engine process is there to make it; try again shortly")

    async def remove(self, replicas: Sequence[Replica], name: str) -> None:
        """First here, so that no further utterance names it; those submitted are ahead of the command.

        Returns when one process has taken it away, and with it its file in the directory of them all: the others may
        be busy with another voice.
        """
        holders = [
            follower for replica in replicas if (follower := self._followers.get(replica)) and follower.holds(name)
        ]
        self._table.take(name)
        self._tell_all()
        while all(follower.holds(name) for follower in holders) and any(
            follower.replica in self._followers for follower in holders
        ):
            await self._move()

    async def _readiest(self, replicas: set[Replica]) -> Follower | None:
        """Of these processes one that has all other voices, for which it may have the room; None: they are lost."""
        while there := [follower for replica, follower in self._followers.items() if replica in replicas]:
            in_step = [follower for follower in there if not follower.is_behind]
            if in_step:
                return min(in_step, key=lambda follower: follower.num_adding)
            await self._move()
        return None

    def _tell_all(self) -> None:
        for follower in self._followers.values():
            follower.note_change()

    async def _move(self) -> None:
        """Until a process has taken a step, or is lost."""
        self._has_moved.clear()
        await self._has_moved.wait()
