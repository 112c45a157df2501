"""Checks an `open` against what the engine and this socket can do. Pure: no state, no I/O."""

from dataclasses import dataclass, replace
from typing import Final

import msgspec

from voicegate.engine import units
from voicegate.engine.checks import check_instruct, check_language, speaks_with
from voicegate.engine.dictionary import Dictionary, DictionaryError, check_entries
from voicegate.engine.interface import (
    AudioFormat,
    BadRequest,
    Codec,
    EngineError,
    EngineInfo,
    Overloaded,
    SpeakingMode,
    UnknownVoice,
    Unsupported,
    UtteranceId,
    UtteranceRequest,
)
from voicegate.gateway.session.voice_names import is_mix
from voicegate.protocol import messages as wire
from voicegate.protocol.errors import ErrorCode
from voicegate.protocol.messages import MAX_PRONUNCIATION_CHARS, Format, Open

# Accepted rates of Opus, where they change nothing: a decoder chooses its own.
OPUS_RATES_HZ: Final = (units.SAMPLE_RATE_HZ, units.OPUS_CLOCK_HZ)
_ECHO_CHARS: Final = 80


@dataclass(frozen=True, slots=True)
class SessionLimits:
    """Limits of one socket, which stays beyond each, and so do its other contexts. docs/protocol.md section 6."""

    contexts: int = 256
    text_bytes: int = 64 * 1024  # UTF-8 bytes in one `text` message
    context_text_bytes: int = 1024 * 1024  # UTF-8 bytes over a context's life
    unanswered_flushes: int = 64  # of one context
    context_idle_s: float = 600.0  # in which a context hears nothing from its client, and has nothing to say
    context_life_s: float = 14_400.0  # of a context, whatever it does
    messages_per_s: int = 1000  # over this they are not refused, but read more slowly
    resume_s: int = 30  # for which a session waits for a client whose socket dropped

    def of_a_dialect(self, idle_s: float | None) -> "SessionLimits":
        """Other vendors' clients do not know of our limit on one text; those on a context and a frame hold.

        `idle_s`: of a context, as the client asks for it.
        """
        context_idle_s = self.context_idle_s if idle_s is None else min(idle_s, self.context_idle_s)
        return replace(self, text_bytes=self.context_text_bytes, context_idle_s=context_idle_s)


@dataclass(frozen=True, slots=True)
class Refusal:
    code: ErrorCode
    message: str
    retry_after_ms: int | None = None


def find_refusal(message: Open, info: EngineInfo) -> Refusal | None:
    """Why this server cannot do what `message` asks for; None when it can, as far as the gateway knows."""
    return (
        _check_voice(message, info)
        or _check_format(message.format)
        or _check_mode(message, info)
        or _check_seed(message, info)
        or _check_instruct(message, info)
        or _check_reading(message, info)
    )


def build_request(
    message: Open, info: EngineInfo, utterance_id: UtteranceId, dictionary: Dictionary | None = None
) -> UtteranceRequest:
    """`message` in the engine's words; only for one that `find_refusal` finds nothing wrong with.

    `dictionary`: the server's, behind what `message` itself says.
    """
    lead_ms = message.pace.lead_ms
    is_instructed = message.instruct is not None and message.instruct.strip()
    own = (Dictionary(message.pronunciations),) if message.pronunciations else ()
    return UtteranceRequest(
        utterance_id=utterance_id,
        voice=info.default_voice if message.voice is None else message.voice,
        audio=AudioFormat(
            codec=Codec(message.format.codec),
            frame_ms=message.format.frame_ms,
            bitrate_bps=message.format.bitrate,
            sample_rate_hz=units.SAMPLE_RATE_HZ,
        ),
        mode=SpeakingMode(message.mode),
        speed=message.speed,
        instruct=message.instruct if is_instructed else None,
        seed=message.seed,
        lead_ms=None if lead_ms is None else min(lead_ms, info.max_lead_ms),
        language=message.language,
        is_normalized=message.normalize,
        max_buffer_delay_ms=message.max_buffer_delay_ms,
        dictionaries=own if dictionary is None else (*own, dictionary),
    )


def refusal_of(error: EngineError) -> Refusal:
    """An engine's refusal, in the words of the wire."""
    match error:
        case UnknownVoice():
            return Refusal(ErrorCode.UNKNOWN_VOICE, str(error))
        case Unsupported():
            return Refusal(ErrorCode.UNSUPPORTED, str(error))
        case BadRequest():
            return Refusal(ErrorCode.BAD_MESSAGE, str(error))
        case Overloaded():
            return Refusal(ErrorCode.OVERLOADED, str(error), error.retry_after_ms)
        case _:  # EngineStopped, and what an engine may add
            return Refusal(ErrorCode.ENGINE_FAILED, str(error))


def effective_format(requested: Format) -> Format:
    return msgspec.structs.replace(requested, sample_rate=units.SAMPLE_RATE_HZ)


def _check_voice(message: Open, info: EngineInfo) -> Refusal | None:
    if message.voice is None or speaks_with(message.voice, info):
        return None
    shown, names = message.voice[:_ECHO_CHARS], ", ".join(voice.name for voice in info.voices)
    reason = "voices are not mixed, name one of" if is_mix(message.voice, info) else "there are"
    return Refusal(ErrorCode.UNKNOWN_VOICE, f"no voice {shown!r}; {reason} {names}")


def _check_format(requested: Format) -> Refusal | None:
    allowed_hz = OPUS_RATES_HZ if requested.codec == "opus" else (units.SAMPLE_RATE_HZ,)
    if requested.sample_rate is None or requested.sample_rate in allowed_hz:
        return None
    rates = " or ".join(str(rate) for rate in allowed_hz)
    return Refusal(
        ErrorCode.UNSUPPORTED_FORMAT, f"sample_rate of {requested.codec} is {rates}, not {requested.sample_rate}"
    )


def _check_mode(message: Open, info: EngineInfo) -> Refusal | None:
    mode = SpeakingMode(message.mode)
    if mode is SpeakingMode.AUTO or mode in info.modes:
        return None
    modes = ", ".join(mode.value for mode in info.modes)
    return Refusal(ErrorCode.UNSUPPORTED, f"the model {info.model} cannot speak in mode {message.mode}; it has {modes}")


def _check_seed(message: Open, info: EngineInfo) -> Refusal | None:
    if message.seed is None or info.is_reproducible:
        return None
    return Refusal(ErrorCode.UNSUPPORTED, f"model {info.model} cannot repeat what it said here: leave `seed` out")


def _check_instruct(message: Open, info: EngineInfo) -> Refusal | None:
    try:
        check_instruct(message.instruct, info)
    except (Unsupported, BadRequest) as error:
        return refusal_of(error)
    return None


def _check_reading(message: Open, info: EngineInfo) -> Refusal | None:
    try:
        check_language(message.language, info)
        check_entries(message.pronunciations)
        num_chars = sum(len(written) + len(said) for written, said in message.pronunciations.items())
        if num_chars > MAX_PRONUNCIATION_CHARS:
            reason = f"pronunciations have {num_chars} characters in all; at most {MAX_PRONUNCIATION_CHARS}"
            return Refusal(ErrorCode.BAD_MESSAGE, reason)
    except (Unsupported, BadRequest) as error:
        return refusal_of(error)
    except DictionaryError as error:
        return Refusal(ErrorCode.BAD_MESSAGE, f"pronunciations: {error}")
    return None


def ready_of(session_id: str, token: str, info: EngineInfo, limits: SessionLimits) -> wire.Ready:
    """The greeting of a socket: who serves it, with what, and within which limits.

    `token`: with which the session can be resumed; empty: it cannot.
    """
    return wire.Ready(
        session=session_id,
        token=token,
        model=info.model,
        voices=tuple(voice.name for voice in info.voices),
        default_voice=info.default_voice,
        modes=tuple(mode.value for mode in info.modes),
        limits=wire.Limits(
            contexts=limits.contexts,
            text_bytes=limits.text_bytes,
            context_text_bytes=limits.context_text_bytes,
            lead_ms=info.max_lead_ms,
            resume_seconds=limits.resume_s if token else 0,
            messages_per_second=limits.messages_per_s,
            context_idle_seconds=limits.context_idle_s,
            context_seconds=limits.context_life_s,
            pronunciations=wire.MAX_PRONUNCIATIONS,
        ),
        family=info.family,
        sample_rate=units.SAMPLE_RATE_HZ,
        languages=info.languages,
        voice_languages={voice.name: voice.language for voice in info.voices if voice.language is not None},
    )
