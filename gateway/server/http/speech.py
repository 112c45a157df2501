"""One request's speech: a conversation of one context, encoded as it comes. It must not know HTTP or vendors."""

from collections.abc import AsyncGenerator, Sequence
from typing import assert_never

from msgspec import UNSET

from voicegate.gateway.formats.encoder import StreamEncoder
from voicegate.gateway.server.conversations.conversation import Conversation
from voicegate.gateway.server.conversations.encoding import encoded
from voicegate.gateway.session.actions import Close
from voicegate.protocol import messages as wire
from voicegate.protocol.audio_message import AudioMessage
from voicegate.protocol.dialects.dialect import Reply
from voicegate.protocol.dialects.one_shot import OneShot, Problem
from voicegate.protocol.errors import ErrorCode
from voicegate.protocol.messages import SessionMessage


class SpeechFailed(Exception):
    def __init__(self, problem: Problem) -> None:
        super().__init__(problem.message)
        self.problem = problem


class Speech:
    """`messages`: what a native client would send for `shot`."""

    def __init__(self, shot: OneShot, messages: Sequence[SessionMessage], conversation: Conversation) -> None:
        self._shot = shot
        self._messages = messages
        self._conversation = conversation
        self._encoder: StreamEncoder | None = None

    async def parts(self) -> AsyncGenerator[bytes]:
        """Parts of the answer's body, as they are made; the first once there is audio or the end. Raises
        SpeechFailed."""
        for message in self._messages:
            self._conversation.receive(message)
        while True:
            item = await self._conversation.next_output()
            match item:
                case AudioMessage():
                    data = await self._encode(item)
                    if data:
                        yield self._shot.framing.audio(data)
                case wire.Done():
                    if end := self._shot.framing.end(item):
                        yield end
                    return
                case wire.Opened(pre_skip=pre_skip):
                    self._encoder = StreamEncoder(self._shot.output, pre_skip_48k=pre_skip, is_file=True)
                case wire.Alignment(items=items):
                    if words := self._shot.framing.words(items):
                        yield words
                case wire.Error():
                    raise SpeechFailed(_problem(item))
                case wire.Cancelled() | Close():
                    raise SpeechFailed(Problem(ErrorCode.ENGINE_FAILED, "the speech was broken off"))
                case (
                    wire.Ready()
                    | wire.Flushed()
                    | wire.Draining()
                    | wire.Pong()
                    | wire.Ack()
                    | wire.Resumed()
                    | Reply()
                ):
                    pass  # nothing that an answer has a word for
                case _:
                    assert_never(item)

    async def _encode(self, message: AudioMessage) -> bytes:
        encoder = self._encoder
        assert encoder is not None, "audio comes after `opened`"
        return await encoded(encoder, self._shot.output, message)


def _problem(error: wire.Error) -> Problem:
    retry_after_ms = None if error.retry_after_ms is UNSET else error.retry_after_ms
    return Problem(ErrorCode(error.code), error.message, retry_after_ms)
