"""From the request of a job to that of its parts to the engine. Pure."""

from voicegate.engine.interface import EngineInfo
from voicegate.gateway.session.adapting import adapted
from voicegate.protocol.dialects.one_shot import OneShot
from voicegate.protocol.dialects.openai_speech import OpenAiSpeech
from voicegate.protocol.messages import Open


def shot_of(request: bytes) -> OneShot:
    """As it is stored: a body of /v1/audio/speech without its text. Raises ProtocolViolation."""
    return OpenAiSpeech().read(request, {}, {})


def opening_of(shot: OneShot, voice: str | None, info: EngineInfo) -> Open:
    """Raises ProtocolViolation."""
    opening = next(shot.messages(voice, 1))
    assert isinstance(opening, Open), "a context is opened first"
    return adapted(opening, info).message
