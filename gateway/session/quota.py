"""Who holds how much of the server: contexts, and those of them that have something to say, by owner. Pure.

An owner is an address, and may be anything else that a client is known by.
"""

from collections import Counter
from dataclasses import dataclass, field
from enum import Enum
from typing import Final, NewType

Owner = NewType("Owner", str)
NOBODY: Final = Owner("")


class Holding(Enum):
    """The value says of what there are too many."""

    CONTEXT = "contexts are open"
    UTTERANCE = "contexts have something to say"


@dataclass(frozen=True, slots=True)
class QuotaLimits:
    """None: no limit but what the server as a whole has."""

    contexts: int = 16_384  # of all owners together
    contexts_per_owner: int | None = None
    utterances_per_owner: int | None = None

    def of_owner(self, holding: Holding) -> int | None:
        return self.contexts_per_owner if holding is Holding.CONTEXT else self.utterances_per_owner


class Excess(Enum):
    OF_OWNER = "of this client"
    OF_SERVER = "on this server"


@dataclass(slots=True)
class Quotas:
    limits: QuotaLimits = QuotaLimits()
    _num_held: Counter[tuple[Owner, Holding]] = field(default_factory=Counter)
    _num_contexts: int = 0

    def held(self, owner: Owner, holding: Holding) -> int:
        return self._num_held[owner, holding]

    def take(self, owner: Owner, holding: Holding) -> Excess | None:
        """One more, to be given back; or whose limit there is, and then nothing was taken."""
        limit = self.limits.of_owner(holding)
        if limit is not None and self._num_held[owner, holding] >= limit:
            return Excess.OF_OWNER
        if holding is Holding.CONTEXT:
            if self._num_contexts >= self.limits.contexts:
                return Excess.OF_SERVER
            self._num_contexts += 1
        self._num_held[owner, holding] += 1
        return None

    def give_back(self, owner: Owner, holding: Holding) -> None:
        self._num_contexts -= holding is Holding.CONTEXT
        self._num_held[owner, holding] -= 1
        if not self._num_held[owner, holding]:
            del self._num_held[owner, holding]
