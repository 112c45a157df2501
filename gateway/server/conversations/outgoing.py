"""Backlog for one peer: answers, and after them engine events that have not become output yet.

An event becomes output only when nothing else waits, so that audio which the engine made before a `cancel`, and the
peer had no room for, is dropped by the Session's own rule.
"""

import asyncio
from collections import deque
from typing import Final

from voicegate.engine.interface import Alignment, AudioReady, EngineEvent
from voicegate.gateway.session.actions import Close
from voicegate.protocol.audio_message import AudioMessage
from voicegate.protocol.dialects.dialect import Reply
from voicegate.protocol.messages import UNCOUNTED_OF_SERVER, ServerMessage

# Answers that wait for the socket. Reading pauses above it: lower slows clients that pipeline many small messages,
# higher lets a client that does not read cost more memory.
_MAX_WAITING_ANSWERS: Final = 256
# Events that wait for the socket, over all contexts. The engine's lead keeps far below it while a peer reads at
# all: 16 MiB are 5 minutes of PCM or an hour of Opus.
_MAX_WAITING_EVENT_BYTES: Final = 16 * 1024 * 1024
# An event, or an item of one, takes so much beside its text and audio.
_EVENT_BYTES: Final = 256

Item = ServerMessage | AudioMessage | Reply | Close


class Outgoing:
    def __init__(self) -> None:
        self._answers: deque[Item] = deque()
        self._events: deque[tuple[EngineEvent, int]] = deque()  # and its bytes
        self._num_event_bytes = 0
        self._has_news = asyncio.Event()
        self.is_being_taken = False  # what is put now is taken next: no one is to be woken for it
        self._has_room = asyncio.Event()
        self._has_room.set()

    @property
    def num_event_bytes(self) -> int:
        """Nearly all of it audio."""
        return self._num_event_bytes

    @property
    def is_too_much(self) -> bool:
        """More than any peer that reads lets wait."""
        return self._num_event_bytes > _MAX_WAITING_EVENT_BYTES

    @property
    def is_empty(self) -> bool:
        return not (self._answers or self._events)

    @property
    def has_room(self) -> bool:
        """For more answers."""
        return self._has_room.is_set()

    @property
    def has_answers(self) -> bool:
        return bool(self._answers)

    def put(self, item: Item) -> None:
        self._answers.append(item)
        if not self.is_being_taken:
            self._has_news.set()
        if len(self._answers) >= _MAX_WAITING_ANSWERS:
            self._has_room.clear()

    def put_event(self, event: EngineEvent) -> None:
        num_bytes = _num_bytes(event)
        self._events.append((event, num_bytes))
        self._num_event_bytes += num_bytes
        self._has_news.set()

    def look_again(self) -> None:
        """Wake waiters for news."""
        self._has_news.set()

    def take(self) -> Item | None:
        if not self._answers:
            return None
        item = self._answers.popleft()
        self._note_room()
        return item

    def take_event(self) -> EngineEvent | None:
        if not self._events:
            return None
        event, num_bytes = self._events.popleft()
        self._num_event_bytes -= num_bytes
        return event

    def drop_events(self) -> None:
        self._events.clear()
        self._num_event_bytes = 0

    def drop_answers(self) -> None:
        self._answers.clear()

    def drop_momentary(self) -> None:
        """Answers that mean something on the present socket only."""
        lasting = [item for item in self._answers if not isinstance(item, (Reply, *UNCOUNTED_OF_SERVER))]
        self._answers = deque(lasting)
        self._note_room()

    def _note_room(self) -> None:
        if len(self._answers) < _MAX_WAITING_ANSWERS // 2:
            self._has_room.set()

    async def wait_for_news(self) -> None:
        self._has_news.clear()
        await self._has_news.wait()

    async def wait_for_room(self) -> None:
        """For more answers: who does not read them is not read either."""
        await self._has_room.wait()


def _num_bytes(event: EngineEvent) -> int:
    match event:
        case AudioReady(packets=packets):
            return _EVENT_BYTES + sum(map(len, packets))
        case Alignment(items=items):
            return _EVENT_BYTES + sum(_EVENT_BYTES + len(item.text) for item in items)
        case _:
            return _EVENT_BYTES
