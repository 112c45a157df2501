"""The voices of a model directory and of the user's, loaded and checked once at start."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import structlog

from voicegate.engine.interface import EngineError
from voicegate.engine.model.config import ModelConfig
from voicegate.engine.model.weights import WeightsError
from voicegate.engine.voices.directory import Making, pairs_to_make
from voicegate.engine.voices.enrolment import load_enroller
from voicegate.engine.voices.files import ignored_files, voice_files
from voicegate.engine.voices.sound_files import SUFFIXES
from voicegate.engine.voices.voice import Voice, VoiceError, load_voice

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Found:
    path: Path
    voice: Voice  # an outline where it is still to be made
    making: Making | None


def load_voices(model_dir: Path, model: ModelConfig, voices_dir: Path | None = None) -> Mapping[str, Voice]:
    """Every `voices/*.safetensors`, by name, and those of `voices_dir`, which win where both have one.

    Pairs of recording and text are made into voices first (directory.py). Raises VoiceError where there is no voice
    or one is broken, WeightsError, EngineError where a pair is there and the model cannot make voices.
    """
    _tell_ignored(model_dir, voices_dir)
    found: list[Found] = []
    for each in find_voices(model_dir, model, voices_dir):
        if not isinstance(each, Found):
            raise each
        found.append(each)
    return {each.voice.name: each.voice if each.making is None else each.making.run() for each in found}


def _tell_ignored(model_dir: Path, voices_dir: Path | None) -> None:
    for directory, is_models_own in ((model_dir / "voices", True), (voices_dir, False)):
        if directory is not None and (names := ignored_files(directory, is_models_own=is_models_own)):
            taken = f"NAME.safetensors, or NAME.txt with one of {', '.join(f'NAME{suffix}' for suffix in SUFFIXES)}"
            log.warning("voice_files_ignored", directory=str(directory), files=names, taken=taken)


def find_voices(
    model_dir: Path, model: ModelConfig, voices_dir: Path | None
) -> Iterator[Found | EngineError | ValueError]:
    """Voices that a start speaks with, the model's own first, and everything that would end it. Nothing is made or
    written."""
    own_dir = model_dir / "voices"
    directories = [own_dir]
    if voices_dir is not None and voices_dir.is_dir():
        directories.append(voices_dir)
    elif voices_dir is not None:
        yield VoiceError(f"{voices_dir} is no directory: make it, or leave out the directory of voices")
    names: set[str] = set()
    for directory in directories:
        for each in _find_in(directory, model_dir, model, is_models_own=directory is own_dir):
            names.add(each.voice.name if isinstance(each, Found) else "")
            yield each
    if not names:
        where = " and ".join(map(str, directories))
        yield VoiceError(
            f"{where} holds no voice (*.safetensors): add one with `voicegate voices add`, or put NAME.wav and "
            "NAME.txt there"
        )
    elif model.default_voice is not None and model.default_voice not in names:
        yield VoiceError(f"{own_dir} lacks the default voice {model.default_voice!r} that model.json names")


def _find_in(
    directory: Path, model_dir: Path, model: ModelConfig, *, is_models_own: bool
) -> Iterator[Found | EngineError | ValueError]:
    found: dict[Path, Found] = {}
    for each in pairs_to_make(directory, partial(load_enroller, model_dir, model), is_models_own=is_models_own):
        if isinstance(each, Making):
            found[each.path] = Found(each.recording_path, each.outline, each)
        else:
            yield each
    for path in voice_files(directory).values():
        if path in found:
            continue
        try:
            voice = load_voice(path, vocab_size=model.flow.vocab_size, speaker_dim=model.flow.speaker_dim)
        except (VoiceError, WeightsError) as error:
            yield error
        else:
            found[path] = Found(path, voice, None)
    yield from (found[path] for path in sorted(found))
