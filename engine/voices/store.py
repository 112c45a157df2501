"""The voices of a model directory, loaded and checked once at start."""

from collections.abc import Mapping
from pathlib import Path

from engine.model_config import ModelConfig
from engine.voices.voice import Voice, VoiceError, load_voice


def load_voices(model_dir: Path, model: ModelConfig) -> Mapping[str, Voice]:
    """Every `voices/*.safetensors`, by name. Raises VoiceError where there is none or one is broken."""
    voices_dir = model_dir / "voices"
    paths = sorted(voices_dir.glob("*.safetensors"))
    if not paths:
        raise VoiceError(f"{voices_dir} holds no voice (*.safetensors)")
    voices = {
        path.stem: load_voice(path, vocab_size=model.flow.vocab_size, speaker_dim=model.flow.speaker_dim)
        for path in paths
    }
    if model.default_voice is not None and model.default_voice not in voices:
        raise VoiceError(f"{voices_dir} lacks the default voice {model.default_voice!r} that model.json names")
    return voices
