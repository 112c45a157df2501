"""A directory of the wrong kind: `convert` and a start say which kind it is and what to do, not what it lacks alone."""

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from safetensors.torch import load_file, save_file

from tests.support.upstream_source import RecordedProgress, make_source
from tests.support.upstream_stepaudio2 import make_stepaudio2_source
from voicegate.engine.checkpoint.conversion import CheckpointError, ConvertOptions
from voicegate.engine.checkpoint.convert import convert
from voicegate.engine.config import EngineConfig
from voicegate.engine.interface import EngineError
from voicegate.engine.load.build import load_engine
from voicegate.engine.model.weights import WeightsError, load_state_dict
from voicegate.gateway.cli.checks.model import check_model

POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n"


def refusal(source: Path, **options: str) -> str:
    with pytest.raises(CheckpointError) as caught:
        convert(source, source.parent / "made", ConvertOptions(**options), RecordedProgress())  # type: ignore[arg-type]
    return str(caught.value)


def touch(*names: str) -> Callable[[Path], None]:
    def make(directory: Path) -> None:
        for name in names:
            path = directory / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch()

    return make


COSYVOICE2 = touch("cosyvoice2.yaml", "llm.pt", "flow.pt", "hift.pt", "CosyVoice-BlankEN/config.json")

OF_SOURCES: list[tuple[Callable[[Path], None], str]] = [
    (COSYVOICE2, r"put flow\.yaml, flow\.pt and hift\.pt of Step-Audio-2-mini's token2wav into .*/token2wav"),
    (touch("CosyVoice2-0.5B/cosyvoice2.yaml"), r"it is CosyVoice2, whose LLM is run with Step-Audio2's token2wav"),
    (touch("cosyvoice.yaml", "llm.pt"), "it is CosyVoice-300M, which is not run here"),
    (touch("config.json", "model.safetensors", "tokenizer.json"), "it is a language model alone"),
    (touch("model.json", "llm.safetensors"), "it is a model directory already: voicegate serve --model-dir"),
    (touch("Fun-CosyVoice3-0.5B/cosyvoice3.yaml"), r"there is one below it: name .*/odd/Fun-CosyVoice3-0\.5B$"),
    (touch("snapshots/0a1b/token2wav/flow.yaml", "snapshots/0a1b/flow.yaml"), r"name .*/odd/snapshots/0a1b$"),
    (touch("notes.txt"), r"it lacks llm\.pt, flow\.pt, hift\.pt, model\.json"),
]


@pytest.mark.parametrize(("fill", "message"), OF_SOURCES)
def test_what_convert_is_given(tmp_path: Path, fill: Callable[[Path], None], message: str) -> None:
    fill(tmp_path / "odd")
    assert re.search(message, refusal(tmp_path / "odd"))


OF_MODELS: list[tuple[Callable[[Path], None], str]] = [
    (
        touch("cosyvoice3.yaml", "llm.pt"),
        r"holds Fun-CosyVoice3's own files: run `voicegate convert .*/odd NEW_DIRECTORY`",
    ),
    (touch("token2wav/flow.yaml"), r"of Step-Audio2's token2wav: run `voicegate convert .*/odd NEW_DIRECTORY`"),
    (COSYVOICE2, r"put flow\.yaml, flow\.pt and hift\.pt"),
    (touch("cosyvoice.yaml"), "it is CosyVoice-300M, which is not run here"),
    (touch("converted/llm.safetensors"), r"there is one below it: name .*/odd/converted$"),
    (touch("notes.txt"), "is not a voicegate model directory$"),
    (lambda directory: None, "odd is no directory$"),
]


@pytest.mark.parametrize(("fill", "message"), OF_MODELS)
def test_what_a_start_and_doctor_are_given(tmp_path: Path, fill: Callable[[Path], None], message: str) -> None:
    fill(tmp_path / "odd")
    with pytest.raises(EngineError, match=message):
        load_engine(EngineConfig(model_dir=tmp_path / "odd", threads=1), lambda _: None)
    (finding,) = check_model(tmp_path / "odd")
    assert re.search(message.rstrip("$"), finding.text)


def split(place: Path) -> None:
    """As Hugging Face's writer does with large models."""
    whole = place / "model.safetensors"
    state = load_file(whole)
    names = sorted(state)
    shards = {"model-00001-of-00002.safetensors": names[:3], "model-00002-of-00002.safetensors": names[3:]}
    for shard, chosen in shards.items():
        save_file({name: state[name] for name in chosen}, place / shard)
    whole.unlink()
    weight_map = {name: shard for shard, chosen in shards.items() for name in chosen}
    (place / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": weight_map}))


@pytest.mark.parametrize("has_index", [True, False])
def test_a_shard_that_is_missing_is_named(tmp_path: Path, has_index: bool) -> None:
    source = make_stepaudio2_source(tmp_path / "Two")
    place = source / "cosyvoice2_llm"
    split(place)
    save_file(load_file(place / "model-00001-of-00002.safetensors"), place / "left_by_another_run.safetensors")
    if has_index:
        convert(source, tmp_path / "whole", ConvertOptions(), RecordedProgress())
    else:
        (place / "model.safetensors.index.json").unlink()
    (place / "model-00002-of-00002.safetensors").unlink()
    assert "cosyvoice2_llm lacks model-00002-of-00002.safetensors" in refusal(source)


def test_an_index_of_something_else(tmp_path: Path) -> None:
    source = make_stepaudio2_source(tmp_path / "Two")
    (source / "cosyvoice2_llm" / "model.safetensors").unlink()
    (source / "cosyvoice2_llm" / "model.safetensors.index.json").write_text("[]")
    assert "model.safetensors.index.json lists no shards" in refusal(source)


def test_files_that_git_lfs_left_in_their_place(tmp_path: Path) -> None:
    source = make_stepaudio2_source(tmp_path / "Two")
    for name in ("model.safetensors", "tokenizer.json"):
        (source / "cosyvoice2_llm" / name).write_bytes(POINTER)
        assert f"{name} is a Git LFS pointer, not the file" in refusal(source)
    with pytest.raises(WeightsError, match="is a Git LFS pointer"):
        load_state_dict(source / "cosyvoice2_llm" / "model.safetensors")


@pytest.mark.parametrize("family", [make_source, lambda path: make_stepaudio2_source(path, is_merged=False)])
def test_an_llm_in_a_directory_of_its_own(tmp_path: Path, family: Callable[[Path], Path]) -> None:
    """As DeepSpeed saves: the directory is named, a file in it is taken."""
    source = family(tmp_path / "odd")
    (source / "epoch_6_whole").mkdir()
    shutil.copy(source / "llm.pt", source / "epoch_6_whole" / "mp_rank_00_model_states.pt")
    assert "epoch_6_whole is a directory: name the file in it" in refusal(source, llm_file="epoch_6_whole")
    options = ConvertOptions(llm_file="epoch_6_whole/mp_rank_00_model_states.pt")
    convert(source, tmp_path / "made", options, RecordedProgress())
    elsewhere = tmp_path / "elsewhere.pt"
    assert "elsewhere.pt" in refusal(source, llm_file=str(elsewhere))
    shutil.copy(source / "llm.pt", elsewhere)
    convert(source, tmp_path / "again", ConvertOptions(llm_file=str(elsewhere)), RecordedProgress())
