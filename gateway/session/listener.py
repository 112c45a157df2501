"""Audio in hand of a listener that plays from the first packet on, and gaps that players report. Pure."""

from dataclasses import dataclass, field
from typing import Final

# Underruns of one report: clients may say anything. Lower hides how bad a second was; higher lets one client spoil the
# sum.
_MAX_NEW_UNDERRUNS: Final = 100


@dataclass(slots=True)
class ListenerClock:
    sent_ms: int = 0
    lowest_lead_s: float | None = None  # just before more came: below 0 they heard a gap; None: nothing followed
    _empty_s: float | None = None  # when all that was sent is played

    def has_played(self, now_s: float) -> bool:
        """Whether all that was sent is played."""
        return self._empty_s is None or self._empty_s <= now_s

    def come_back(self, now_s: float) -> None:
        """Its context has more text after a rest. Where all was played, the silence since then is no gap."""
        if self.has_played(now_s):
            self._empty_s = None

    def sent(self, audio_ms: int, now_s: float) -> None:
        """So much leaves now."""
        self.sent_ms += audio_ms
        if self._empty_s is None:
            self._empty_s = now_s
        else:
            lead_s = self._empty_s - now_s
            self.lowest_lead_s = lead_s if self.lowest_lead_s is None else min(self.lowest_lead_s, lead_s)
        self._empty_s = max(self._empty_s, now_s) + audio_ms / 1000


@dataclass(slots=True)
class Underruns:
    """Gaps that a socket's players report, by context; also for a while after its end, because they play longer."""

    max_contexts: int  # of so many they are known
    _told: dict[str, int] = field(default_factory=dict)  # the latest context last

    def opened(self, context_id: str) -> None:
        self._told.pop(context_id, None)
        if len(self._told) >= self.max_contexts:
            del self._told[next(iter(self._told))]
        self._told[context_id] = 0

    def reported(self, context_id: str, underruns: int) -> int:
        """How many are new, of `underruns` in all; of a context that is not known none are."""
        before = self._told.get(context_id)
        if before is None or underruns <= before:
            return 0
        self._told[context_id] = underruns
        return min(underruns - before, _MAX_NEW_UNDERRUNS)
