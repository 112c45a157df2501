"""The engine seam: all that the gateway may know of an engine. Plain data only: no tensors, callables or sockets.

An **utterance** is what one context says, from `submit` to its one end event; its text may arrive in parts.
Promises, each a test that runs against every implementation (tests/contract):

* every submitted utterance ends in exactly one of `Done`, `Cancelled`, `Failed`, and no event follows that one;
* `AudioReady` events of an utterance are in order and their timestamps are contiguous;
* every word is in one item of an `Alignment` that comes before any audio from its `start_ms` on; items are in order, in
  text and in time, and stand once they are told;
* `push_text`, `flush_text`, `end_text`, `note_listener`, `cancel` on an utterance that has ended or never was are
  no-ops, because its end event may still be on its way to the caller;
* text that waits for more of it is spoken, up to the last whole word, when none comes for a while (`stall_ms` of the
  real engine's configuration), or when it has waited for as long as its request lets it. Half a word waits longer, and
  is said as it stands then. Nothing else of what is said depends on when text comes, but in INCREMENTAL mode, where a
  sentence that is spoken while it is written depends on what was known of it by each block of its speech;
* an utterance rests (`AtRest`) when all of its text is spoken, and it was flushed or its writer has paused; it holds no
  place then, and keeps all else. What it says later is the same as if it had not rested;
* words that are to be said are heard: where none is of all that stands before a flush or the end, it is `Failed`;
* one utterance's failure never touches another.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Final, NewType, Protocol

from voicegate.engine.dictionary import Dictionary

UtteranceId = NewType("UtteranceId", str)


class Codec(Enum):
    OPUS = "opus"
    PCM_S16LE = "pcm_s16le"


class SpeakingMode(Enum):
    """How text becomes LLM passes. AUTO is the lowest latency that the loaded model supports well."""

    AUTO = "auto"
    BISTREAM = "bistream"
    CLAUSE = "clause"
    INCREMENTAL = "incremental"  # a sentence is spoken while it is still being written


@dataclass(frozen=True, slots=True)
class AudioFormat:
    """Format of the engine's output; mono always."""

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
    # ("en-GB") to read in what the script leaves open; None: that of the voice's recording, else the model's first
    language: str | None = None
    is_normalized: bool = True  # numbers, signs and markup become words; else the model is given what is written
    max_buffer_delay_ms: int | None = None  # text waits for no longer than this for more; None: the engine's rule
    dictionaries: tuple[Dictionary, ...] = ()  # the first one has precedence
    is_background: bool = False  # no listener waits for it: it takes what others leave, at any pace


@dataclass(frozen=True, slots=True)
class ListenerReport:
    """Knowledge of a listener, in place of earlier knowledge."""

    played_ms: int | None = None  # of the utterance's audio; None: not known
    is_playing: bool = True  # False: it has paused, or takes nothing; its clock stands until the next report
    num_underruns: int = 0  # times that it had nothing to play


@dataclass(frozen=True, slots=True)
class NewVoice:
    """A voice that is to be made of a recording."""

    name: str
    recording: bytes  # content of a WAV, FLAC, Ogg or MP3 file
    transcript: str = ""  # of the recording; without one the voice speaks, but less like it
    description: str = ""
    is_replacing: bool = False  # a voice of the name that is there: its running utterances go on with the old one
    is_clone: bool = False  # for those alone who know its name: it is in no list, and is kept in memory only


@dataclass(frozen=True, slots=True)
class VoiceInfo:
    name: str
    description: str
    language: str | None = None  # of its recording, where that is known
    digest: str = ""  # of what is heard of it, which is all but its pace; "": not known
    remark: str = ""  # of `add_voice`: what was done to the recording, in words


@dataclass(frozen=True, slots=True)
class EngineInfo:
    """Fixed once the engine is ready, but for `voices` and `clones`, which `add_voice` and `remove_voice` change: ask
    anew."""

    model: str
    voices: tuple[VoiceInfo, ...]
    default_voice: str
    modes: tuple[SpeakingMode, ...]
    pre_skip_48k: int  # Opus encoder delay in 48 kHz samples (RFC 7845)
    max_utterances: int  # that have something to say; those at rest do not count
    max_lead_ms: int
    max_text_chars: int = 1 << 20  # of one utterance; beyond it fails
    max_instruct_chars: int = 0  # longest `instruct` of a request; 0: the model follows none
    is_reproducible: bool = True  # equal text, voice and seed sound alike; else no request may name a seed
    family: str = ""  # of models, as its configuration names it
    languages: tuple[str, ...] = ("en",)  # that the model speaks; the first where nothing else is said
    flow: str = ""  # what computes it: torch, cuda or tensorrt; engine processes may differ in it
    vocoder: str = ""  # the same
    clones: tuple[str, ...] = ()  # voices beside `voices`: see `add_voice`


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
class AtRest:
    """All text is spoken and delivered, and the utterance holds no place from here on: `readmit` it for more text.

    Text that was pushed since the engine sent this gives it its place back, and makes this event void.
    """

    utterance_id: UtteranceId
    num_chars: int  # of text that had been pushed


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
    is_truncated: bool = False  # the engine's length limit cut speech off: not all of the text may have been said


@dataclass(frozen=True, slots=True)
class Cancelled:
    """`spoken_text + remaining_text` is all text pushed, split at the audio delivered (or played, if told)."""

    utterance_id: UtteranceId
    audio_ms: int
    end_pts_48k: int
    spoken_text: str
    remaining_text: str


# The message where the fault is ours; the log has the rest.
INTERNAL_FAILURE: Final = "internal error while speaking this utterance"


@dataclass(frozen=True, slots=True)
class Failed:
    utterance_id: UtteranceId
    message: str  # safe to show to a client: names what was wrong, never a traceback
    is_of_text: bool = False  # the model makes no speech of it: another text would help, the same one again would not


@dataclass(frozen=True, slots=True)
class EngineStats:
    """An engine's statistics: by the engine's own names, any of which may be missing.

    `counters` grow from `start` on: STAGE_steps, _batches or _calls (how often a stage ran), _rows (sum over these of
    the streams in each), _seconds (of the stage's work), _launches (of kernels or CUDA graphs).
    `batch_sizes` by stage: how often it ran with more than 2**(n-1) streams and up to 2**n, n being the place.
    """

    counters: Mapping[str, float] = field(default_factory=dict)
    gauges: Mapping[str, float] = field(default_factory=dict)
    batch_sizes: Mapping[str, Sequence[int]] = field(default_factory=dict)
    engines: "Mapping[str, EngineStats]" = field(default_factory=dict)  # of those that this one consists of, by name
    hangs: Mapping[str, bool] = field(default_factory=dict)  # by device, where one may hang while others work
    whereabouts: str = ""  # the device that its thread is at, or that all wait for; empty: none, or there is only one


EngineEvent = AudioReady | Alignment | Flushed | AtRest | Done | Cancelled | Failed
EndEvent = Done | Cancelled | Failed


# --- errors ------------------------------------------------------------------------------


class EngineError(Exception):
    """Base of everything that an engine raises. The message names what was wrong and what to do.

    EngineError
      UnknownVoice     no such voice; the message lists those there are
      Unsupported      the loaded model or this build cannot do what was asked
      BadRequest       what was asked is wrong in itself, whatever the model
      VoiceRefused     no voice can be made of this, or this one cannot be taken away; the message says why
        VoiceConflict  nothing is wrong with it, but others are there: one of its name, or as many as there may be
      Overloaded       no room now; try again after `retry_after_ms`
      EngineStopped    the engine is not running
    """


class UnknownVoice(EngineError):
    pass


class Unsupported(EngineError):
    pass


class BadRequest(EngineError):
    pass


class VoiceRefused(EngineError):
    pass


class VoiceConflict(VoiceRefused):
    pass


class Overloaded(EngineError):
    """`retry_after_ms`: about the length of a short utterance, where nothing better is known."""

    def __init__(self, message: str, *, retry_after_ms: int = 2_000) -> None:
        super().__init__(message)
        self.retry_after_ms = retry_after_ms


class VoiceOverloaded(Overloaded):
    """There is room, but not where this voice is: who asks for another need not wait."""


class EngineStopped(EngineError):
    pass


def base_language(tag: str) -> str:
    """The language of a tag like "en-GB" or "zh_CN"."""
    return tag.lower().replace("_", "-").partition("-")[0]


class Engine(Protocol):
    """Called from one asyncio event loop. Every method but the coroutines returns at once."""

    @property
    def info(self) -> EngineInfo:
        """Raises EngineStopped before `start` has finished."""

    @property
    def unready_reason(self) -> str | None:
        """Why `submit` refuses everybody now, also an engine that runs; None: it does not. May change at any time."""

    @property
    def room(self) -> int:
        """So many more utterances `submit` would take now."""

    @property
    def pulse(self) -> int | None:
        """Changes with all that the engine gets done; None while it has nothing to do, or does not run.

        One that stays the same for long is of an engine that hangs. From any thread.
        """

    def stats(self) -> EngineStats:
        """Cheap, at any time. From any thread."""

    async def start(self) -> None:
        """Load and warm up; returns when nothing is left to be compiled. Raises EngineError with the remedy."""

    async def close(self) -> None:
        """Fail what still runs, release everything, end `next_event` with EngineStopped."""

    def submit(self, request: UtteranceRequest) -> None:
        """Start an utterance; then it has an end event.

        Raises UnknownVoice, Unsupported, BadRequest, Overloaded, EngineStopped; then nothing started.
        """

    def readmit(self, utterance_id: UtteranceId) -> None:
        """Give one at rest a place again, for text that follows. Raises Overloaded; then it rests on."""

    def push_text(self, utterance_id: UtteranceId, text: str) -> None:
        """Append text exactly as written, any split, up to `info.max_text_chars` in all; beyond it ends in `Failed`.

        One at rest takes a place by it, also where there is none: its `AtRest` may be on its way to the caller.
        """

    def flush_text(self, utterance_id: UtteranceId, flush_id: str) -> None:
        """Speak all text pushed so far without waiting for more; answered by `Flushed`."""

    def end_text(self, utterance_id: UtteranceId) -> None:
        """No more text follows; answered by `Done` after the last audio."""

    def note_listener(self, utterance_id: UtteranceId, report: ListenerReport) -> None:
        """Says when its speech is needed, and so whose comes first; never changes what is said.

        Without it a listener is taken to play from its first packet on. One that does not play is given no more than
        `lead_ms` of audio in hand.
        """

    def cancel(self, utterance_id: UtteranceId, played_ms: int | None = None) -> None:
        """Stop within one engine step; answered by `Cancelled`. Idempotent."""

    async def add_voice(self, voice: NewVoice) -> VoiceInfo:
        """Make the voice; when this returns, `submit` takes it. What runs is not held up but by milliseconds.

        Raises VoiceRefused, VoiceConflict, Unsupported where the model has fixed voices, Overloaded while speech takes
        all memory, EngineStopped; then nothing has changed.
        """

    async def remove_voice(self, name: str) -> None:
        """No further utterance can be submitted with it; those that run end in peace.

        Raises UnknownVoice; VoiceRefused for the default voice; EngineStopped.
        """

    async def next_event(self) -> EngineEvent:
        """The next event of any utterance. Raises EngineStopped once closed and drained."""
