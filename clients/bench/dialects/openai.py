"""OpenAI's `POST /v1/audio/speech` as the bench speaks it: a request a turn, PCM as it comes, over one kept connection.

It takes whole texts alone, so what a writer writes is collected until its end. To interrupt is to hang up.
"""

import asyncio
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlsplit

import msgspec

from voicegate.clients.bench.dialects.conversation import (
    NO_ROOM_STATUSES,
    Chunk,
    Conversation,
    ConversationLost,
    Ended,
    pcm_chunk,
)
from voicegate.clients.bench.plan import Reader, Target, Turn
from voicegate.clients.python.address import path_beside
from voicegate.clients.python.errors import InvalidInput

_RATE_HZ: Final = 24_000
_TIMEOUT_S: Final = 15.0
_READ_BYTES: Final = 1 << 16
_PATH: Final = "/v1/audio/speech"
_ERROR_CHARS: Final = 200


@dataclass(frozen=True, slots=True)
class _Place:
    """Where requests go."""

    host: str
    port: int
    path: str


class OpenAiConversation:
    """Made by `connect`."""

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, place: _Place, target: Target
    ) -> None:
        self._reader = reader
        self._writer = writer
        self._place = place
        self._target = target
        self._turn = Turn(())
        self._text: list[str] = []
        self._num_left: int | None = None  # bytes of the chunk that is being read; None: before the response's head
        self._odd = b""
        self._is_last = False  # of the responses on this connection
        self._is_closed = False

    @property
    def is_spent(self) -> bool:
        return self._is_closed or self._is_last or self._reader.at_eof()

    async def begin(self, turn: Turn) -> None:
        self._turn, self._text, self._num_left, self._odd = turn, [], None, b""

    async def say(self, text: str) -> None:
        self._text.append(text)

    async def end(self) -> None:
        fields: dict[str, Any] = {"model": "tts-1", "input": "".join(self._text), "response_format": "pcm"}
        # Without these a server may answer with the whole file at once, or in events.
        fields |= {"stream": True, "stream_format": "audio"}
        body = msgspec.json.encode(fields | {"voice": self._turn.voice or self._target.voice or "alloy"})
        headers = {
            "Host": f"{self._place.host}:{self._place.port}",
            "Content-Type": "application/json",
            "Content-Length": str(len(body)),
            **self._target.headers,
        }
        lines = [f"POST {self._place.path} HTTP/1.1", *(f"{name}: {value}" for name, value in headers.items())]
        self._writer.write("\r\n".join([*lines, "", ""]).encode() + body)
        try:
            await self._writer.drain()
        except OSError as error:
            raise ConversationLost(f"the connection was lost: {error}") from error

    async def cancel(self, played_ms: int) -> bool:
        await self.close()
        return True

    async def receive(self) -> Chunk | Ended:
        try:
            if self._num_left is None and (failed := await self._read_head()) is not None:
                return failed
            while True:
                piece = await self._read_piece()
                if piece is None:
                    return Ended()
                samples = self._odd + piece
                self._odd = samples[len(samples) // 2 * 2 :]
                if len(samples) > 1:
                    return pcm_chunk(samples, _RATE_HZ)
        except (OSError, EOFError, ValueError) as error:
            self._is_closed = True
            raise ConversationLost(f"the connection was lost: {error}") from error

    async def close(self) -> None:
        self._is_closed = True
        self._writer.close()

    async def _read_head(self) -> Ended | None:
        """None: audio follows."""
        head = (await self._reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        status = int(head.split(maxsplit=2)[1])
        headers = dict(_header(line) for line in head.splitlines()[1:] if line)
        if headers.get("content-type", "").startswith("text/event-stream"):
            raise ValueError("the server answers in events, though asked for audio as it is")
        self._is_last = headers.get("connection") == "close"
        if headers.get("transfer-encoding", "") != "chunked":
            body = await self._reader.readexactly(int(headers.get("content-length", 0)))
        elif status != 200:
            self._num_left, pieces = 0, []
            while (piece := await self._read_piece()) is not None:
                pieces.append(piece)
            body = b"".join(pieces)
        else:
            self._num_left = 0
            return None
        message = f"HTTP {status}: {body.decode(errors='replace')[:_ERROR_CHARS]}"
        return Ended(is_refused=status in NO_ROOM_STATUSES, message=message)

    async def _read_piece(self) -> bytes | None:
        """Reads available bytes of the body, at least one; None at its end. Raises OSError, EOFError, ValueError."""
        assert self._num_left is not None
        if self._num_left == 0:
            self._num_left = int((await self._reader.readline()).split(b";")[0], 16)
            if self._num_left == 0:
                while (await self._reader.readline()).strip():
                    pass  # trailers
                return None
        piece = await self._reader.read(min(self._num_left, _READ_BYTES))
        if not piece:
            raise EOFError("the server hung up in the middle of a response")
        self._num_left -= len(piece)
        if self._num_left == 0:
            await self._reader.readexactly(2)
        return piece


async def connect(target: Target, reader: Reader) -> Conversation:
    """A slow reader's buffers are small. Raises ConversationLost."""
    place = _place(target.url)
    options = {"limit": 4096} if reader is Reader.SLOW else {}
    try:
        async with asyncio.timeout(_TIMEOUT_S):
            context = target.tls_for(target.url)
            streams = await asyncio.open_connection(place.host, place.port, ssl=context, **options)
    except (OSError, TimeoutError, InvalidInput) as error:
        raise ConversationLost(f"{target.url}: cannot connect ({str(error) or type(error).__name__})") from error
    return OpenAiConversation(*streams, place, target)


def _place(url: str) -> _Place:
    parts = urlsplit(url)
    is_secure = parts.scheme in ("https", "wss")
    if parts.scheme not in ("http", "https", "ws", "wss") or not parts.hostname:
        raise ConversationLost(f"{url!r} is no server's address; it looks like http://127.0.0.1:8080")
    # A base url of OpenAI's clients ends in /v1; a WebSocket's path is nothing to post to.
    path = parts.path.rstrip("/") if parts.path.endswith("/speech") else path_beside(url, _PATH)
    return _Place(parts.hostname, parts.port or (443 if is_secure else 80), path)


def _header(line: str) -> tuple[str, str]:
    name, _, value = line.partition(":")
    return name.strip().lower(), value.strip().lower()
