"""Misfits are told before anything is imported or loaded, with the remedy."""

import importlib.metadata
import json
from pathlib import Path

import pytest
import torch

from tests.support.tensorrt_llm import contract
from tests.unit.engine.backends.legged.support import CONFIG, VOCABULARY
from voicegate.engine.backends.legged.merged import read_vocabulary
from voicegate.engine.backends.tensorrt_llm.config import TensorrtLlmConfig
from voicegate.engine.backends.tensorrt_llm.library import open_library
from voicegate.engine.backends.tensorrt_llm.requirements import SERIES, check_requirements
from voicegate.engine.interface import EngineError
from voicegate.engine.model.config import SamplingConfig
from voicegate.engine.model.qwen2 import qwen2_sizes

GPU = torch.device("cuda", 0)


@pytest.fixture
def hopper(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: (9, 0))
    return monkeypatch


def test_the_series_is_the_one_whose_contract_is_checked() -> None:
    assert contract.ENTRIES["_meta"]["target"].split()[1].startswith(f"{SERIES}.")


def test_an_old_gpu(hopper: pytest.MonkeyPatch) -> None:
    hopper.setattr(torch.cuda, "get_device_capability", lambda _: (7, 5))
    with pytest.raises(EngineError, match=r"this one has 7\.5: use --llm-backend cuda"):
        check_requirements(GPU)


def test_the_package_and_its_version(hopper: pytest.MonkeyPatch) -> None:
    with pytest.raises(EngineError, match=r"tensorrt_llm is not installed: .*release 1\.2\.1"):
        check_requirements(GPU)
    for version in ("1.1.0", "1.20.0", "2.0"):
        hopper.setattr(importlib.metadata, "version", lambda _, found=version: found)
        with pytest.raises(EngineError, match=f"tensorrt_llm {version} is installed; this engine knows"):
            check_requirements(GPU)
    for version in ("1.2.0", "1.2.0rc3"):
        hopper.setattr(importlib.metadata, "version", lambda _, found=version: found)
        with pytest.raises(EngineError, match=f"tensorrt_llm {version} corrupts its cache, .*release 1.2.1"):
            check_requirements(GPU)
    for version in ("1.2.1", "1.2.1.post1", "1.2.10rc1"):
        hopper.setattr(importlib.metadata, "version", lambda _, found=version: found)
        assert check_requirements(GPU) == version


def test_a_package_that_cannot_be_imported() -> None:
    settings = TensorrtLlmConfig(checkpoint_dir=Path("merged"), num_slots=1, max_positions=10)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TLLM_WORKER_USE_SINGLE_PROCESS", "0")
        with pytest.raises(EngineError, match="tensorrt_llm is installed, but cannot be imported"):
            open_library(settings, CONFIG, SamplingConfig(), VOCABULARY)


def write(directory: Path, **changes: object) -> Path:
    found = {**qwen2_sizes(CONFIG), "vocab_size": VOCABULARY.num_rows, "eos_token_id": VOCABULARY.eos_id, **changes}
    (directory / "config.json").write_text(
        json.dumps({key: value for key, value in found.items() if value is not None})
    )
    return directory


def test_a_checkpoint_tells_where_speech_begins(tmp_path: Path) -> None:
    assert read_vocabulary(write(tmp_path), CONFIG).first_speech_id == VOCABULARY.first_speech_id


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"hidden_size": 32}, "hidden_size is 32, not 24"),
        ({"vocab_size": 640 + 128}, "vocab_size is 768, not 640"),
        ({"eos_token_id": CONFIG.eos_id + CONFIG.vocab_size + 1}, "33 text tokens, but the text table has 32 rows"),
        ({"eos_token_id": None}, "names no eos_token_id"),
    ],
)
def test_another_models_checkpoint_is_refused(tmp_path: Path, changes: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=f"{message}.*voicegate convert SRC DST --merged-hf DIR"):
        read_vocabulary(write(tmp_path, **changes), CONFIG)


def test_a_directory_without_a_checkpoint(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="cannot be read"):
        read_vocabulary(tmp_path, CONFIG)
    (tmp_path / "config.json").write_text("[]")
    with pytest.raises(ValueError, match="names no eos_token_id"):
        read_vocabulary(tmp_path, CONFIG)
