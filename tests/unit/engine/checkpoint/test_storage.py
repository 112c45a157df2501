"""Files are safetensors to the safetensors library, in the dtypes asked for, and whole or not there."""

import hashlib
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file

from voicegate.engine.checkpoint.conversion import CheckpointError
from voicegate.engine.checkpoint.storage import (
    Entry,
    cast,
    copy_file,
    file_bytes,
    stored_dtype,
    write_bytes,
    write_safetensors,
)

F32, F16, BF16 = torch.float32, torch.float16, torch.bfloat16


def entry(name: str, tensor: torch.Tensor) -> Entry:
    return Entry(name, tuple(tensor.shape), tensor.dtype, lambda: tensor)


def test_round_trip(tmp_path: Path) -> None:
    tensors = {
        "half": torch.randn(3, 5).to(F16),
        "brain": torch.randn(7, 1, 2).to(BF16),
        "single": torch.randn(4),
        "turned": torch.randn(4, 6).t(),
        "ids": torch.arange(5),
        "empty": torch.zeros(0, 3),
    }
    path = tmp_path / "x.safetensors"
    entries = [entry(name, tensor) for name, tensor in tensors.items()]
    told: list[int] = []
    written = write_safetensors(path, entries, texts={"key": "värde"}, advance=told.append)
    content = path.read_bytes()
    assert (written.num_bytes, written.sha256) == (len(content), hashlib.sha256(content).hexdigest())
    assert file_bytes(entries, {"key": "värde"}) == len(content)
    assert sum(told) == sum(tensor.numel() * tensor.element_size() for tensor in tensors.values())
    loaded = load_file(path)
    assert loaded.keys() == tensors.keys()
    for name, tensor in tensors.items():
        assert loaded[name].dtype == tensor.dtype
        assert torch.equal(loaded[name], tensor)
    with safe_open(path, framework="pt") as file:
        assert file.metadata() == {"key": "värde"}


def test_a_failure_half_way_leaves_nothing(tmp_path: Path) -> None:
    path = tmp_path / "x.safetensors"
    path.write_bytes(b"before")

    def fail() -> torch.Tensor:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_safetensors(path, [entry("a", torch.zeros(4)), Entry("b", (4,), F32, fail)])
    assert path.read_bytes() == b"before"
    assert list(tmp_path.iterdir()) == [path]


def test_a_tensor_that_is_not_as_announced_is_our_own_fault(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="not as was announced"):
        write_safetensors(tmp_path / "x", [Entry("a", (3,), F32, lambda: torch.zeros(4))])


@pytest.mark.parametrize(
    ("name", "shape", "dtype"),
    [
        ("llm.model.model.layers.0.mlp.up_proj.weight", (48, 32), F16),
        ("llm.model.model.layers.0.input_layernorm.weight", (32,), F32),
        ("conv_pre.parametrizations.weight.original0", (512, 1, 1), F32),
        ("conv_pre.parametrizations.weight.original1", (512, 80, 5), F16),
        ("f0_predictor.condnet.0.parametrizations.weight.original1", (512, 80, 4), F32),
        ("m_source.l_linear.weight", (1, 9), F32),
        ("decoder.estimator.rotary_embed.inv_freq", (32,), F32),
    ],
)
def test_only_large_harmless_tensors_are_rounded(name: str, shape: tuple[int, ...], dtype: torch.dtype) -> None:
    assert stored_dtype(name, shape, F16) == dtype


def test_numbers_that_do_not_fit_are_refused() -> None:
    large = torch.tensor([1.0, 1e5])
    assert cast("w", large, BF16).dtype == BF16
    with pytest.raises(CheckpointError, match=r"w reaches 1e\+05, which torch.float16 cannot hold: choose bf16"):
        cast("w", large, F16)
    with pytest.raises(CheckpointError, match="w holds numbers that are not finite"):
        cast("w", torch.tensor([1.0, float("nan")]), F32)
    with pytest.raises(CheckpointError, match=r"w holds torch.int64, not floating-point numbers"):
        cast("w", torch.arange(3), F32)


def test_copies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source, linked, copied = (tmp_path / name for name in ("source", "linked", "copied"))
    content = b"onnx" * 1000
    write_bytes(source, content)
    wanted = hashlib.sha256(content).hexdigest()
    assert copy_file(source, linked).sha256 == wanted
    assert linked.stat().st_ino == source.stat().st_ino
    alias = tmp_path / "alias"
    alias.symlink_to(source)
    copy_file(alias, tmp_path / "through")
    assert not (tmp_path / "through").is_symlink()
    assert (tmp_path / "through").stat().st_ino == source.stat().st_ino

    def refuse(*_: object) -> None:
        raise OSError("another file system")

    monkeypatch.setattr("os.link", refuse)
    told: list[int] = []
    assert copy_file(source, copied, told.append).sha256 == wanted
    assert (copied.read_bytes(), sum(told)) == (content, len(content))
    assert copied.stat().st_ino != source.stat().st_ino
