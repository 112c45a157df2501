"""From an upstream directory to one that loads: complete or not at all, and a run that was killed goes on."""

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from tests.support.upstream_source import SMALL, KilledHere, RecordedProgress, make_source
from voicegate.engine.checkpoint import constants
from voicegate.engine.checkpoint.conversion import CheckpointError, ConvertOptions, UnfitTensors
from voicegate.engine.checkpoint.convert import convert
from voicegate.engine.model.config import ModelConfigError
from voicegate.engine.model.model_json import load_model_config
from voicegate.engine.voices.voice import load_voice
from voicegate.gateway.cli.checks.finding import Level
from voicegate.gateway.cli.checks.model import check_model
from voicegate.gateway.cli.main import run

FILES = [
    "llm.safetensors",
    "flow.safetensors",
    "vocoder.safetensors",
    "tokenizer.json",
    "flow_noise.safetensors",
    "model.json",
]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_source(tmp_path_factory.mktemp("upstream") / "Fun-Small")


@pytest.fixture
def source(made: Path, tmp_path: Path) -> Path:
    """A copy of it that a test may harm."""
    return shutil.copytree(made, tmp_path / "Fun-Small")


@pytest.fixture(autouse=True)
def _no_table(monkeypatch: pytest.MonkeyPatch) -> None:
    """Drawing the excitation takes a second; test_constants does it."""
    monkeypatch.setattr(constants, "check_excitation", lambda _: True)


def converted(source: Path, target: Path, **options: object) -> RecordedProgress:
    progress = RecordedProgress()
    convert(source, target, replace(ConvertOptions(), **options), progress)  # type: ignore[arg-type]
    return progress


# --- what is written ----------------------------------------------------------------------------------------


def test_a_directory_that_loads(made: Path, tmp_path: Path) -> None:
    target = tmp_path / "model"
    progress = converted(made, target)
    assert list(progress.outcomes) == FILES
    assert progress.remarks == []
    assert sorted(path.name for path in target.iterdir()) == sorted([*FILES, "conversion.json", "voices"])
    model = load_model_config(target)
    assert (model.name, model.llm.end_of_prompt_id) == ("Fun-Small", SMALL.vocab_entries + 3)
    levels = {finding.subject: finding.level for finding in check_model(target)}
    assert levels.pop("voices") is Level.FAIL  # there is none yet
    assert set(levels.values()) == {Level.OK}


def test_dtypes_by_part(made: Path, tmp_path: Path) -> None:
    target = tmp_path / "model"
    converted(made, target, llm_dtype="bf16", flow_dtype="fp16", vocoder_dtype="fp32", name="mine")
    llm, flow, vocoder = (load_file(target / name) for name in FILES[:3])
    assert llm["llm_decoder.weight"].dtype == torch.bfloat16
    assert llm["llm.model.model.norm.weight"].dtype == torch.float32
    assert "llm.model.lm_head.weight" not in llm
    assert flow["decoder.estimator.proj_out.weight"].dtype == torch.float16
    assert {tensor.dtype for tensor in vocoder.values()} == {torch.float32}
    original = torch.load(made / "llm.pt", weights_only=True)["llm_decoder.weight"]
    assert torch.equal(llm["llm_decoder.weight"], original.bfloat16())
    assert load_model_config(target).name == "mine"


def test_the_other_language_model(source: Path, tmp_path: Path) -> None:
    state = torch.load(source / "llm.pt", weights_only=True)
    state["llm_decoder.weight"] = torch.zeros_like(state["llm_decoder.weight"])
    torch.save(state, source / "llm.rl.pt")
    converted(source, tmp_path / "model", llm_file="llm.rl.pt")
    assert not load_file(tmp_path / "model" / "llm.safetensors")["llm_decoder.weight"].any()


def test_our_own_configuration_in_place_of_the_yaml(source: Path, tmp_path: Path) -> None:
    converted(source, tmp_path / "first")
    (source / "cosyvoice3.yaml").unlink()
    shutil.copy(tmp_path / "first" / "model.json", source)
    converted(source, tmp_path / "second")
    assert (tmp_path / "second" / "model.json").read_text() == (tmp_path / "first" / "model.json").read_text()
    raw = json.loads((source / "model.json").read_text())
    (source / "model.json").write_text(json.dumps({**raw, "endofprompt_token_id": 7}))
    with pytest.raises(CheckpointError, match=r"has <\|endofprompt\|> as 7, the tokenizer as 303"):
        converted(source, tmp_path / "third")


def test_a_vocoder_from_gan_training(source: Path, tmp_path: Path) -> None:
    converted(source, tmp_path / "plain")
    state = torch.load(source / "hift.pt", weights_only=True)
    torch.save({f"generator.{key}": tensor for key, tensor in state.items()}, source / "hift.pt")
    converted(source, tmp_path / "prefixed")
    plain, prefixed = ((tmp_path / name / "vocoder.safetensors").read_bytes() for name in ("plain", "prefixed"))
    assert plain == prefixed


def test_onnx_files_come_along(source: Path, tmp_path: Path) -> None:
    (source / "campplus.onnx").write_bytes(b"graph")
    converted(source, tmp_path / "model")
    assert (tmp_path / "model" / "campplus.onnx").read_bytes() == b"graph"


def speakers(num_tokens: int = 4) -> dict[str, object]:
    whole = {
        "prompt_text": torch.tensor([[65, 66, SMALL.vocab_entries + 3, 67]]),
        "flow_prompt_speech_token": torch.arange(num_tokens)[None],
        "prompt_speech_feat": torch.randn(1, 11, 80),
        "flow_embedding": torch.randn(1, 192),
    }
    return {
        "anna": whole,
        "only-embedding": {"embedding": torch.randn(1, 192)},
        "../escape": whole,
        "long": {**whole, "flow_prompt_speech_token": torch.arange(9)[None]},
        "foreign": {**whole, "flow_prompt_speech_token": torch.full((1, 4), 6561)},
        "wide": {**whole, "flow_embedding": torch.randn(1, 256)},
        "empty": {**whole, "prompt_speech_feat": torch.randn(1, 1, 80)},
    }


def test_speakers_become_voices_where_they_are_whole(source: Path, tmp_path: Path) -> None:
    torch.save(speakers(), source / "spk2info.pt")
    progress = converted(source, tmp_path / "model")
    voices = sorted((tmp_path / "model" / "voices").iterdir())
    assert [path.stem for path in voices] == ["anna", "long"]
    anna, long = (load_voice(path, vocab_size=6561, speaker_dim=192) for path in voices)
    assert (anna.num_tokens, long.num_tokens) == (4, 5)
    assert anna.prompt_text.endswith(f"<|endofprompt|>{anna.transcript}")
    said = "\n".join(progress.remarks)
    assert "no voice from 'only-embedding': it has no flow_prompt_speech_token" in said
    assert "no voice from '../escape': '../escape' cannot be a voice's name" in said
    assert "no voice from 'foreign': its flow_prompt_speech_token is not all in 0..6560" in said
    assert "no voice from 'wide': its embedding has 256 numbers, not 192" in said
    assert "no voice from 'empty': its prompt is empty" in said
    assert {finding.level for finding in check_model(tmp_path / "model")} == {Level.OK}


# --- what is refused ----------------------------------------------------------------------------------------


def test_faults_of_all_files_are_told_before_anything_is_written(source: Path, tmp_path: Path) -> None:
    for name, key in (("llm.pt", "llm_decoder.weight"), ("hift.pt", "conv_pre.bias")):
        state = torch.load(source / name, weights_only=True)
        del state[key]
        torch.save({**state, "scale": torch.zeros(3)}, source / name)
    with pytest.raises(
        UnfitTensors, match=r"llm\.pt does not fit .*1 missing, 1 unknown.*; hift\.pt does not"
    ) as caught:
        converted(source, tmp_path / "model")
    assert caught.value.faults == (
        "llm.pt: missing: llm_decoder.weight [6761, 32]",
        "llm.pt: unknown: scale [3]",
        "hift.pt: missing: conv_pre.bias [16]",
        "hift.pt: unknown: scale [3]",
    )
    assert not list(tmp_path.glob("model*"))


def test_the_command_lists_faults_and_ends_in_one_line(
    source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    torch.save({}, source / "flow.pt")
    assert run(["convert", str(source), str(tmp_path / "model")]) == 1
    lines = capsys.readouterr().err.splitlines()
    assert "flow.pt: missing: input_embedding.weight [6561, 80]" in lines
    assert lines[-1].startswith("voicegate: flow.pt does not fit the configuration: ")


def test_weights_that_do_not_fit_the_dtype(source: Path, tmp_path: Path) -> None:
    state = torch.load(source / "flow.pt", weights_only=True)
    state["decoder.estimator.proj_out.weight"][3, 4] = 1e6
    torch.save(state, source / "flow.pt")
    with pytest.raises(CheckpointError, match=r"proj_out.weight reaches 1e\+06"):
        converted(source, tmp_path / "model", flow_dtype="fp16")
    assert converted(source, tmp_path / "model", flow_dtype="bf16").outcomes["llm.safetensors"] == "was done, verified"


def test_a_vocabulary_larger_than_the_table(source: Path, tmp_path: Path) -> None:
    text = (source / "CosyVoice-BlankEN" / "config.json").read_text()
    (source / "CosyVoice-BlankEN" / "config.json").write_text(text.replace("600", "580"))
    with pytest.raises(CheckpointError, match="the tokenizer has 581 entries, the LLM's text table 580 rows"):
        converted(source, tmp_path / "model")


def test_a_full_disk_is_found_first(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr("shutil.disk_usage", lambda _: usage._replace(free=1_000_000))
    with pytest.raises(CheckpointError, match=r"needs 0\.\d\d GB and its disk has 0\.00 GB free"):
        converted(made, tmp_path / "deep" / "model")
    assert not list(tmp_path.iterdir())


def test_a_directory_of_something_else_is_left_alone(made: Path, tmp_path: Path) -> None:
    target = tmp_path / "model"
    target.mkdir()
    (target / "notes.txt").write_text("mine")
    with pytest.raises(CheckpointError, match="was not made by `voicegate convert`"):
        converted(made, target)
    with pytest.raises(CheckpointError, match="is no directory"):
        converted(tmp_path / "nowhere", target)
    assert [path.name for path in target.iterdir()] == ["notes.txt"]


# --- killed, and run again ----------------------------------------------------------------------------------


@pytest.mark.parametrize("part", ["llm.safetensors", "vocoder.safetensors", "flow_noise.safetensors"])
def test_a_killed_run_leaves_nothing_that_loads_and_a_rerun_goes_on(made: Path, tmp_path: Path, part: str) -> None:
    target = tmp_path / "model"
    with pytest.raises(KilledHere):
        convert(made, target, ConvertOptions(), RecordedProgress(fails_at=part))
    assert not target.exists()
    for place in (target, tmp_path / "model.partial"):
        with pytest.raises(ModelConfigError, match="its conversion was not finished; run `voicegate convert` again"):
            load_model_config(place)
        (finding,) = check_model(place)
        assert (finding.level, "was not finished" in finding.text) == (Level.FAIL, True)
    progress = converted(made, target)
    position = FILES.index(part)
    done = [name for name, outcome in progress.outcomes.items() if outcome == "was done, verified"]
    assert done == FILES[:position]
    assert list(progress.outcomes) == FILES
    assert not (tmp_path / "model.partial").exists()
    assert load_model_config(target).name == "Fun-Small"


def kill_at(source: Path, target: Path, part: str, **options: object) -> None:
    with pytest.raises(KilledHere):
        convert(source, target, replace(ConvertOptions(), **options), RecordedProgress(fails_at=part))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("change", "options"),
    [
        (lambda source, partial: None, {"llm_dtype": "bf16"}),
        (lambda source, partial: (source / "llm.pt").touch(), {}),
        (lambda source, partial: (partial / "llm.safetensors").write_bytes(b"cut"), {}),
        (lambda source, partial: (partial / "llm.safetensors").unlink(), {}),
        (lambda source, partial: (partial / "conversion.json").write_text("{"), {}),
    ],
)
def test_what_does_not_hold_any_more_is_made_again(
    source: Path, tmp_path: Path, change: Callable[[Path, Path], None], options: dict[str, object]
) -> None:
    target = tmp_path / "model"
    kill_at(source, target, "flow.safetensors")
    change(source, tmp_path / "model.partial")
    assert converted(source, target, **options).outcomes["llm.safetensors"].endswith(" MB")
    assert (target / "llm.safetensors").stat().st_size > 1000


def test_damage_of_the_same_size_is_found(source: Path, tmp_path: Path) -> None:
    target = tmp_path / "model"
    kill_at(source, target, "flow.safetensors")
    path = tmp_path / "model.partial" / "llm.safetensors"
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    assert converted(source, target).outcomes["llm.safetensors"].endswith(" MB")
    assert (target / "llm.safetensors").read_bytes() != content


def test_files_of_an_abandoned_run_do_not_stay(source: Path, tmp_path: Path) -> None:
    (source / "campplus.onnx").write_bytes(b"graph")
    target = tmp_path / "model"
    converted(source, tmp_path / "other")
    (tmp_path / "other").rename(tmp_path / "model.partial")
    (source / "campplus.onnx").unlink()
    (tmp_path / "model.partial" / "voices" / "a.safetensors.part").write_bytes(b"cut off")
    converted(source, target)
    assert not (target / "campplus.onnx").exists()
    assert not list((target / "voices").iterdir())


def test_a_finished_directory_is_verified_and_kept(source: Path, tmp_path: Path) -> None:
    target = tmp_path / "model"
    converted(source, target)
    (target / "voices" / "mine.safetensors").write_bytes(b"not looked at")
    before = {path: path.stat().st_mtime_ns for path in target.iterdir()}
    assert set(converted(source, target).outcomes.values()) == {"was done, verified"}
    assert {path: path.stat().st_mtime_ns for path in target.iterdir()} == before
    with pytest.raises(CheckpointError, match=r"other options \(flow\.safetensors\): choose another directory"):
        converted(source, target, flow_dtype="bf16")
    (target / "vocoder.safetensors").write_bytes(b"")
    with pytest.raises(CheckpointError, match=r"vocoder\.safetensors is missing or damaged"):
        converted(source, target)


# --- the command ----------------------------------------------------------------------------------------------


def test_the_command(made: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = tmp_path / "model"
    assert run(["convert", str(made), str(target), "--llm-dtype", "bf16", "--name", "small"]) == 0
    told = capsys.readouterr()
    assert [line.partition(":")[0] for line in told.err.splitlines()] == FILES
    assert told.out.splitlines()[0] == f"{target} is ready: voicegate serve --model-dir {target}"
    assert "it has no voice yet" in told.out
    assert run(["convert", str(made / "nothing"), str(target)]) == 1
    assert capsys.readouterr().err == f"voicegate: {made / 'nothing'} is no directory\n"
