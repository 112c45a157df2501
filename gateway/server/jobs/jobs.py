"""Work that no listener waits for: taken, kept, spoken part by part, and made one file.

add -> queued -> running -> done
              \\-> failed, cancelled
"""

import asyncio
import contextlib
import sqlite3
import time
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Final

from voicegate.gateway.auth.access import Access
from voicegate.gateway.logs import get_logger
from voicegate.gateway.server.conversations.services import Services
from voicegate.gateway.server.errors import GatewayError
from voicegate.gateway.server.jobs.archive import Archive
from voicegate.gateway.server.jobs.cutting import Part
from voicegate.gateway.server.jobs.ledger import JobRow, State
from voicegate.gateway.server.jobs.runner import Runner
from voicegate.gateway.server.jobs.settings import JobSettings, NoSpace, QueueDown
from voicegate.gateway.server.jobs.store import JobStore
from voicegate.gateway.server.jobs.webhooks import Webhooks

# Between looks at the engine's room while there is work. Higher -> a live stream waits longer for a place.
_LOOK_S: Final = 0.1
# Between looks at the ledger, and renewals of what is claimed. Higher -> cancelled jobs are spoken for longer, and
# another gateway's begin later.
_LEDGER_S: Final = 1.0
# Between looks for what has expired.
_EXPIRY_S: Final = 60.0
# A job this old fails where its key is unknown. Lower -> a key that other gateways have read already loses jobs.
_KEY_GRACE_S: Final = 600.0

log = get_logger(__name__)


class Jobs:
    def __init__(self, settings: JobSettings, services: Services, access: Access, is_ready: Callable[[], bool]) -> None:
        self.settings = settings
        self.archive = Archive()
        self._meters = services.meters
        self._access = access
        self._is_ready = is_ready
        self._news = asyncio.Event()
        self._unended: list[JobRow] = []
        self._looks_again_s = 0.0
        self._upkeep: list[asyncio.Task[None]] = []
        self._runner = Runner(services, self.archive, settings.spare_bytes, on_news=self._news.set, end=self._end)
        self._webhooks = Webhooks(self.archive, settings.webhooks, settings.webhook_secret, self.described)

    # --- life ---------------------------------------------------------------------------------------------

    async def open(self) -> None:
        """Raises GatewayError."""
        folder = self.settings.folder
        try:
            await self.archive.open(self.settings)
        except BlockingIOError as error:
            raise GatewayError(f"{folder} is in use by another server: give each a --jobs-dir of its own") from error
        except (OSError, sqlite3.Error) as error:
            raise GatewayError(f"jobs cannot be kept in {folder}: {error}; choose another --jobs-dir") from error
        expiry_s = min(_EXPIRY_S, self.settings.keep_s)
        upkeep = (
            (self._give_way, _LOOK_S),
            (self._runner.renew, _LEDGER_S),
            (self._webhooks.look, _LEDGER_S),
            (self._expire, expiry_s),
        )
        self._upkeep += [asyncio.create_task(_often(work, interval_s)) for work, interval_s in upkeep]

    async def run(self) -> None:
        """Until it is cancelled; then nothing more is begun, and what runs goes on."""
        await _often(self._take, 0.0)

    async def close(self) -> None:
        """Unfinished parts are made again after the next start, or by another gateway."""
        for task in self._upkeep:
            task.cancel()
        await asyncio.gather(*self._upkeep, return_exceptions=True)
        await self._runner.close()
        await self._webhooks.close()
        await self.archive.close()

    @property
    def num_places(self) -> int:
        """Places of the engine that live streams get as soon as they need them."""
        return self._runner.num_places

    async def _take(self) -> None:
        """One look for work, and a pause until the next."""
        self._news.clear()
        now_s = time.monotonic()
        if now_s >= self._looks_again_s:
            self._looks_again_s = now_s + _LEDGER_S
            self._unended = await self.archive.ask(lambda store: store.ledger.unended())
            self._show()
        jobs = await self._with_known_keys() if self._unended else []
        is_more = bool(jobs) and self._is_ready() and await self._runner.take(jobs)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._news.wait(), _LOOK_S if is_more else self._looks_again_s - time.monotonic())

    async def _with_known_keys(self) -> list[JobRow]:
        known = [job for job in self._unended if not job.owner or self._access.knows(job.owner)]
        for job in set(self._unended) - set(known):
            self._runner.stop(job.id)
            if time.time() - job.created_s > _KEY_GRACE_S:
                await self._end(job, State.FAILED, "the key of this job was taken back")
        return known

    async def _give_way(self) -> None:
        if self._is_ready():
            self._runner.give_way()

    async def _expire(self) -> None:
        """One at a time: a book is thousands of files, and leases are renewed between two."""
        ended_before_s = time.time() - self.settings.keep_s
        expired = await self.archive.ask(lambda store: store.ledger.ended_before(ended_before_s))
        for job_id in expired:
            await self.archive.ask(partial(JobStore.remove, job_id=job_id))
        if expired:
            log.info("jobs expired", jobs=len(expired))

    def _show(self) -> None:
        num_begun = sum(job.state is State.RUNNING for job in self._unended)
        self._meters.show_jobs(queued=len(self._unended) - num_begun, running=num_begun)

    def _look_again(self) -> None:
        self._looks_again_s = 0.0
        self._news.set()

    # --- jobs ---------------------------------------------------------------------------------------------

    async def check_room(self, owner: str) -> None:
        """Raises JobsFull, QueueDown."""
        await self.archive.ask(lambda store: store.ledger.check_room(owner))

    async def add(self, row: JobRow, parts: Sequence[Part]) -> None:
        """Raises JobsFull, NoSpace, QueueDown."""
        await self.archive.ask(lambda store: self._keep(store, row, parts))
        log.info("job added", job=row.id, key=row.owner or None, parts=row.parts, characters=row.characters)
        self._look_again()

    def _keep(self, store: JobStore, row: JobRow, parts: Sequence[Part]) -> None:
        try:
            free_bytes = store.files.free_bytes
        except OSError as error:
            raise NoSpace(f"the folder of jobs cannot be used now: {error.strerror}") from error
        if free_bytes < self.settings.spare_bytes:
            raise NoSpace("the disk of this server is nearly full; no job is taken until there is space again")
        store.ledger.add(row, parts)

    async def cancel(self, row: JobRow) -> None:
        """One that has not ended. Raises QueueDown."""
        await self._end(row, State.CANCELLED, None)

    async def _end(self, job: JobRow, state: State, error: str | None) -> None:
        if await self.archive.ask(lambda store: store.ledger.end(job.id, state, error, time.time())):
            log.info("job ended", job=job.id, state=state.value, error=error)
        self._runner.stop(job.id)
        self._look_again()

    def described(self, row: JobRow) -> dict[str, object]:
        """As clients see it."""
        return {
            "id": row.id,
            "state": row.state.value,
            "error": row.error,
            "inputs": row.inputs,
            "parts": row.parts,
            "parts_done": row.parts_done,
            "parts_truncated": row.truncated,
            "characters": row.characters,
            "characters_done": row.characters_done,
            "seconds": row.audio_ms / 1000,
            "webhook": row.webhook,
            "created_at": int(row.created_s),
            "ended_at": None if row.ended_s is None else int(row.ended_s),
            "expires_at": None if row.ended_s is None else int(row.ended_s + self.settings.keep_s),
        }


async def _often(work: Callable[[], Awaitable[None]], interval_s: float) -> None:
    """The root of a task: live streams go on without jobs."""
    while True:
        try:
            await work()
        except QueueDown:
            await asyncio.sleep(_LEDGER_S)
        except Exception:
            log.exception("jobs are held up")
            await asyncio.sleep(_LEDGER_S)
        await asyncio.sleep(interval_s)
