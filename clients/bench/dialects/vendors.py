"""Other vendors' WebSockets as the bench speaks them, each as its own clients do: 24 kHz PCM. Pure.

What the wire looks like: the vendors' documents; docs/compatibility.md says what of it this gateway takes. ElevenLabs,
Deepgram and Kyutai name the voice where they connect, so one voice speaks all turns.
"""

import base64
from collections.abc import Sequence
from typing import Any, Final
from urllib.parse import quote, urlsplit

import msgspec

from voicegate.clients.bench.dialects.conversation import Chunk, ConversationLost, Ended, pcm_chunk
from voicegate.clients.bench.dialects.websocket import Frame, speaking
from voicegate.clients.bench.plan import Target, Turn
from voicegate.clients.python.address import path_beside, stream_url
from voicegate.protocol.errors import ErrorCode, ProtocolViolation

_RATE_HZ: Final = 24_000
_LEAST_RATE_HZ: Final = 8_000
_MOST_RATE_HZ: Final = 192_000
# Where no voice was asked for, and the protocol wants one: a name that a server may know as its default.
_ANY_VOICE: Final = "default"
# Characters that ElevenLabs collects before it speaks: the least that it takes, which its own client asks for.
_CHUNK_LENGTHS: Final = [50]
_NO_ROOM_WORDS: Final = ("overloaded", "concurren", "rate_limit", "429", "no free channels", "too many")


def _url(target: Target, path: str, query: str) -> str:
    """`target`'s server, at the vendor's path unless it names one of its own. Raises InvalidInput."""
    parts = urlsplit(stream_url(target.url))
    own = urlsplit(target.url)
    chosen = path_beside(target.url, path) if own.path == "" or own.path.endswith("/") else own.path
    return parts._replace(path=chosen, query=own.query or query).geturl()


def _json(message: dict[str, Any]) -> str:
    return msgspec.json.encode(message).decode()


def _read(raw: Frame) -> dict[str, Any]:
    """Raises ProtocolViolation."""
    try:
        message = msgspec.json.decode(raw)
    except msgspec.DecodeError as error:
        raise ProtocolViolation(ErrorCode.BAD_MESSAGE, str(error)) from error
    if not isinstance(message, dict):
        raise ProtocolViolation(ErrorCode.BAD_MESSAGE, "a message is no object")
    return message


def _chunk(audio: object) -> Chunk:
    """Raises ProtocolViolation."""
    try:
        return pcm_chunk(base64.b64decode(msgspec.convert(audio, str)), _RATE_HZ)
    except ValueError as error:  # msgspec's and base64's are
        raise ProtocolViolation(ErrorCode.BAD_MESSAGE, f"a message's audio is no base64: {error}") from error


def _failed(message: object) -> Ended:
    text = str(message)
    return Ended(is_refused=any(word in text.lower() for word in _NO_ROOM_WORDS), message=text)


class _Phrases:
    """Where a protocol has nothing of its own: turn after turn on one socket, interrupted by hanging up."""

    is_spent = False
    is_cancel_answered = False

    def __init__(self, _target: Target, _greeting: Frame | None) -> None: ...

    def begin(self, turn: Turn) -> Sequence[Frame]:
        return []

    def cancel(self, played_ms: int) -> Sequence[Frame] | None:
        return None

    def hung_up(self) -> Ended | None:
        return None


class ElevenLabsPhrases(_Phrases):
    """multi-stream-input: a turn is a context. Interrupted by closing that, as pipecat's and LiveKit's clients do.

    Without `auto_mode`, which takes each message for a sentence: a writer's are words.
    """

    # `isFinal` comes after an interruption, but nobody waits for it.

    _num_turns = 0
    _context = ""

    def begin(self, turn: Turn) -> Sequence[Frame]:
        self._num_turns += 1
        self._context = f"t{self._num_turns}"
        opening = {"text": " ", "context_id": self._context}
        return [_json(opening | {"generation_config": {"chunk_length_schedule": _CHUNK_LENGTHS}})]

    def say(self, text: str) -> Sequence[Frame]:
        return [_json({"text": text, "context_id": self._context})]

    def end(self) -> Sequence[Frame]:
        return [_json({"context_id": self._context, "flush": True}), *self._close()]

    def cancel(self, played_ms: int) -> Sequence[Frame]:
        frames = self._close()
        self._context = ""  # what still comes of it is nobody's
        return frames

    def take(self, raw: Frame) -> Chunk | Ended | None:
        message = _read(raw)
        if not self._context or message.get("contextId", message.get("context_id")) != self._context:
            return None
        if message.get("error"):
            return _failed(message.get("message") or message["error"])
        if message.get("isFinal"):
            return Ended()
        audio = message.get("audio")
        return _chunk(audio) if audio else None

    def _close(self) -> list[Frame]:
        return [_json({"context_id": self._context, "close_context": True})]


class CartesiaPhrases(_Phrases):
    """/tts/websocket: a turn is a context."""

    # The vendor's own server says nothing more of what was interrupted.

    _num_turns = 0
    _context = ""

    def begin(self, turn: Turn) -> Sequence[Frame]:
        self._num_turns += 1
        self._context, self._voice = f"t{self._num_turns}", turn.voice or _ANY_VOICE
        # 0: each request is spoken by itself. A writer's are words, which the server is to put together as it does.
        self._buffering = {"max_buffer_delay_ms": 0} if turn.words_per_s is None else {}
        return []

    def say(self, text: str) -> Sequence[Frame]:
        return [self._request(text, goes_on=True)]

    def end(self) -> Sequence[Frame]:
        return [self._request("", goes_on=False)]

    def cancel(self, played_ms: int) -> Sequence[Frame]:
        frame = _json({"context_id": self._context, "cancel": True})
        self._context = ""  # what still comes of it is nobody's
        return [frame]

    def take(self, raw: Frame) -> Chunk | Ended | None:
        message = _read(raw)
        if not self._context or message.get("context_id") != self._context:
            return None
        match message.get("type"):
            case "chunk":
                return _chunk(message.get("data"))
            case "done":
                return Ended()
            case "error":
                return _failed(message.get("message") or message.get("title") or message)
            case _:
                return None

    def _request(self, text: str, *, goes_on: bool) -> str:
        message = {
            "context_id": self._context,
            "model_id": "sonic-3",
            "transcript": text,
            "voice": {"mode": "id", "id": self._voice},
            "output_format": {"container": "raw", "encoding": "pcm_s16le", "sample_rate": _RATE_HZ},
            "continue": goes_on,
            **self._buffering,
        }
        return _json(message)


class DeepgramPhrases(_Phrases):
    """/v1/speak: turns have no names; one ends with the answer to its flush."""

    is_cancel_answered = True
    _is_cancelling = False

    def begin(self, turn: Turn) -> Sequence[Frame]:
        self._is_cancelling = False
        return []

    def say(self, text: str) -> Sequence[Frame]:
        return [_json({"type": "Speak", "text": text})]

    def end(self) -> Sequence[Frame]:
        return [_json({"type": "Flush"})]

    def cancel(self, played_ms: int) -> Sequence[Frame]:
        self._is_cancelling = True
        return [_json({"type": "Clear"})]

    def take(self, raw: Frame) -> Chunk | Ended | None:
        if isinstance(raw, bytes):
            return pcm_chunk(raw, _RATE_HZ) if raw else None
        message = _read(raw)
        match message.get("type"):
            case "Flushed" if not self._is_cancelling:
                return Ended()
            case "Cleared":
                return Ended(is_cancelled=True)
            case "Warning" | "Error" as kind:
                self.is_spent = True  # as below
                told = message.get("warn_msg") or message.get("description") or message.get("err_msg") or message
                return _failed(f"{message.get('code') or message.get('warn_code') or kind}: {told}")
            case _:
                return None


def _rate_told(message: dict[str, Any]) -> int:
    """Raises ProtocolViolation."""
    if (format_ := message.get("format", "pcm")) != "pcm":
        raise ProtocolViolation(ErrorCode.BAD_MESSAGE, f"audio is {format_!r}, where pcm was asked for")
    rate_hz = message.get("sample_rate") or _RATE_HZ
    if not isinstance(rate_hz, int) or not _LEAST_RATE_HZ <= rate_hz <= _MOST_RATE_HZ:
        raise ProtocolViolation(ErrorCode.BAD_MESSAGE, f"a rate of samples is {rate_hz!r}")
    return rate_hz


class VllmOmniPhrases(_Phrases):
    """/v1/audio/speech/stream: utterance after utterance. It has no word for an interruption: one hangs up."""

    _rate_hz = _RATE_HZ

    def begin(self, turn: Turn) -> Sequence[Frame]:
        config = {"type": "session.config", "response_format": "pcm", "stream_audio": True, "split_granularity": "none"}
        return [_json(config | ({} if turn.voice is None else {"voice": turn.voice}))]

    def say(self, text: str) -> Sequence[Frame]:
        return [_json({"type": "input.text", "text": text})]

    def end(self) -> Sequence[Frame]:
        return [_json({"type": "input.done"})]

    def take(self, raw: Frame) -> Chunk | Ended | None:
        if isinstance(raw, bytes):
            return pcm_chunk(raw, self._rate_hz) if raw else None
        message = _read(raw)
        match message.get("type"):
            case "audio.start":
                self._rate_hz = _rate_told(message)
                return None
            case "session.done":
                return Ended()
            case "error":
                self.is_spent = True  # the turn's own end may follow, and would pass for the next one's
                return _failed(message.get("message") or message)
            case _:
                return None


class KyutaiPhrases(_Phrases):
    """/api/tts_streaming: one utterance a socket, whose audio ends where the server hangs up."""

    def begin(self, turn: Turn) -> Sequence[Frame]:
        self.is_spent = True
        return []

    def say(self, text: str) -> Sequence[Frame]:
        return [msgspec.msgpack.encode({"type": "Text", "text": text})]

    def end(self) -> Sequence[Frame]:
        return [msgspec.msgpack.encode({"type": "Eos"})]

    def take(self, raw: Frame) -> Chunk | Ended | None:
        """Raises ConversationLost for what the server complains of before a turn."""
        try:
            message = msgspec.msgpack.decode(raw, type=dict[str, Any]) if isinstance(raw, bytes) else {}
        except msgspec.DecodeError as error:
            raise ProtocolViolation(ErrorCode.BAD_MESSAGE, str(error)) from error
        match message.get("type"):
            case "Audio":
                samples = message.get("pcm")
                if not isinstance(samples, list):
                    raise ProtocolViolation(ErrorCode.BAD_MESSAGE, "a message of audio has no samples")
                return Chunk(len(samples) * 48_000 // _RATE_HZ)
            case "Error" if self.is_spent:
                return _failed(message.get("message"))
            case "Error":
                raise ConversationLost(str(message.get("message")))
            case _:
                return None

    def hung_up(self) -> Ended | None:
        return Ended()


elevenlabs = speaking(
    lambda target: _url(
        target,
        f"/v1/text-to-speech/{quote(target.voice or _ANY_VOICE, safe='')}/multi-stream-input",
        f"output_format=pcm_{_RATE_HZ}",
    ),
    ElevenLabsPhrases,
)
cartesia = speaking(lambda target: _url(target, "/tts/websocket", "cartesia_version=2026-03-01"), CartesiaPhrases)
deepgram = speaking(
    lambda target: _url(
        target,
        "/v1/speak",
        f"model={quote(target.voice or _ANY_VOICE, safe='')}&encoding=linear16&sample_rate={_RATE_HZ}",
    ),
    DeepgramPhrases,
)
vllm_omni = speaking(lambda target: _url(target, "/v1/audio/speech/stream", ""), VllmOmniPhrases)
kyutai = speaking(
    lambda target: _url(
        target, "/api/tts_streaming", f"format=PcmMessagePack&voice={quote(target.voice or _ANY_VOICE, safe='')}"
    ),
    KyutaiPhrases,
)
