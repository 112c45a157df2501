"""All conversations of the server, whatever carries them, to be told of drain and end."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from voicegate.gateway.server.conversations.conversation import Conversation


class Guest(Protocol):
    @property
    def conversation(self) -> Conversation: ...

    def abort(self) -> None:
        """Cut the connection without a word."""


class Guests:
    def __init__(self) -> None:
        self._present: set[Guest] = set()
        self._is_empty = asyncio.Event()
        self._is_empty.set()

    def __len__(self) -> int:
        return len(self._present)

    def __iter__(self) -> Iterator[Guest]:
        """Those who are there now; they may leave meanwhile."""
        return iter(list(self._present))

    @property
    def num_contexts(self) -> int:
        return sum(guest.conversation.num_contexts for guest in self._present)

    @contextmanager
    def present(self, guest: Guest) -> Iterator[None]:
        self._present.add(guest)
        self._is_empty.clear()
        try:
            yield
        finally:
            self._present.discard(guest)
            if not self._present:
                self._is_empty.set()

    async def wait_until_empty(self, timeout_s: float) -> bool:
        try:
            async with asyncio.timeout(timeout_s):
                await self._is_empty.wait()
        except TimeoutError:
            return False
        return True
