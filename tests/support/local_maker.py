"""Makes voices in this process: without the seconds that a process takes to start."""

import asyncio
from pathlib import Path

from voicegate.engine.interface import NewVoice
from voicegate.engine.model.config import ModelConfig
from voicegate.engine.voices.making import make_voice
from voicegate.engine.voices.voice import Voice


class LocalMaker:
    """Implements VoiceMaker."""

    def __init__(self, model_dir: Path, model: ModelConfig) -> None:
        self._model_dir = model_dir
        self._model = model

    async def make(self, order: NewVoice) -> Voice:
        return await asyncio.to_thread(make_voice, self._model_dir, self._model, order)

    def close(self) -> None:
        """Nothing can be ended."""
