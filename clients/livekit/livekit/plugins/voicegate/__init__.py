"""LiveKit Agents' way to a voicegate server."""

import logging

from livekit.agents import Plugin
from livekit.plugins.voicegate.tts import TTS, SynthesizeStream

__all__ = ["TTS", "SynthesizeStream"]
__version__ = "0.1.0"


class VoicegatePlugin(Plugin):
    """How LiveKit lists it."""

    def __init__(self) -> None:
        super().__init__(__name__, __version__, __package__ or __name__, logging.getLogger(__name__))


Plugin.register_plugin(VoicegatePlugin())
