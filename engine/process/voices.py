"""The voices of several engine processes: those that come and go while they run, also for those that start later.

A voice is there once one process speaks with it; each of the others follows as soon as it can, beside its speech.
"""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from math import inf

import structlog

from voicegate.engine.child_process import Backoff
from voicegate.engine.interface import (
    EngineError,
    EngineInfo,
    NewVoice,
    Overloaded,
    UnknownVoice,
    Unsupported,
    VoiceConflict,
    VoiceInfo,
    VoiceRefused,
)
from voicegate.engine.process.replica import Replica, ReplicaLost

log = structlog.get_logger()


@dataclass(frozen=True, slots=True, eq=False)
class Enrolled:
    """A voice that came since the first start, and may be made again of its recording."""

    voice: NewVoice
    digests: set[str] = field(default_factory=set)  # of what processes made of it: the same, up to how sums are rounded


@dataclass(frozen=True, slots=True)
class VoiceTable:
    """The voices that there shall be."""

    names: dict[str, VoiceInfo] = field(default_factory=dict)
    enrolled: dict[str, Enrolled] = field(default_factory=dict)  # what came since the first start, clones among them
    gone: set[str] = field(default_factory=set)  # taken away since then: a process may load them, and they take room

    @property
    def clones(self) -> tuple[str, ...]:
        return tuple(name for name, enrolled in self.enrolled.items() if enrolled.voice.is_clone)

    def put(self, info: VoiceInfo, enrolled: Enrolled) -> None:
        """In the place of one of its name."""
        self._forget(info.name)
        if not enrolled.voice.is_clone:
            self.names[info.name] = replace(info, remark="")
        self.enrolled[info.name] = enrolled
        self.gone.discard(info.name)

    def take(self, name: str) -> None:
        if name in self.names:  # no process loads a clone
            self.gone.add(name)
        self._forget(name)

    def _forget(self, name: str) -> None:
        self.names.pop(name, None)
        self.enrolled.pop(name, None)


@dataclass(slots=True)
class _Refusal:
    """Refusal of one voice by one process."""

    enrolled: Enrolled
    backoff: Backoff = field(default_factory=Backoff)
    due_s: float = inf
    reason: str = ""


class Follower:
    """While its process lacks a voice, or has an older one of the name, it is asked for no speech with it."""

    def __init__(self, replica: Replica, info: EngineInfo, table: VoiceTable, *, on_step: Callable[[], None]) -> None:
        self.replica = replica
        self.num_adding = 0
        self._table = table
        self._default_voice = info.default_voice
        # Its voice under a name: as it was enrolled, or None: as it was loaded, which may be another.
        self._held: dict[str, Enrolled | None] = {voice.name: self._found(voice) for voice in info.voices}
        self._refusals: dict[str, _Refusal] = {}
        self._woken = asyncio.Event()
        self._on_step = on_step
        self._loop = asyncio.get_running_loop()
        self.note_change()

    def _found(self, voice: VoiceInfo) -> Enrolled | None:
        """Which of the enrolled it has loaded: from the directory that processes share."""
        enrolled = self._table.enrolled.get(voice.name)
        return enrolled if enrolled is not None and voice.digest in enrolled.digests else None

    # --- what it has ------------------------------------------------------------------------------------------

    def holds(self, name: str) -> bool:
        return name in self._held

    @property
    def is_behind(self) -> bool:
        """It has not been asked for all that there shall be; what it has refused does not count."""
        return self._unwanted() is not None or any(name not in self._refusals for name, _ in self._lacking())

    def note_change(self) -> None:
        """The table has changed, or what the process has."""
        enrolled, held = self._table.enrolled, self._held
        wanted = (*self._table.names, *self._table.clones)
        self.replica.voices = {name for name in wanted if name in held and held[name] is enrolled.get(name)}
        self._refusals = {
            name: refusal for name, refusal in self._refusals.items() if refusal.enrolled is enrolled.get(name)
        }
        self._woken.set()

    def _unwanted(self) -> str | None:
        for name, enrolled in self._held.items():
            is_clone = enrolled is not None and enrolled.voice.is_clone
            if name not in self._table.clones if is_clone else name in self._table.gone:
                return name
        return None

    def _lacking(self) -> list[tuple[str, Enrolled]]:
        """Missing voices, replacements first: these need room beside the old one, which others would take."""
        lacking = [
            (name, enrolled) for name, enrolled in self._table.enrolled.items() if self._held.get(name) is not enrolled
        ]
        return sorted(lacking, key=lambda each: each[0] not in self._held)

    # --- what it is told --------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Until the process is lost."""
        with suppress(ReplicaLost):
            while True:
                self._woken.clear()
                took_step = await self._step()
                self._on_step()
                if not took_step:
                    await self._rest()

    async def add(self, enrolled: Enrolled) -> VoiceInfo:
        """Raises what the process raises, ReplicaLost."""
        name = enrolled.voice.name
        self.num_adding += 1
        try:
            info = await self.replica.add_voice(enrolled.voice)
        finally:
            self.num_adding -= 1
        if info.digest:
            enrolled.digests.add(info.digest)
        self._held[name] = enrolled
        self._refusals.pop(name, None)
        return info

    async def _step(self) -> bool:
        """Unwanted voices go first: one may be in the room of a new one. False: there is nothing to do now."""
        if (name := self._unwanted()) is not None:
            await self._remove(name)
            return True
        now_s = self._loop.time()
        for name, enrolled in self._lacking():
            refusal = self._refusals.get(name)
            if refusal is None or refusal.due_s <= now_s:
                await self._take_up(name, enrolled)
                return True
        return False

    async def _rest(self) -> None:
        """Until something changes, or may be asked for again."""
        due_s = min((refusal.due_s for refusal in self._refusals.values()), default=inf)
        with suppress(TimeoutError):
            async with asyncio.timeout_at(None if due_s == inf else due_s):
                await self._woken.wait()

    async def _take_up(self, name: str, enrolled: Enrolled) -> None:
        was_refused = name in self._refusals
        try:
            await self.add(enrolled)
            if was_refused:
                log.info("voice_taken_after_all", voice=name, replica=self.replica.name)
        except ReplicaLost:
            raise
        except VoiceConflict as error:
            if self.holds(name) and name != self._default_voice:
                await self._remove(name)  # both have no room beside each other, and nobody may ask for the old one
            else:
                self._refuse(name, enrolled, error)
        except EngineError as error:
            self._refuse(name, enrolled, error)
        self.note_change()

    def _refuse(self, name: str, enrolled: Enrolled, error: EngineError) -> None:
        refusal = self._refusals.setdefault(name, _Refusal(enrolled))
        delay_s = refusal.backoff.delay_s(0.0)
        if isinstance(error, Overloaded):
            delay_s = max(delay_s, error.retry_after_ms / 1000)
        refusal.due_s = inf if _is_final(error) else self._loop.time() + delay_s
        if refusal.reason != str(error):
            refusal.reason = str(error)
            log.warning("voice_not_everywhere", voice=name, replica=self.replica.name, reason=str(error))

    async def _remove(self, name: str) -> None:
        try:
            await self.replica.remove_voice(name)
        except ReplicaLost:
            raise
        except UnknownVoice:
            pass
        except EngineError as error:
            log.warning("voice_not_removed", voice=name, replica=self.replica.name, reason=str(error))
        del self._held[name]
        self.note_change()


class SharedVoices:
    def __init__(self) -> None:
        self.table = VoiceTable()
        self._followers: dict[Replica, Follower] = {}
        self._has_moved = asyncio.Event()

    def begin(self, info: EngineInfo) -> None:
        """With those of the first process that is ready."""
        self.table = VoiceTable({voice.name: voice for voice in info.voices})

    def meet(self, replica: Replica, info: EngineInfo) -> None:
        """It may serve with what it has of them; `follow` has it given the others."""
        self._followers[replica] = Follower(replica, info, self.table, on_step=self._has_moved.set)

    async def follow(self, replica: Replica) -> None:
        """Until it is lost."""
        try:
            await self._followers[replica].run()
        finally:
            del self._followers[replica]
            self._has_moved.set()

    async def add(self, replicas: Sequence[Replica], voice: NewVoice) -> VoiceInfo:
        """One at a time of a name. Raises what the first process raises that answers; then nothing has changed. Raises
        Overloaded."""
        # Whether there may be one already has been asked here. A process may have more: an addition that was given up.
        enrolled = Enrolled(replace(voice, is_replacing=True))
        left = set(replicas)
        while (follower := await self._readiest(left)) is not None:
            left.discard(follower.replica)
            try:
                info = await follower.add(enrolled)
                self.table.put(info, enrolled)
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
        self.table.take(name)
        self._tell_all()
        while all(follower.holds(name) for follower in holders) and any(
            follower.replica in self._followers for follower in holders
        ):
            await self._move()

    async def _readiest(self, replicas: set[Replica]) -> Follower | None:
        """One of these processes that has all other voices, for which it may have the room; None: they are lost."""
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


def _is_final(error: EngineError) -> bool:
    """Asked again it would say the same; a conflict ends with what is in the way."""
    return isinstance(error, VoiceRefused | Unsupported) and not isinstance(error, VoiceConflict)
