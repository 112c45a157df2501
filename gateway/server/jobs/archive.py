"""The store of jobs in a thread of its own: nothing waits for a disk on the event loop."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

from voicegate.gateway.server.jobs.store import JobStore

T = TypeVar("T")


class Archive:
    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="jobs")
        self._store: JobStore | None = None

    async def open(self, folder: Path) -> None:
        """Raises OSError, sqlite3.Error."""
        self._store = await self._run(lambda: JobStore(folder))

    async def ask(self, work: Callable[[JobStore], T]) -> T:
        """Raises what `work` raises."""
        store = self._store
        assert store is not None, "it is opened before the port is"
        return await self._run(lambda: work(store))

    async def close(self) -> None:
        if self._store is not None:
            await self._run(self._store.close)
        self._thread.shutdown(wait=False)

    async def _run(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)
