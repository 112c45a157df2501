"""A directory of voices, by name, and the default voice. No torch."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from voicegate.engine.model.config import ModelConfig
from voicegate.engine.voices.sound_files import SUFFIXES

_VOICE_SUFFIX: Final = ".safetensors"
_TEXT_SUFFIX: Final = ".txt"
# How sound files end that are not taken.
_OTHER_SOUND: Final = (".m4a", ".mp4", ".aac", ".webm", ".aif", ".aiff", ".caf", ".wma", ".amr", ".au", ".mkv", ".3gp")


def voice_files(directory: Path) -> dict[str, Path]:
    """`NAME.safetensors`, by name."""
    return {path.stem: path for path in _files_in(directory) if path.suffix.lower() == _VOICE_SUFFIX}


def recordings(directory: Path) -> Iterator[tuple[str, list[Path]]]:
    """`NAME.wav` and others (SUFFIXES), by name, of which each should have one.

    With `NAME.txt` beside it a start makes a voice of it (directory.py).
    """
    paths = [path for path in _files_in(directory) if path.suffix.lower() in SUFFIXES]
    for name in sorted({path.stem for path in paths}):
        yield name, [path for path in paths if path.stem == name]


def text_beside(recording: Path) -> Path | None:
    """`NAME.txt`."""
    beside = (path for path in _files_in(recording.parent) if path.stem == recording.stem)
    return next((path for path in beside if path.suffix.lower() == _TEXT_SUFFIX), None)


def pair_of(directory: Path, name: str) -> tuple[Path, Path] | None:
    """The recording of this name, and its text."""
    for recording in dict(recordings(directory)).get(name, ()):
        if (text := text_beside(recording)) is not None:
            return recording, text
    return None


def ignored_files(directory: Path, *, is_models_own: bool) -> list[str]:
    """Names of what no start takes: in a user's directory all others, in a model's own other kinds of sound files."""
    names = []
    with_recording = {name for name, _ in recordings(directory)}
    for path in _files_in(directory):
        suffix = path.suffix.lower()
        is_taken = suffix in (_VOICE_SUFFIX, *SUFFIXES) or (suffix == _TEXT_SUFFIX and path.stem in with_recording)
        if not is_taken and (not is_models_own or suffix in _OTHER_SOUND):
            names.append(path.name)
    return names


def voice_names(directory: Path) -> set[str]:
    """Names of all voices that a start finds there, or makes."""
    pairs = (name for name, paths in recordings(directory) if any(text_beside(path) for path in paths))
    return {*voice_files(directory), *pairs}


def default_voice(model: ModelConfig, own: Iterable[str], users: Iterable[str] = ()) -> str | None:
    """By name: the one that model.json names, else the first of the model's own, else of the user's; None: of none.

    What is uploaded to a running server lies with the user's: it does not become everybody's voice by its name.
    """
    return model.default_voice or min(own, default=None) or min(users, default=None)


def _files_in(directory: Path) -> list[Path]:
    """Without hidden files: macOS writes ._NAME beside what it copies, and others what they have not finished."""
    return sorted(path for path in directory.glob("*") if not path.name.startswith(".") and not path.is_dir())
