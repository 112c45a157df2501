"""Pipecat's way to a voicegate server."""

from pipecat_voicegate.tts import VoicegateTTSService, VoicegateTTSSettings

__all__ = ["VoicegateTTSService", "VoicegateTTSSettings"]
