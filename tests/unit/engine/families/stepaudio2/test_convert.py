"""The second family's directories: the LLM in either layout, Step-Audio2's token2wav; what is missing is named."""

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from tests.support.golden import GOLDEN_DIR
from tests.support.upstream_source import SMALL, RecordedProgress, make_source
from tests.support.upstream_stepaudio2 import SMALL_STEPAUDIO2, make_stepaudio2_source
from voicegate.bench.full_size.stepaudio2 import StepAudio2Sizes, stepaudio2_config
from voicegate.engine.checkpoint.conversion import CheckpointError, ConvertOptions, Decoding, UnfitTensors
from voicegate.engine.checkpoint.convert import convert
from voicegate.engine.checkpoint.shapes import expected_shapes
from voicegate.engine.families.stepaudio2.checkpoint.llm import merged_shapes
from voicegate.engine.model.config import HeadBias, PenaltySamplingConfig, SamplingConfig, StopRule
from voicegate.engine.model.model_json import load_model_config
from voicegate.engine.model.upstream_kinds import COSYVOICE2_STEPAUDIO2
from voicegate.engine.text.tokenizer import TextTokenizer
from voicegate.gateway.cli.checks.finding import Level
from voicegate.gateway.cli.checks.model import check_model
from voicegate.gateway.cli.main import run

FIRST_SPEECH_ID = SMALL_STEPAUDIO2.num_text_tokens
FLOAT32 = ConvertOptions(llm_dtype="fp32")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_stepaudio2_source(tmp_path_factory.mktemp("upstream") / "Two")


@pytest.fixture
def source(made: Path, tmp_path: Path) -> Path:
    """A copy of it that a test may harm."""
    return shutil.copytree(made, tmp_path / "Two")


def converted(source: Path, target: Path, options: ConvertOptions = FLOAT32) -> Path:
    convert(source, target, options, RecordedProgress())
    return target


# --- what is written ----------------------------------------------------------------------------------------


def test_released_tensors_are_those_that_are_asked_for() -> None:
    """golden/manifest_full.json: names and shapes at the released sizes, the merged layout's for the LLM."""
    manifest = json.loads((GOLDEN_DIR / "stepaudio2_dit" / "manifest_full.json").read_text())
    model = stepaudio2_config(StepAudio2Sizes())
    needed, optional = merged_shapes(model.llm, 158_336)
    found = {"llm": needed | optional, **{part: expected_shapes(part, model) for part in ("flow", "vocoder")}}
    for part, name in (("llm", "llm"), ("flow", "flow"), ("vocoder", "hift")):
        assert {key: list(shape) for key, shape in found[part].items()} == manifest[name]
    llm = model.llm
    assert (llm.vocab_size, llm.end_of_prompt_id) == (151_663, 151_646)
    assert [llm.vocab_size + id_ for id_ in (llm.eos_id, llm.fill_id, llm.sos_id, llm.task_id)] == [
        158_224, 158_226, 158_227, 158_228
    ]  # fmt: skip


def test_a_directory_that_loads(made: Path, tmp_path: Path) -> None:
    target = converted(made, tmp_path / "model")
    files = ["llm.safetensors", "flow.safetensors", "vocoder.safetensors", "tokenizer.json", "model.json"]
    assert sorted(path.name for path in target.iterdir()) == sorted([*files, "conversion.json", "voices"])
    model = load_model_config(target)
    assert (model.name, model.family) == ("Two", COSYVOICE2_STEPAUDIO2)
    assert (model.llm.vocab_size, model.llm.num_speech_rows, model.llm.num_table_rows) == (FIRST_SPEECH_ID, 6564, 6566)
    assert (model.sampling, model.llm.stop, model.llm.head_bias) == (SamplingConfig(), StopRule(), HeadBias.USED)
    assert (model.instruct_prefix, model.llm.needs_end_of_prompt, model.supports_instruct) == ("", False, True)
    assert (model.vocoder.base_channels, model.vocoder.f0_channels, model.mel_top_hz) == (16, 16, 8000)
    tokenizer = TextTokenizer.from_file(target / "tokenizer.json", end_of_prompt_id=model.llm.end_of_prompt_id)
    assert max(tokenizer.encode_prompt("ab<|endofprompt|>[laughter]<|s_5|><|sos|>")) < FIRST_SPEECH_ID
    levels = {finding.subject: finding.level for finding in check_model(target)}
    assert levels.pop("voices") is Level.FAIL  # there is none yet
    assert set(levels.values()) == {Level.OK}


def test_rows_of_the_merged_vocabulary_are_taken_apart(made: Path, tmp_path: Path) -> None:
    merged = load_file(made / "cosyvoice2_llm" / "model.safetensors")
    llm = load_file(converted(made, tmp_path / "model") / "llm.safetensors")
    table, head = merged["model.embed_tokens.weight"].float(), merged["lm_head.weight"].float()
    first = FIRST_SPEECH_ID
    assert torch.equal(llm["llm.model.model.embed_tokens.weight"], table[:first])
    assert torch.equal(llm["speech_embedding.weight"], table[first : first + 6566])
    assert torch.equal(llm["llm_decoder.weight"], head[first : first + 6564])
    assert torch.equal(llm["llm_decoder.bias"], merged["lm_head.bias"][first : first + 6564].float())
    assert merged["lm_head.bias"][0] == -torch.inf


def test_both_layouts_give_the_same_model(made: Path, tmp_path: Path) -> None:
    apart = make_stepaudio2_source(tmp_path / "apart", is_merged=False)
    ours, theirs = (converted(place, tmp_path / name) for place, name in ((made, "a"), (apart, "b")))
    llms = [load_file(place / "llm.safetensors") for place in (ours, theirs)]
    assert llms[0].keys() == llms[1].keys()
    assert all(torch.equal(llms[0][key].bfloat16(), llms[1][key].bfloat16()) for key in llms[0])
    for name in ("tokenizer.json", "flow.safetensors", "vocoder.safetensors"):
        assert (ours / name).read_bytes() == (theirs / name).read_bytes()
    raws = [json.loads((place / "model.json").read_text()) | {"name": ""} for place in (ours, theirs)]
    for raw in raws:
        del raw["llm"]["qwen2"]["tie_word_embeddings"]
    assert raws[0] == raws[1]


def test_decoding_as_deployed(made: Path, tmp_path: Path) -> None:
    target = converted(made, tmp_path / "model", replace(FLOAT32, decoding=Decoding.DEPLOYED))
    model = load_model_config(target)
    assert model.sampling == PenaltySamplingConfig(temperature=0.8, top_p=0.95, top_k=50, repetition_penalty=1.1)
    assert model.llm.head_bias is HeadBias.IGNORED
    assert model.llm.stop == StopRule(True, 0, None, 750)
    assert "llm_decoder.bias" in load_file(target / "llm.safetensors")  # model.json alone decides


def test_a_merged_checkpoint_without_bias_in_two_files(source: Path, tmp_path: Path) -> None:
    path = source / "cosyvoice2_llm" / "model.safetensors"
    state = load_file(path)
    del state["lm_head.bias"]
    names = sorted(state)
    for part, chosen in ((1, names[:3]), (2, names[3:])):
        save_file({name: state[name] for name in chosen}, path.with_name(f"model-{part:05}-of-00002.safetensors"))
    path.unlink()
    target = converted(source, tmp_path / "model")
    assert load_model_config(target).llm.head_bias is HeadBias.ABSENT
    assert "llm_decoder.bias" not in load_file(target / "llm.safetensors")


def test_encoders_come_along_under_the_name_that_is_looked_for(source: Path, tmp_path: Path) -> None:
    (source / "CosyVoice2-0.5B").mkdir()
    (source / "CosyVoice2-0.5B" / "speech_tokenizer_v2.onnx").write_bytes(b"graph")
    (source / "token2wav" / "campplus.onnx").write_bytes(b"other")
    target = converted(source, tmp_path / "model")
    assert (target / "speech_tokenizer_v2_25hz.onnx").read_bytes() == b"graph"
    assert (target / "campplus.onnx").read_bytes() == b"other"


def test_the_folders_of_the_recipe(source: Path, tmp_path: Path) -> None:
    (source / "Step-Audio-2-mini").mkdir()
    (source / "token2wav").rename(source / "Step-Audio-2-mini" / "token2wav")
    assert load_model_config(converted(source, tmp_path / "model")).family == COSYVOICE2_STEPAUDIO2


# --- what is refused ----------------------------------------------------------------------------------------


def test_faults_of_all_files_are_told_by_the_names_that_they_have_there(source: Path, tmp_path: Path) -> None:
    path = source / "cosyvoice2_llm" / "model.safetensors"
    state = load_file(path)
    del state["model.norm.weight"]
    save_file({**state, "lm_head.scale": torch.zeros(2)}, path)
    flow = torch.load(source / "token2wav" / "flow.pt", weights_only=True)
    flow["encoder_proj.bias"] = torch.zeros(81)
    torch.save(flow, source / "token2wav" / "flow.pt")
    vocoder = torch.load(source / "token2wav" / "hift.pt", weights_only=True)
    del vocoder["conv_pre.bias"]
    torch.save(vocoder, source / "token2wav" / "hift.pt")
    with pytest.raises(
        UnfitTensors, match=r"model\.safetensors does not fit .*; flow\.pt does not .*; hift\.pt"
    ) as caught:
        converted(source, tmp_path / "model")
    assert "model.safetensors: missing: model.norm.weight [32]" in caught.value.faults
    assert "model.safetensors: unknown: lm_head.scale [2]" in caught.value.faults
    assert "flow.pt: misshaped: encoder_proj.bias is [81], not [80]" in caught.value.faults
    assert any("missing: conv_pre.bias" in fault for fault in caught.value.faults)
    assert not list(tmp_path.glob("model*"))


def changed(name: str, change: Callable[[dict[str, Any]], object]) -> Callable[[Path], None]:
    def apply(source: Path) -> None:
        path = source / "cosyvoice2_llm" / name
        content = json.loads(path.read_text())
        change(content)
        path.write_text(json.dumps(content))

    return apply


def renamed(old: str, new: str) -> Callable[[dict[str, Any]], None]:
    def apply(tokenizer: dict[str, Any]) -> None:
        tokenizer["added_tokens"] = json.loads(json.dumps(tokenizer["added_tokens"]).replace(old, new))

    return apply


@pytest.mark.parametrize(
    ("harm", "message"),
    [
        (lambda source: (source / "token2wav" / "hift.pt").unlink(), r"has flow\.yaml and lacks hift\.pt"),
        (lambda source: shutil.rmtree(source / "cosyvoice2_llm"), "has flow.yaml and no LLM: put Hugging Face's"),
        (lambda source: (source / "cosyvoice2_llm" / "tokenizer.json").unlink(), "which says which ids are speech"),
        (changed("tokenizer.json", renamed("<|s_0|>", "<|t_0|>")), r"has no token <\|s_0\|>"),
        (changed("tokenizer.json", renamed("<|sos|>", "<|zos|>")), r"has <\|sos\|> as None; after <\|s_6560\|> it"),
        (changed("tokenizer.json", lambda content: content.pop("model")), "is no byte-level BPE tokenizer"),
        (lambda source: (source / "cosyvoice2_llm" / "tokenizer.json").write_text("[]"), r"tokenizer\.json holds no m"),
        (changed("tokenizer.json", lambda content: content["model"]["vocab"].pop("a")), "the ids are not 0 to 298"),
        (changed("tokenizer.json", lambda content: content["model"].update(merges=["a b c"])), "no byte-level BPE"),
        (changed("tokenizer.json", lambda content: content.update(added_tokens=[{"id": 5}])), "garbles 'content'"),
        (changed("config.json", lambda content: content.update(vocab_size=6_800)), "vocab_size of 6800; .* needs 6886"),
        (changed("config.json", lambda content: content.update(hidden_act="gelu")), r"config\.json is not the Qwen2"),
        (changed("config.json", lambda content: content.update(tie_word_embeddings=True)), "tie_word_embeddings$"),
        (changed("config.json", lambda content: content.pop("hidden_size")), "lacks or garbles 'hidden_size'"),
    ],
)
def test_what_does_not_belong_together_is_named(
    source: Path, tmp_path: Path, harm: Callable[[Path], None], message: str
) -> None:
    harm(source)
    with pytest.raises(CheckpointError, match=message):
        converted(source, tmp_path / "model")


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("key_bias: true\n", "key_bias: false\n", "token2wav.encoder.key_bias is False, not True"),
        ("        up_stride: 2\n", "", "the configuration lacks 'up_stride'"),
        ("vocab_size: 6561", "vocab_size: 4096", r"has 6561 speech tokens, flow\.yaml 4096"),
        (" encoder: !new", " coder: !new", "flow.yaml lacks or garbles 'encoder'"),
        ("depth: 1\n", "depth: 2\n", r"flow\.pt does not fit the configuration: 24 missing of"),
    ],
)
def test_another_token2wav_is_refused(source: Path, tmp_path: Path, old: str, new: str, message: str) -> None:
    path = source / "token2wav" / "flow.yaml"
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))
    with pytest.raises(CheckpointError, match=message):
        converted(source, tmp_path / "model")


def test_an_llm_pt_without_its_tokenizer(tmp_path: Path) -> None:
    source = make_stepaudio2_source(tmp_path / "apart", is_merged=False)
    (source / "CosyVoice-BlankEN" / "merges.txt").unlink()
    with pytest.raises(CheckpointError, match=r"has llm\.pt and lacks CosyVoice-BlankEN/merges\.txt"):
        converted(source, tmp_path / "model")


def test_options_of_the_other_family_are_refused(made: Path, tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="--merged-hf is made of CosyVoice3"):
        converted(made, tmp_path / "model", replace(FLOAT32, merged_hf_dir=tmp_path / "hf"))
    with pytest.raises(CheckpointError, match="--decoding deployed is of CosyVoice2's LLM"):
        converted(
            make_source(tmp_path / "three", SMALL), tmp_path / "model", replace(FLOAT32, decoding=Decoding.DEPLOYED)
        )


# --- the command ----------------------------------------------------------------------------------------------


def test_the_command(made: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = tmp_path / "model"
    assert run(["convert", str(made), str(target), "--decoding", "deployed", "--name", "two"]) == 0
    assert capsys.readouterr().out.startswith(f"{target} is ready: voicegate serve --model-dir {target}")
    model = load_model_config(target)
    assert (model.name, model.llm.stop.is_eos_alone) == ("two", True)
