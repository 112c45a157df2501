"""Counts connections, handshakes and sockets, from the first byte on. Pure.

Connections that have not become sockets have few places, which are for probes and handshakes. When these run out the
oldest goes of the address that has most of them: a probe is answered within milliseconds, so what is old is what sends
nothing, and a flood from one address is over its own.
"""

from collections import Counter
from collections.abc import Hashable
from typing import Generic, TypeVar

from voicegate.gateway.session.quota import Excess, Holding, Owner, Quotas

T = TypeVar("T", bound=Hashable)


class Door(Generic[T]):
    def __init__(self, quotas: Quotas, *, num_spare: int) -> None:
        self._quotas = quotas
        self._num_spare = num_spare
        self._arriving: dict[T, str] = {}  # each one's address; oldest first
        self._num_from: Counter[str] = Counter()  # of these, by address
        self._owners: dict[T, Owner] = {}  # of those that are sockets, or become one

    @property
    def num_sockets(self) -> int:
        return len(self._owners)

    @property
    def connections(self) -> list[T]:
        """All of them, sockets or not."""
        return [*self._arriving, *self._owners]

    def arrive(self, connection: T, address: str = "") -> T | None:
        """A new connection. Returns who is to be cut for it, and is forgotten here."""
        self._arriving[connection] = address
        self._num_from[address] += 1
        if len(self._arriving) + len(self._owners) <= self._quotas.limits.sockets + self._num_spare:
            return None
        most = max(self._num_from.values())
        oldest = next(each for each, its_address in self._arriving.items() if self._num_from[its_address] == most)
        self._forget(oldest)
        return oldest

    def admit(self, connection: T, owner: Owner) -> Excess | None:
        """It becomes a socket; or whose limit there is. Who has left or was cut meanwhile takes no place."""
        if connection not in self._arriving:
            return None
        excess = self._quotas.take(owner, Holding.SOCKET)
        if excess is None:
            self._forget(connection)
            self._owners[connection] = owner
        return excess

    def leave(self, connection: T) -> None:
        self._forget(connection)
        owner = self._owners.pop(connection, None)
        if owner is not None:
            self._quotas.give_back(owner, Holding.SOCKET)

    def _forget(self, connection: T) -> None:
        """As one that arrives, if it is one."""
        address = self._arriving.pop(connection, None)
        if address is None:
            return
        self._num_from[address] -= 1
        if not self._num_from[address]:
            del self._num_from[address]
