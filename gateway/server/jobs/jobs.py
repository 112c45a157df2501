"""Work that no listener waits for: taken, kept, spoken part by part, and made one file.

add -> queued -> running -> done
              \\-> failed, cancelled
"""

import asyncio
import contextlib
import sqlite3
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from voicegate.gateway.auth.access import Access
from voicegate.gateway.logs import get_logger
from voicegate.gateway.server.conversations.services import Services
from voicegate.gateway.server.errors import GatewayError
from voicegate.gateway.server.jobs.archive import Archive
from voicegate.gateway.server.jobs.cutting import Part
from voicegate.gateway.server.jobs.live import LiveJob, shot_of
from voicegate.gateway.server.jobs.rendering import rendered
from voicegate.gateway.server.jobs.runner import Runner
from voicegate.gateway.server.jobs.settings import JobSettings, JobsFull, NoSpace
from voicegate.gateway.server.jobs.store import JobRow, JobStore, State, write_safely

# Between looks at the engine's room while there is work. Higher -> a live stream waits longer for a place.
_LOOK_S: Final = 0.1
# Between looks for what has expired.
_EXPIRY_S: Final = 60.0

log = get_logger(__name__)


class Jobs:
    def __init__(self, settings: JobSettings, services: Services, access: Access, is_ready: Callable[[], bool]) -> None:
        self.settings = settings
        self.archive = Archive()
        self._meters = services.meters
        self._access = access
        self._is_ready = is_ready
        self._news = asyncio.Event()
        self._live: dict[str, LiveJob] = {}  # the oldest first
        self._is_closing = False
        self._ending: set[asyncio.Task[None]] = set()
        self._runner = Runner(
            services, self.archive, settings.spare_bytes, on_news=self._news.set, on_failure=self._fail
        )

    # --- life ---------------------------------------------------------------------------------------------

    async def open(self) -> None:
        """Raises GatewayError."""
        folder = self.settings.folder
        try:
            await self.archive.open(folder)
            rows = await self.archive.ask(lambda store: [(row, store.open_parts(row.id)) for row in store.unended()])
        except BlockingIOError as error:
            raise GatewayError(f"{folder} is in use by another server: give each a --jobs-dir of its own") from error
        except (OSError, sqlite3.Error) as error:
            raise GatewayError(f"jobs cannot be kept in {folder}: {error}; choose another --jobs-dir") from error
        for row, parts in rows:
            self._live[row.id] = _live(row, parts)
        if rows:
            log.info("jobs go on", jobs=len(rows))

    async def run(self) -> None:
        """Until it is cancelled; then nothing more is begun."""
        expiring = asyncio.create_task(self._expire())
        try:
            while True:
                self._news.clear()
                self._show()
                try:
                    self._look()
                except Exception:  # the root of this task: live streams go on without jobs
                    log.exception("jobs are held up")
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._news.wait(), _LOOK_S if self._live else None)
        finally:
            expiring.cancel()

    async def close(self) -> None:
        """Unfinished parts are made again after the next start."""
        self._is_closing = True
        await self._runner.close()
        for task in self._ending:
            task.cancel()
        await asyncio.gather(*self._ending, return_exceptions=True)
        await self.archive.close()

    def _look(self) -> None:
        for job in [job for job in self._live.values() if not job.is_over]:
            if job.owner and not self._access.knows(job.owner):
                self._fail(job, "the key of this job was taken back")
            elif not job.has_parts and self._runner.may_write:
                self._end_soon(job, State.DONE, None)
        if self._is_ready():
            self._runner.look([job for job in self._live.values() if not job.is_over])

    def _show(self) -> None:
        num_begun = sum(job.is_begun for job in self._live.values())
        self._meters.show_jobs(queued=len(self._live) - num_begun, running=num_begun)

    # --- jobs ---------------------------------------------------------------------------------------------

    def check_room(self, owner: str) -> None:
        """Raises JobsFull."""
        per_key, in_all = self.settings.per_key, self.settings.max_jobs
        if sum(job.owner == owner for job in self._live.values()) >= per_key:
            raise JobsFull(f"{per_key} of your jobs have not ended, which is the limit", is_of_key=True)
        if len(self._live) >= in_all:
            raise JobsFull(f"{in_all} jobs have not ended, which is the limit of this server", is_of_key=False)

    async def add(self, row: JobRow, parts: Sequence[Part]) -> None:
        """Raises JobsFull, NoSpace."""
        self.check_room(row.owner)
        job = _live(row, range(len(parts)))
        job.is_over = True  # until it is kept: nothing of it is begun
        self._live[row.id] = job
        try:
            await self.archive.ask(lambda store: self._keep(store, row, parts))
        except (OSError, sqlite3.Error) as error:
            log.warning("a job cannot be kept", reason=str(error))
            raise NoSpace(f"the folder of jobs takes no more: {error}") from error
        else:
            job.is_over = False
        finally:
            if job.is_over:
                self._live.pop(row.id)
        log.info("job added", job=row.id, key=row.owner or None, parts=row.parts, characters=row.characters)
        self._news.set()

    def _keep(self, store: JobStore, row: JobRow, parts: Sequence[Part]) -> None:
        if store.free_bytes < self.settings.spare_bytes:
            raise NoSpace("the disk of this server is nearly full; no job is taken until there is space again")
        store.add(row, parts)

    async def cancel(self, job_id: str) -> None:
        """One that has not ended. Raises OSError, sqlite3.Error."""
        job = self._live.get(job_id)
        if job is not None and not job.is_over:
            job.is_over = True
            await self._end(job, State.CANCELLED, None)

    def _fail(self, job: LiveJob, error: str) -> None:
        if not job.is_over:
            self._end_soon(job, State.FAILED, error)

    def _end_soon(self, job: LiveJob, state: State, error: str | None) -> None:
        job.is_over = True
        task = asyncio.create_task(self._end(job, state, error))
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)

    async def _end(self, job: LiveJob, state: State, error: str | None) -> None:
        self._runner.stop(job)
        try:
            if state is State.DONE:
                await self._write_whole(job)
            await self.archive.ask(lambda store: store.end(job.id, state, error, time.time()))
        except (OSError, sqlite3.Error, NoSpace) as full:
            self._runner.pause(str(full))
            job.is_over = False  # it is tried again
            return
        self._live.pop(job.id, None)
        self._news.set()
        log.info("job ended", job=job.id, state=state.value, error=error)

    async def _write_whole(self, job: LiveJob) -> None:
        """Raises OSError, sqlite3.Error."""
        files = await self.archive.ask(lambda store: store.files(job.id))
        path = await self.archive.ask(lambda store: store.whole(job.id))
        assert files, "all parts are done, and there is one"
        needed_bytes = self.settings.spare_bytes + sum(file.path.stat().st_size for file in files)
        if await self.archive.ask(lambda store: store.free_bytes) < needed_bytes:
            raise NoSpace("the whole file of a job does not fit")
        audio = rendered(files, job.shot.output, pre_skip_48k=job.pre_skip_48k)
        await asyncio.to_thread(write_safely, path, self._until_closed(audio))

    def _until_closed(self, audio: Iterator[bytes]) -> Iterator[bytes]:
        """The thread would hold up the end of the process."""
        for data in audio:
            if self._is_closing:
                raise OSError("the server ends")
            yield data

    async def _expire(self) -> None:
        while True:
            try:
                num_expired = await self.archive.ask(lambda store: store.expire(time.time() - self.settings.keep_s))
            except (OSError, sqlite3.Error) as error:
                log.warning("jobs do not expire", reason=str(error))
            else:
                if num_expired:
                    log.info("jobs expired", jobs=num_expired)
            await asyncio.sleep(min(_EXPIRY_S, self.settings.keep_s))


def _live(row: JobRow, parts: Sequence[int]) -> LiveJob:
    job = LiveJob(row.id, row.owner, shot_of(row.request), row.pre_skip, deque(parts))
    job.is_begun = row.state is State.RUNNING
    return job
