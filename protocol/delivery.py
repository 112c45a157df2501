"""Delivery of one side: what it has sent and cannot know to have arrived, and how much has come. Pure; both sides have
one of each.

It must not know what the frames hold. docs/protocol.md, section 9.
"""

import sys
from collections import deque
from dataclasses import dataclass
from typing import Final

# Between two acknowledgements: what the other side has to keep. Lower costs messages, higher memory.
_ACK_MESSAGES: Final = 32
_ACK_BYTES: Final = 16 * 1024


@dataclass(slots=True)
class Received:
    """Messages of the other side, since the session began."""

    num_messages: int = 0
    _num_acknowledged: int = 0
    _num_new_bytes: int = 0

    def note(self, num_bytes: int) -> None:
        self.num_messages += 1
        self._num_new_bytes += num_bytes

    @property
    def is_ack_due(self) -> bool:
        return self.num_messages - self._num_acknowledged >= _ACK_MESSAGES or self._num_new_bytes >= _ACK_BYTES

    def note_acknowledged(self) -> None:
        """The other side is told of all that has come."""
        self._num_acknowledged, self._num_new_bytes = self.num_messages, 0


class Sent:
    """Frames by number, counted from 1: the first ones acknowledged or given up, then those kept, in order."""

    def __init__(self) -> None:
        self._kept: deque[str | bytes] = deque()
        self._num_gone = 0
        self.num_written = 0  # or had come, of those before the present connection
        self.num_kept_bytes = 0  # of memory

    @property
    def num_frames(self) -> int:
        """In all, kept or not."""
        return self._num_gone + len(self._kept)

    @property
    def num_kept(self) -> int:
        return len(self._kept)

    @property
    def is_owed_any(self) -> bool:
        """Whether something is to be written that is not yet."""
        return self.num_written < self.num_frames

    def keep(self, frame: str | bytes) -> None:
        self._kept.append(frame)
        self.num_kept_bytes += sys.getsizeof(frame)

    def count(self) -> None:
        """A frame that is written now and never again. Only where nothing is kept."""
        assert not self._kept
        self._num_gone += 1
        self.num_written += 1

    def take_unwritten(self) -> str | bytes | None:
        """The next frame to be written; it counts as written."""
        if not self.is_owed_any:
            return None
        frame = self._kept[self.num_written - self._num_gone]
        self.num_written += 1
        return frame

    def acknowledge(self, num_received: int) -> None:
        """The other side has so many, at most as many as there are; it may have told that before."""
        while self._num_gone < num_received:
            self._drop_first()

    def has_all_behind(self, num_received: int) -> bool:
        """Whether a peer that has so many can get the others."""
        return self._num_gone <= num_received <= self.num_frames

    def rewind(self, num_received: int) -> None:
        """There is a new connection, whose peer has so many: `has_all_behind` holds."""
        self.acknowledge(num_received)
        self.num_written = num_received

    def shrink(self, max_bytes: int) -> None:
        """Give up the first ones until no more is kept; what is not written yet stays."""
        while self.num_kept_bytes > max_bytes and self._num_gone < self.num_written:
            self._drop_first()

    def _drop_first(self) -> None:
        self.num_kept_bytes -= sys.getsizeof(self._kept.popleft())
        self._num_gone += 1
