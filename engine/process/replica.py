"""One engine process as its front sees it: starting -> ready -> lost, and the utterances that it speaks.

It tells what comes and must not know what is done about its loss (routing). Everything but `EngineProcess.wait` is
called from one event loop.
"""

import asyncio
import socket
from collections.abc import Callable
from dataclasses import replace
from itertools import count
from typing import Final, TypeVar, assert_never

import msgspec
import structlog

from voicegate.engine.interface import (
    Cancelled,
    Done,
    EngineError,
    EngineEvent,
    EngineInfo,
    Failed,
    ListenerReport,
    Overloaded,
    UtteranceId,
    UtteranceRequest,
    VoiceInfo,
)
from voicegate.engine.load.progress import Progress
from voicegate.engine.placement import Load
from voicegate.engine.process.channel import Channel
from voicegate.engine.process.lexicon import Lexicon
from voicegate.engine.process.site import EngineProcess, Site
from voicegate.engine.process.vitals import Vitals
from voicegate.engine.process.wire import (
    Answer,
    Command,
    NewVoice,
    Share,
    State,
    Submission,
    Told,
    error_of,
    unpack_event,
    unpack_room,
)

log = structlog.get_logger()

_Result = TypeVar("_Result")

# Of a recording, sent at a time. Higher -> speech is late by more while a voice is added; lower -> that takes longer.
_PART_BYTES: Final = 64 * 1024

# What a client is told; the log has the rest.
_LOST: Final = "the engine process that spoke this has ended; try again"


class StartRefused(EngineError):
    """What it was to load does not fit; to try again would not help."""


class ReplicaLost(EngineError):
    pass


class Replica:
    def __init__(
        self,
        site: Site,
        *,
        patience_looks: int,
        publish: Callable[[EngineEvent], None],
        progress: Progress,
    ) -> None:
        """`publish` is told of every event, and of the end of every utterance that is lost with the process."""
        self.name = site.name
        self._site = site
        self._publish = publish
        self._progress = progress
        self._vitals = Vitals(patience_looks)
        self._process: EngineProcess | None = None
        self._channel = Channel(self._take, on_end=self._lose, on_full=self._note_full)
        self._lexicon = Lexicon(self._channel.send)
        self._utterances: dict[int, UtteranceId] = {}
        self._numbers: dict[UtteranceId, int] = {}
        self._resting: set[UtteranceId] = set()  # of these, those that hold no place
        self._late_reports: dict[UtteranceId, ListenerReport] = {}  # while it does not read, the last of each
        self._questions: dict[int, asyncio.Future[VoiceInfo | None]] = {}
        self._next_number = count()
        self._num_submitted = 0
        self._told_room = (0, 0)  # submits that it had seen, and how many more might come
        self._info: EngineInfo | None = None
        self.ready: asyncio.Future[EngineInfo] = asyncio.get_running_loop().create_future()
        self.lost = asyncio.Event()
        self.state = State()
        self.voices: set[str] = set()  # that newcomers may name
        self._is_given_up = False
        self.num_failed = 0  # utterances that were lost with it

    # --- its life ---------------------------------------------------------------------------------------------

    @property
    def pid(self) -> int | None:
        return None if self._process is None else self._process.pid

    async def launch(self) -> None:
        """Raises OSError."""
        ours, theirs = socket.socketpair()
        try:
            with theirs:
                self._process = await asyncio.to_thread(self._site.launch, theirs)
            await self._channel.open(ours)
        except BaseException:
            ours.close()
            self.kill()
            raise
        self._channel.send(Command.GREETING, 0, self._site.greeting)

    def look(self) -> None:
        """Kill it if it hangs. Once for each look of `patience_looks`."""
        if (trouble := self._vitals.look()) is not None and not self._is_given_up:
            self._is_given_up = True
            log.error("engine_process_hangs", replica=self.name, pid=self.pid, reason=trouble)
            self.kill()

    def end(self) -> None:
        """Let what it speaks fail, and end. One that loads cannot hear of it."""
        if self._info is None:
            self.kill()
        else:
            self._channel.send(Command.CLOSE)

    def kill(self) -> None:
        if self._process is not None and not self.lost.is_set():
            self._process.kill()

    async def reap(self, timeout_s: float) -> int | None:
        """After it was lost: its exit status. One that goes on all the same is killed."""
        assert self._process is not None
        status = await asyncio.to_thread(self._process.wait, timeout_s)
        if status is None:
            self._process.kill()
            status = await asyncio.to_thread(self._process.wait, timeout_s)
        return status

    # --- utterances -------------------------------------------------------------------------------------------

    @property
    def unready_reason(self) -> str | None:
        return self.state.unready_reason

    @property
    def num_placed(self) -> int:
        """Utterances, without those at rest."""
        return len(self._utterances) - len(self._resting)

    @property
    def room(self) -> int:
        """What was told of it, less what has been sent since: newcomers, and those at rest that have come back."""
        if self._info is None or self.unready_reason:
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

    def submit(self, request: UtteranceRequest) -> None:
        numbers = tuple(self._lexicon.number_of(dictionary) for dictionary in request.dictionaries)
        number = next(self._next_number)
        self._utterances[number] = request.utterance_id
        self._numbers[request.utterance_id] = number
        self._num_submitted += 1
        submission = Submission(replace(request, dictionaries=()), numbers)
        self._channel.send(Command.SUBMIT, number, msgspec.json.encode(submission))

    def rest(self, utterance_id: UtteranceId) -> None:
        self._resting.add(utterance_id)

    def readmit(self, utterance_id: UtteranceId) -> None:
        """The process gives it a place with its text. Raises Overloaded."""
        if utterance_id not in self._resting:
            return
        assert self._info is not None
        if self.unready_reason is not None or self.num_placed >= self._info.max_utterances:
            reason = self.unready_reason or f"all {self._info.max_utterances} utterances of its process are in use"
            raise Overloaded(f"{reason}; try again shortly")
        self._resting.discard(utterance_id)

    def push_text(self, utterance_id: UtteranceId, text: str) -> None:
        self._resting.discard(utterance_id)
        self._channel.send(Command.PUSH, self._numbers[utterance_id], text.encode())

    def flush_text(self, utterance_id: UtteranceId, flush_id: str) -> None:
        self._channel.send(Command.FLUSH, self._numbers[utterance_id], flush_id.encode())

    def end_text(self, utterance_id: UtteranceId) -> None:
        self._channel.send(Command.END, self._numbers[utterance_id])

    def note_listener(self, utterance_id: UtteranceId, report: ListenerReport) -> None:
        if self._channel.is_full:
            self._late_reports[utterance_id] = report
        else:
            self._channel.send(Command.NOTE, self._numbers[utterance_id], msgspec.json.encode(report))

    def cancel(self, utterance_id: UtteranceId, played_ms: int | None) -> None:
        self._channel.send(Command.CANCEL, self._numbers[utterance_id], msgspec.json.encode(played_ms))

    # --- voices -----------------------------------------------------------------------------------------------

    async def add_voice(self, voice: NewVoice, recording: bytes) -> VoiceInfo:
        """Raises what the engine raises, ReplicaLost."""
        number = next(self._next_number)
        try:
            for start in range(0, len(recording), _PART_BYTES):
                self._channel.send(Command.RECORDING, number, recording[start : start + _PART_BYTES])
                await asyncio.sleep(0)  # others' calls and events have their turn
                await self._channel.writable.wait()
            added = await self._ask(Command.ADD_VOICE, number, msgspec.json.encode(voice))
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
                self._vitals.start()
                self._info = msgspec.json.decode(body, type=EngineInfo)
                self.voices = {voice.name for voice in self._info.voices}
                settle(self.ready, self._info)
            case Told.REFUSED:
                settle(self.ready, StartRefused(body.decode()))
            case Told.LINE:
                self._progress.line(body.decode())
            case Told.SHARE:
                share = msgspec.json.decode(body, type=Share)
                self._progress.share(share.part, share.num_done, share.num_steps)
            case Told.STATE:
                self.state = msgspec.json.decode(body, type=State)
                self._vitals.hear(self.state.pulse)
            case Told.ROOM:
                self._told_room = unpack_room(body)
            case Told.ANSWER:
                answer = msgspec.json.decode(body, type=Answer)
                if (question := self._questions.get(number)) is not None:
                    settle(question, error_of(answer) or answer.voice)
            case Told.AUDIO | Told.ALIGNMENT | Told.FLUSHED | Told.AT_REST | Told.DONE | Told.CANCELLED | Told.FAILED:
                self._take_event(told, number, body)
            case _:
                assert_never(told)

    def _take_event(self, kind: Told, number: int, body: bytes) -> None:
        event = unpack_event(kind, self._utterances[number], body)
        if isinstance(event, Done | Cancelled | Failed):
            self._forget(number)
        self._publish(event)

    def _forget(self, number: int) -> None:
        utterance_id = self._utterances.pop(number)
        del self._numbers[utterance_id]
        self._resting.discard(utterance_id)
        self._late_reports.pop(utterance_id, None)

    def _note_full(self, is_full: bool) -> None:
        if not is_full:
            late, self._late_reports = self._late_reports, {}
            for utterance_id, report in late.items():
                self.note_listener(utterance_id, report)

    def _lose(self) -> None:
        """All that it spoke fails, at once."""
        self.lost.set()
        settle(self.ready, ReplicaLost(_LOST))
        for question in self._questions.values():
            settle(question, ReplicaLost(_LOST))
        utterances = list(self._utterances.values())
        self._utterances.clear()
        self._numbers.clear()
        self._resting.clear()
        self.num_failed = len(utterances)
        for utterance_id in utterances:
            self._publish(Failed(utterance_id, _LOST))


def settle(future: "asyncio.Future[_Result]", outcome: _Result | EngineError) -> None:
    """Unless its waiter has given up, or was told already."""
    if future.done():
        return
    if isinstance(outcome, EngineError):
        future.set_exception(outcome)
        future.exception()  # has been looked at, should nobody wait
    else:
        future.set_result(outcome)
