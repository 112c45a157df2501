"""bench.peers: ratios and flattery of its tables, and the generated model that vLLM-Omni loads."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import onnxruntime
import pytest
import torch

from tests.support.upstream_source import SMALL
from tests.unit.clients.bench.test_judge import RECORD
from voicegate.bench.full_size.engine_dir import Ending, make_engine_dir
from voicegate.bench.peers import report, vllm_omni
from voicegate.bench.peers.generated import write
from voicegate.clients.bench.judge import figures
from voicegate.engine.checkpoint import constants
from voicegate.engine.checkpoint.conversion import ConvertOptions
from voicegate.engine.llm.torch.model import HEAD
from voicegate.engine.model.weights import load_state_dict

MACHINE = {"gpu": "NVIDIA H200", "torch": "2.11.0", "commit": "abc"}
SIZES = replace(SMALL, vocab_entries=1_100, text_rows=1_400, hidden=64, layers=3)


def server(first_audio_ms: float, audio_s_per_s: float) -> dict[str, Any]:
    row = figures([RECORD], window_s=(5.0, 20.0))
    first = row["first_audio_ms"] | {"p50": first_audio_ms, "p95": first_audio_ms}
    loads = {"closed:1:whole": row | {"first_audio_ms": first, "audio_s_per_s": audio_s_per_s}}
    return {"environment": MACHINE, "settings": {}, "loads": loads}


def test_ratios_are_above_one_where_voicegate_is_better() -> None:
    servers = {"vllm-omni": server(700, 2.5), "voicegate": server(14, 50)}
    shown = list(report.lines({"servers": servers}))
    assert "| closed:1:whole | 700 / 700 | 2.5 | 2.0 | 0 | 14 / 14 | 50.0 | 2.0 | 0 | 50.0 | 20.0 |" in shown


def test_a_load_that_failed_has_no_ratio() -> None:
    dead = server(700, 2.5)
    dead["loads"]["closed:1:whole"] = {"failed": "its engine died"}
    shown = list(report.lines({"servers": {"vllm-omni": dead, "voicegate": server(14, 50)}}))
    assert "| closed:1:whole | its engine died | – | – | – | 14 / 14 | 50.0 | 2.0 | 0 | – | – |" in shown


def test_settings_that_flatter_are_said() -> None:
    told = server(700, 2.5)
    told["settings"] = {"environment": {"COSYVOICE3_TRT": "1"}, "fixes": ["no NaN"]}
    phrases = report.flattery({"vllm-omni": told})
    assert ("the peer", "vllm-omni has what its release lacks: no NaN") in phrases
    assert not any("TensorRT" in how for _, how in phrases)


def test_the_generated_model_has_the_weights_and_the_voice_of_ours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(constants, "check_excitation", lambda _: True)
    write(tmp_path / "peer", SIZES)
    make_engine_dir(tmp_path / "ours", SIZES, ConvertOptions(llm_dtype="fp32"), Ending.NATURAL)
    theirs = torch.load(tmp_path / "peer" / "llm.pt", weights_only=True)
    assert torch.equal(theirs[HEAD], load_state_dict(tmp_path / "ours" / "llm.safetensors")[HEAD])
    reference = msgspec.json.decode((tmp_path / "peer" / "reference.json").read_bytes(), type=vllm_omni.Reference)
    voice = load_state_dict(tmp_path / "ours" / "voices" / f"{reference.voice}.safetensors")
    recording = (tmp_path / "peer" / reference.audio).stat().st_size
    assert recording == 44 + 2 * 960 * len(voice["speech_tokens"])
    session = onnxruntime.InferenceSession(tmp_path / "peer" / "campplus.onnx")
    (embedding,) = session.run(None, {"input": np.zeros((1, 7, 80), np.float32)})
    assert np.shape(embedding) == (1, voice["embedding"].numel())
