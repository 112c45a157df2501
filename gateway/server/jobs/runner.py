"""Speaks parts of jobs in the places that live streams leave free.

The engine knows nothing of jobs. A part begins while more than a reserve of places is free and no context waits. Where
room gets short the youngest parts are stopped, and made again later.
"""

import asyncio
import sqlite3
import time
from collections.abc import Callable
from itertools import count
from typing import Final

from voicegate.engine.interface import EngineError, EngineStopped, Overloaded, UtteranceId
from voicegate.gateway.logs import get_logger
from voicegate.gateway.server.conversations.services import Services
from voicegate.gateway.server.jobs.archive import Archive
from voicegate.gateway.server.jobs.live import LiveJob, LivePart, opening_of
from voicegate.gateway.server.jobs.settings import NoSpace
from voicegate.gateway.server.jobs.speaking import PartFailed, Speaking
from voicegate.gateway.server.jobs.store import JobStore, PartAudio
from voicegate.gateway.session.opening import build_request

# Share of the engine's places that parts leave to live streams. Lower -> more of these wait until a part is stopped;
# higher -> a GPU without live streams is used less.
_RESERVE: Final = 1 / 4
# Parts at once; each holds up to 3 MB of audio. Higher -> more memory; lower -> large GPUs are not filled.
_MAX_RUNNING: Final = 128
# After a disk was found full.
_PAUSE_S: Final = 5.0
# Times that a part may fail in the engine, until its job does.
_ATTEMPTS: Final = 3

log = get_logger(__name__)


class Runner:
    """`on_news`: it is to look again; `on_failure`: the job ends with this error."""

    def __init__(
        self,
        services: Services,
        archive: Archive,
        spare_bytes: int,
        *,
        on_news: Callable[[], None],
        on_failure: Callable[[LiveJob, str], None],
    ) -> None:
        self._services = services
        self._archive = archive
        self._spare_bytes = spare_bytes
        self._on_news = on_news
        self._on_failure = on_failure
        self._running: list[LivePart] = []  # the oldest first
        self._numbers = count()
        self._paused_until_s = 0.0

    @property
    def may_write(self) -> bool:
        return time.monotonic() >= self._paused_until_s

    def pause(self, reason: str) -> None:
        """The disk takes no more; live streams go on."""
        self._paused_until_s = time.monotonic() + _PAUSE_S
        log.warning("jobs wait for space on the disk", reason=reason)

    def look(self, jobs: list[LiveJob]) -> None:
        """Begin parts of these, or stop some. The engine is ready."""
        engine, admission = self._services.engine, self._services.admission
        reserve = int(engine.info.max_utterances * _RESERVE)
        num_short = max(admission.num_waiting, (reserve + 1) // 2 - engine.room)
        if num_short > 0:
            for speaking in [part.speaking for part in self._running if part.speaking is not None][-num_short:]:
                speaking.stop()
            return
        while self.may_write and len(self._running) < _MAX_RUNNING:
            num_on_their_way = sum(part.speaking is None for part in self._running)
            job = _next(jobs)
            if job is None or engine.room - num_on_their_way <= reserve:
                return
            self._begin(job)

    def stop(self, job: LiveJob) -> None:
        """It is over: whatever of it is still made is dropped."""
        for part in self._running:
            if part.job is job and part.speaking is not None:
                part.speaking.stop()

    async def close(self) -> None:
        tasks = [part.task for part in self._running if part.task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _begin(self, job: LiveJob) -> None:
        part = LivePart(job, job.waiting.popleft())
        job.num_running += 1
        self._running.append(part)
        part.task = asyncio.create_task(self._make(part))

    async def _make(self, part: LivePart) -> None:
        job, is_done = part.job, False
        try:
            is_done = await self._speak(part)
        except (OSError, sqlite3.Error, NoSpace) as error:
            self.pause(str(error))
        except (Overloaded, EngineStopped):
            pass  # a live stream was faster, or the server ends
        except PartFailed as failed:
            job.failures[part.number] += 1
            if failed.is_final or job.failures[part.number] >= _ATTEMPTS:
                self._on_failure(job, f"part {part.number}: {failed}")
        except EngineError as error:
            self._on_failure(job, f"part {part.number}: {error}")
        except Exception:  # the root of the part's task: other jobs go on
            log.exception("a part of a job failed", job=job.id, part=part.number)
            self._on_failure(job, f"part {part.number}: internal error")
        finally:
            self._running.remove(part)
            job.num_running -= 1
            if not is_done:
                job.waiting.appendleft(part.number)
            else:  # else it is looked at again in its time: what was refused would be refused again
                self._on_news()

    async def _speak(self, part: LivePart) -> bool:
        """Whether the part is done and kept. Raises EngineError, PartFailed, OSError, sqlite3.Error, NoSpace."""
        job, engine = part.job, self._services.engine
        text = await self._archive.ask(lambda store: self._text(store, part))
        if job.is_over:
            return False
        message = opening_of(job.shot, job.shot.voice, engine.info)
        utterance_id = UtteranceId(f"job-{job.id}-{part.number}-{next(self._numbers)}")
        request = build_request(message, engine.info, utterance_id, self._services.pronunciations.dictionary)
        part.speaking = Speaking(engine, self._services.dispatcher, request)
        audio = await part.speaking.audio(text)
        if audio is None or job.is_over:
            return False
        if await self._archive.ask(lambda store: store.finish_part(job.id, part.number, audio)):
            self._services.meters.note_job_audio(audio.audio_ms / 1000)
            self._warn_of(audio, part)
        return True

    def _text(self, store: JobStore, part: LivePart) -> str:
        """And the first of a job tells that it runs."""
        if store.free_bytes < self._spare_bytes:
            raise NoSpace("less than --jobs-spare-bytes are free")
        if not part.job.is_begun:
            store.begin(part.job.id)
            part.job.is_begun = True
        return store.text_of(part.job.id, part.number)

    def _warn_of(self, audio: PartAudio, part: LivePart) -> None:
        if audio.is_truncated:
            log.warning("a part of a job was cut off", job=part.job.id, part=part.number)


def _next(jobs: list[LiveJob]) -> LiveJob | None:
    """The one with the fewest parts under way; of these the oldest."""
    return min((job for job in jobs if job.waiting), key=lambda job: job.num_running, default=None)
