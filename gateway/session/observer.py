"""Events of contexts, for counters and traces; nothing of it goes over the wire. Pure."""

from collections.abc import Iterable
from typing import Final

from voicegate.gateway.session.actions import Action, Send
from voicegate.gateway.session.context import Context
from voicegate.protocol import messages as wire
from voicegate.protocol.errors import ErrorCode

DONE: Final = "done"
CANCELLED: Final = "cancelled"
DISCONNECTED: Final = "disconnected"
# How a context may end.
OUTCOMES: Final = (DONE, CANCELLED, DISCONNECTED, *(code.value for code in ErrorCode))


class Observer:
    """Reads the context, keeps nothing of it, and returns at once. This one does nothing."""

    __slots__ = ()

    def began(self, context: Context) -> None:
        """The engine has taken it up."""

    def sounded(self, context: Context) -> None:
        """Its first audio is on its way."""

    def underruns(self, number: int) -> None:
        """So many more gaps were heard, says a player."""

    def ended(self, context: Context, outcome: str) -> None:
        """`outcome`: one of OUTCOMES. Also of one that never had anything to say."""


def outcome_of(last_words: Iterable[Action]) -> str:
    """By what its client is told."""
    for action in last_words:
        match action:
            case Send(message=wire.Cancelled()):
                return CANCELLED
            case Send(message=wire.Error(code=code)):
                return code
            case _:
                pass
    return DONE
