"""A model directory is told good from bad without torch: each fault is found and named."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.golden import TINY_MODEL_DIR
from voicegate.engine.model.config import ModelConfig
from voicegate.gateway.cli.model_files import (
    UnfitFile,
    check_config,
    check_voice,
    voice_paths,
)
from voicegate.gateway.cli.voices import read_voices


@pytest.fixture
def model() -> ModelConfig:
    return check_config(TINY_MODEL_DIR)


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """The small files of the tiny model."""
    directory = tmp_path / "model"
    (directory / "voices").mkdir(parents=True)
    for name in ("model.json", "tokenizer.json", "voices/woman.safetensors"):
        shutil.copy(TINY_MODEL_DIR / name, directory / name)
    return directory


def write_header(path: Path, shapes: dict[str, list[int]], texts: dict[str, str] | None = None) -> None:
    """A safetensors file with these shapes and no data, as a truthful header of empty tensors would have it."""
    entries: dict[str, object] = {
        name: {"dtype": "F32", "shape": shape, "data_offsets": [0, 0]} for name, shape in shapes.items()
    }
    header = json.dumps({**entries, "__metadata__": texts or {}}).encode()
    path.write_bytes(len(header).to_bytes(8, "little") + header)


def test_the_tiny_model_is_good(model: ModelConfig) -> None:
    assert [check_voice(path, model) for path in voice_paths(TINY_MODEL_DIR)] == [
        "male, US English",
        "male, US English; the old name of man",
        "female, US English; the old name of woman",
        "female, US English",
    ]


def make_deep(path: Path) -> None:
    path.write_bytes(len(DEEP).to_bytes(8, "little") + DEEP)


def cut_short(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def make_pointer(path: Path) -> None:
    path.write_text("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n")


@pytest.mark.parametrize(
    ("harm", "reason"),
    [
        (make_deep, "no safetensors file"),
        (cut_short, "bytes where its header promises"),
        (make_pointer, "no safetensors file"),
        (lambda path: path.write_bytes(b""), "no safetensors file"),
        (lambda path: path.unlink(), "No such file"),
        (lambda path: write_header(path, {"speech_tokens": [5], "mel": [9, 80], "embedding": [192]}), "mel has shape"),
        (lambda path: write_header(path, {"mel": [0, 80], "embedding": [192]}), "speech_tokens has shape None"),
        (lambda path: write_header(path, {"speech_tokens": []}), r"speech_tokens has shape \(\), not \(0,\)"),
        (lambda path: write_header(path, {"speech_tokens": [None]}), "no safetensors file"),  # type: ignore[list-item]
        (
            lambda path: write_header(path, {"speech_tokens": [5], "mel": [10, 80], "embedding": [192]}),
            "lacks the text prompt_text, transcript, description",
        ),
    ],
)
def test_broken_voices_are_named(copy: Path, model: ModelConfig, harm: Callable[[Path], None], reason: str) -> None:
    path = copy / "voices" / "woman.safetensors"
    harm(path)
    with pytest.raises(UnfitFile, match=reason) as caught:
        check_voice(path, model)
    assert str(path) in str(caught.value)


def test_a_directory_without_voices_is_named(copy: Path) -> None:
    (copy / "voices" / "woman.safetensors").unlink()
    with pytest.raises(UnfitFile, match="holds no voice"):
        voice_paths(copy)


DEEP = b'{"a":' * 100_000


@pytest.mark.parametrize("content", [None, b"{", b"[]", b"{}", DEEP])
def test_broken_configuration_is_named(copy: Path, content: bytes | None) -> None:
    path = copy / "model.json"
    path.unlink() if content is None else path.write_bytes(content)
    with pytest.raises(UnfitFile, match=r"model\.json"):
        check_config(copy)


def test_voices_of_a_directory(copy: Path) -> None:
    found = read_voices(copy)
    assert (found.default, [voice.name for voice in found.voices]) == ("woman", ["woman"])
