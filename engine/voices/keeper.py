"""The voices that come while an engine runs: has them made, and keeps them where the user has a directory for them."""

from dataclasses import replace
from pathlib import Path

import structlog
import torch

from voicegate.engine.interface import NewVoice
from voicegate.engine.model.weights import load_metadata, load_state_dict
from voicegate.engine.voices.directory import made_from_beside
from voicegate.engine.voices.maker import VoiceMaker
from voicegate.engine.voices.pace import VoicePace, pace_in
from voicegate.engine.voices.voice import Voice, save_voice

log = structlog.get_logger()


class VoiceKeeper:
    """`save` and `delete` wait for the disk: not for the event loop's thread or the engine's."""

    def __init__(self, maker: VoiceMaker, voices_dir: Path | None) -> None:
        self._maker = maker
        self._voices_dir = voices_dir

    async def make(self, new: NewVoice) -> Voice:
        """As VoiceMaker."""
        voice = await self._maker.make(new)
        if voice.trimmed:
            log.info("recording_trimmed", voice=voice.name, what=str(voice.trimmed))
        return voice

    def close(self) -> None:
        """Closes. Voices that are being made are given up."""
        self._maker.close()

    def save(self, voice: Voice) -> str:
        """A voice that cannot be written lasts until the engine ends, as all do where there is no directory.

        Returns what to say of that to its sender; "": it was written, or need not be.
        In the place of one that was made from a pair it stays until that pair changes. The pace that the file has of
        the same speech stays, too: several engine processes make each voice, some of them long after it was tuned.
        """
        if self._voices_dir is None:
            return ""
        path = self._path(self._voices_dir, voice.name)
        try:
            tuned = replace(voice, pace=voice.pace or _tuned_pace(path, voice))
            save_voice(tuned, path, made_from=made_from_beside(path))
        except OSError as error:
            reason = error.strerror or str(error)
            log.warning("voice_not_saved", voice=voice.name, path=str(path), reason=reason)
            return f"the voice could not be written ({reason}), and is gone after a restart"
        return ""

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


def _tuned_pace(path: Path, voice: Voice) -> VoicePace | None:
    """Pace of the file that is there, where the LLM hears from it what it hears from this voice: a pace is the
    LLM's."""
    try:
        texts, tensors = load_metadata(path), load_state_dict(path)
        pace = pace_in(texts)
    except ValueError:  # there is none, or no voice in it
        return None
    tokens = tensors.get("speech_tokens", torch.empty(0)).to(torch.int64)
    is_same = texts.get("prompt_text") == voice.prompt_text and torch.equal(tokens, voice.speech_tokens)
    return pace if is_same else None
