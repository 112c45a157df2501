"""Every JSON message of the native protocol, version 1, as frozen types in two closed unions. No behaviour.

`docs/protocol.md` is normative. Unknown fields are ignored on purpose, so that either side may be newer.
"""

from typing import Annotated, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

PROTOCOL_VERSION = 1
SUBPROTOCOL = "voicegate.v1"
STREAM_PATH = "/v1/stream"
SESSION_PARAMETER = "session"  # of the address, where a session is to be resumed; for balancers, no server needs it

ContextId = Annotated[str, Meta(min_length=1, max_length=64)]
NonNegative = Annotated[int, Meta(ge=0)]
MAX_BUFFER_DELAY_MS = 60_000
# Entries that one `open` may bring. Higher -> an `open` costs more, and so does each word that is read.
MAX_PRONUNCIATIONS = 256
# Characters of all of them, with their spoken forms: a context that says nothing holds them too.
MAX_PRONUNCIATION_CHARS = 8192
Pronunciations = Annotated[dict[str, str], Meta(max_length=MAX_PRONUNCIATIONS)]
# Comes back as it was; bounded, so that a pong is as small as its ping should be.
PingToken = int | float | Annotated[str, Meta(max_length=64)] | None


class Format(Struct, frozen=True, omit_defaults=False):
    codec: Literal["opus", "pcm_s16le"] = "opus"
    frame_ms: Literal[20, 40, 60] = 20
    bitrate: Annotated[int, Meta(ge=6_000, le=510_000)] = 32_000  # RFC 6716 section 2.1.1; Opus only
    sample_rate: int | None = None  # of PCM; None is the model's own


class Pace(Struct, frozen=True):
    lead_ms: Annotated[int, Meta(ge=200)] | None = None
    burst_ms: Annotated[int, Meta(ge=0)] | None = None


# --- client to server -------------------------------------------------------------------------------------


class Open(Struct, frozen=True, tag="open"):
    context: ContextId
    voice: str | None = None
    format: Format = Format()
    speed: Annotated[float, Meta(ge=0.5, le=2.0)] = 1.0
    instruct: str | None = None
    seed: Annotated[int, Meta(ge=0, le=2**63 - 1)] | None = None
    mode: Literal["auto", "incremental", "clause", "bistream"] = "auto"
    pace: Pace = Pace()
    language: str | None = None
    normalize: bool = True
    max_buffer_delay_ms: Annotated[int, Meta(ge=0, le=MAX_BUFFER_DELAY_MS)] | None = None
    pronunciations: Pronunciations = {}


class Text(Struct, frozen=True, tag="text"):
    context: ContextId
    text: str


class Flush(Struct, frozen=True, tag="flush"):
    context: ContextId
    id: Annotated[str, Meta(max_length=64)] = ""


class End(Struct, frozen=True, tag="end"):
    context: ContextId


class Cancel(Struct, frozen=True, tag="cancel"):
    context: ContextId
    played_ms: NonNegative | None = None


class Playback(Struct, frozen=True, tag="playback"):
    context: ContextId
    played_ms: NonNegative
    buffer_ms: NonNegative = 0
    underruns: NonNegative = 0


class Ping(Struct, frozen=True, tag="ping"):
    t: PingToken = None


class Ack(Struct, frozen=True, tag="ack"):
    """An acknowledgement of either side: so many of the other's messages have come, of those that count."""

    received: NonNegative


class Resume(Struct, frozen=True, tag="resume"):
    session: Annotated[str, Meta(max_length=128)]  # a server's name of up to 63 letters may begin it
    token: Annotated[str, Meta(max_length=128)]
    received: NonNegative = 0


# Messages for a session; the other two are about the session.
SessionMessage = Open | Text | Flush | End | Cancel | Playback | Ping
ClientMessage = SessionMessage | Ack | Resume
# Those of the moment, which are neither counted nor sent again: docs/protocol.md, section 9.
UNCOUNTED_OF_CLIENT = (Playback, Ping, Ack, Resume)


# --- server to client -------------------------------------------------------------------------------------


class Limits(Struct, frozen=True):
    contexts: int  # open at once on one socket
    text_bytes: int  # UTF-8 bytes in one `text` message
    context_text_bytes: int  # UTF-8 bytes over a context's life
    lead_ms: int  # audio generated ahead of real time at most
    resume_seconds: int  # 0: this server does not resume
    # 0: not told, by a server from before there was this limit
    messages_per_second: int = 0  # WebSocket messages and pings of one socket
    context_idle_seconds: float = 0  # in which a context hears nothing from its client, and has nothing to say
    context_seconds: float = 0  # of a context's life
    pronunciations: int = 0  # entries of one `open`


class Ready(Struct, frozen=True, tag="ready"):
    session: str
    token: str
    model: str
    voices: tuple[str, ...]
    default_voice: str
    modes: tuple[str, ...]
    limits: Limits
    protocol: int = PROTOCOL_VERSION
    # Empty, or 0: not told, by a server from before there were these
    family: str = ""  # of models
    sample_rate: int = 0  # Hz of the audio before it is encoded
    languages: tuple[str, ...] = ()
    voice_languages: dict[str, str] = {}  # of voices of which it is known


class Opened(Struct, frozen=True, tag="opened"):
    context: str
    handle: int  # u16, names the context in audio messages
    voice: str
    format: Format
    sample_rate: int  # Hz of the decoded audio's natural rate
    pre_skip: int  # 48 kHz samples that a player drops at the start (RFC 7845)


class AlignmentItem(Struct, frozen=True):
    text: str
    start_ms: int
    end_ms: int
    char_start: int
    char_end: int


class Alignment(Struct, frozen=True, tag="alignment"):
    context: str
    items: tuple[AlignmentItem, ...]
    estimated: bool


class Flushed(Struct, frozen=True, tag="flushed"):
    context: str
    id: str
    audio_ms: int


class Timing(Struct, frozen=True, omit_defaults=True):
    """Milliseconds from the context's first speakable text; absent where it never got there."""

    ttfb_ms: float | None = None  # first `text` read -> first audio handed to the socket
    queue_ms: float | None = None
    llm_first_token_ms: float | None = None
    first_chunk_ms: float | None = None
    first_packet_ms: float | None = None


class Done(Struct, frozen=True, tag="done"):
    context: str
    audio_ms: int
    packets: int
    timing: Timing
    truncated: bool | UnsetType = UNSET  # true: a length limit cut speech off; else absent
    characters: int = 0  # of text that the context took, in code points


class Cancelled(Struct, frozen=True, tag="cancelled"):
    context: str
    audio_ms: int
    spoken_text: str
    remaining_text: str


class Resumed(Struct, frozen=True, tag="resumed"):
    session: str
    received: int


class Error(Struct, frozen=True, tag="error"):
    """`fatal`: this error ended the context that it names, or the socket when it names none."""

    code: str
    message: str
    fatal: bool
    context: str | UnsetType = UNSET
    retry_after_ms: int | UnsetType = UNSET


class Draining(Struct, frozen=True, tag="draining"):
    deadline_ms: int


class Pong(Struct, frozen=True, tag="pong"):
    t: PingToken = None


ServerMessage = Ready | Opened | Alignment | Flushed | Done | Cancelled | Error | Draining | Pong | Ack | Resumed
UNCOUNTED_OF_SERVER = (Ready, Pong, Ack, Resumed)
