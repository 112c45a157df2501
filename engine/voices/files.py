"""What lies in a directory of voices, by name, and who speaks where nobody is named. No torch."""

from collections.abc import Iterable
from pathlib import Path

from voicegate.engine.model.config import ModelConfig


def voice_files(directory: Path) -> dict[str, Path]:
    """`NAME.safetensors`, by name."""
    return _by_name(directory, ".safetensors")


def recordings(directory: Path) -> dict[str, Path]:
    """`NAME.wav`, by name; with `NAME.txt` beside it a start makes a voice of it (directory.py)."""
    return _by_name(directory, ".wav")


def voice_names(directory: Path) -> set[str]:
    """Of all voices that a start finds there, or makes."""
    pairs = (name for name, path in recordings(directory).items() if path.with_suffix(".txt").is_file())
    return {*voice_files(directory), *pairs}


def default_voice(model: ModelConfig, own: Iterable[str], users: Iterable[str] = ()) -> str | None:
    """By name: the one that model.json names, else the first of the model's own, else of the user's; None: of none.

    What is uploaded to a running server lies with the user's: it does not become everybody's voice by its name.
    """
    return model.default_voice or min(own, default=None) or min(users, default=None)


def _by_name(directory: Path, suffix: str) -> dict[str, Path]:
    """Without hidden files: macOS writes ._NAME beside what it copies, and others what they have not finished."""
    paths = sorted(path for path in directory.glob(f"*{suffix}") if not path.name.startswith("."))
    return {path.stem: path for path in paths}
