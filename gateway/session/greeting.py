"""The greeting of a socket: who serves it, with what, and within which limits. Pure."""

from voicegate.engine import units
from voicegate.engine.interface import EngineInfo
from voicegate.gateway.session.opening import SessionLimits
from voicegate.protocol import messages as wire


def ready_of(session_id: str, token: str, info: EngineInfo, limits: SessionLimits) -> wire.Ready:
    """`token`: with which the session can be resumed; empty: it cannot."""
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
