"""Places by name, such as a client's: who waits for one of a name's waits for no other name's."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class NamedPlaces:
    def __init__(self, num_places: int = 1) -> None:
        """So many of each name."""
        self._num_places = num_places
        self._places: dict[str, asyncio.Semaphore] = {}
        self._num_users: dict[str, int] = {}  # who has one and who waits, by name

    @asynccontextmanager
    async def hold(self, name: str) -> AsyncIterator[None]:
        """In the order in which they ask."""
        places = self._places.setdefault(name, asyncio.Semaphore(self._num_places))
        self._num_users[name] = self._num_users.get(name, 0) + 1
        try:
            async with places:
                yield
        finally:
            self._num_users[name] -= 1
            if not self._num_users[name]:
                del self._places[name], self._num_users[name]
