"""Where the files of the second family lie: CosyVoice2's LLM in either of its layouts, Step-Audio2's token2wav.

They come from three repositories. Any directory will do that has them at its top, or in the folders that the recipe of
TensorRT-LLM downloads them to.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from voicegate.engine.checkpoint.conversion import DEFAULT_LLM_FILE, CheckpointError
from voicegate.engine.checkpoint.source import TOKENIZER_DIR, load_json, refuse_directory
from voicegate.engine.families.stepaudio2.config import SPEECH_TOKENIZER
from voicegate.engine.model.upstream_kinds import TOKEN2WAV_CONFIG, TOKEN2WAV_DIRS
from voicegate.engine.voices.onnx_analyser import SPEAKER_FILE

_INDEX: Final = "model.safetensors.index.json"
_SHARD: Final = re.compile(r"(.*-)(\d+)-of-(\d+)\.safetensors")
_MERGED_DIRS: Final = ("cosyvoice2_llm", ".")
_PT_DIRS: Final = (".", "CosyVoice2-0.5B")
_TOKENIZER_NAMES: Final = ("speech_tokenizer_v2_25hz.onnx", "speech_tokenizer_v2.onnx")  # one model, two names


@dataclass(frozen=True, slots=True)
class StepAudio2Source:
    directory: Path
    token2wav: Path
    llm: Path  # the directory of its configuration and tokenizer
    llm_files: tuple[Path, ...]
    is_merged: bool  # Hugging Face's layout, one vocabulary for text and speech; else llm.pt
    onnx: dict[str, Path]  # by the name that the engine knows

    def weights(self, part: str) -> tuple[Path, ...]:
        return self.llm_files if part == "llm" else (self.token2wav / {"flow": "flow.pt", "vocoder": "hift.pt"}[part],)


def find_stepaudio2(directory: Path, *, llm_file: str) -> StepAudio2Source:
    """In a directory that is this family's (see upstream_kinds). Raises CheckpointError for what it lacks."""
    token2wav = _first(directory, TOKEN2WAV_DIRS, TOKEN2WAV_CONFIG)
    assert token2wav is not None
    missing = [name for name in ("flow.pt", "hift.pt") if not (token2wav / name).is_file()]
    if missing:
        raise CheckpointError(f"{token2wav} has {TOKEN2WAV_CONFIG} and lacks {', '.join(missing)}")
    llm, files, is_merged = _find_llm(directory, llm_file)
    places = [token2wav, *(directory / name for name in _PT_DIRS)]
    tokenizer = _first_file(place / name for place in places for name in _TOKENIZER_NAMES)
    speaker = _first_file(place / SPEAKER_FILE for place in places)
    named = {SPEECH_TOKENIZER: tokenizer, SPEAKER_FILE: speaker}
    onnx = {name: path for name, path in named.items() if path is not None}
    return StepAudio2Source(directory, token2wav, llm, files, is_merged, onnx)


def _find_llm(directory: Path, llm_file: str) -> tuple[Path, tuple[Path, ...], bool]:
    """The merged one first, unless another file than llm.pt is asked for."""
    if llm_file == DEFAULT_LLM_FILE:
        for name in _MERGED_DIRS:
            files = _merged_files(directory / name)
            if files and (directory / name / "config.json").is_file():
                _check_tokenizer(directory / name)
                return directory / name, files, True
    places = [directory / name for name in _PT_DIRS if (directory / name / llm_file).is_file()]
    if not places:
        for name in _PT_DIRS:
            refuse_directory(directory / name / llm_file)
        raise CheckpointError(
            f"{directory} has {TOKEN2WAV_CONFIG} and no LLM: put Hugging Face's cosyvoice2_llm beside it (config.json, "
            f"model.safetensors, tokenizer), or CosyVoice2's {llm_file} with {TOKENIZER_DIR}"
        )
    place = next((place for place in places if (place / TOKENIZER_DIR).is_dir()), places[0])
    names = ("config.json", "vocab.json", "merges.txt")
    missing = [f"{TOKENIZER_DIR}/{name}" for name in names if not (place / TOKENIZER_DIR / name).is_file()]
    if missing:
        raise CheckpointError(f"{place} has {llm_file} and lacks {', '.join(missing)}")
    return place / TOKENIZER_DIR, (place / llm_file,), False


def _merged_files(llm: Path) -> tuple[Path, ...]:
    """All shards. Raises CheckpointError naming those that are not there."""
    whole, index = llm / "model.safetensors", llm / _INDEX
    if whole.is_file():
        return (whole,)
    if index.is_file():
        try:
            names = {str(name) for name in load_json(index)["weight_map"].values()}
        except (KeyError, TypeError, AttributeError) as error:
            raise CheckpointError(f"{index} lists no shards: it lacks or garbles {error}") from error
    else:
        found = [path.name for path in llm.glob("*.safetensors")]
        names = {*found, *(name for each in found for name in _all_shards(each))}
    missing = sorted(name for name in names if not (llm / name).is_file())
    if missing:
        raise CheckpointError(f"{llm} lacks {', '.join(missing)}: fetch what is missing")
    return tuple(llm / name for name in sorted(names))


def _all_shards(name: str) -> list[str]:
    """Shards of which this is one; upstream's writer counts from 1."""
    match = _SHARD.fullmatch(name)
    if match is None:
        return []
    front, number, total = match.groups()
    return [f"{front}{each:0{len(number)}}-of-{total}.safetensors" for each in range(1, int(total) + 1)]


def _check_tokenizer(llm: Path) -> None:
    if not (llm / "tokenizer.json").is_file():
        raise CheckpointError(f"{llm} lacks tokenizer.json, which says which ids are speech")


def _first(directory: Path, places: Iterable[str], name: str) -> Path | None:
    found = _first_file(directory / place / name for place in places)
    return None if found is None else found.parent


def _first_file(paths: Iterable[Path]) -> Path | None:
    return next((path for path in paths if path.is_file()), None)
