"""State of one context from the server's messages: its audio not read yet, its alignment, its end. Sans-I/O.

Three rules of ours: audio beyond `max_unread_bytes` ends the context (ReaderTooSlow), so that one reader can never
hold up another; a message of ours that the server refuses ends it too, because its text would be missing; and
nothing follows an end.
"""

from collections import deque
from dataclasses import dataclass, field
from enum import Enum
from typing import assert_never

from msgspec import UNSET

from voicegate.clients.python.audio import Audio, duration_48k
from voicegate.clients.python.errors import ContextFailed, GateError, ReaderTooSlow
from voicegate.protocol import messages as wire
from voicegate.protocol.audio_message import AudioMessage
from voicegate.protocol.errors import ErrorCode

ContextMessage = wire.Opened | wire.Alignment | wire.Flushed | wire.Done | wire.Cancelled | wire.Error
Result = wire.Done | wire.Cancelled


class Phase(Enum):
    OPENING = "opening"
    OPEN = "open"
    CANCELLING = "cancelling"  # nothing but the end interests any more
    ENDED = "ended"


@dataclass(slots=True)
class Reception:
    max_unread_bytes: int
    phase: Phase = Phase.OPENING
    opened: wire.Opened | None = None
    alignments: list[wire.AlignmentItem] = field(default_factory=list)
    flushes: list[wire.Flushed] = field(default_factory=list)
    unread: deque[Audio] = field(default_factory=deque)
    unread_bytes: int = 0
    end_pts_48k: int | None = None  # known once the last audio message is here
    result: Result | None = None
    error: GateError | None = None
    next_sequence: int = 0

    def receive(self, message: ContextMessage) -> bool:
        """True: the context failed for a reason the server does not know of, and is to be cancelled there."""
        if self.phase is Phase.ENDED:
            return False
        match message:
            case wire.Opened():
                self.opened = message
                if self.phase is Phase.OPENING:
                    self.phase = Phase.OPEN
            case wire.Alignment():
                self.alignments += message.items
            case wire.Flushed():
                self.flushes.append(message)
            case wire.Done() | wire.Cancelled():
                self.phase = Phase.ENDED
                self.result = message
            case wire.Error() if self._is_about_the_past(message):
                pass
            case wire.Error():
                retry_after_ms = None if message.retry_after_ms is UNSET else message.retry_after_ms
                self.fail(ContextFailed(message.code, message.message, retry_after_ms))
                return not message.fatal
            case _:
                assert_never(message)
        return False

    def receive_audio(self, message: AudioMessage, now_s: float) -> bool:
        """As `receive`."""
        if self.phase is not Phase.OPEN or self.opened is None:
            return False
        if message.sequence != self.next_sequence:
            return self._fail_bad_audio(f"message {message.sequence} came where {self.next_sequence} was due")
        self.next_sequence += 1
        try:
            duration = duration_48k(message.packets, self.opened.format, self.opened.sample_rate)
        except ValueError as error:
            return self._fail_bad_audio(str(error))
        audio = Audio(message.packets, message.pts_48k, duration, now_s, message.is_first, message.is_last)
        if message.is_last:
            self.end_pts_48k = message.pts_48k + duration
        self.unread.append(audio)
        self.unread_bytes += audio.num_bytes
        if self.unread_bytes > self.max_unread_bytes:
            self.fail(ReaderTooSlow(self.unread_bytes), drops_unread=True)
            return True
        return False

    def read(self) -> Audio | None:
        """The oldest audio not read yet."""
        if not self.unread:
            return None
        audio = self.unread.popleft()
        self.unread_bytes -= audio.num_bytes
        return audio

    def begin_cancel(self) -> None:
        if self.phase is not Phase.ENDED:
            self.phase = Phase.CANCELLING
        self._drop_unread()

    def fail(self, error: GateError, *, drops_unread: bool = False) -> None:
        """Audio that came before a failure can still be read, unless `drops_unread`."""
        if self.phase is Phase.ENDED:
            return
        self.phase = Phase.ENDED
        self.error = error
        if drops_unread:
            self._drop_unread()

    def _is_about_the_past(self, error: wire.Error) -> bool:
        """Text that crossed our cancel, or the end of an earlier context of this id."""
        is_before_opened = self.phase is Phase.OPENING and error.code == ErrorCode.UNKNOWN_CONTEXT.value
        return not error.fatal and (is_before_opened or self.phase is Phase.CANCELLING)

    def _fail_bad_audio(self, reason: str) -> bool:
        self.fail(ContextFailed("bad_audio", reason))
        return True

    def _drop_unread(self) -> None:
        self.unread.clear()
        self.unread_bytes = 0
