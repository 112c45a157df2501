"""A lock for each name: what is done under one waits for nothing that is done under another."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field


@dataclass(slots=True)
class _Lock:
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    num_users: int = 0  # who holds it and who waits


class NamedLocks:
    def __init__(self) -> None:
        self._locks: dict[str, _Lock] = {}

    @asynccontextmanager
    async def hold(self, name: str) -> AsyncIterator[None]:
        """In the order in which they ask."""
        named = self._locks.setdefault(name, _Lock())
        named.num_users += 1
        try:
            async with named.lock:
                yield
        finally:
            named.num_users -= 1
            if not named.num_users:
                del self._locks[name]
