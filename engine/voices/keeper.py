"""Makes the voices that come while an engine runs, and keeps them in the user's directory where there is one."""

from pathlib import Path

import structlog

from voicegate.engine.interface import EngineError
from voicegate.engine.model.config import ModelConfig
from voicegate.engine.voices.enrolment import load_enroller
from voicegate.engine.voices.voice import Voice, save_voice

log = structlog.get_logger()


class VoiceKeeper:
    """Every method blocks, for seconds with upstream's encoders: not for the event loop's thread or the engine's."""

    def __init__(self, model_dir: Path, model: ModelConfig, voices_dir: Path | None) -> None:
        self._model_dir = model_dir
        self._model = model
        self._voices_dir = voices_dir

    def make(self, name: str, recording: bytes, *, transcript: str, description: str) -> Voice:
        """The encoders are loaded for it and dropped again. Raises VoiceRefused, Unsupported, EngineError."""
        try:
            enroller = load_enroller(self._model_dir, self._model)
            return enroller.enrol(name, recording, transcript=transcript, description=description)
        except (ValueError, OSError) as error:
            raise EngineError(f"no voice can be made: {error}") from error

    def save(self, voice: Voice) -> None:
        """A voice that cannot be written lasts until the engine ends, as all do where there is no directory."""
        if self._voices_dir is None:
            return
        path = self._path(self._voices_dir, voice.name)
        try:
            save_voice(voice, path)
        except OSError as error:
            log.warning("voice_not_saved", voice=voice.name, path=str(path), reason=error.strerror or str(error))

    def delete(self, name: str) -> None:
        """Its file in the user's directory. What comes from the model's, or from a pair, is back at the next start."""
        if self._voices_dir is None:
            return
        path = self._path(self._voices_dir, name)
        try:
            path.unlink(missing_ok=True)
        except OSError as error:
            log.warning("voice_not_deleted", voice=name, path=str(path), reason=error.strerror or str(error))

    @staticmethod
    def _path(voices_dir: Path, name: str) -> Path:
        return voices_dir / f"{name}.safetensors"
