"""Reading of an upstream directory, and that nothing in it is run."""

import os
import pickle
from pathlib import Path

import pytest
import torch

from voicegate.engine.checkpoint.conversion import CheckpointError
from voicegate.engine.checkpoint.source import Source, load_pickle, load_weights


class _Harmful:
    """Its pickle, when loaded carelessly, makes a file."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __reduce__(self) -> tuple[object, tuple[str, str]]:
        return os.system, (f"touch {self._path}", "")[:1]  # type: ignore[return-value]


@pytest.mark.parametrize("is_zip", [True, False])
def test_a_pickle_with_code_is_refused_and_not_run(tmp_path: Path, is_zip: bool) -> None:
    path, trace = tmp_path / "llm.pt", tmp_path / "trace"
    torch.save({"a": torch.zeros(2), "b": _Harmful(trace)}, path, _use_new_zipfile_serialization=is_zip)
    with pytest.raises(CheckpointError, match=r"holds more than tensors and plain data.*; it was not loaded, since"):
        load_pickle(path)
    assert not trace.exists()


@pytest.mark.parametrize("is_zip", [True, False])
def test_tensors_are_read_from_both_formats(tmp_path: Path, is_zip: bool) -> None:
    path = tmp_path / "flow.pt"
    torch.save({"a": torch.arange(3.0)}, path, _use_new_zipfile_serialization=is_zip)
    assert load_weights(path, "flow").state["a"].tolist() == [0, 1, 2]


def test_the_prefix_of_gan_training_is_dropped(tmp_path: Path) -> None:
    path = tmp_path / "hift.pt"
    torch.save({"generator.conv_pre.bias": torch.zeros(2), "conv_post.bias": torch.zeros(3)}, path)
    assert set(load_weights(path, "vocoder").state) == {"conv_pre.bias", "conv_post.bias"}
    assert "generator.conv_pre.bias" in load_weights(path, "flow").state


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"version https://git-lfs.github.com/spec/v1\n", "is a Git LFS pointer"),
        (b"", "damaged"),
        (b"PK\x03\x04 and then nothing", "damaged"),
        (pickle.dumps([1, 2], protocol=2), "damaged"),
    ],
)
def test_wrong_kinds_of_files_are_named(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "hift.pt"
    path.write_bytes(content)
    with pytest.raises(CheckpointError, match=message) as caught:
        load_weights(path, "vocoder")
    assert str(path) in str(caught.value)


def test_a_truncated_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / "llm.pt"
    torch.save({"a": torch.zeros(10_000)}, path)
    path.write_bytes(path.read_bytes()[:20_000])
    with pytest.raises(CheckpointError, match="damaged"):
        load_weights(path, "llm")


def test_something_else_than_named_tensors(tmp_path: Path) -> None:
    path = tmp_path / "llm.pt"
    torch.save([torch.zeros(1)], path)
    with pytest.raises(CheckpointError, match="holds a list, not a state dict"):
        load_weights(path, "llm")


def test_all_missing_files_are_named_at_once(tmp_path: Path) -> None:
    (tmp_path / "flow.pt").touch()
    with pytest.raises(CheckpointError) as caught:
        Source(tmp_path, "llm.rl.pt").check()
    assert "it lacks llm.rl.pt, hift.pt, model.json, CosyVoice-BlankEN/vocab.json, CosyVoice-BlankEN/merges.txt" in str(
        caught.value
    )
    (tmp_path / "cosyvoice3.yaml").touch()
    with pytest.raises(CheckpointError, match=r"CosyVoice-BlankEN/config\.json$"):
        Source(tmp_path).check()
