"""Checks a request against this engine, before anything starts. No torch: fronts of engines ask too."""

from voicegate.engine.audio.packets import pre_skip_48k
from voicegate.engine.checks import check_instruct, check_language, speaks_with
from voicegate.engine.interface import EngineInfo, SpeakingMode, UnknownVoice, Unsupported, UtteranceRequest


def check_request(request: UtteranceRequest, info: EngineInfo) -> None:
    """Raises UnknownVoice, Unsupported, BadRequest."""
    if not speaks_with(request.voice, info):
        names = ", ".join(voice.name for voice in info.voices)
        raise UnknownVoice(f"unknown voice {request.voice!r}; this model has {names}")
    if request.mode is not SpeakingMode.AUTO and request.mode not in info.modes:
        raise Unsupported(f"model {info.model!r} has no mode {request.mode.value!r}")
    if request.seed is not None and not info.is_reproducible:
        raise Unsupported("this engine's LLM backend cannot repeat what it said: leave `seed` out")
    check_instruct(request.instruct, info)
    check_language(request.language, info)
    pre_skip_48k(request.audio)
