"""One engine process as its front sees it: starting -> ready -> lost, and the utterances that it speaks.

It tells what comes and must not know how the process is started, nor what is done about its loss (keeper.py, front.py).
All calls come from one event loop.
"""

import asyncio
import socket
import weakref
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import count
from typing import Final, TypeVar, assert_never

import msgspec
import structlog

from voicegate.engine.dictionary import Dictionary
from voicegate.engine.interface import (
    AtRest,
    Cancelled,
    Done,
    EngineError,
    EngineEvent,
    EngineInfo,
    Failed,
    NewVoice,
    Overloaded,
    UtteranceId,
    UtteranceRequest,
    VoiceInfo,
)
from voicegate.engine.load.progress import Progress
from voicegate.engine.placement import Load
from voicegate.engine.process.channel import Channel
from voicegate.engine.process.wire import (
    Answer,
    Command,
    State,
    Submission,
    Told,
    error_of,
    unpack_event,
)

log = structlog.get_logger()

_Result = TypeVar("_Result")

# Bytes of a recording, sent at a time. Higher -> speech is late by more while a voice is added; lower -> that takes
# longer.
_PART_BYTES: Final = 64 * 1024

# The client's message; the log has the rest.
_LOST: Final = "the engine process that spoke this has ended; try again"


class StartRefused(EngineError):
    """Its model or settings do not fit; to try again would not help."""


class ReplicaLost(EngineError):
    pass


@dataclass(slots=True, eq=False)
class Placed:
    """An utterance, and the process that speaks it."""

    utterance_id: UtteranceId
    replica: "Replica"
    number: int  # by which the process knows it
    num_chars: int = 0  # that it was given


class Replica:
    def __init__(self, name: str, *, publish: Callable[[EngineEvent], None], progress: Progress) -> None:
        """`publish` is told of every event, and of the end of every utterance that is lost with the process."""
        self.name = name
        self._publish = publish
        self._progress = progress
        self._channel = Channel(self._take, on_end=self._lose)
        self._utterances: dict[int, Placed] = {}
        self._resting: set[int] = set()  # of these, those that hold no place
        self._questions: dict[int, asyncio.Future[VoiceInfo | None]] = {}
        self._dictionaries: weakref.WeakKeyDictionary[Dictionary, int] = weakref.WeakKeyDictionary()
        self._dictionaries_gone: deque[int] = deque()  # from whatever thread a dictionary is let go of in
        self._next_number = count()
        self._num_submitted = 0
        self._told_room = (0, 0)  # submits that it had seen, and how many more might come
        self._info: EngineInfo | None = None
        self.ready: asyncio.Future[EngineInfo] = asyncio.get_running_loop().create_future()
        self.lost = asyncio.Event()
        self.state = State()
        self.voices: set[str] = set()  # that new requests may name
        self.num_failed = 0  # utterances that were lost with it
        self.num_states = 0  # that it has told

    async def open(self, end: socket.socket, greeting: bytes) -> None:
        """`end` of the channel is this one's from here on."""
        await self._channel.open(end)
        self._channel.send(Command.GREETING, 0, greeting)

    def close(self) -> None:
        """Let what it speaks fail, and end. One that loads cannot hear of it."""
        self._channel.send(Command.CLOSE)

    # --- utterances -------------------------------------------------------------------------------------------

    @property
    def num_placed(self) -> int:
        """Utterances, without those at rest."""
        return len(self._utterances) - len(self._resting)

    @property
    def room(self) -> int:
        """Room as told by it, less utterances sent since: new requests, and those at rest that have come back."""
        if self._info is None or self.state.unready_reason:
            return 0
        num_seen, room = self._told_room
        return max(min(room - (self._num_submitted - num_seen), self._info.max_utterances - self.num_placed), 0)

    @property
    def load(self) -> Load:
        gauges = self.state.stats.gauges
        assert self._info is not None
        return Load(
            room=self.room,
            num_placed=self.num_placed,
            max_live=round(gauges.get("max_active_clauses", self._info.max_utterances)),
            num_waiting=round(gauges.get("waiting_clauses", 0)),
            num_blocks_free=gauges.get("free_flow_blocks", 0.0) - gauges.get("reserved_flow_blocks", 0.0),
            max_blocks=gauges.get("max_flow_blocks", 0.0),
        )

    def submit(self, request: UtteranceRequest) -> Placed:
        dictionaries = tuple(map(self._number_of, request.dictionaries))
        placed = Placed(request.utterance_id, self, next(self._next_number))
        self._utterances[placed.number] = placed
        self._num_submitted += 1
        submission = Submission(replace(request, dictionaries=()), dictionaries)
        self.tell(placed, Command.SUBMIT, msgspec.json.encode(submission))
        return placed

    def _number_of(self, dictionary: Dictionary) -> int:
        """Each is sent once, however many utterances name it, and forgotten with the last who has it here."""
        while self._dictionaries_gone:
            self._channel.send(Command.FORGET, self._dictionaries_gone.popleft())
        number = self._dictionaries.get(dictionary)
        if number is None:
            number = self._dictionaries[dictionary] = next(self._next_number)
            weakref.finalize(dictionary, self._dictionaries_gone.append, number).atexit = False
            self._channel.send(Command.DEFINE, number, msgspec.json.encode(dictionary.entries))
        return number

    def readmit(self, placed: Placed) -> None:
        """The process gives it a place with its text. Raises Overloaded."""
        if placed.number not in self._resting:
            return
        assert self._info is not None
        if self.state.unready_reason is not None or self.num_placed >= self._info.max_utterances:
            reason = (
                self.state.unready_reason or f"all {self._info.max_utterances} utterances of its process are in use"
            )
            raise Overloaded(f"{reason}; try again shortly")
        self._resting.discard(placed.number)

    def push_text(self, placed: Placed, text: str) -> None:
        placed.num_chars += len(text)
        self._resting.discard(placed.number)
        self.tell(placed, Command.PUSH, text.encode())

    def tell(self, placed: Placed, command: Command, body: bytes = b"") -> None:
        self._channel.send(command, placed.number, body)

    # --- voices -----------------------------------------------------------------------------------------------

    async def add_voice(self, voice: NewVoice) -> VoiceInfo:
        """Raises what the engine raises, ReplicaLost."""
        number = next(self._next_number)
        try:
            for start in range(0, len(voice.recording), _PART_BYTES):
                self._channel.send(Command.RECORDING, number, voice.recording[start : start + _PART_BYTES])
                await asyncio.sleep(0)  # others' calls and events have their turn
                await self._channel.writable.wait()
            added = await self._ask(Command.ADD_VOICE, number, msgspec.json.encode(replace(voice, recording=b"")))
        except asyncio.CancelledError:
            self._channel.send(Command.RECORDING, number)
            raise
        assert added is not None
        return added

    async def remove_voice(self, name: str) -> None:
        """Raises as `add_voice`."""
        await self._ask(Command.REMOVE_VOICE, next(self._next_number), name.encode())

    async def _ask(self, command: Command, number: int, body: bytes) -> VoiceInfo | None:
        if self.lost.is_set():
            raise ReplicaLost(_LOST)
        answer: asyncio.Future[VoiceInfo | None] = asyncio.get_running_loop().create_future()
        self._questions[number] = answer
        self._channel.send(command, number, body)
        try:
            return await answer
        finally:
            self._questions.pop(number, None)

    # --- from the channel -------------------------------------------------------------------------------------

    def _take(self, kind: int, number: int, body: bytes) -> None:
        match told := Told(kind):
            case Told.READY:
                self._info = msgspec.json.decode(body, type=EngineInfo)
                self.voices = {voice.name for voice in self._info.voices}
                settle(self.ready, self._info)
            case Told.REFUSED:
                settle(self.ready, StartRefused(body.decode()))
            case Told.LINE:
                self._progress.line(body.decode())
            case Told.SHARE:
                self._progress.share(*msgspec.json.decode(body, type=tuple[str, int, int]))
            case Told.STATE:
                self.state = msgspec.json.decode(body, type=State)
                self.num_states += 1
            case Told.ROOM:
                self._told_room = msgspec.json.decode(body, type=tuple[int, int])
            case Told.ANSWER:
                answer = msgspec.json.decode(body, type=Answer)
                if (question := self._questions.get(number)) is not None:
                    settle(question, error_of(answer) or answer.voice)
            case Told.AUDIO | Told.ALIGNMENT | Told.FLUSHED | Told.AT_REST | Told.DONE | Told.CANCELLED | Told.FAILED:
                self._take_event(told, number, body)
            case _:
                assert_never(told)

    def _take_event(self, kind: Told, number: int, body: bytes) -> None:
        placed = self._utterances[number]
        event = unpack_event(kind, placed.utterance_id, body)
        if isinstance(event, AtRest):
            if event.num_chars != placed.num_chars:
                return  # text has come since
            self._resting.add(number)
        if isinstance(event, Done | Cancelled | Failed):
            del self._utterances[number]
            self._resting.discard(number)
        self._publish(event)

    def _lose(self) -> None:
        """All that it spoke fails, at once."""
        self.lost.set()
        settle(self.ready, ReplicaLost(_LOST))
        for question in self._questions.values():
            settle(question, ReplicaLost(_LOST))
        utterances = list(self._utterances.values())
        self._utterances.clear()
        self._resting.clear()
        self.num_failed = len(utterances)
        for placed in utterances:
            self._publish(Failed(placed.utterance_id, _LOST))


def settle(future: "asyncio.Future[_Result]", outcome: _Result | EngineError) -> None:
    """Unless its waiter has given up, or was told already."""
    if future.done():
        return
    if isinstance(outcome, EngineError):
        future.set_exception(outcome)
        future.exception()  # has been looked at, should nobody wait
    else:
        future.set_result(outcome)
