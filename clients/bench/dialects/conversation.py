"""What the bench wants of a protocol: one connection to one server, on which one listener takes turns."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Protocol

from voicegate.clients.bench.plan import Reader, Target, Turn


@dataclass(frozen=True, slots=True)
class Chunk:
    """Audio of the running turn. `pcm`: s16le, where the format is that."""

    num_48k: int
    pcm: bytes = b""
    rate_hz: int = 0


@dataclass(frozen=True, slots=True)
class Ended:
    """The running turn has. `is_refused`: for want of room; `message`: why, where it did not end well."""

    is_cancelled: bool = False
    is_refused: bool = False
    message: str = ""


class ConversationLost(Exception):
    """The connection is of no use any more; the message says why."""


class Conversation(Protocol):
    """Calls raise ConversationLost. Text and audio may be handled by two tasks."""

    async def begin(self, turn: Turn) -> None:
        """Before its first text; nothing is waited for."""

    async def say(self, text: str) -> None: ...

    async def end(self) -> None:
        """No more text of this turn."""

    async def cancel(self, played_ms: int) -> None:
        """The listener interrupts; `receive` gives the end."""

    async def receive(self) -> Chunk | Ended:
        """What comes next of the running turn; what is left of earlier ones is dropped."""

    async def close(self) -> None: ...


Connect = Callable[[Target, Reader], Awaitable[Conversation]]
