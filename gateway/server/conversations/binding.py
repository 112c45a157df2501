"""A conversation with the protocol that its client speaks. It may outlive the socket that serves it."""

from dataclasses import dataclass
from typing import Protocol

from voicegate.gateway.server.conversations.conversation import Conversation
from voicegate.gateway.server.conversations.translation import Translator
from voicegate.gateway.session.continuity import Continuity


class Carrier(Protocol):
    """The socket that has the conversation."""

    def dismiss(self) -> None:
        """Another has it from now on: take nothing more of it, give nothing more to it."""


@dataclass(eq=False, slots=True)
class Binding:
    """`continuity`: None for one that ends with its socket."""

    conversation: Conversation
    translator: Translator
    continuity: Continuity | None = None
    carrier: Carrier | None = None  # None: its client is away

    @property
    def session_id(self) -> str:
        return self.conversation.session_id
