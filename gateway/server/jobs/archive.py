"""The store of jobs in a thread of its own: nothing waits for a disk, or for Redis, on the event loop."""

import asyncio
import sqlite3
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

from voicegate.gateway.logs import get_logger
from voicegate.gateway.server.jobs.files import JobFiles
from voicegate.gateway.server.jobs.ledger import Ledger
from voicegate.gateway.server.jobs.settings import JobSettings, QueueDown
from voicegate.gateway.server.jobs.sqlite_ledger import SqliteLedger
from voicegate.gateway.server.jobs.store import JobStore

# After a failure all else fails at once for so long. Without it, requests would wait in line for one time-out each.
_DOWN_S: Final = 1.0
# Logs alone say more: addresses inside the operator's network are none of a client's business.
_FOR_CLIENTS: Final = "the queue of jobs does not answer"
_DISK_FULL: Final = "the disk with the jobs is full; nothing about them can be written until there is space again"

T = TypeVar("T")

log = get_logger(__name__)


class Archive:
    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="jobs")
        self._store: JobStore | None = None
        self._is_down = False
        self._trouble = ""
        self._is_disk_full = False
        self._down_until_s = 0.0

    async def open(self, settings: JobSettings) -> None:
        """A shared queue need not answer yet. Raises OSError, sqlite3.Error."""
        self._store = await self._run(lambda: _open(settings))

    async def ask(self, work: Callable[[JobStore], T]) -> T:
        """Raises QueueDown, OSError, and what else `work` raises."""
        store = self._store
        assert store is not None, "it is opened before the port is"
        try:
            answer = await self._run(lambda: self._answer(store, work))
        except QueueDown:
            if not self._is_down:
                log.warning("jobs wait for their queue", reason=self._trouble)
            self._is_down = True
            raise
        if self._is_down:
            log.info("the queue of jobs answers again")
        self._is_down = False
        return answer

    async def close(self) -> None:
        if self._store is not None:
            await self._run(self._store.close)
        self._thread.shutdown(wait=False)

    def _answer(self, store: JobStore, work: Callable[[JobStore], T]) -> T:
        if time.monotonic() < self._down_until_s:
            raise self._queue_down()
        try:
            return work(store)
        except store.ledger.failures as error:
            self._trouble = str(error)
            self._is_disk_full = getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_FULL
            self._down_until_s = time.monotonic() + _DOWN_S
            raise self._queue_down() from error

    def _queue_down(self) -> QueueDown:
        return QueueDown(_DISK_FULL if self._is_disk_full else _FOR_CLIENTS, is_disk_full=self._is_disk_full)

    async def _run(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)


def _open(settings: JobSettings) -> JobStore:
    files = JobFiles(settings.folder, is_shared=settings.queue is not None)
    try:
        return JobStore(_ledger(settings), files)
    except BaseException:
        files.close()
        raise


def _ledger(settings: JobSettings) -> Ledger:
    if settings.queue is None:
        return SqliteLedger(settings.folder / "jobs.sqlite", settings)
    from voicegate.gateway.server.jobs.redis_ledger import RedisLedger  # noqa: PLC0415 - few servers need redis

    return RedisLedger(settings)
