"""Kinds of directories that are no model directory, by the files that tell: upstream's own, or something near it."""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from voicegate.engine.model.config import COSYVOICE3

COSYVOICE2_STEPAUDIO2: Final = "cosyvoice2-stepaudio2"  # a family that is an addition (engine/additions.py)
COSYVOICE3_CONFIG: Final = "cosyvoice3.yaml"
TOKEN2WAV_CONFIG: Final = "flow.yaml"
TOKEN2WAV_DIRS: Final = (".", "token2wav", "Step-Audio-2-mini/token2wav")  # the last as TensorRT-LLM's recipe has it

_CONVERTIBLE: Final[Mapping[str, str]] = {
    COSYVOICE3_CONFIG: "Fun-CosyVoice3's own files",
    **{f"{place}/{TOKEN2WAV_CONFIG}": "upstream's own files of Step-Audio2's token2wav" for place in TOKEN2WAV_DIRS},
}
_CONFIGS: Final = (COSYVOICE3_CONFIG, TOKEN2WAV_CONFIG)
_BELOW: Final = ("*", "*/*")  # a download cache has snapshots/REVISION below a model's name


def family_of_source(directory: Path) -> str:
    """Whose files a directory holds. The core's own family where nothing tells: its reader says what is missing."""
    has_token2wav = any((directory / place / TOKEN2WAV_CONFIG).is_file() for place in TOKEN2WAV_DIRS)
    return COSYVOICE2_STEPAUDIO2 if has_token2wav else COSYVOICE3


def remedy(directory: Path) -> str | None:
    """Advice where a model directory was expected and this was named; None: nothing is known of it."""
    kind = next((kind for name, kind in _CONVERTIBLE.items() if (directory / name).is_file()), None)
    if kind is not None:
        return f"it holds {kind}: run `voicegate convert {directory} NEW_DIRECTORY`, and name that one"
    return _other_kind(directory) or _nested(directory, "llm.safetensors") or _nested(directory, *_CONFIGS)


def remedy_of_source(directory: Path) -> str | None:
    """Advice where upstream's own files were expected."""
    if (directory / "model.json").is_file() and (directory / "llm.safetensors").is_file():
        return f"it is a model directory already: voicegate serve --model-dir {directory}"
    return _other_kind(directory) or _nested(directory, *_CONFIGS)


def _other_kind(directory: Path) -> str | None:
    if (directory / "cosyvoice2.yaml").is_file() or (directory / "CosyVoice2-0.5B" / "cosyvoice2.yaml").is_file():
        return (
            "it is CosyVoice2, whose LLM is run with Step-Audio2's token2wav and not with its own flow: put flow.yaml, "
            f"flow.pt and hift.pt of Step-Audio-2-mini's token2wav into {directory / 'token2wav'}, then run `voicegate "
            f"convert {directory} NEW_DIRECTORY` (docs/models.md)"
        )
    if (directory / "cosyvoice.yaml").is_file():
        return "it is CosyVoice-300M, which is not run here: Fun-CosyVoice3 and CosyVoice2 are (docs/models.md)"
    if (directory / "config.json").is_file() and any(directory.glob("*.safetensors")):
        return (
            "it is a language model alone: the directory to convert has Step-Audio2's token2wav (flow.yaml, flow.pt, "
            "hift.pt) beside it (docs/models.md)"
        )
    return None


def _nested(directory: Path, *names: str) -> str | None:
    for below in _BELOW:
        for name in names:
            found = min(directory.glob(f"{below}/{name}"), default=None)
            if found is not None:
                return f"there is one below it: name {found.parent}"
    return None
