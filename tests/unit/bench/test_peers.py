"""bench.peers: ratios and flattery of its tables, and the models that peers load."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
import torch

from tests.support import vllm_omni as standin
from tests.support.golden import TINY_MODEL_DIR
from tests.support.upstream_source import SMALL
from tests.unit.clients.bench.test_judge import RECORD
from voicegate.bench.full_size.engine_dir import Ending, make_engine_dir
from voicegate.bench.peers import embedded, reference, report, vllm_omni
from voicegate.bench.peers.generated import write
from voicegate.clients.bench.judge import figures
from voicegate.engine.checkpoint import constants
from voicegate.engine.checkpoint.conversion import ConvertOptions
from voicegate.engine.checkpoint.model_json import model_json
from voicegate.engine.checkpoint.upstream_yaml import read_upstream_yaml
from voicegate.engine.llm.torch.model import HEAD, TEXT_TABLE, TIED_TEXT_HEAD
from voicegate.engine.model.model_json import parse_model_config
from voicegate.engine.model.weights import load_state_dict

MACHINE = {"gpu": "NVIDIA H200", "num_cores": 2, "cpu": "Xeon", "torch": "2.11.0", "commit": "abc"}
SIZES = replace(SMALL, vocab_entries=1_100, text_rows=1_400, hidden=64, layers=3)


def row(first_audio_ms: float, audio_s_per_s: float) -> dict[str, Any]:
    found = figures([RECORD], window_s=(5.0, 20.0))
    first = found["first_audio_ms"] | {"p50": first_audio_ms, "p95": first_audio_ms}
    return found | {"first_audio_ms": first, "audio_s_per_s": audio_s_per_s}


def server(*rounds: dict[str, Any]) -> dict[str, Any]:
    loads = {report.round_name("closed:1:whole", number): found for number, found in enumerate(rounds)}
    return {"environment": MACHINE, "settings": {}, "loads": loads}


def shown(**servers: dict[str, Any]) -> list[str]:
    conditions = {"voice": "man", "duration_s": 20.0, "rounds": 1}
    return list(report.lines({"conditions": conditions, "servers": servers}))


def test_ratios_are_above_one_where_voicegate_is_better() -> None:
    lines = shown(upstream=server(row(700, 2.5)), voicegate=server(row(14, 50)))
    (theirs,) = (line for line in lines if line.startswith("| closed:1:whole | upstream |"))
    assert theirs.startswith("| closed:1:whole | upstream | 700 | 700 |")
    assert theirs.endswith("| 2.5 | 1 | 2.0 | 0 | 50.0 | 20.0 |")
    (own,) = (line for line in lines if line.startswith("| closed:1:whole | voicegate |"))
    assert own.endswith("| 50.0 | 1 | 2.0 | 0 | – | – |")


def test_rounds_are_told_by_their_least_and_greatest() -> None:
    lines = shown(upstream=server(row(700, 2.5), row(900, 2.0), row(720, 2.5)), voicegate=server(row(10, 50)))
    (theirs,) = (line for line in lines if line.startswith("| closed:1:whole | upstream |"))
    assert "| upstream | 700 to 900 | 700 to 900 |" in theirs
    assert theirs.endswith("| 72.0 | 20.0 |")


def test_a_load_that_failed_has_no_ratio() -> None:
    lines = shown(upstream=server({"failed": "its engine died"}), voicegate=server(row(14, 50)))
    assert f"| closed:1:whole | upstream | its engine died {10 * '| – '}|" in lines


def test_the_windows_are_told() -> None:
    conditions = {"voice": "man", "duration_s": 20.0, "rounds": 1}
    once = list(report.lines({"conditions": conditions, "servers": {"voicegate": server(row(14, 50))}}))
    assert once[0] == "Each load runs for 20 s."
    thrice = report.lines({"conditions": conditions | {"rounds": 3}, "servers": {}})
    assert next(thrice) == "Each load runs for 20 s, 3 times; cells have the least and the greatest."


def test_a_load_of_late_clients_is_told() -> None:
    late = row(14, 50) | {"clients": {"are_late": True}, "send_lag_ms": {"p95": 15.3}}
    lines = shown(voicegate=server(late))
    assert "The clients themselves were late in closed:1:whole of voicegate." in lines
    behind = "Texts were sent late, and first audio counts from then; p95: closed:1:whole of voicegate (15 ms)."
    assert behind in lines


def told(**servers: dict[str, Any]) -> list[str]:
    return list(report.sentences({"servers": servers}))


def test_the_readme_has_first_audio_alone_and_at_the_largest_load_of_a_peer() -> None:
    theirs = server(row(732, 2.5))
    theirs["loads"] |= {"closed:4:whole": row(3241, 2.5), "closed:16:whole": {"failed": "its engine died"}}
    ours = server(row(13, 56))
    ours["loads"] |= {"closed:4:whole": row(17, 90), "closed:16:whole": row(23, 150)}
    plain = server() | {"figures": row(450, 2)}
    assert told(vllm=theirs, voicegate=ours, transformers=plain) == [
        "First audio of a whole text alone on one NVIDIA H200, at the median: vllm 732 ms, voicegate 13 ms, "
        "transformers 450 ms.",
        "With 4 streams at once: vllm 3241 ms, voicegate 17 ms.",
    ]
    assert told(voicegate=ours) == told(vllm=theirs) == []
    assert told(vllm=server({"failed": "left out"}), voicegate=ours) == [], "nothing was heard of it"


def test_settings_that_flatter_are_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COSYVOICE3_TRT", "1")
    model = standin.model(tmp_path / "model", voice="generated-1")
    fixed = vllm_omni.Variant(standin.packages(tmp_path / "packages"), model, fix_names=("no NaN",))
    peer = server(row(700, 2.5)) | {"settings": fixed.settings("fixed")}
    phrases = report.flattery({"conditions": {"voice": "generated-1"}, "servers": {"fixed": peer}})
    assert ("the peer", "fixed has what its release lacks: no NaN") in phrases
    assert not any("TensorRT" in how for _, how in phrases)
    assert any("noise" in how for _, how in phrases)


def test_an_embedded_model_is_laid_out_as_upstream_keeps_its_own(tmp_path: Path) -> None:
    embedded.write(tmp_path, TINY_MODEL_DIR)
    raw = json.loads((TINY_MODEL_DIR / "model.json").read_text())
    assert raw["flow"]["decoder"]["cfm_params"].pop("inference_steps") == 2  # upstream's code has a constant
    parsed = read_upstream_yaml(tmp_path / "cosyvoice3.yaml")
    qwen2 = json.loads((tmp_path / "CosyVoice-BlankEN" / "config.json").read_text())
    again = model_json(parsed, qwen2, name=raw["name"], end_of_prompt_id=raw["endofprompt_token_id"])
    for part in ("llm", "flow", "hift"):
        assert parse_model_config(raw | {part: again[part]}, name="x") == parse_model_config(raw, name="x")
    voices = torch.load(tmp_path / "spk2info.pt", weights_only=True)
    assert voices["man"]["prompt_text"].tolist()[0].count(embedded.UPSTREAM_END_OF_PROMPT) == 1
    assert voices["man"]["prompt_speech_feat"].shape[1] == 2 * voices["man"]["flow_prompt_speech_token"].shape[1]
    assert reference.load(tmp_path).voice == raw["default_voice"]


def test_the_generated_model_has_the_weights_and_the_voice_of_ours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(constants, "check_excitation", lambda _: True)
    write(tmp_path / "peer", SIZES)
    make_engine_dir(tmp_path / "ours", SIZES, ConvertOptions(llm_dtype="fp32"), Ending.NATURAL)
    theirs = torch.load(tmp_path / "peer" / "llm.pt", weights_only=True)
    assert torch.equal(theirs[HEAD], load_state_dict(tmp_path / "ours" / "llm.safetensors")[HEAD])
    told = reference.load(tmp_path / "peer")
    voice = load_state_dict(tmp_path / "ours" / "voices" / f"{told.voice}.safetensors")
    recording = (tmp_path / "peer" / told.audio).stat().st_size
    assert recording == 44 + 2 * 960 * len(voice["speech_tokens"])
    embedded.write(tmp_path / "classes", tmp_path / "ours")
    classes = torch.load(tmp_path / "classes" / "llm.pt", weights_only=True)
    assert torch.equal(classes[HEAD], theirs[HEAD])
    assert torch.equal(classes[TIED_TEXT_HEAD], classes[TEXT_TABLE]), "upstream's strict loading asks for it"
    assert reference.load(tmp_path / "classes").voice in torch.load(tmp_path / "classes" / "spk2info.pt")
    assert (tmp_path / "classes" / "CosyVoice-BlankEN" / "tokenizer_config.json").is_file()
    session = onnxruntime.InferenceSession(tmp_path / "peer" / "campplus.onnx")
    (embedding,) = session.run(None, {"input": np.zeros((1, 7, 80), np.float32)})
    assert np.shape(embedding) == (1, voice["embedding"].numel())
