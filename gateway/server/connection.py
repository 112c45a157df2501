"""The I/O shell of one socket: read -> Session -> perform, and one writer of what is to go out."""

import asyncio
import secrets
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Final, assert_never

from websockets.exceptions import ConnectionClosed
from websockets.protocol import State

from voicegate.engine.interface import (
    Engine,
    EngineError,
    EngineEvent,
    EngineInfo,
    EngineStopped,
    UtteranceRequest,
)
from voicegate.gateway.logs import get_logger
from voicegate.gateway.server.admission import Admission
from voicegate.gateway.server.bounded_socket import CLOSE_TIMEOUT_S, BoundedSocket, Trouble
from voicegate.gateway.server.dispatch import Dispatcher
from voicegate.gateway.server.outgoing import Outgoing
from voicegate.gateway.session.actions import (
    Action,
    CancelUtterance,
    Close,
    EndText,
    FlushText,
    PushText,
    Send,
    SendAudio,
    Submit,
    Withdraw,
)
from voicegate.gateway.session.opening import SessionLimits
from voicegate.gateway.session.quota import Quotas
from voicegate.gateway.session.session import Session
from voicegate.protocol import audio_message, codec
from voicegate.protocol import messages as wire
from voicegate.protocol.errors import CloseCode, ErrorCode, ProtocolViolation
from voicegate.protocol.messages import ServerMessage

# Frames written in a row before other sockets have their turn.
_WRITES_PER_TURN: Final = 16


class Connection:
    def __init__(
        self,
        websocket: BoundedSocket,
        *,
        engine: Engine,
        info: EngineInfo,
        dispatcher: Dispatcher,
        admission: Admission,
        limits: SessionLimits,
        quotas: Quotas,
    ) -> None:
        self._websocket = websocket
        self._engine = engine
        self._dispatcher = dispatcher
        self._admission = admission
        session_id = secrets.token_hex(8)
        self._session = Session(session_id=session_id, info=info, limits=limits, quotas=quotas, owner=websocket.owner)
        self._loop = asyncio.get_running_loop()
        self._deadline: asyncio.TimerHandle | None = None
        self._sending: asyncio.TimerHandle | None = None
        self._outgoing = Outgoing()
        # How it ends, whatever is still to be read or written.
        self._verdict: asyncio.Future[Close] = self._loop.create_future()
        self._is_over = False
        self._log = get_logger(__name__).bind(session=session_id)

    # --- called by the server and the dispatcher ----------------------------------------------------------

    @property
    def num_contexts(self) -> int:
        return len(self._session.contexts)

    async def run(self) -> None:
        """Returns when the socket is closed and its utterances are cancelled."""
        self._log.info("socket opened", peer=str(self._websocket.remote_address), owner=self._websocket.owner)
        self._websocket.on_trouble = self._meet_trouble
        try:
            self._perform(self._session.greet())
            async with asyncio.TaskGroup() as tasks:
                reader = tasks.create_task(self._read_all())
                writer = tasks.create_task(self._write_all())
                # Each of the two returns when the socket is closed, and only then.
                ends: set[asyncio.Future[Any]] = {reader, writer, self._verdict}
                await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
                reader.cancel()
                writer.cancel()
            if self._verdict.done():
                await self._close(self._verdict.result())
        except Exception:  # noqa: BLE001 - the root of this socket's tasks: its trouble ends this socket only
            self._log.exception("socket failed")
            self._outgoing.drop_answers()
            self._perform(self._session.disconnected())  # before the close, which may take its time
            await self._close(Close(CloseCode.OUR_FAULT, ""))
        finally:
            self._is_over = True
            self._outgoing.drop_events()
            self._perform(self._session.disconnected())
            for timer in (self._deadline, self._sending):
                if timer is not None:
                    timer.cancel()
            self._log.info("socket closed", code=int(self._websocket.close_code or 0))

    def deliver(self, event: EngineEvent) -> None:
        """Take an engine event; it reaches the session when the socket has room. Returns at once."""
        if self._is_over:
            return
        self._outgoing.put_event(event)
        if self._outgoing.is_too_much:
            self._give_up()

    def drain(self, deadline_ms: int) -> None:
        self._react(lambda: self._session.drain(deadline_ms))

    def drain_deadline(self) -> None:
        self._react(self._session.drain_deadline)

    def engine_stopped(self) -> None:
        self._react(self._session.engine_stopped)

    def abort(self) -> None:
        """Cut the socket without a word."""
        if self._websocket.state is not State.CLOSED:  # asyncio's transports cannot be aborted twice
            self._websocket.transport.abort()

    # --- trouble with the peer ----------------------------------------------------------------------------

    def _meet_trouble(self, trouble: Trouble) -> None:
        match trouble:
            case Trouble.STALLED:
                self._give_up()
            case Trouble.OVER_RATE:
                self._log.warning("too many messages")
                self._react(self._session.over_rate)
            case Trouble.FLOODED:
                self._react(self._session.flooded)
            case _:
                assert_never(trouble)

    def _give_up(self) -> None:
        """Nothing reaches the peer any more: its contexts end now, and what waits for it is dropped."""
        if self._verdict.done():
            return
        self._log.warning(
            "slow consumer", waiting_bytes=self._outgoing.num_audio_bytes, socket_bytes=self._websocket.num_held_bytes
        )
        self._outgoing.drop_events()
        self._react(self._session.slow_consumer)
        self._end_with(Close(CloseCode.POLICY, ErrorCode.SLOW_CONSUMER.value))

    def _end_with(self, close: Close) -> None:
        if not self._verdict.done():
            self._verdict.set_result(close)

    # --- reading ------------------------------------------------------------------------------------------

    async def _read_all(self) -> None:
        while True:
            await self._outgoing.wait_for_room()
            try:
                raw = await self._websocket.recv()
            except ConnectionClosed:
                return
            self._perform(self._actions_for(raw))
            self._watch_deadline()
            self._watch_sending()

    def _actions_for(self, raw: str | bytes) -> Sequence[Action]:
        try:
            if isinstance(raw, bytes):
                raise ProtocolViolation(ErrorCode.BAD_MESSAGE, "a client sends text messages only")
            message = codec.decode_client(raw)
            if isinstance(message, wire.Open):
                with suppress(EngineStopped):  # the dispatcher will say so
                    self._session.learn(self._engine.info)
        except ProtocolViolation as violation:
            return self._session.violation(violation)
        return self._session.receive(message, self._loop.time())

    def _watch_sending(self) -> None:
        """For contexts whose audio leaves in time with their listeners."""
        due_s = self._session.next_send_s
        if self._sending is not None and due_s != self._sending.when():
            self._sending.cancel()
            self._sending = None
        if due_s is not None and self._sending is None:
            self._sending = self._loop.call_at(due_s, self._meet_sending)

    def _meet_sending(self) -> None:
        self._sending = None  # a loop's timer may be early by its grain, and is set anew then
        self._outgoing.look_again()

    def _watch_deadline(self) -> None:
        if self._deadline is None and (due_s := self._session.next_deadline_s) is not None:
            self._deadline = self._loop.call_at(due_s, self._meet_deadline)

    def _meet_deadline(self) -> None:
        self._deadline = None
        self._react(lambda: self._session.on_deadline(self._loop.time()))
        self._watch_deadline()

    # --- performing ---------------------------------------------------------------------------------------

    def _react(self, step: Callable[[], Sequence[Action]]) -> None:
        """To what others tell this socket: they must not suffer from its trouble."""
        try:
            self._perform(step())
        except Exception:  # noqa: BLE001 - as in `run`
            self._log.exception("socket failed")
            self._end_with(Close(CloseCode.OUR_FAULT, ""))

    def _perform(self, actions: Sequence[Action]) -> None:
        for action in actions:
            match action:
                case Send(message=message):
                    self._log_end(message)
                    self._outgoing.put(codec.encode(message))
                case SendAudio(message=audio):
                    self._outgoing.put(audio_message.pack(audio))
                case Submit(request=request):
                    self._submit(request)
                case Withdraw(utterance_id=utterance_id):
                    self._admission.withdraw(utterance_id)
                case PushText(utterance_id=utterance_id, text=text):
                    self._engine.push_text(utterance_id, text)
                case FlushText(utterance_id=utterance_id, flush_id=flush_id):
                    self._engine.flush_text(utterance_id, flush_id)
                case EndText(utterance_id=utterance_id):
                    self._engine.end_text(utterance_id)
                case CancelUtterance(utterance_id=utterance_id, played_ms=played_ms):
                    self._engine.cancel(utterance_id, played_ms)
                case Close():
                    self._outgoing.put(action)
                case _:
                    assert_never(action)

    def _submit(self, request: UtteranceRequest) -> None:
        utterance_id = request.utterance_id

        def answer(error: EngineError | None) -> None:
            if error is None:
                self._dispatcher.claim(utterance_id, self.deliver)
                self._react(lambda: self._session.submitted(utterance_id, self._loop.time()))
            else:
                self._react(lambda: self._session.refused(utterance_id, error))

        self._admission.submit(request, answer)

    def _log_end(self, message: ServerMessage) -> None:
        match message:
            case wire.Done(context=context, audio_ms=audio_ms, timing=timing):
                truncated = message.truncated is True
                self._log.info(
                    "context done", context=context, audio_ms=audio_ms, ttfb_ms=timing.ttfb_ms, truncated=truncated
                )
            case wire.Cancelled(context=context, audio_ms=audio_ms):
                self._log.info("context cancelled", context=context, audio_ms=audio_ms)
            case wire.Error(code=code, context=str(context)) if message.fatal:
                level = "warning" if code == ErrorCode.ENGINE_FAILED.value else "info"
                getattr(self._log, level)("context refused or failed", context=context, code=code)
            case _:
                pass

    # --- writing ------------------------------------------------------------------------------------------

    async def _write_all(self) -> None:
        num_written = 0
        while True:
            item = await self._next_output()
            if isinstance(item, Close):
                await self._close(item)
                return
            if not await self._write(item):
                return
            num_written += 1
            if num_written % _WRITES_PER_TURN == 0:
                await asyncio.sleep(0)  # gives way; nothing is waited for

    async def _next_output(self) -> str | bytes | Close:
        while (item := self._outgoing.take()) is None:
            if (event := self._outgoing.take_event()) is not None:
                self._perform(self._session.engine_event(event, self._loop.time()))
            elif (due_s := self._session.next_send_s) is not None and due_s <= self._loop.time():
                self._perform(self._session.on_send_due(self._loop.time()))
            else:
                self._watch_sending()
                await self._outgoing.wait_for_news()
        return item

    async def _write(self, frame: str | bytes) -> bool:
        """Returns when the socket has taken it; False when it is closed."""
        try:
            await self._websocket.send(frame)
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
