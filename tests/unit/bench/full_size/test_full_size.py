"""The proof's own parts, on a small model: the generated checkpoint and the direct directory."""

from pathlib import Path

import pytest
import torch

from tests.support.golden import golden_state_dict
from tests.support.upstream_source import GOLDEN, SMALL, RecordedProgress, make_source
from tests.support.upstream_stepaudio2 import SMALL_STEPAUDIO2, make_stepaudio2_source
from voicegate.bench.full_size.engine_dir import Ending, make_engine_dir
from voicegate.bench.full_size.source import generate, generated_voice, model_config
from voicegate.engine.checkpoint import constants
from voicegate.engine.checkpoint.conversion import ConvertOptions, Decoding
from voicegate.engine.checkpoint.convert import convert
from voicegate.engine.config import EngineConfig
from voicegate.engine.load.build import load_stages
from voicegate.engine.model.model_json import load_model_config
from voicegate.engine.model.weights import load_state_dict
from voicegate.engine.voices.store import load_voices


@pytest.fixture(autouse=True)
def _no_table(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(constants, "check_excitation", lambda _: True)


@pytest.mark.parametrize(("part", "upstream"), [("flow", "flow"), ("vocoder", "hift")])
def test_weights_follow_the_golden_rule(part: str, upstream: str) -> None:
    state, expected = generate(part, model_config(GOLDEN)), golden_state_dict(upstream)
    assert set(expected) <= set(state)
    assert all(torch.equal(state[name], tensor) for name, tensor in expected.items())


def test_never_stop_silences_the_stop_ids() -> None:
    model = model_config(SMALL)
    plain, endless = (generate("llm", model, never_stop=never)["llm_decoder.weight"] for never in (False, True))
    assert torch.equal(endless[:6561], 4 * plain[:6561])
    assert not endless[6561:].any()
    hidden = torch.randn(50, SMALL.hidden, generator=torch.Generator().manual_seed(0))
    stop_share = (hidden @ endless.T).softmax(-1)[:, 6561:].sum(-1)
    assert float(stop_share.mean()) < 1e-3 < float((hidden @ plain.T).softmax(-1)[:, 6561:].sum(-1).mean())


@pytest.mark.parametrize("dtype", ["fp32", "bf16", "fp16"])
def test_the_direct_directory_is_the_converted_one_and_loads(tmp_path: Path, dtype: str) -> None:
    options = ConvertOptions(llm_dtype=dtype, flow_dtype=dtype, vocoder_dtype=dtype)
    direct, converted = tmp_path / "direct", tmp_path / "converted"
    make_engine_dir(direct, SMALL, options, Ending.DRAWN)
    convert(make_source(tmp_path / "source"), converted, options, RecordedProgress())
    for name in ("llm", "flow", "vocoder", "flow_noise"):
        ours, theirs = (load_state_dict(place / f"{name}.safetensors") for place in (direct, converted))
        assert ours.keys() == theirs.keys()
        assert all(torch.equal(ours[key], theirs[key]) and ours[key].dtype == theirs[key].dtype for key in ours)
    model = load_model_config(direct)
    config = EngineConfig(direct, device="cpu", max_active_clauses=1, max_clause_tokens=25, spare_voices=0)
    stages = load_stages(config.resolved("cpu"), model, load_voices(direct, model))
    assert stages.voices["generated"].flow_prompt.num_blocks == 5  # 125 tokens, and what leads them in
    assert (tmp_path / "direct" / "tokenizer.json").read_bytes() == (converted / "tokenizer.json").read_bytes()


def test_the_second_familys_direct_directory_is_the_converted_one(tmp_path: Path) -> None:
    options = ConvertOptions(llm_dtype="bf16", decoding=Decoding.DEPLOYED, name="full-size-generated")
    direct, converted = tmp_path / "direct", tmp_path / "converted"
    make_engine_dir(direct, SMALL_STEPAUDIO2, options, Ending.DRAWN)
    convert(make_stepaudio2_source(tmp_path / "source"), converted, options, RecordedProgress())
    assert (direct / "model.json").read_bytes() == (converted / "model.json").read_bytes()
    for name in ("llm", "flow", "vocoder"):
        ours, theirs = (load_state_dict(place / f"{name}.safetensors") for place in (direct, converted))
        assert ours.keys() == theirs.keys()
        for key in ours:
            stored = ours[key].bfloat16() if name == "llm" else ours[key]  # as the merged layout has all of it
            assert torch.equal(stored.to(theirs[key].dtype), theirs[key]), key
    assert (direct / "tokenizer.json").read_bytes() == (converted / "tokenizer.json").read_bytes()
    assert not (direct / "flow_noise.safetensors").exists()
    assert (direct / "voices" / "generated.safetensors").exists()


def test_voice_is_always_the_same() -> None:
    model = model_config(SMALL)
    (first, texts), (second, _) = generated_voice(model), generated_voice(model)
    assert all(torch.equal(first[name], second[name]) for name in first)
    assert (first["speech_tokens"].shape, first["mel"].shape) == ((125,), (250, 80))
    assert texts["prompt_text"] == model.instruct_prefix + texts["transcript"]
