"""How many sockets the limit on open files leaves room for, and raising that limit as far as one may."""

import resource
from dataclasses import dataclass
from typing import Final

# Connections beyond the sockets: handshakes under way, probes and pages. Lower makes a flood of connections that send
# nothing cut each other sooner; higher costs files.
SPARE_CONNECTIONS: Final = 64
# Files that the process has open besides: those of the model, pipes of the encoder processes, the GPU's, logs.
OWN_FILES: Final = 256


@dataclass(frozen=True, slots=True)
class FileLimits:
    """Limits of open files; None: no limit."""

    soft: int | None
    hard: int | None

    def raised_for(self, max_sockets: int) -> "FileLimits":
        """With as much of the hard limit as so many sockets need."""
        needed = max_sockets + SPARE_CONNECTIONS + OWN_FILES
        if self.soft is None or self.soft >= needed:
            return self
        return FileLimits(needed if self.hard is None else min(needed, self.hard), self.hard)

    def room_for(self, max_sockets: int) -> int:
        """So many sockets, or fewer; 0 where there is no room for any."""
        if self.soft is None:
            return max_sockets
        return max(0, min(max_sockets, self.soft - SPARE_CONNECTIONS - OWN_FILES))


def file_limits() -> FileLimits:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    return FileLimits(*(None if limit == resource.RLIM_INFINITY else limit for limit in (soft, hard)))


def make_room_for(max_sockets: int) -> int:
    """Raises this process's limit where needed. Returns how many sockets there is room for then."""
    before = file_limits()
    raised = before.raised_for(max_sockets)
    if raised != before and raised.soft is not None:
        hard = resource.RLIM_INFINITY if raised.hard is None else raised.hard
        resource.setrlimit(resource.RLIMIT_NOFILE, (raised.soft, hard))
    return raised.room_for(max_sockets)
