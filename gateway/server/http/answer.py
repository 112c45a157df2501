"""The answer to a request for speech, sent while it is made; a client that leaves is heard at once."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import aclosing
from http import HTTPStatus
from typing import Any

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from voicegate.gateway.server.conversations.conversation import Conversation
from voicegate.gateway.server.http.speech import Speech, SpeechFailed
from voicegate.protocol.dialects.one_shot import OneShot, Problem
from voicegate.protocol.messages import Open, SessionMessage


class Answer:
    """`headers`: of its vendor's own; `error` makes the response for a problem; `abort` cuts the connection."""

    def __init__(
        self,
        shot: OneShot,
        messages: Sequence[SessionMessage],
        conversation: Conversation,
        *,
        headers: Mapping[str, str],
        error: Callable[[Problem, HTTPStatus, str], Response],
        abort: Callable[[], None],
    ) -> None:
        self._shot = shot
        self._messages = messages
        self.conversation = conversation
        self._vendor_headers = headers
        self._error = error
        self.abort = abort
        self._is_broken_off = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        conversation = self.conversation
        streaming = asyncio.create_task(self._stream(scope, receive, send))
        leaving = asyncio.create_task(_until_gone(receive))
        try:
            ends: set[asyncio.Future[Any]] = {streaming, leaving, conversation.verdict}
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            if streaming.done():
                streaming.result()
            if self._is_broken_off or not streaming.done():
                conversation.close()  # before anything that may take its time
                self.abort()
                await leaving  # uvicorn complains of an answer without an end while the client is there
        finally:
            conversation.close()
            streaming.cancel()
            leaving.cancel()
            await asyncio.wait({streaming, leaving})
            conversation.log.info("request closed")

    async def _stream(self, scope: Scope, receive: Receive, send: Send) -> None:
        request_id = self.conversation.session_id
        speech = Speech(self._shot, self._messages, self.conversation)
        async with aclosing(speech.parts()) as parts:
            try:
                first = await anext(parts, b"")
            except SpeechFailed as failed:
                await self._error(failed.problem, failed.problem.status, request_id)(scope, receive, send)
                return
            await send({"type": "http.response.start", "status": HTTPStatus.OK, "headers": self._headers()})
            await self._send_part(send, first)
            try:
                async for part in parts:
                    await self._send_part(send, part)
            except SpeechFailed as failed:
                last = self._shot.framing.failure(failed.problem)
                if last is None:
                    self._is_broken_off = True
                    return
                await self._send_part(send, last)
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _send_part(self, send: Send, part: bytes) -> None:
        """Returns when the connection has room for more."""
        self.conversation.hold_up(True)
        await send({"type": "http.response.body", "body": part, "more_body": True})
        self.conversation.hold_up(False)

    def _headers(self) -> list[tuple[bytes, bytes]]:
        opening = self._messages[0]
        assert isinstance(opening, Open)
        headers = {
            "content-type": self._shot.framing.content_type,
            "cache-control": "no-store",
            "x-accel-buffering": "no",  # of a proxy, that it is to pass on what comes as it comes
            "x-sample-rate": str(self._shot.output.rate_hz),
            "x-voice": opening.voice or "",
            "character-cost": str(len(self._shot.text)),
            "dg-char-count": str(len(self._shot.text)),  # Deepgram's name for it
            **self._vendor_headers,
        }
        voice = headers["x-voice"]
        headers |= {"dg-model-name": voice, "dg-model-uuid": voice}  # there a model is a voice
        return [(name.encode(), value.encode("utf-8")) for name, value in headers.items()]


async def _until_gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
