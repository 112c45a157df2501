"""The I/O shell of one WebSocket: what is read becomes messages of its Conversation, whose output is written.

Its Translator knows what the peer speaks; here nobody does.
"""

import asyncio
from collections.abc import Sequence
from typing import Any, Final, assert_never

from websockets.exceptions import ConnectionClosed
from websockets.protocol import State

from voicegate.engine.interface import EngineInfo
from voicegate.gateway.server.bounded_socket import CLOSE_TIMEOUT_S, BoundedSocket, Trouble
from voicegate.gateway.server.conversation import Conversation, Services
from voicegate.gateway.server.translation import Translator
from voicegate.gateway.session.actions import Close
from voicegate.protocol.audio_message import AudioMessage
from voicegate.protocol.dialects.dialect import Hangup, Reply, Step
from voicegate.protocol.errors import CloseCode, ProtocolViolation
from voicegate.protocol.messages import ServerMessage

# Frames written in a row before other sockets have their turn.
_WRITES_PER_TURN: Final = 16


class Connection:
    def __init__(
        self,
        websocket: BoundedSocket,
        services: Services,
        info: EngineInfo,
        *,
        translator: Translator,
        tag: str | None = None,
    ) -> None:
        """`tag`: what the client calls itself in the log."""
        self._websocket = websocket
        self._translator = translator
        self.conversation = Conversation(services, info=info, owner=websocket.owner, tag=tag)

    async def run(self) -> None:
        """Returns when the socket is closed and its utterances are cancelled."""
        conversation, log = self.conversation, self.conversation.log
        log.info("socket opened", peer=str(self._websocket.remote_address), owner=self._websocket.owner.address)
        self._websocket.on_trouble = self._meet_trouble
        try:
            conversation.greet()
            async with asyncio.TaskGroup() as tasks:
                reader = tasks.create_task(self._read_all())
                writer = tasks.create_task(self._write_all())
                # Each of the two returns when the socket is closed, and only then.
                ends: set[asyncio.Future[Any]] = {reader, writer, conversation.verdict}
                await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
                reader.cancel()
                writer.cancel()
            if conversation.verdict.done():
                await self._close(conversation.verdict.result())
        except Exception:
            log.exception("socket failed")
            conversation.break_off()  # before the close, which may take its time
            await self._close(Close(CloseCode.OUR_FAULT, ""))
        finally:
            conversation.close()
            log.info("socket closed", code=int(self._websocket.close_code or 0))

    def abort(self) -> None:
        """Cut the socket without a word."""
        if self._websocket.state is not State.CLOSED:  # asyncio's transports cannot be aborted twice
            self._websocket.transport.abort()

    def _meet_trouble(self, trouble: Trouble) -> None:
        match trouble:
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
            try:
                raw = await self._websocket.recv()
            except ConnectionClosed:
                return
            self._take(raw)

    def _take(self, raw: str | bytes) -> None:
        try:
            steps = self._translator.hear(raw)
        except ProtocolViolation as violation:
            self.conversation.violation(violation)
        else:
            for step in steps:
                self._perform(step)

    def _perform(self, step: Step) -> None:
        match step:
            case Reply():
                self.conversation.say(step)
            case Hangup(code=code, reason=reason):
                self.conversation.say(Close(code, reason))
            case _:
                self.conversation.receive(step)

    # --- writing ------------------------------------------------------------------------------------------

    async def _write_all(self) -> None:
        num_written = 0
        while True:
            item = await self.conversation.next_output()
            if isinstance(item, Close):
                await self._close(item)
                return
            if not await self._write(item):
                return
            num_written += 1
            if num_written % _WRITES_PER_TURN == 0:
                await asyncio.sleep(0)  # gives way; nothing is waited for

    async def _write(self, item: ServerMessage | AudioMessage | Reply) -> bool:
        """Returns when the socket has taken what becomes of it; False when it is closed."""
        steps: Sequence[Step] = [item] if isinstance(item, Reply) else await self._translator.word(item)
        for step in steps:
            if not isinstance(step, Reply):
                self._perform(step)
            elif not await self._send(step.frame):
                return False
        return True

    async def _send(self, frame: str | bytes) -> bool:
        try:
            await self._websocket.write(frame)
        except ConnectionClosed:
            return False
        return True

    async def _close(self, close: Close) -> None:
        try:
            # websockets waits without limit for a peer that does not read, before it starts its own timeout.
            async with asyncio.timeout(CLOSE_TIMEOUT_S):
                await self._websocket.close(close.code, close.reason)
        except TimeoutError:
            self.abort()
