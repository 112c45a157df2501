"""The engine seam: all that the gateway may know of an engine. Plain data only: no tensors, callables or sockets.

An **utterance** is what one context says, from `submit` to its one end event; its text may arrive in parts.
Promises, each a test that runs against every implementation (tests/contract):

* every submitted utterance ends in exactly one of `Done`, `Cancelled`, `Failed`, and no event follows that one;
* `AudioReady` events of an utterance are in order and their timestamps are contiguous;
* `push_text`, `flush_text`, `end_text`, `cancel` on an utterance that has ended or never was are no-ops,
  because its end event may still be on its way to the caller;
* one utterance's failure never touches another.
"""

from dataclasses import dataclass
from enum import Enum
from typing import NewType, Protocol

UtteranceId = NewType("UtteranceId", str)


class Codec(Enum):
    OPUS = "opus"
    PCM_S16LE = "pcm_s16le"


class SpeakingMode(Enum):
    """How text becomes LLM passes. AUTO is the lowest latency that the loaded model supports well."""

    AUTO = "auto"
    BISTREAM = "bistream"
    CLAUSE = "clause"


@dataclass(frozen=True, slots=True)
class AudioFormat:
    """What leaves the engine; mono always."""

    codec: Codec = Codec.OPUS
    frame_ms: int = 20  # of one packet: 20, 40 or 60
    bitrate_bps: int = 32_000  # Opus only
    sample_rate_hz: int = 24_000  # of PCM; Opus decoders choose their own


@dataclass(frozen=True, slots=True)
class UtteranceRequest:
    utterance_id: UtteranceId
    voice: str
    audio: AudioFormat = AudioFormat()
    mode: SpeakingMode = SpeakingMode.AUTO
    speed: float = 1.0
    instruct: str | None = None
    seed: int | None = None  # None: the engine draws one
    lead_ms: int | None = None  # audio generated ahead of real time at most; None: the engine's default


@dataclass(frozen=True, slots=True)
class VoiceInfo:
    name: str
    description: str


@dataclass(frozen=True, slots=True)
class EngineInfo:
    """Fixed once the engine is ready."""

    model: str
    voices: tuple[VoiceInfo, ...]
    default_voice: str
    modes: tuple[SpeakingMode, ...]
    pre_skip_48k: int  # Opus encoder delay in 48 kHz samples (RFC 7845)
    max_utterances: int
    max_lead_ms: int


# --- events -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class AudioReady:
    """Encoded packets, each `frame_ms` long, except that the last PCM packet of an utterance may be shorter."""

    utterance_id: UtteranceId
    packets: tuple[bytes, ...]
    pts_48k: int  # of the first packet, in 48 kHz samples since the utterance's start (Opus: pre-skip counted in)


@dataclass(frozen=True, slots=True)
class AlignedText:
    text: str
    start_ms: int
    end_ms: int
    char_start: int  # into all text pushed to this utterance
    char_end: int


@dataclass(frozen=True, slots=True)
class Alignment:
    utterance_id: UtteranceId
    items: tuple[AlignedText, ...]
    estimated: bool


@dataclass(frozen=True, slots=True)
class Flushed:
    """All text that was pushed before the `flush_text` of this id has been spoken and delivered."""

    utterance_id: UtteranceId
    flush_id: str
    audio_ms: int


@dataclass(frozen=True, slots=True)
class Timing:
    """Milliseconds on the engine's clock; None where the utterance never got there."""

    queue_ms: float | None = None  # first speakable text -> its LLM pass started
    llm_first_token_ms: float | None = None  # first speakable text -> first speech token
    first_chunk_ms: float | None = None  # first speakable text -> first samples from the vocoder
    first_packet_ms: float | None = None  # first speakable text -> first packet handed over


@dataclass(frozen=True, slots=True)
class Done:
    utterance_id: UtteranceId
    audio_ms: int
    num_packets: int
    end_pts_48k: int  # exact end of the audio on the pts clock; what packets hold beyond it is padding
    timing: Timing = Timing()


@dataclass(frozen=True, slots=True)
class Cancelled:
    """`spoken_text + remaining_text` is all text pushed, split at the audio delivered (or played, if told)."""

    utterance_id: UtteranceId
    audio_ms: int
    end_pts_48k: int
    spoken_text: str
    remaining_text: str


@dataclass(frozen=True, slots=True)
class Failed:
    utterance_id: UtteranceId
    message: str  # safe to show to a client: names what was wrong, never a traceback


EngineEvent = AudioReady | Alignment | Flushed | Done | Cancelled | Failed
EndEvent = Done | Cancelled | Failed


# --- errors raised by submit ------------------------------------------------------------------------------


class EngineError(Exception):
    """Base of everything that an engine raises. The message names what was wrong and what to do.

    EngineError
      UnknownVoice     no such voice; the message lists those there are
      Unsupported      the loaded model or this build cannot do what was asked
      Overloaded       no room now; try again after `retry_after_ms`
      EngineStopped    the engine is not running
    """


class UnknownVoice(EngineError):
    pass


class Unsupported(EngineError):
    pass


class Overloaded(EngineError):
    def __init__(self, message: str, *, retry_after_ms: int) -> None:
        super().__init__(message)
        self.retry_after_ms = retry_after_ms


class EngineStopped(EngineError):
    pass


class Engine(Protocol):
    """Called from one asyncio event loop. Every method but the coroutines returns at once."""

    @property
    def info(self) -> EngineInfo:
        """Raises EngineStopped before `start` has finished."""

    async def start(self) -> None:
        """Load and warm up; returns when nothing is left to be compiled. Raises EngineError with the remedy."""

    async def close(self) -> None:
        """Fail what still runs, release everything, end `next_event` with EngineStopped."""

    def submit(self, request: UtteranceRequest) -> None:
        """Start an utterance. Raises UnknownVoice, Unsupported, Overloaded, EngineStopped; then nothing started."""

    def push_text(self, utterance_id: UtteranceId, text: str) -> None:
        """Append text exactly as written, any size, any split."""

    def flush_text(self, utterance_id: UtteranceId, flush_id: str) -> None:
        """Speak all text pushed so far without waiting for more; answered by `Flushed`."""

    def end_text(self, utterance_id: UtteranceId) -> None:
        """No more text follows; answered by `Done` after the last audio."""

    def cancel(self, utterance_id: UtteranceId, played_ms: int | None = None) -> None:
        """Stop within one engine step; answered by `Cancelled`. Idempotent."""

    async def next_event(self) -> EngineEvent:
        """The next event of any utterance. Raises EngineStopped once closed and drained."""
