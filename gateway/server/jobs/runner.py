"""Speaks parts of jobs in the places that live streams leave free.

To the engine a part is background work. It begins while more than a reserve of places is free and no context waits.
Where places get short the youngest parts are stopped, and made again later.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import count
from typing import Final

from voicegate.engine.interface import EngineError, EngineStopped, Overloaded, UtteranceId
from voicegate.gateway.logs import get_logger
from voicegate.gateway.server.conversations.services import Services
from voicegate.gateway.server.jobs.archive import Archive
from voicegate.gateway.server.jobs.files import PartAudio, PartFile, write_safely
from voicegate.gateway.server.jobs.ledger import Claim, JobRow, State
from voicegate.gateway.server.jobs.places import Places, places_of
from voicegate.gateway.server.jobs.rendering import rendered
from voicegate.gateway.server.jobs.requests import opening_of, shot_of
from voicegate.gateway.server.jobs.settings import NoSpace, QueueDown
from voicegate.gateway.server.jobs.speaking import PartFailed, Speaking
from voicegate.gateway.server.jobs.store import JobStore
from voicegate.gateway.session.opening import build_request
from voicegate.gateway.session.quota import Holding

# Parts at once; each holds up to 3 MB of audio. Higher -> more memory; lower -> large GPUs are not filled.
_MAX_RUNNING: Final = 128
# After a disk was found full, or the queue down.
_PAUSE_S: Final = 5.0
# Times that a part may fail in the engine, or end with its server, until its job does. Lower -> a server that is killed
# often fails jobs; higher -> a text that kills servers does so more often.
_ATTEMPTS: Final = 5

log = get_logger(__name__)

End = Callable[[JobRow, State, str | None], Awaitable[None]]


@dataclass(slots=True, eq=False)
class _Running:
    claim: Claim
    task: asyncio.Task[None] | None = None
    speaking: Speaking | None = None  # None: the engine does not have it yet
    is_over: bool = False

    @property
    def has_place(self) -> bool:
        return self.speaking is not None and self.speaking.has_place

    @property
    def is_on_its_way(self) -> bool:
        return self.speaking is None and not self.claim.is_whole

    def stop(self) -> None:
        self.is_over = True
        if self.speaking is not None:
            self.speaking.stop()


class Runner:
    """`on_news`: there may be more to do; `end` ends a job."""

    def __init__(
        self, services: Services, archive: Archive, spare_bytes: int, *, on_news: Callable[[], None], end: End
    ) -> None:
        self._services = services
        self._archive = archive
        self._spare_bytes = spare_bytes
        self._on_news = on_news
        self._end = end
        self._running: list[_Running] = []  # the oldest first
        self._numbers = count()
        self._one_join_at_a_time = asyncio.Lock()  # more would take processors from live streams
        self._paused_until_s = 0.0
        self._is_closing = False

    @property
    def num_places(self) -> int:
        """Places of the engine that live streams get as soon as they need them."""
        return sum(part.has_place for part in self._running)

    def give_way(self) -> None:
        """To live streams that need room. The engine is ready."""
        if (num_short := self._num_short) > 0:
            for part in [part for part in self._running if part.has_place][-num_short:]:
                part.stop()

    async def take(self, jobs: Sequence[JobRow]) -> bool:
        """Begin parts of these, as far as there is room. The engine is ready. False: there is nothing more to begin."""
        num_free = self._num_free
        if num_free <= 0:
            return True
        num_running = Counter(part.claim.job.id for part in self._running)
        in_turn = sorted(jobs, key=lambda job: num_running[job.id])
        claims = await self._archive.ask(lambda store: store.ledger.claim(in_turn, num_free))
        for claim in claims:
            part = _Running(claim)
            self._running.append(part)
            part.task = asyncio.create_task(self._make(part))
        return len(claims) == num_free

    async def renew(self) -> None:
        """Claims of what runs; stop what is to be made no more. Raises QueueDown."""
        running = list(self._running)
        claims = [part.claim for part in running]
        if claims:
            held = await self._archive.ask(lambda store: store.ledger.renew(claims))
            for part, is_held in zip(running, held, strict=True):
                if not is_held:
                    part.stop()

    def stop(self, job_id: str) -> None:
        """It is over: whatever of it is still made is dropped."""
        for part in self._running:
            if part.claim.job.id == job_id:
                part.stop()

    async def close(self) -> None:
        self._is_closing = True
        tasks = [part.task for part in self._running if part.task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    @property
    def _places(self) -> Places:
        engine = self._services.engine
        return places_of(engine.room, engine.info.max_utterances, engine.stats().gauges)

    @property
    def _num_short(self) -> int:
        """So many places live streams lack."""
        if not self._services.quotas.in_all(Holding.UTTERANCE):
            return 0  # clauses that wait are parts' own
        return max(self._services.admission.num_waiting, self._places.num_short)

    @property
    def _num_free(self) -> int:
        """So many parts may begin."""
        if self._num_short > 0 or time.monotonic() < self._paused_until_s:
            return 0
        num_parts = sum(not part.claim.is_whole for part in self._running)
        num_on_their_way = sum(part.is_on_its_way for part in self._running)
        return min(self._places.num_more(num_parts, num_on_their_way), _MAX_RUNNING - len(self._running))

    def _pause(self, reason: str) -> None:
        """The disk takes no more, or the queue is down; live streams go on."""
        if time.monotonic() >= self._paused_until_s:
            log.warning("jobs wait", reason=reason)
        self._paused_until_s = time.monotonic() + _PAUSE_S

    # --- one part -----------------------------------------------------------------------------------------

    async def _make(self, part: _Running) -> None:
        is_done = counts = False
        try:
            is_done = await (self._join(part) if part.claim.is_whole else self._speak(part))
        except (OSError, NoSpace, QueueDown) as error:
            self._pause(str(error))
        except (Overloaded, EngineStopped):
            pass  # a live stream was faster, or the server ends
        except PartFailed as failed:
            counts = True
            if failed.is_final or part.claim.attempt >= _ATTEMPTS:
                await self._fail(part, str(failed))
        except EngineError as error:
            await self._fail(part, str(error))
        except Exception:  # the root of the part's task: other jobs go on
            log.exception("a part of a job failed", job=part.claim.job.id, part=part.claim.number)
            await self._fail(part, "internal error")
        finally:
            self._running.remove(part)
            if is_done:
                self._on_news()
            else:  # it is looked at again in its time: what was refused would be refused again
                await self._release(part, counts=counts)

    async def _speak(self, part: _Running) -> bool:
        """Whether the part is done and kept. Raises EngineError, PartFailed, OSError, NoSpace, QueueDown."""
        claim, engine = part.claim, self._services.engine
        if claim.attempt > _ATTEMPTS:
            raise PartFailed("each time that it was made the server ended", is_final=True)
        text = await self._archive.ask(lambda store: self._text(store, claim))
        if part.is_over or text is None:
            return False
        shot = shot_of(claim.job.request)
        message = opening_of(shot, shot.voice, engine.info)
        utterance_id = UtteranceId(f"job-{claim.job.id}-{claim.number}-{next(self._numbers)}")
        request = build_request(message, engine.info, utterance_id, self._services.pronunciations.dictionary)
        part.speaking = Speaking(engine, self._services.dispatcher, replace(request, is_background=True))
        audio = await part.speaking.audio(text)
        return audio is not None and await self._kept(part, audio, len(text))

    async def _kept(self, part: _Running, audio: PartAudio, num_characters: int) -> bool:
        """As soon as disk and queue take it: to make it again would take longer."""
        claim = part.claim
        while not part.is_over:
            try:
                is_done = await self._archive.ask(lambda store: store.finish_part(claim, audio, num_characters))
            except (OSError, QueueDown) as error:
                self._pause(str(error))
                await asyncio.sleep(_PAUSE_S)
                continue
            if is_done:
                self._services.meters.note_job_audio(audio.audio_ms / 1000)
                if audio.is_truncated:
                    log.warning("a part of a job was cut off", job=claim.job.id, part=claim.number)
            return is_done
        return False

    def _text(self, store: JobStore, claim: Claim) -> str | None:
        if store.files.free_bytes < self._spare_bytes:
            raise NoSpace("less than --jobs-spare-bytes are free on the disk")
        return store.ledger.text_of(claim)

    async def _join(self, part: _Running) -> bool:
        """The whole file of a job. Raises PartFailed, OSError, NoSpace, QueueDown."""
        job = part.claim.job
        files = await self._archive.ask(lambda store: store.parts(job.id))
        if not files:
            return False  # removed meanwhile
        audio = rendered(files, shot_of(job.request).output, pre_skip_48k=job.pre_skip)
        path = await self._archive.ask(lambda store: store.files.whole(job.id))
        try:
            async with self._one_join_at_a_time:
                if part.is_over:
                    return False
                needed_bytes = self._spare_bytes + await asyncio.to_thread(_num_bytes, files)
                if await self._archive.ask(lambda store: store.files.free_bytes) < needed_bytes:
                    raise NoSpace("the whole file of a job does not fit on the disk")
                await asyncio.to_thread(write_safely, path, self._until_over(part, audio))
        except OSError as error:
            if part.is_over:
                return False
            if isinstance(error, FileNotFoundError):  # to wait for it would hold up all other jobs
                raise PartFailed("audio is gone; is --jobs-dir one folder for all gateways?", is_final=True) from error
            raise
        await self._end(job, State.DONE, None)
        return True

    def _until_over(self, part: _Running, audio: Iterator[bytes]) -> Iterator[bytes]:
        """The thread would hold up the end of the process, and files of other jobs."""
        for data in audio:
            if self._is_closing or part.is_over:
                raise OSError("nobody needs it any more")
            yield data

    async def _fail(self, part: _Running, error: str) -> None:
        """The job of this part."""
        try:
            await self._end(part.claim.job, State.FAILED, f"part {part.claim.number}: {error}")
        except (OSError, QueueDown) as down:
            self._pause(str(down))  # the next attempt tells it

    async def _release(self, part: _Running, *, counts: bool) -> None:
        """A claim that is not given back ends by itself, or with this process."""
        try:
            await self._archive.ask(lambda store: store.ledger.release(part.claim, counts=counts))
        except (OSError, QueueDown) as error:
            self._pause(str(error))


def _num_bytes(files: Sequence[PartFile]) -> int:
    """Takes seconds for a book on shared storage: for a thread. Raises OSError."""
    return sum(file.path.stat().st_size for file in files)
