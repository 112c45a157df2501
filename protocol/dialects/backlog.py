"""Backlog of a client that speaks on: before its last turn is heard, or after it failed. Bounded. Pure."""

from collections import deque
from dataclasses import dataclass, field
from typing import Final, Generic, TypeVar

T = TypeVar("T")

# Flushes of one context, before more of them wait here: half of what a session takes, of whose limit no vendor's client
# knows.
MAX_UNANSWERED_FLUSHES: Final = 32
# Names of contexts that failed on one socket. Lower: the rest of an old one's text may be spoken by itself.
_MAX_NAMES: Final = 256

_MAX_CHARS: Final = 256 * 1024
# A message without text counts as so many.
_LEAST_CHARS: Final = 64


@dataclass(slots=True)
class Backlog(Generic[T]):
    """Messages that come while a turn ends, in order."""

    _items: deque[tuple[T, int]] = field(default_factory=deque)
    _num_chars: int = 0

    def __len__(self) -> int:
        return len(self._items)

    def put(self, item: T, num_chars: int = 0) -> bool:
        """False: there is no room for it."""
        cost = num_chars + _LEAST_CHARS
        if self._num_chars + cost > _MAX_CHARS:
            return False
        self._items.append((item, cost))
        self._num_chars += cost
        return True

    def take(self) -> T:
        item, cost = self._items.popleft()
        self._num_chars -= cost
        return item

    def clear(self) -> None:
        self._items.clear()
        self._num_chars = 0


class RecentNames:
    """A set that forgets its oldest."""

    def __init__(self) -> None:
        self._names: dict[str, None] = {}

    def __contains__(self, name: object) -> bool:
        return name in self._names

    def add(self, name: str) -> None:
        self._names[name] = None
        if len(self._names) > _MAX_NAMES:
            del self._names[next(iter(self._names))]

    def discard(self, name: str) -> None:
        self._names.pop(name, None)
