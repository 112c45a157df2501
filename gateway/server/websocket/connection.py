"""The I/O shell of one WebSocket: what is read becomes messages of a Conversation, whose output is written.

Its Translator knows what the peer speaks; here no one does. A client that comes back has its old binding moved here.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, assert_never

from websockets.exceptions import ConnectionClosed

from voicegate.gateway.server.conversations.binding import Binding
from voicegate.gateway.server.conversations.conversation import Conversation
from voicegate.gateway.server.conversations.resumption import Resumption
from voicegate.gateway.server.websocket.bounded_socket import BoundedSocket, Trouble
from voicegate.gateway.session.actions import Close
from voicegate.gateway.session.continuity import CannotResume
from voicegate.protocol import codec
from voicegate.protocol import messages as wire
from voicegate.protocol.audio_message import AudioMessage
from voicegate.protocol.dialects.dialect import Effect, Hangup, Reply
from voicegate.protocol.errors import CloseCode, ErrorCode, ProtocolViolation
from voicegate.protocol.messages import ServerMessage

# Frames written in a row before other sockets have their turn.
_WRITES_PER_TURN: Final = 16


@dataclass(frozen=True, slots=True)
class _DirectTaker:
    websocket: BoundedSocket
    frame_of: Callable[[ServerMessage | AudioMessage], str | bytes]

    @property
    def takes_at_once(self) -> bool:
        return self.websocket.takes_at_once

    def take(self, output: ServerMessage | AudioMessage) -> None:
        self.websocket.write_at_once(self.frame_of(output))


class Connection:
    def __init__(self, websocket: BoundedSocket, binding: Binding, resumption: Resumption) -> None:
        self._websocket = websocket
        self._resumption = resumption
        self._binding = binding
        self._is_dismissed = False
        self._num_written = 0
        self._tasks: list[asyncio.Task[None]] = []
        self._is_reader_idle = False
        binding.carrier = self

    @property
    def conversation(self) -> Conversation:
        return self._binding.conversation

    async def run(self) -> None:
        """Returns when the socket is closed and its utterances are cancelled, or wait for its client to come back."""
        log = self.conversation.log
        log.info("socket opened", peer=self._websocket.peer, owner=self._websocket.owner.address)
        self._websocket.on_trouble = self._meet_trouble
        self._websocket.on_held_up = lambda is_held_up: self.conversation.hold_up(is_held_up)
        self._websocket.on_text = self._take_at_once
        try:
            self._write_at_once_for(self._binding)
            self.conversation.greet()
            await self._read_and_write()
            if self._is_dismissed:
                await self._websocket.close(CloseCode.POLICY, ErrorCode.TAKEN_OVER.value)
            elif self.conversation.verdict.done():
                verdict = self.conversation.verdict.result()
                await self._websocket.close(verdict.code, verdict.reason)
        except Exception:
            log.exception("socket failed")
            if not self._is_dismissed:
                self.conversation.break_off()  # before the close, which may take its time
            await self._websocket.close(CloseCode.OUR_FAULT)
        finally:
            self._leave()
            log.info("socket closed", code=int(self._websocket.close_code or 0))

    async def _read_and_write(self) -> None:
        """Returns when one of the two does, which is when the socket is closed, or when it is to be."""
        async with asyncio.TaskGroup() as tasks:
            reader = tasks.create_task(self._read_all())
            writer = tasks.create_task(self._write_all(self._binding))
            self._tasks = [reader, writer]
            binding = None
            while binding is not self._binding:  # it ends for this socket where another comes in its place
                binding = self._binding
                ends: set[asyncio.Future[Any]] = {reader, writer, binding.conversation.verdict}
                await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            reader.cancel()
            writer.cancel()

    def _leave(self) -> None:
        if self._is_dismissed:
            return
        self._let_go()
        if self._websocket.was_dropped:
            self._resumption.part(self._binding)
        else:
            self._resumption.end(self._binding)

    def _let_go(self) -> None:
        self._websocket.on_held_up = lambda _: None
        self._websocket.on_text = lambda _: False
        self.conversation.taker = None

    def dismiss(self) -> None:
        """Its client is on another socket."""
        self._is_dismissed = True
        self._websocket.on_trouble = lambda _: self.abort()
        self._websocket.on_held_up(False)
        self._let_go()
        for task in self._tasks:
            task.cancel()

    def abort(self) -> None:
        """Cut the socket without a word."""
        self._websocket.abort()

    def _meet_trouble(self, trouble: Trouble) -> None:
        match trouble:
            case Trouble.STALLED if self._is_dismissed or self._resumption.may_wait_for(self._binding):
                self.conversation.log.warning("socket cut: it took nothing for too long")
                self.abort()
            case Trouble.STALLED:
                self.conversation.give_up()
            case Trouble.OVER_RATE:
                self.conversation.over_rate()
            case Trouble.FLOODED:
                self.conversation.flooded()
            case _:
                assert_never(trouble)

    # --- reading ------------------------------------------------------------------------------------------

    async def _read_all(self) -> None:
        while True:
            await self.conversation.wait_for_room()
            self._is_reader_idle = True
            try:
                raw = await self._websocket.recv()
            except ConnectionClosed:
                return
            finally:
                self._is_reader_idle = False
            self._take(raw)

    def _take_at_once(self, text: str) -> bool:
        """While the reader waits for nothing else, its work is done where the message was read."""
        if not self._is_reader_idle or not self.conversation.has_room:
            return False
        try:
            self._take(text)
        except Exception:
            self.conversation.log.exception("socket failed")
            self.conversation.break_off()
        return True

    def _take(self, raw: str | bytes) -> None:
        try:
            effects = self._binding.translator.hear(raw)
        except ProtocolViolation as violation:
            self.conversation.violation(violation)
        else:
            for effect in effects:
                self._perform(effect)

    def _perform(self, effect: Effect) -> None:
        match effect:
            case Reply():
                self.conversation.say(effect)
            case Hangup(code=code, reason=reason):
                self.conversation.say(Close(code, reason))
            case wire.Resume():
                self._resume(effect)
            case wire.Ack():
                pass  # the translator's, who needs no answer
            case _:
                self.conversation.receive(effect)

    def _resume(self, message: wire.Resume) -> None:
        """Sends what was said on this socket so far, then the answer, then what the other session has to say."""
        own = self._binding
        if own.continuity is None:
            reason = "this server does not resume sessions; open the contexts again"
            own.conversation.violation(ProtocolViolation(ErrorCode.UNSUPPORTED, reason))
        elif not own.continuity.is_untouched:
            reason = "resume is possible only as the first message of a socket"
            own.conversation.violation(ProtocolViolation(ErrorCode.ILLEGAL_IN_STATE, reason))
        else:
            try:
                self._binding, resumed = self._resumption.resume(message, own.conversation.owner, self)
            except CannotResume as error:
                own.conversation.violation(ProtocolViolation(ErrorCode.CANNOT_RESUME, str(error)))
                return
            self.conversation.log.info("session resumed", socket=own.session_id, received=message.received)
            own.conversation.say(Reply(codec.encode(resumed)))
            self._resumption.end(own)

    # --- writing ------------------------------------------------------------------------------------------

    async def _write_all(self, binding: Binding) -> None:
        """`binding`: the socket's own, though another may have been asked for before this runs: it has the answer."""
        while True:
            if binding is not self._binding and not binding.conversation.has_answers:
                binding = self._binding
                if not await self._write_owed(binding):
                    return
                self._write_at_once_for(binding)
            item = await binding.conversation.next_output()
            if isinstance(item, Close):
                await self._websocket.close(item.code, item.reason)
                return
            if not await self._write(binding, item):
                return

    def _write_at_once_for(self, binding: Binding) -> None:
        """From here on, what its engine makes while nothing else waits."""
        frame_of = binding.translator.frame_of
        if frame_of is not None:
            binding.conversation.taker = _DirectTaker(self._websocket, frame_of)

    async def _write_owed(self, binding: Binding) -> bool:
        """Sends again what an earlier socket of this session was sent; False when this one is closed."""
        assert binding.continuity is not None, "only those with one are resumed"
        while (frame := binding.continuity.take_owed()) is not None:
            if not await self._send(frame):
                return False
        return True

    async def _write(self, binding: Binding, item: ServerMessage | AudioMessage | Reply) -> bool:
        """Returns when the socket has taken what becomes of it; False when it is closed."""
        effects: Sequence[Effect] = [item] if isinstance(item, Reply) else await binding.translator.word(item)
        # First, as the translator takes them for done: while replies are sent, it may hear more of the client, which
        # builds on them. What they are answered by waits its turn behind these replies.
        for effect in effects:
            if not isinstance(effect, Reply):
                self._perform(effect)
        for effect in effects:
            if isinstance(effect, Reply) and not await self._send(effect.frame):
                return False
        return True

    async def _send(self, frame: str | bytes) -> bool:
        try:
            await self._websocket.write(frame)
        except ConnectionClosed:
            return False
        self._num_written += 1
        if self._num_written % _WRITES_PER_TURN == 0:
            await asyncio.sleep(0)  # gives way; nothing is waited for
        return True
