"""Holdings by owner: sockets, contexts, and contexts with something to say. Pure.

What an owner holds counts for its address and for its key, where it has one; each has limits of its own.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from voicegate.gateway.auth.keyring import UNLIMITED, Allowance, Key


@dataclass(frozen=True, slots=True)
class Owner:
    address: str
    key: Key | None = None


NOBODY: Final = Owner("")


class Holding(Enum):
    """The value says of what there are too many."""

    __hash__ = object.__hash__  # an Enum's own is written in Python, and asked for at every count

    SOCKET = "sockets are open"
    CONTEXT = "contexts are open"
    UTTERANCE = "contexts have something to say"
    ABSENT = "sessions wait for their clients to come back"


class Bound(Enum):
    """Whose limit it is. The value says where there are too many."""

    __hash__ = object.__hash__

    ADDRESS = "from your address"
    KEY = "with your key"
    SERVER = "on this server"


@dataclass(frozen=True, slots=True)
class QuotaLimits:
    """Limits of all owners together, and of each address. None: no limit."""

    sockets: int = 1024
    contexts: int = 16_384
    per_address: Allowance = UNLIMITED

    def of_server(self, holding: Holding) -> int | None:
        match holding:
            case Holding.SOCKET | Holding.ABSENT:
                return self.sockets
            case Holding.CONTEXT:
                return self.contexts
            case Holding.UTTERANCE:
                return None  # the engine knows what it carries


@dataclass(frozen=True, slots=True)
class Excess:
    """There was no more to be had."""

    holding: Holding
    limit: int
    bound: Bound

    @property
    def is_of_owner(self) -> bool:
        return self.bound is not Bound.SERVER

    def __str__(self) -> str:
        return f"{self.limit} {self.holding.value} {self.bound.value}, which is its limit"


# Whose holdings are counted together.
_Account = tuple[Bound, str]


@dataclass(slots=True)
class Quotas:
    limits: QuotaLimits = QuotaLimits()
    _num_held: Counter[tuple[_Account, Holding]] = field(default_factory=Counter)
    _num_in_all: Counter[Holding] = field(default_factory=Counter)

    def held(self, owner: Owner, holding: Holding) -> int:
        """By all that share its key, or its address where it has none."""
        *_, (account, _) = self._accounts(owner)
        return self._num_held[account, holding]

    def in_all(self, holding: Holding) -> int:
        return self._num_in_all[holding]

    def take(self, owner: Owner, holding: Holding) -> Excess | None:
        """One more, to be given back; or why not, and then nothing was taken."""
        for account, allowance in self._accounts(owner):
            limit = _allowed(allowance, holding)
            if limit is not None and self._num_held[account, holding] >= limit:
                return Excess(holding, limit, account[0])
        limit = self.limits.of_server(holding)
        if limit is not None and self._num_in_all[holding] >= limit:
            return Excess(holding, limit, Bound.SERVER)
        self._num_in_all[holding] += 1
        for account, _ in self._accounts(owner):
            self._num_held[account, holding] += 1
        return None

    def give_back(self, owner: Owner, holding: Holding) -> None:
        self._num_in_all[holding] -= 1
        for account, _ in self._accounts(owner):
            self._num_held[account, holding] -= 1
            if not self._num_held[account, holding]:
                del self._num_held[account, holding]

    def _accounts(self, owner: Owner) -> Iterator[tuple[_Account, Allowance]]:
        yield (Bound.ADDRESS, owner.address), self.limits.per_address
        if owner.key is not None:
            yield (Bound.KEY, owner.key.name), owner.key.allowance


def _allowed(allowance: Allowance, holding: Holding) -> int | None:
    match holding:
        case Holding.SOCKET | Holding.ABSENT:
            return allowance.sockets
        case Holding.CONTEXT:
            return allowance.contexts
        case Holding.UTTERANCE:
            return allowance.utterances
