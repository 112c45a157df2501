"""An engine process's own side: does what its front says with an engine, and tells what comes of it.

It does not know what engine that is. The front's end of the channel is its life: when that goes, so does the process.
"""

import asyncio
import socket
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import replace
from typing import Final, assert_never

import msgspec
import structlog

from voicegate.engine.dictionary import Dictionary
from voicegate.engine.interface import (
    Cancelled,
    Done,
    Engine,
    EngineError,
    EngineEvent,
    EngineStopped,
    Failed,
    ListenerReport,
    UtteranceId,
    VoiceInfo,
)
from voicegate.engine.loading.progress import Progress
from voicegate.engine.replicas.channel import Channel
from voicegate.engine.replicas.wire import (
    Answer,
    Command,
    Share,
    State,
    Submission,
    Told,
    pack_event,
    pack_room,
    refusal,
    unpack_new_voice,
)

log = structlog.get_logger()

# Between two states. Higher makes what the front knows of memory and queue older; lower takes the process more time.
_STATE_S: Final = 0.25

EXIT_OK: Final = 0
EXIT_FAILED: Final = 1

MakeEngine = Callable[[bytes, Progress], Engine]  # of the front's greeting


class FrontGone(Exception):
    """Nobody is left to work for: the process is to end as it is."""


async def serve_engine(end: socket.socket, make_engine: MakeEngine) -> int:
    """Returns the exit status. Raises FrontGone, and what building or starting the engine raises but EngineError."""
    service = EngineService(make_engine)
    await service.channel.open(end)
    running = asyncio.create_task(service.run())
    gone = asyncio.create_task(service.front_gone.wait())
    try:
        await asyncio.wait({running, gone}, return_when=asyncio.FIRST_COMPLETED)
        if not running.done():
            raise FrontGone
        status = running.result()
        service.channel.close()
        await gone  # until all has left
        return status
    finally:
        service.channel.close()
        running.cancel()
        gone.cancel()


class EngineService:
    def __init__(self, make_engine: MakeEngine) -> None:
        self._make_engine = make_engine
        self._loop = asyncio.get_running_loop()
        self.channel = Channel(self._take, on_end=self._end, on_full=self._hold)
        self.front_gone = asyncio.Event()
        self._greeting: asyncio.Future[bytes] = self._loop.create_future()
        self._engine: Engine | None = None  # once it runs
        self._is_closing = False
        self._writable = asyncio.Event()
        self._writable.set()
        self._utterances: dict[int, UtteranceId] = {}
        self._numbers: dict[UtteranceId, int] = {}
        self._reports: dict[UtteranceId, ListenerReport] = {}
        self._dictionaries: dict[int, Dictionary] = {}
        self._num_seen = 0
        self._told_room: tuple[int, int] | None = None
        self._is_room_due = False
        self._tasks: set[asyncio.Task[None]] = set()  # what takes time

    async def run(self) -> int:
        """Until the engine has ended; returns the exit status."""
        engine = self._make_engine(await self._greeting, ToldProgress(self._loop, self.channel))
        telling = asyncio.create_task(self._tell_states(engine))
        try:
            try:
                await engine.start()
            except EngineError as error:
                self.channel.send(Told.REFUSED, 0, str(error).encode())
                return EXIT_FAILED
            self._engine = engine
            self._tell_state(engine)
            self.channel.send(Told.READY, 0, msgspec.json.encode(engine.info))
            self._tell_room()
            await self._tell_events(engine)
        finally:
            telling.cancel()
        await engine.close()
        return EXIT_OK if self._is_closing else EXIT_FAILED

    # --- to the front -----------------------------------------------------------------------------------------

    async def _tell_events(self, engine: Engine) -> None:
        while True:
            await self._writable.wait()
            try:
                event = await engine.next_event()
            except EngineStopped:
                return
            self._tell(event)

    def _tell(self, event: EngineEvent) -> None:
        number = self._numbers[event.utterance_id]
        if isinstance(event, Done | Cancelled | Failed):
            self._forget(number)
            self._note_room()
        kind, body = pack_event(event)
        self.channel.send(kind, number, body)

    async def _tell_states(self, engine: Engine) -> None:
        """Also while it loads: signs of life."""
        while True:
            self._tell_state(engine)
            await asyncio.sleep(_STATE_S)

    def _tell_state(self, engine: Engine) -> None:
        if not self.channel.is_full:
            self._tell_room()
            state = State(engine.pulse, engine.unready_reason, engine.stats())
            self.channel.send(Told.STATE, 0, msgspec.json.encode(state))

    def _note_room(self) -> None:
        """It may have changed: told once for all that happens in this turn of the loop."""
        if not self._is_room_due:
            self._is_room_due = True
            self._loop.call_soon(self._tell_room)

    def _tell_room(self) -> None:
        self._is_room_due = False
        if self._engine is None:
            return
        room = (self._num_seen, self._engine.room)
        if room != self._told_room:
            self._told_room = room
            self.channel.send(Told.ROOM, 0, pack_room(*room))

    # --- from the front ---------------------------------------------------------------------------------------

    def _take(self, kind: int, number: int, body: bytes) -> None:
        command = Command(kind)
        if command is Command.GREETING:
            self._greeting.set_result(body)
            return
        assert self._engine is not None, "a front speaks to an engine that is ready"
        self._carry_out(self._engine, command, number, body)

    def _carry_out(self, engine: Engine, command: Command, number: int, body: bytes) -> None:
        utterance_id = self._utterances.get(number, UtteranceId(""))  # it may have ended: then calls are nothing
        match command:
            case Command.SUBMIT:
                self._submit(engine, number, msgspec.json.decode(body, type=Submission))
            case Command.PUSH:
                engine.push_text(utterance_id, body.decode())
            case Command.FLUSH:
                engine.flush_text(utterance_id, body.decode())
            case Command.END:
                engine.end_text(utterance_id)
            case Command.NOTE:
                self._note_listener(engine, utterance_id, msgspec.json.decode(body, type=ListenerReport))
            case Command.CANCEL:
                engine.cancel(utterance_id, msgspec.json.decode(body))
            case Command.DEFINE:
                self._dictionaries[number] = Dictionary(msgspec.json.decode(body))
            case Command.FORGET:
                del self._dictionaries[number]
            case Command.ADD_VOICE:
                self._begin(self._answer(number, self._add_voice(engine, body)))
            case Command.REMOVE_VOICE:
                self._begin(self._answer(number, engine.remove_voice(body.decode())))
            case Command.CLOSE:
                self._is_closing = True
                self._begin(engine.close())
            case Command.GREETING:
                raise AssertionError("once")
            case _:
                assert_never(command)

    def _submit(self, engine: Engine, number: int, submission: Submission) -> None:
        self._num_seen += 1
        dictionaries = tuple(self._dictionaries[each] for each in submission.dictionaries)
        request = replace(submission.request, dictionaries=dictionaries)
        self._utterances[number] = request.utterance_id
        self._numbers[request.utterance_id] = number
        self._note_room()
        try:
            engine.submit(request)
        except EngineError as error:  # what the front could not know yet
            self._tell(Failed(request.utterance_id, str(error)))
            return
        if self.channel.is_full:
            engine.note_listener(request.utterance_id, ListenerReport(is_playing=False))

    def _note_listener(self, engine: Engine, utterance_id: UtteranceId, report: ListenerReport) -> None:
        if utterance_id in self._numbers:
            self._reports[utterance_id] = report
        if not self.channel.is_full:
            engine.note_listener(utterance_id, report)

    def _hold(self, is_full: bool) -> None:
        """A front that does not read hears nothing, so nobody plays: the engine makes no more than their lead."""
        if is_full:
            self._writable.clear()
        else:
            self._writable.set()
        if self._engine is None:
            return
        for utterance_id in self._numbers:
            last = self._reports.get(utterance_id, ListenerReport())
            is_playing = last.is_playing and not is_full
            # What it had played was true when it was told.
            self._engine.note_listener(utterance_id, replace(last, played_ms=None, is_playing=is_playing))

    def _forget(self, number: int) -> None:
        utterance_id = self._utterances.pop(number)
        del self._numbers[utterance_id]
        self._reports.pop(utterance_id, None)

    def _begin(self, work: Coroutine[None, None, None]) -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _answer(self, number: int, work: Coroutine[None, None, VoiceInfo | None]) -> None:
        try:
            answer = Answer(await work)
        except EngineError as error:
            answer = refusal(error)
        except Exception as error:  # told to whoever asked: nobody else is concerned
            log.exception("voice_change_failed")
            answer = Answer(error=EngineError.__name__, message=f"{type(error).__name__}: {error}")
        self.channel.send(Told.ANSWER, number, msgspec.json.encode(answer))

    async def _add_voice(self, engine: Engine, body: bytes) -> VoiceInfo:
        voice, recording = unpack_new_voice(body)
        return await engine.add_voice(
            voice.name,
            recording,
            transcript=voice.transcript,
            description=voice.description,
            replace=voice.is_replacing,
        )

    def _end(self) -> None:
        self.front_gone.set()
        self._writable.set()


class ToldProgress:
    """Implements Progress, from the thread that loads."""

    def __init__(self, loop: asyncio.AbstractEventLoop, channel: Channel) -> None:
        self._loop = loop
        self._channel = channel

    def line(self, text: str) -> None:
        self._send(Told.LINE, text.encode())

    def share(self, part: str, num_done: int, num_steps: int) -> None:
        self._send(Told.SHARE, msgspec.json.encode(Share(part, num_done, num_steps)))

    def _send(self, kind: Told, body: bytes) -> None:
        with suppress(RuntimeError):  # the loop is gone
            self._loop.call_soon_threadsafe(self._channel.send, kind, 0, body)
