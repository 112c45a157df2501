"""A model directory as far as commands that list and show need it, without torch: model.json, headers of voices.

safetensors: eight bytes of header length, a JSON header of names, types, shapes and offsets, then the data.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from voicegate.engine.model.config import ModelConfig, ModelConfigError
from voicegate.engine.model.model_json import load_model_config
from voicegate.engine.units import FRAMES_PER_TOKEN, NUM_MELS
from voicegate.engine.voices.files import voice_files
from voicegate.engine.voices.pace import pace_in
from voicegate.gateway.cli.terminal import CommandError

_LENGTH_BYTES: Final = 8
_MAX_HEADER_BYTES: Final = 100 * 1024 * 1024  # the format's own limit


class UnfitFile(CommandError):
    """A file is missing or not what it should be; the message says which and why, in one line."""


@dataclass(frozen=True, slots=True)
class Header:
    shapes: Mapping[str, tuple[int, ...]]
    texts: Mapping[str, str]


def read_header(path: Path) -> Header:
    """Raises UnfitFile; also for a file that was cut short."""
    try:
        with path.open("rb") as file:
            length = int.from_bytes(file.read(_LENGTH_BYTES), "little")
            raw = file.read(length) if length <= _MAX_HEADER_BYTES else b""
        size = path.stat().st_size
    except OSError as error:
        raise UnfitFile(f"{path}: {error.strerror or error}") from error
    try:
        entries: dict[str, Any] = json.loads(raw)
        texts = {name: str(text) for name, text in entries.pop("__metadata__", {}).items()}
        shapes = {name: tuple(map(int, entry["shape"])) for name, entry in entries.items()}
        end = max((int(entry["data_offsets"][1]) for entry in entries.values()), default=0)
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise UnfitFile(f"{path} is no safetensors file (a Git LFS pointer, perhaps?)") from error
    expected = _LENGTH_BYTES + length + end
    if size != expected:
        raise UnfitFile(f"{path} has {size} bytes where its header promises {expected}: fetch it again")
    return Header(shapes, texts)


def check_config(model_dir: Path) -> ModelConfig:
    """Raises UnfitFile."""
    try:
        return load_model_config(model_dir)
    except (ModelConfigError, OSError) as error:
        raise UnfitFile(str(error)) from error


def check_voice(path: Path, model: ModelConfig) -> str:
    """Its description. Raises UnfitFile."""
    header = read_header(path)
    num_tokens, *_ = (*header.shapes.get("speech_tokens", ()), 0)  # a scalar has no length
    wanted = {
        "speech_tokens": (num_tokens,),
        "mel": (num_tokens * FRAMES_PER_TOKEN, NUM_MELS),
        "embedding": (model.flow.speaker_dim,),
    }
    for name, shape in wanted.items():
        if header.shapes.get(name) != shape:
            raise UnfitFile(f"{path}: {name} has shape {header.shapes.get(name)}, not {shape}")
    missing = [key for key in ("prompt_text", "transcript", "description") if key not in header.texts]
    if missing:
        raise UnfitFile(f"{path} lacks the text {', '.join(missing)}")
    try:
        pace_in(header.texts)
    except ValueError as error:
        raise UnfitFile(f"{path}: {error}; tune the voice again") from error
    return header.texts["description"]


def voice_paths(model_dir: Path) -> list[Path]:
    """Raises UnfitFile where there is none."""
    paths = list(voice_files(model_dir / "voices").values())
    if not paths:
        raise UnfitFile(f"{model_dir / 'voices'} holds no voice (*.safetensors)")
    return paths
