"""The bench's view of a protocol: one connection to one server, on which one listener takes turns."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final, Protocol

from voicegate.clients.bench.plan import Reader, Target, Turn

_BYTES_PER_SAMPLE = 2
NO_ROOM_STATUSES: Final = (429, 503)  # of HTTP


@dataclass(frozen=True, slots=True)
class Chunk:
    """Audio of the running turn. `pcm`: s16le, where the format is that."""

    num_48k: int
    pcm: bytes = b""


@dataclass(frozen=True, slots=True)
class Ended:
    """The running turn has. `is_cancelled`: the server says so; `is_refused`: for want of room.

    `message`: why, where it did not end well.
    """

    is_cancelled: bool = False
    is_refused: bool = False
    message: str = ""


class ConversationLost(Exception):
    """The connection is of no use any more; the message says why. `is_refused`: for want of room."""

    def __init__(self, message: str, *, is_refused: bool = False) -> None:
        super().__init__(message)
        self.is_refused = is_refused


class Conversation(Protocol):
    """Calls raise ConversationLost. Text and audio may be handled by two tasks."""

    @property
    def is_spent(self) -> bool:
        """Nothing more can be said on this connection."""

    async def begin(self, turn: Turn) -> None:
        """Before its first text; nothing is waited for."""

    async def say(self, text: str) -> None: ...

    async def end(self) -> None:
        """No more text of this turn."""

    async def cancel(self, played_ms: int) -> bool:
        """The listener interrupts. True: that was it; False: `receive` tells when the server has stopped."""

    async def receive(self) -> Chunk | Ended:
        """Receives the next message of the running turn; messages left of earlier ones are dropped."""

    async def close(self) -> None: ...


Connect = Callable[[Target, Reader], Awaitable[Conversation]]


def pcm_chunk(pcm: bytes, rate_hz: int) -> Chunk:
    """s16le mono. An odd byte is the server's fault, and a whole sample's loss."""
    return Chunk(len(pcm) // _BYTES_PER_SAMPLE * 48_000 // rate_hz, pcm[: len(pcm) // _BYTES_PER_SAMPLE * 2])
