"""The voices of a model directory and of the user's, loaded and checked once at start."""

from collections.abc import Mapping
from functools import partial
from pathlib import Path

from voicegate.engine.model.config import ModelConfig
from voicegate.engine.voices.directory import enrol_pairs
from voicegate.engine.voices.enrolment import load_enroller
from voicegate.engine.voices.files import voice_files
from voicegate.engine.voices.voice import Voice, VoiceError, load_voice


def load_voices(model_dir: Path, model: ModelConfig, voices_dir: Path | None = None) -> Mapping[str, Voice]:
    """Every `voices/*.safetensors`, by name, and those of `voices_dir`, which win where both have one.

    Pairs of recording and text are made into voices first (directory.py). Raises VoiceError where there is no voice
    or one is broken, WeightsError, EngineError where a pair is there and the model cannot make voices.
    """
    own_dir = model_dir / "voices"
    voices = _load_directory(own_dir, model_dir, model, is_models_own=True)
    if voices_dir is not None:
        if not voices_dir.is_dir():
            raise VoiceError(f"{voices_dir} is no directory: make it, or leave out the directory of voices")
        voices |= _load_directory(voices_dir, model_dir, model, is_models_own=False)
    if not voices:
        raise VoiceError(
            f"{own_dir} holds no voice (*.safetensors): add one with `voicegate voices add`, or put NAME.wav and "
            "NAME.txt there"
        )
    if model.default_voice is not None and model.default_voice not in voices:
        raise VoiceError(f"{own_dir} lacks the default voice {model.default_voice!r} that model.json names")
    return voices


def _load_directory(directory: Path, model_dir: Path, model: ModelConfig, *, is_models_own: bool) -> dict[str, Voice]:
    unwritten = enrol_pairs(directory, partial(load_enroller, model_dir, model), is_models_own=is_models_own)
    voices = {
        name: load_voice(path, vocab_size=model.flow.vocab_size, speaker_dim=model.flow.speaker_dim)
        for name, path in voice_files(directory).items()
        if name not in unwritten
    }
    return voices | unwritten
