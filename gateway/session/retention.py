"""Which sessions wait for their clients, and until when; how much memory all sessions keep for theirs. Pure."""

from collections.abc import Hashable
from enum import Enum
from typing import Generic, TypeVar

T = TypeVar("T", bound=Hashable)


class Return(Enum):
    """How the return of a client ended."""

    RESUMED = "resumed"
    REFUSED = "refused"  # it asked: a wrong token, too late, or what it missed is not kept any more
    EXPIRED = "expired"  # no one came in time
    GIVEN_UP = "given_up"  # while it was away, or when it left: others need the room


class Absences(Generic[T]):
    """Everybody may be away for equally long; time is an argument."""

    def __init__(self, limit_s: float) -> None:
        self._limit_s = limit_s
        self._left_s: dict[T, float] = {}  # in order

    def __contains__(self, who: T) -> bool:
        return who in self._left_s

    @property
    def all(self) -> list[T]:
        """Longest away first."""
        return list(self._left_s)

    @property
    def next_end_s(self) -> float | None:
        first_s = next(iter(self._left_s.values()), None)
        return None if first_s is None else first_s + self._limit_s

    def begin(self, who: T, now_s: float) -> None:
        self._left_s[who] = now_s

    def end(self, who: T) -> None:
        self._left_s.pop(who, None)

    def find_over(self, now_s: float) -> list[T]:
        """Those who were away for too long."""
        return [who for who, left_s in self._left_s.items() if now_s >= left_s + self._limit_s]


class Retention(Generic[T]):
    """Bytes that each keeps. Where all together keep too much, those who keep most make way."""

    def __init__(self, total_bytes: int) -> None:
        self._total_bytes = total_bytes
        self._num_bytes: dict[T, int] = {}
        self.num_kept_bytes = 0

    def note(self, who: T, num_bytes: int) -> T | None:
        """Notes how much it keeps now. Returns sessions that are to keep less, and are taken to keep nothing from here
        on."""
        self.num_kept_bytes += num_bytes - self._num_bytes.get(who, 0)
        self._num_bytes[who] = num_bytes
        if self.num_kept_bytes <= self._total_bytes:
            return None
        largest = max(self._num_bytes, key=self._num_bytes.__getitem__)
        self.forget(largest)
        return largest

    def forget(self, who: T) -> None:
        self.num_kept_bytes -= self._num_bytes.pop(who, 0)
