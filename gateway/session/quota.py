"""Who holds how much of the server: sockets, contexts, and those of them that have something to say, by owner. Pure.

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

    SOCKET = "sockets are open"
    CONTEXT = "contexts are open"
    UTTERANCE = "contexts have something to say"


@dataclass(frozen=True, slots=True)
class QuotaLimits:
    """Of all owners together, and of each. None: no limit."""

    sockets: int = 1024
    contexts: int = 16_384
    sockets_per_owner: int | None = None
    contexts_per_owner: int | None = None
    utterances_per_owner: int | None = None

    def of_server(self, holding: Holding) -> int | None:
        match holding:
            case Holding.SOCKET:
                return self.sockets
            case Holding.CONTEXT:
                return self.contexts
            case Holding.UTTERANCE:
                return None  # the engine knows what it carries

    def of_owner(self, holding: Holding) -> int | None:
        match holding:
            case Holding.SOCKET:
                return self.sockets_per_owner
            case Holding.CONTEXT:
                return self.contexts_per_owner
            case Holding.UTTERANCE:
                return self.utterances_per_owner


@dataclass(frozen=True, slots=True)
class Excess:
    """There was no more to be had."""

    holding: Holding
    limit: int
    is_of_owner: bool  # else of the server

    def __str__(self) -> str:
        whose = "from your address" if self.is_of_owner else "on this server"
        return f"{self.limit} {self.holding.value} {whose}, which is its limit"


@dataclass(slots=True)
class Quotas:
    limits: QuotaLimits = QuotaLimits()
    _num_held: Counter[tuple[Owner, Holding]] = field(default_factory=Counter)
    _num_in_all: Counter[Holding] = field(default_factory=Counter)

    def held(self, owner: Owner, holding: Holding) -> int:
        return self._num_held[owner, holding]

    def in_all(self, holding: Holding) -> int:
        return self._num_in_all[holding]

    def take(self, owner: Owner, holding: Holding) -> Excess | None:
        """One more, to be given back; or why not, and then nothing was taken."""
        limit = self.limits.of_owner(holding)
        if limit is not None and self._num_held[owner, holding] >= limit:
            return Excess(holding, limit, is_of_owner=True)
        limit = self.limits.of_server(holding)
        if limit is not None and self._num_in_all[holding] >= limit:
            return Excess(holding, limit, is_of_owner=False)
        self._num_in_all[holding] += 1
        self._num_held[owner, holding] += 1
        return None

    def give_back(self, owner: Owner, holding: Holding) -> None:
        self._num_in_all[holding] -= 1
        self._num_held[owner, holding] -= 1
        if not self._num_held[owner, holding]:
            del self._num_held[owner, holding]
