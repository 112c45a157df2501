"""Commands of a front, carried out with the engine of this process; the numbers by which both know utterances."""

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field, replace
from typing import Final, assert_never

import msgspec
import structlog

from voicegate.engine.dictionary import Dictionary
from voicegate.engine.interface import (
    INTERNAL_FAILURE,
    AtRest,
    Cancelled,
    Done,
    Engine,
    EngineError,
    EngineEvent,
    Failed,
    ListenerReport,
    NewVoice,
    Overloaded,
    UtteranceId,
    UtteranceRequest,
    VoiceInfo,
)
from voicegate.engine.process.channel import Channel
from voicegate.engine.process.wire import (
    Answer,
    Command,
    Submission,
    Told,
    pack_event,
    refusal,
)

log = structlog.get_logger()

# For how long an utterance waits here for room that was there a millisecond ago, when its front placed it: as long as a
# clause takes at most. Higher keeps a client waiting who might be served elsewhere; lower fails more of them.
_PATIENCE_S: Final = 2.0
# Between two questions whether there is room for them.
_ASK_AGAIN_S: Final = 0.02
_SUBMISSION: Final = msgspec.json.Decoder(Submission)
_OF_UTTERANCES: Final = frozenset({Command.PUSH, Command.FLUSH, Command.END, Command.NOTE, Command.CANCEL})


@dataclass(frozen=True, slots=True)
class _Waiting:
    """An utterance that came when the room for it was gone."""

    request: UtteranceRequest
    until_s: float
    said: list[tuple[Command, bytes]] = field(default_factory=list)  # to it, meanwhile


class Commands:
    def __init__(self, engine: Engine, channel: Channel, *, on_room: Callable[[], None]) -> None:
        """`on_room` is told when there may be more room, or less."""
        self._engine = engine
        self._channel = channel
        self._on_room = on_room
        self._loop = asyncio.get_running_loop()
        self.num_seen = 0  # utterances that were submitted here
        self._waiting: dict[int, _Waiting] = {}  # by number, in the order in which they came
        self._utterances: dict[int, UtteranceId] = {}
        self._numbers: dict[UtteranceId, int] = {}
        self._reports: dict[UtteranceId, ListenerReport] = {}
        self._dictionaries: dict[int, Dictionary] = {}
        self._recordings: dict[int, bytearray] = {}  # of voices to be added, as far as they have come
        self._tasks: set[asyncio.Task[None]] = set()  # what takes time

    @property
    def room(self) -> int:
        return 0 if self._waiting else self._engine.room

    def tell(self, event: EngineEvent) -> None:
        """The front, of what the engine has made."""
        number = self._numbers[event.utterance_id]
        if isinstance(event, Done | Cancelled | Failed):
            del self._utterances[number], self._numbers[event.utterance_id]
            self._reports.pop(event.utterance_id, None)
        if isinstance(event, AtRest | Done | Cancelled | Failed):
            self._on_room()
        kind, body = pack_event(event)
        self._channel.send(kind, number, body)

    def hold(self, is_full: bool) -> None:
        """A front that does not read hears nothing, so nobody plays: the engine makes no more than their lead."""
        for utterance_id in self._numbers:
            last = self._reports.get(utterance_id, ListenerReport())
            is_playing = last.is_playing and not is_full
            # The played time was true when it was told.
            self._engine.note_listener(utterance_id, replace(last, played_ms=None, is_playing=is_playing))

    def carry_out(self, command: Command, number: int, body: bytes) -> None:
        if command in _OF_UTTERANCES and (waiting := self._waiting.get(number)) is not None:
            if command is Command.CANCEL:
                del self._waiting[number]
                text = b"".join(body for said, body in waiting.said if said is Command.PUSH).decode()
                self.tell(Cancelled(waiting.request.utterance_id, 0, 0, "", text))
            else:
                waiting.said.append((command, body))
            return
        engine = self._engine
        utterance_id = self._utterances.get(number, UtteranceId(""))  # it may have ended: then calls are nothing
        match command:
            case Command.SUBMIT:
                self._submit(number, _SUBMISSION.decode(body))
            case Command.PUSH:
                engine.push_text(utterance_id, body.decode())
            case Command.FLUSH:
                engine.flush_text(utterance_id, body.decode())
            case Command.END:
                engine.end_text(utterance_id)
            case Command.NOTE:
                self._note_listener(utterance_id, msgspec.json.decode(body, type=ListenerReport))
            case Command.CANCEL:
                engine.cancel(utterance_id, msgspec.json.decode(body))
            case Command.DEFINE:
                self._dictionaries[number] = Dictionary(msgspec.json.decode(body))
            case Command.FORGET:
                del self._dictionaries[number]
            case Command.RECORDING:
                self._take_recording(number, body)
            case Command.ADD_VOICE:
                recording = bytes(self._recordings.pop(number, b""))
                voice = replace(msgspec.json.decode(body, type=NewVoice), recording=recording)
                self._begin(self._answer(number, engine.add_voice(voice)))
            case Command.REMOVE_VOICE:
                self._begin(self._answer(number, engine.remove_voice(body.decode())))
            case Command.CLOSE:
                self._begin(engine.close())
            case Command.GREETING:
                raise AssertionError("it is said once, and before")
            case _:
                assert_never(command)

    def _begin(self, work: Coroutine[None, None, None]) -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # --- utterances -------------------------------------------------------------------------------------------

    def _submit(self, number: int, submission: Submission) -> None:
        dictionaries = tuple(self._dictionaries[each] for each in submission.dictionaries)
        request = replace(submission.request, dictionaries=dictionaries)
        self._utterances[number] = request.utterance_id
        self._numbers[request.utterance_id] = number
        self.num_seen += 1
        self._on_room()
        if self._waiting or not self._take_in(request, may_wait=True):
            if not self._waiting:
                self._loop.call_later(_ASK_AGAIN_S, self._take_in_waiting)
            self._waiting[number] = _Waiting(request, self._loop.time() + _PATIENCE_S)

    def _take_in(self, request: UtteranceRequest, *, may_wait: bool) -> bool:
        """True: it is the engine's, or has failed. False: there is no room, and it may wait."""
        try:
            self._engine.submit(request)
        except EngineError as error:  # what the front could not know yet
            if may_wait and isinstance(error, Overloaded):
                return False
            self.tell(Failed(request.utterance_id, str(error)))
            return True
        except Exception:  # a fault of ours ends this one, and neither the channel nor who waits behind it
            log.exception("utterance_not_submitted", utterance=request.utterance_id)
            self.tell(Failed(request.utterance_id, INTERNAL_FAILURE))
            return True
        if self._channel.is_full:
            self._engine.note_listener(request.utterance_id, ListenerReport(is_playing=False))
        return True

    def _take_in_waiting(self) -> None:
        """In turn, until there is no room; those whose time is over fail."""
        for number, waiting in list(self._waiting.items()):
            if not self._take_in(waiting.request, may_wait=self._loop.time() < waiting.until_s):
                break
            del self._waiting[number]
            self._on_room()
            for command, body in waiting.said:
                self.carry_out(command, number, body)
        if self._waiting:
            self._loop.call_later(_ASK_AGAIN_S, self._take_in_waiting)

    def _note_listener(self, utterance_id: UtteranceId, report: ListenerReport) -> None:
        if utterance_id in self._numbers:
            self._reports[utterance_id] = report
        if not self._channel.is_full:
            self._engine.note_listener(utterance_id, report)

    # --- voices -----------------------------------------------------------------------------------------------

    async def _answer(self, number: int, work: Coroutine[None, None, VoiceInfo | None]) -> None:
        try:
            answer = Answer(await work)
        except EngineError as error:
            answer = refusal(error)
        except Exception as error:  # told to whoever asked: nobody else is concerned
            log.exception("voice_change_failed")
            answer = Answer(error=EngineError.__name__, message=f"{type(error).__name__}: {error}")
        self._channel.send(Told.ANSWER, number, msgspec.json.encode(answer))

    def _take_recording(self, number: int, part: bytes) -> None:
        if part:
            self._recordings.setdefault(number, bytearray()).extend(part)
        else:
            self._recordings.pop(number, None)
