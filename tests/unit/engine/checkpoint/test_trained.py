"""Weights as training programs leave them: each form gives the file that the released form gives, and says so."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from tests.support.upstream_source import RecordedProgress, make_source
from tests.support.upstream_stepaudio2 import make_stepaudio2_source
from voicegate.engine.checkpoint import constants
from voicegate.engine.checkpoint.conversion import CheckpointError, ConvertOptions
from voicegate.engine.checkpoint.convert import convert
from voicegate.engine.checkpoint.source import load_weights

State = dict[str, Any]
PARTS = {"llm": "llm.pt", "flow": "flow.pt", "vocoder": "hift.pt"}


@pytest.fixture(scope="module")
def cosyvoice3(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_source(tmp_path_factory.mktemp("upstream") / "Fun-Small")


@pytest.fixture(scope="module")
def stepaudio2(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_stepaudio2_source(tmp_path_factory.mktemp("upstream") / "Two", is_merged=False)


@pytest.fixture(scope="module")
def merged(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_stepaudio2_source(tmp_path_factory.mktemp("upstream") / "Merged")


@pytest.fixture(autouse=True)
def _no_table(monkeypatch: pytest.MonkeyPatch) -> None:
    """Drawing the excitation takes a second; test_constants does it."""
    monkeypatch.setattr(constants, "check_excitation", lambda _: True)


def converted(source: Path, target: Path, llm_file: str = "llm.pt") -> tuple[dict[str, bytes], list[str]]:
    """The weights files, and what was remarked."""
    progress = RecordedProgress()
    convert(source, target, ConvertOptions(llm_file=llm_file), progress)
    return {part: (target / f"{part}.safetensors").read_bytes() for part in PARTS}, progress.remarks


def prefixed(front: str) -> Callable[[State], State]:
    return lambda state: {front + name: tensor for name, tensor in state.items()}


def within(front: str) -> Callable[[State], State]:
    """As torch.compile and DDP name a module of a module."""
    return lambda state: {name.replace(".", f".{front}", 1): tensor for name, tensor in state.items()}


def deepspeed(state: State) -> State:
    """`mp_rank_00_model_states.pt`: QwenAudio/CosyVoice issue 490 lists its keys."""
    return {
        "module": state,
        "buffer_names": [],
        "optimizer": None,
        "param_shapes": [{name: tensor.shape for name, tensor in state.items()}],
        "frozen_param_fragments": {"llm_decoder.weight": torch.zeros(3)},
        "ds_version": "0.15.1",
        "model": "llm",
        "loss_dict": {"loss": torch.tensor(0.5)},
        "grad_norm": torch.tensor(0.1),
        "step": 900,
    }


FORMS: list[tuple[Callable[[State], State], str]] = [
    (lambda state: {**state, "epoch": 3, "step": 900}, "left out, since it is no weight: epoch, step"),
    (prefixed("module."), ""),
    (prefixed("_orig_mod.module."), ""),
    (within("_orig_mod."), ""),
    (within("_fsdp_wrapped_module._checkpoint_wrapped_module."), ""),
    (prefixed("model."), "left out of all names: model."),
    (prefixed("base_model.model."), "left out of all names: base_model.model."),
    (deepspeed, "its weights are taken from 'module'"),
    (
        lambda state: {"state_dict": prefixed("net.")(state), "optimizer_states": [{"state": {}}], "epoch": 1},
        "its weights are taken from 'state_dict'",
    ),
    (lambda state: {"model": {"module": state}, "lr": 1e-5}, "its weights are taken from 'model' > 'module'"),
]


@pytest.mark.parametrize("form", range(len(FORMS)))
@pytest.mark.parametrize("family", ["cosyvoice3", "stepaudio2"])
def test_each_form_gives_the_same_model(request: pytest.FixtureRequest, tmp_path: Path, family: str, form: int) -> None:
    wrap, remark = FORMS[form]
    released: Path = request.getfixturevalue(family)
    source = shutil.copytree(released, tmp_path / released.name)
    for name in PARTS.values():
        (path,) = source.rglob(name)
        torch.save(wrap(torch.load(path, weights_only=True)), path)
    (plain, said_of_plain), (trained, said) = converted(released, tmp_path / "a"), converted(source, tmp_path / "b")
    assert trained == plain
    assert said_of_plain == []
    for name in PARTS.values():
        assert any(line.startswith(f"{name}: {remark}") for line in said) == bool(remark)


@pytest.mark.parametrize("is_nested", [True, False])
@pytest.mark.parametrize("family", ["cosyvoice3", "stepaudio2"])
def test_the_generator_of_gan_training_is_taken(
    request: pytest.FixtureRequest, tmp_path: Path, family: str, is_nested: bool
) -> None:
    released: Path = request.getfixturevalue(family)
    source = shutil.copytree(released, tmp_path / released.name)
    (path,) = source.rglob("hift.pt")
    generator = torch.load(path, weights_only=True)
    discriminator = {"mpd.discriminators.0.convs.0.bias": torch.zeros(4)}
    if is_nested:
        saved: State = {"generator": generator, "discriminator": discriminator, "steps": 4}
    else:
        saved = prefixed("generator.")(generator) | prefixed("discriminator.")(discriminator) | {"epoch": 1, "step": 2}
    torch.save(saved, path)
    trained, said = converted(source, tmp_path / "b")
    assert trained == converted(released, tmp_path / "a")[0]
    assert any("discriminator" in line for line in said)


def test_weight_norm_as_torch_before_2_wrote_it(cosyvoice3: Path, tmp_path: Path) -> None:
    source = shutil.copytree(cosyvoice3, tmp_path / cosyvoice3.name)
    state = torch.load(source / "hift.pt", weights_only=True)
    old = {".parametrizations.weight.original0": ".weight_g", ".parametrizations.weight.original1": ".weight_v"}
    for new_name, old_name in old.items():
        state = {name.replace(new_name, old_name): tensor for name, tensor in state.items()}
    torch.save(state, source / "hift.pt")
    assert converted(source, tmp_path / "b")[0] == converted(cosyvoice3, tmp_path / "a")[0]


def test_an_llm_in_safetensors(cosyvoice3: Path, tmp_path: Path) -> None:
    """As Hugging Face's trainer writes it, under upstream's names."""
    source = shutil.copytree(cosyvoice3, tmp_path / cosyvoice3.name)
    state = torch.load(source / "llm.pt", weights_only=True)
    del state["llm.model.lm_head.weight"]  # tied: such a file has it once
    save_file(state, source / "model.safetensors")
    assert converted(source, tmp_path / "b", "model.safetensors")[0] == converted(cosyvoice3, tmp_path / "a")[0]


@pytest.mark.parametrize("front", ["module.", "_orig_mod.", "base_model.model."])
def test_a_merged_llm_with_a_front(merged: Path, tmp_path: Path, front: str) -> None:
    source = shutil.copytree(merged, tmp_path / merged.name)
    path = source / "cosyvoice2_llm" / "model.safetensors"
    save_file(prefixed(front)(load_file(path)), path)
    assert converted(source, tmp_path / "b")[0] == converted(merged, tmp_path / "a")[0]


def test_many_keys_are_not_all_listed(tmp_path: Path) -> None:
    torch.save({"a.b": torch.zeros(1)} | {f"key{number}": number for number in range(9)}, tmp_path / "llm.pt")
    (remark,) = load_weights(tmp_path / "llm.pt", "llm").remarks
    assert remark.endswith("key0, key1, key2, key3 and 5 others")


@pytest.mark.parametrize(
    ("saved", "message"),
    [
        ({"model": {"a.b": torch.zeros(1)}, "ema": {"a.b": torch.zeros(1)}}, r"several state dicts \('model', 'ema'\)"),
        ({"a.b": torch.zeros(1), "module.a.b": torch.zeros(1)}, r"has a\.b twice, once as module\.a\.b"),
        (
            {"llm.q_proj.base_layer.weight": torch.zeros(1), "llm.q_proj.lora_A.default.weight": torch.zeros(1)},
            r"LoRA adapter \(llm\.q_proj\.base_layer\.weight\): merge it into the weights",
        ),
        (
            {"a.b": torch.zeros(1), "loss": np.float32(1)},
            r"numpy arrays or numbers; it was not .*Save its tensors alone",
        ),
        ({"a.b": torch.zeros(1), "conv": torch.nn.Conv1d}, r"plain data: torch\.nn\.modules\.conv\.Conv1d; it was not"),
    ],
)
def test_what_cannot_be_told_apart_is_refused(tmp_path: Path, saved: State, message: str) -> None:
    torch.save(saved, tmp_path / "llm.pt")
    with pytest.raises(CheckpointError, match=message) as caught:
        load_weights(tmp_path / "llm.pt", "llm")
    assert "\x1b" not in str(caught.value)


def test_an_adapter_beside_a_merged_llm(merged: Path, tmp_path: Path) -> None:
    source = shutil.copytree(merged, tmp_path / merged.name)
    place = source / "cosyvoice2_llm"
    (place / "model.safetensors").unlink()
    adapter = {"base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight": torch.zeros(2, 2)}
    save_file(adapter, place / "adapter_model.safetensors")
    with pytest.raises(CheckpointError, match=r"adapter_model\.safetensors holds a LoRA adapter"):
        converted(source, tmp_path / "model")


# --- what is optional -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "found"),
    [
        (
            lambda: {"anna": {"embedding": np.zeros(192)}},
            "holds more than tensors and plain data: numpy arrays or numbers",
        ),
        (lambda: {"anna": {"age": np.float64(30)}}, "holds more than tensors and plain data: numpy arrays or numbers"),
        (lambda: {"anna": Path("/a")}, "holds more than tensors and plain data: pathlib"),
        (lambda: [1, 2], "holds a list, not speakers by name"),
        (lambda: {"anna": {"embedding": [0.5] * 192}}, "it has no flow_prompt_speech_token, so it is not"),
        (lambda: {"anna": None, 3: 4.5}, "it is a NoneType, not a mapping"),
        (lambda: {"anna": {"flow_prompt_speech_token": torch.empty(1, 4, device="meta")}}, "no voice from 'anna'"),
    ],
)
def test_speakers_that_cannot_be_read_stop_no_conversion(
    cosyvoice3: Path, tmp_path: Path, content: Callable[[], Any], found: str
) -> None:
    source = shutil.copytree(cosyvoice3, tmp_path / cosyvoice3.name)
    torch.save(content(), source / "spk2info.pt")
    _, said = converted(source, tmp_path / "model")
    assert found in "\n".join(said)
    assert "\x1b" not in "\n".join(said)
    assert list((tmp_path / "model" / "voices").iterdir()) == []


@pytest.mark.parametrize(
    "content", [b"", b"PK\x03\x04 and then nothing", b"version https://git-lfs.github.com/spec/v1\n"]
)
def test_a_damaged_file_of_speakers_stops_no_conversion(cosyvoice3: Path, tmp_path: Path, content: bytes) -> None:
    source = shutil.copytree(cosyvoice3, tmp_path / cosyvoice3.name)
    (source / "spk2info.pt").write_bytes(content)
    _, (said,) = converted(source, tmp_path / "model")
    assert said.startswith("no voices from spk2info.pt: ")


@pytest.mark.parametrize("family", ["cosyvoice3", "stepaudio2"])
def test_an_encoder_that_was_not_fetched_is_left_out(
    request: pytest.FixtureRequest, tmp_path: Path, family: str
) -> None:
    released: Path = request.getfixturevalue(family)
    source = shutil.copytree(released, tmp_path / released.name)
    (source / "campplus.onnx").write_bytes(b"version https://git-lfs.github.com/spec/v1\n")
    _, (said,) = converted(source, tmp_path / "model")
    assert "campplus.onnx is a Git LFS pointer" in said
    assert not (tmp_path / "model" / "campplus.onnx").exists()
