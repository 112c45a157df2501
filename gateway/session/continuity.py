"""State that a session needs to go on after its socket: how much came, what was sent and not acknowledged, its token.
Pure.

Nothing is kept until the client has acknowledged for the first time: one that never does cannot come back.
docs/protocol.md, section 9, is normative.
"""

from dataclasses import dataclass
from hmac import compare_digest

from voicegate.protocol import messages as wire
from voicegate.protocol.delivery import Received, Sent
from voicegate.protocol.errors import ErrorCode, ProtocolViolation


@dataclass(frozen=True, slots=True)
class ResumeLimits:
    """`seconds` 0: no session is ever taken up again."""

    seconds: int = 30
    session_bytes: int = 2 * 1024 * 1024
    total_bytes: int = 256 * 1024 * 1024


class CannotResume(Exception):
    """The message says why, and what to do."""


class Continuity:
    """Continuity of one session, whichever socket it is on."""

    def __init__(self, token: str, *, max_bytes: int) -> None:
        self.token = token
        self.is_wanted = False
        self._max_bytes = max_bytes
        self._sent = Sent()
        self._received = Received()

    @property
    def num_kept_bytes(self) -> int:
        return self._sent.num_kept_bytes

    @property
    def is_untouched(self) -> bool:
        """Its client has said nothing yet that would count."""
        return not (self.is_wanted or self._received.num_messages)

    @property
    def has_unacknowledged(self) -> bool:
        return self._sent.num_kept > 0

    @property
    def is_owed_any(self) -> bool:
        """Whether the client still waits for what another socket was sent."""
        return self._sent.is_owed_any

    # --- what comes ---------------------------------------------------------------------------------------

    def note_received(self, num_bytes: int) -> None:
        """A message that counts has come."""
        self._received.note(num_bytes)

    def take_due_ack(self) -> wire.Ack | None:
        if not (self.is_wanted and self._received.is_ack_due):
            return None
        self._received.note_acknowledged()
        return wire.Ack(self._received.num_messages)

    def acknowledge(self, num_received: int) -> None:
        """Raises ProtocolViolation for more than was sent."""
        if num_received > self._sent.num_written:
            reason = f"ack of {num_received} messages, and {self._sent.num_written} were sent"
            raise ProtocolViolation(ErrorCode.BAD_MESSAGE, reason)
        self.is_wanted = True
        self._sent.acknowledge(num_received)

    # --- what goes ----------------------------------------------------------------------------------------

    def note_sent(self, frame: str | bytes) -> None:
        """A message that counts is written; the first ones are given up where more is kept than may be."""
        if not self.is_wanted:
            self._sent.count()
            return
        self._sent.keep(frame)
        self._sent.take_unwritten()
        self._sent.shrink(self._max_bytes)

    def take_owed(self) -> str | bytes | None:
        """The next of what another socket was sent, to be written again."""
        return self._sent.take_unwritten()

    def forget(self) -> None:
        """Others need the room: the client cannot come back but for what is sent from here on."""
        self._sent.shrink(0)

    # --- another socket -----------------------------------------------------------------------------------

    def check(self, token: str, num_received: int) -> None:
        """Raises CannotResume."""
        if not compare_digest(self.token.encode(), token.encode("utf-8", "replace")):
            raise CannotResume("this is not the token of that session, which is in its `ready`")
        if not self.is_wanted:
            raise CannotResume("nothing of that session was kept, because its client sent no `ack`")
        if num_received > self._sent.num_frames:
            raise CannotResume(f"`received` is {num_received}, and that session sent {self._sent.num_frames} messages")
        if not self._sent.has_all_behind(num_received):
            raise CannotResume(f"what that session sent after message {num_received} is not kept any more")

    def take_up(self, num_received: int) -> int:
        """On a new socket, whose client has so many, which `check` found right. Returns how many of its own came."""
        self._sent.rewind(num_received)
        self._received.note_acknowledged()
        return self._received.num_messages
