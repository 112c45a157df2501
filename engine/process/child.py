"""An engine process's own side: does what its front says with an engine, and tells what comes of it.

It does not know what engine that is. The front's end of the channel is its life: when that goes, so does the process.
"""

import asyncio
import socket
from collections.abc import Callable
from contextlib import suppress
from typing import Final

import msgspec

from voicegate.engine.interface import Engine, EngineError, EngineStopped
from voicegate.engine.load.progress import Progress
from voicegate.engine.process.channel import Channel
from voicegate.engine.process.commands import Commands
from voicegate.engine.process.wire import Command, State, Told, pack_state

# Between two states. Higher makes what the front knows of memory and queue older; lower takes the process more time.
_STATE_S: Final = 0.25

EXIT_OK: Final = 0
EXIT_FAILED: Final = 1

MakeEngine = Callable[[bytes, Progress], Engine]  # of the front's greeting


class FrontGone(Exception):
    """Nobody is left to work for: the process is to end as it is."""


async def serve_engine(end: socket.socket, make_engine: MakeEngine) -> int:
    """Returns the exit status. Raises FrontGone; what goes wrong but EngineError, as an ExceptionGroup."""
    service = _Child(make_engine)
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


class _Child:
    def __init__(self, make_engine: MakeEngine) -> None:
        self._make_engine = make_engine
        self._loop = asyncio.get_running_loop()
        self.front_gone = asyncio.Event()
        self.channel = Channel(self._take, on_end=self.front_gone.set, on_full=self._note_full)
        self._greeting: asyncio.Future[bytes] = self._loop.create_future()
        self._commands: Commands | None = None  # once the engine runs
        self._is_closing = False
        self._told_room: tuple[int, int] | None = None
        self._is_room_due = False

    async def run(self) -> int:
        """Until the engine has ended; returns the exit status."""
        engine = self._make_engine(await self._greeting, ToldProgress(self._loop, self.channel))
        async with asyncio.TaskGroup() as tasks:
            telling = tasks.create_task(self._tell_states(engine))
            has_started = await self._start(engine)
            if has_started:
                self._commands = Commands(engine, self.channel, on_room=self._note_room)
                self._tell_state(engine)
                self.channel.send(Told.READY, 0, msgspec.json.encode(engine.info))
                await self._tell_events(engine, self._commands)
            telling.cancel()
        await engine.close()
        return EXIT_OK if self._is_closing else EXIT_FAILED

    async def _start(self, engine: Engine) -> bool:
        try:
            await engine.start()
        except EngineError as error:
            self.channel.send(Told.REFUSED, 0, str(error).encode())
            return False
        return True

    # --- to the front -----------------------------------------------------------------------------------------

    async def _tell_events(self, engine: Engine, commands: Commands) -> None:
        while True:
            await self.channel.writable.wait()
            try:
                event = await engine.next_event()
            except EngineStopped:
                return
            commands.tell(event)

    async def _tell_states(self, engine: Engine) -> None:
        """Also while it loads: signs of life."""
        while True:
            self._tell_state(engine)
            await asyncio.sleep(_STATE_S)

    def _tell_state(self, engine: Engine) -> None:
        if not self.channel.is_full:
            self._tell_room()
            state = State(engine.pulse, engine.unready_reason, engine.stats())
            self.channel.send(Told.STATE, 0, pack_state(state))

    def _note_room(self) -> None:
        """It may have changed: told once for all that happens in this turn of the loop."""
        if not self._is_room_due:
            self._is_room_due = True
            self._loop.call_soon(self._tell_room)

    def _tell_room(self) -> None:
        self._is_room_due = False
        if self._commands is None:
            return
        room = (self._commands.num_seen, self._commands.room)
        if room != self._told_room:
            self._told_room = room
            self.channel.send(Told.ROOM, 0, msgspec.json.encode(room))

    # --- from the front ---------------------------------------------------------------------------------------

    def _take(self, kind: int, number: int, body: bytes) -> None:
        command = Command(kind)
        if command is Command.GREETING:
            self._greeting.set_result(body)
            return
        assert self._commands is not None, "a front speaks to an engine that is ready"
        self._is_closing |= command is Command.CLOSE
        self._commands.carry_out(command, number, body)

    def _note_full(self, is_full: bool) -> None:
        if self._commands is not None:
            self._commands.hold(is_full)


class ToldProgress:
    """Implements Progress, from the thread that loads."""

    def __init__(self, loop: asyncio.AbstractEventLoop, channel: Channel) -> None:
        self._loop = loop
        self._channel = channel

    def line(self, text: str) -> None:
        self._send(Told.LINE, text.encode())

    def share(self, part: str, num_done: int, num_steps: int) -> None:
        self._send(Told.SHARE, msgspec.json.encode((part, num_done, num_steps)))

    def _send(self, kind: Told, body: bytes) -> None:
        with suppress(RuntimeError):  # the loop is gone
            self._loop.call_soon_threadsafe(self._channel.send, kind, 0, body)
