"""Messages between a front and its engine processes: frames over a pair of sockets. Pure.

frame     length of the body (4 bytes), kind (1), number of an utterance, a dictionary or a question (4), body
to        GREETING: whatever the process takes for one · SUBMIT: JSON of Submission · PUSH, FLUSH: UTF-8 · NOTE, CANCEL:
          JSON · END, FORGET, CLOSE: nothing · DEFINE: JSON of a dictionary's entries · RECORDING: a part of a
          file, or nothing: drop it · ADD_VOICE: JSON of NewVoice without the recording, which came before ·
          REMOVE_VOICE: UTF-8
from      READY: JSON of EngineInfo · REFUSED, LINE: UTF-8 · SHARE: JSON of part, number done, number of steps · STATE:
          JSON of State · ROOM: JSON of submits seen, room · AUDIO: pts (8), how many packets (2), their lengths
          (2 each), they · other events, ANSWER: JSON
"""

import struct
from collections.abc import Iterator, Mapping
from enum import IntEnum
from itertools import accumulate, pairwise
from typing import Final

import msgspec

from voicegate.engine.interface import (
    Alignment,
    AtRest,
    AudioReady,
    BadRequest,
    Cancelled,
    Done,
    EngineError,
    EngineEvent,
    EngineStats,
    EngineStopped,
    Failed,
    Flushed,
    Overloaded,
    UnknownVoice,
    Unsupported,
    UtteranceId,
    UtteranceRequest,
    VoiceConflict,
    VoiceInfo,
    VoiceRefused,
)

_HEADER: Final = struct.Struct("<IBI")
_AUDIO: Final = struct.Struct("<qH")

# Above what a text or a dictionary may be; more is no frame of ours.
_MAX_BODY_BYTES: Final = 64 << 20


class WireError(Exception):
    """Received bytes are no frame."""


class Command(IntEnum):
    GREETING = 0
    SUBMIT = 1
    PUSH = 2
    FLUSH = 3
    END = 4
    NOTE = 5
    CANCEL = 6
    DEFINE = 7
    FORGET = 8
    RECORDING = 9
    ADD_VOICE = 10
    REMOVE_VOICE = 11
    CLOSE = 12


class Told(IntEnum):
    READY = 0
    REFUSED = 1
    LINE = 2
    SHARE = 3
    STATE = 4
    ROOM = 5
    ANSWER = 6
    AUDIO = 7
    ALIGNMENT = 8
    FLUSHED = 9
    DONE = 10
    CANCELLED = 11
    FAILED = 12
    AT_REST = 13


class Submission(msgspec.Struct, frozen=True):
    request: UtteranceRequest  # without its dictionaries
    dictionaries: tuple[int, ...]  # as they were defined


class State(msgspec.Struct, frozen=True):
    """State of an engine, told several times a second."""

    pulse: int | None = None
    unready_reason: str | None = None
    stats: EngineStats = EngineStats()


class Answer(msgspec.Struct, frozen=True):
    """To ADD_VOICE and REMOVE_VOICE."""

    voice: VoiceInfo | None = None
    error: str = ""  # name of the class
    message: str = ""
    retry_after_ms: int = 0  # of Overloaded


# --- frames -----------------------------------------------------------------------------------------------


def frame(kind: int, number: int = 0, body: bytes = b"") -> bytes:
    return _HEADER.pack(len(body), kind, number) + body


class Frames:
    """Takes what comes, in any parts."""

    def __init__(self) -> None:
        self._waiting = bytearray()

    def feed(self, data: bytes) -> Iterator[tuple[int, int, bytes]]:
        """Kind, number and body of each frame that is whole. Raises WireError."""
        self._waiting += data
        at = 0
        with memoryview(self._waiting) as view:
            while len(view) - at >= _HEADER.size:
                length, kind, number = _HEADER.unpack_from(view, at)
                if length > _MAX_BODY_BYTES:
                    raise WireError(f"a body of {length} bytes")
                end = at + _HEADER.size + length
                if len(view) < end:
                    break
                yield kind, number, bytes(view[at + _HEADER.size : end])
                at = end
        del self._waiting[:at]


# --- bodies -----------------------------------------------------------------------------------------------

_DECODERS: Final[Mapping[Told, msgspec.json.Decoder[EngineEvent]]] = {
    Told.ALIGNMENT: msgspec.json.Decoder(Alignment),
    Told.FLUSHED: msgspec.json.Decoder(Flushed),
    Told.AT_REST: msgspec.json.Decoder(AtRest),
    Told.DONE: msgspec.json.Decoder(Done),
    Told.CANCELLED: msgspec.json.Decoder(Cancelled),
    Told.FAILED: msgspec.json.Decoder(Failed),
}
_KINDS: Final = {
    Alignment: Told.ALIGNMENT,
    Flushed: Told.FLUSHED,
    AtRest: Told.AT_REST,
    Done: Told.DONE,
    Cancelled: Told.CANCELLED,
    Failed: Told.FAILED,
}
_ERRORS: Final = {
    error.__name__: error
    for error in (UnknownVoice, Unsupported, BadRequest, VoiceRefused, VoiceConflict, EngineStopped)
}


def pack_event(event: EngineEvent) -> tuple[Told, bytes]:
    if isinstance(event, AudioReady):
        packets = event.packets
        lengths = struct.pack(f"<{len(packets)}H", *map(len, packets))
        return Told.AUDIO, b"".join((_AUDIO.pack(event.pts_48k, len(packets)), lengths, *packets))
    return _KINDS[type(event)], msgspec.json.encode(event)


def unpack_event(kind: Told, utterance_id: UtteranceId, body: bytes) -> EngineEvent:
    if kind is Told.AUDIO:
        pts_48k, num_packets = _AUDIO.unpack_from(body)
        lengths = struct.unpack_from(f"<{num_packets}H", body, _AUDIO.size)
        ends = list(accumulate(lengths, initial=_AUDIO.size + 2 * num_packets))
        return AudioReady(utterance_id, tuple(body[start:end] for start, end in pairwise(ends)), pts_48k)
    return _DECODERS[kind].decode(body)


def pack_state(state: State) -> bytes:
    return msgspec.json.encode(state, enc_hook=float)  # an engine's numbers may be numpy's


def refusal(error: EngineError) -> Answer:
    retry_after_ms = error.retry_after_ms if isinstance(error, Overloaded) else 0
    return Answer(error=type(error).__name__, message=str(error), retry_after_ms=retry_after_ms)


def error_of(answer: Answer) -> EngineError | None:
    """As it was raised there, where it is of a kind that is known here."""
    if answer.error == Overloaded.__name__:
        return Overloaded(answer.message, retry_after_ms=answer.retry_after_ms)
    return _ERRORS.get(answer.error, EngineError)(answer.message) if answer.error else None
