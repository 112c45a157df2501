"""The queue for room in the engine: order and patience. Pure: time is an argument."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from voicegate.engine.interface import UtteranceId

# Least and greatest retry time that a client is told: sooner it would only ask again, and later the load is not known.
_MIN_RETRY_MS: Final = 500
_MAX_RETRY_MS: Final = 10_000
# Weight of the latest interval between two ends: lower forgets a burst of them more slowly.
_NEWS_WEIGHT: Final = 0.2


@dataclass(frozen=True, slots=True)
class WaitingLimits:
    """0 of either: no one waits."""

    num_waiting: int = 64
    wait_s: float = 1.0


class WaitingLine:
    """First come, first served; no one waits for longer than the limit."""

    def __init__(self, limits: WaitingLimits) -> None:
        self.limits = limits
        self._joined_s: dict[UtteranceId, float] = {}  # in order
        self._last_end_s: float | None = None
        self._moved_s: float | None = None  # somebody got room, or gave some back
        self._has_refused = False  # anybody, since
        self._mean_interval_s: float | None = None

    def __len__(self) -> int:
        return len(self._joined_s)

    @property
    def is_full(self) -> bool:
        return len(self) >= self.limits.num_waiting or not self.limits.wait_s

    def __iter__(self) -> Iterator[UtteranceId]:
        """In the order in which they came; it may change meanwhile."""
        return iter(list(self._joined_s))

    def join(self, utterance_id: UtteranceId, now_s: float) -> None:
        self._joined_s[utterance_id] = now_s

    def leave(self, utterance_id: UtteranceId) -> None:
        self._joined_s.pop(utterance_id, None)

    @property
    def next_deadline_s(self) -> float | None:
        first_s = next(iter(self._joined_s.values()), None)
        return None if first_s is None else first_s + self.limits.wait_s

    def take_expired(self, now_s: float) -> list[UtteranceId]:
        """Those whose time is over, who wait no longer."""
        expired = [who for who, joined_s in self._joined_s.items() if now_s >= joined_s + self.limits.wait_s]
        for utterance_id in expired:
            del self._joined_s[utterance_id]
        return expired

    def note_end(self, now_s: float) -> None:
        """An utterance has given its place back, so there may be room."""
        self._note_move(now_s)
        if self._last_end_s is not None:
            interval_s = min(now_s - self._last_end_s, _MAX_RETRY_MS / 1000)  # a quiet night is one of many, not all
            before = interval_s if self._mean_interval_s is None else self._mean_interval_s
            self._mean_interval_s = before + _NEWS_WEIGHT * (interval_s - before)
        self._last_end_s = now_s

    def note_admission(self, now_s: float) -> None:
        self._note_move(now_s)

    def note_refusal(self, now_s: float) -> None:
        """One who asked for room was turned away."""
        self._has_refused = True
        if self._moved_s is None:
            self._moved_s = now_s

    def _note_move(self, now_s: float) -> None:
        self._moved_s, self._has_refused = now_s, False

    def is_in_vain(self, now_s: float) -> bool:
        """Nothing has moved for longer than anybody waits: one who comes now would be turned away, too."""
        return self._has_refused and self._stands_s(now_s) > self.limits.wait_s

    def _stands_s(self, now_s: float) -> float:
        """For how long nothing has moved, while somebody wanted it to."""
        return 0.0 if self._moved_s is None or not self._has_refused else now_s - self._moved_s

    def retry_after_ms(self, now_s: float, least_ms: int = 0) -> int:
        """When there should be room for one who comes now, at the rate at which others give theirs back.

        `least_ms`: the engine's own word.
        """
        ahead_s = max((self._mean_interval_s or 0.0) * (len(self) + 1), self._stands_s(now_s))
        return min(_MAX_RETRY_MS, max(least_ms or _MIN_RETRY_MS, round(ahead_s * 1000)))
