"""Choice of the vocoder's backend: the named one, or an error; else the quicker one, and it is told which and why."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from structlog.testing import capture_logs

from tests.support.golden import TINY_MODEL_DIR
from tests.support.tiny_engine import CONFIG
from voicegate.engine.backends.tensorrt.engine_files import EngineFilesError
from voicegate.engine.backends.tensorrt.library import TensorrtError
from voicegate.engine.backends.tensorrt.vocoder import choice
from voicegate.engine.backends.tensorrt.vocoder.choice import (
    VocoderParts,
    choose_renderer,
    mean_ratio,
    measured_buckets,
)
from voicegate.engine.config import EngineConfig
from voicegate.engine.device.lanes import HOST_LANE
from voicegate.engine.interface import EngineError
from voicegate.engine.load.devices import Device
from voicegate.engine.load.progress import SILENT, Lines
from voicegate.engine.load.startup import ModelStart
from voicegate.engine.load.token2wav import load_vocoder
from voicegate.engine.model.model_json import load_model_config
from voicegate.engine.vocoder.cuda.config import VocoderCudaConfig

MODEL = load_model_config(TINY_MODEL_DIR)
CPU = Device(torch.device("cpu"), HOST_LANE, HOST_LANE)
BUCKETS = measured_buckets(VocoderCudaConfig())


class Renderer:
    """One that is only chosen."""

    def __init__(self, name: str) -> None:
        self.name = name


class Scripted:
    """The parts of a vocoder, and how long its calls take. `failure`: of TensorRT's."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, tensorrt_ms: float = 1.0, failure: Exception | None = None):
        self.lines: list[str] = []
        self._failure = failure
        self._ms = {"tensorrt": tensorrt_ms, "cuda": 2.0}
        monkeypatch.setattr(VocoderParts, "kernels", lambda _: Renderer("cuda"))
        monkeypatch.setattr(VocoderParts, "engines", lambda _: self._engines())
        monkeypatch.setattr(choice, "call_ms", self._call_ms)

    def _engines(self) -> Renderer:
        if self._failure is not None:
            raise self._failure
        return Renderer("tensorrt")

    def _call_ms(self, renderer: Renderer, buckets: Sequence[tuple[int, int]]) -> list[float]:
        assert list(buckets) == BUCKETS
        return [self._ms[renderer.name]] * len(buckets)

    def choose(self, config: EngineConfig) -> str:
        nothing: Any = None
        parts = VocoderParts(config, MODEL, nothing, CPU, VocoderCudaConfig())
        chosen = choose_renderer(parts, Lines(self.lines.append))
        return "cuda" if chosen is None else chosen.name


@pytest.fixture
def config(tmp_path: Path) -> EngineConfig:
    """With engines, whatever they are worth."""
    (tmp_path / "manifest.json").write_text("torn")
    return replace(CONFIG, tensorrt_dir=tmp_path)


@pytest.mark.parametrize(("tensorrt_ms", "chosen"), [(1.9, "tensorrt"), (2.0, "cuda"), (2.1, "cuda")])
def test_the_quicker_one_and_it_is_told(
    monkeypatch: pytest.MonkeyPatch, config: EngineConfig, tensorrt_ms: float, chosen: str
) -> None:
    scripted = Scripted(monkeypatch, tensorrt_ms=tensorrt_ms)
    with capture_logs() as logs:
        assert scripted.choose(config) == chosen
    assert scripted.lines[-1] == f"vocoder: {chosen}; TensorRT's calls take {tensorrt_ms / 2:.2f} times ours"
    assert logs[-1] == {
        "event": "vocoder_chosen",
        "log_level": "info",
        "vocoder": chosen,
        "tensorrt_to_cuda": round(tensorrt_ms / 2, 3),
    }
    measured = [each for each in logs if each["event"] == "vocoder_measured"]
    assert [(each["streams"], each["frames"]) for each in measured] == BUCKETS
    assert {(each["tensorrt_ms"], each["cuda_ms"]) for each in measured} == {(tensorrt_ms, 2.0)}


def test_without_engines_nothing_is_measured(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    scripted = Scripted(monkeypatch)
    assert scripted.choose(replace(CONFIG, tensorrt_dir=tmp_path)) == "cuda"
    assert not scripted.lines


@pytest.mark.parametrize(
    "failure",
    [
        EngineFilesError("they are stale"),
        TensorrtError("not installed"),
        OSError("no disk"),
        torch.OutOfMemoryError("CUDA out of memory"),
    ],
    ids=repr,
)
def test_engines_that_cannot_be_had(monkeypatch: pytest.MonkeyPatch, config: EngineConfig, failure: Exception) -> None:
    """`auto` goes on, and says why; who named them is refused."""
    scripted = Scripted(monkeypatch, failure=failure)
    with capture_logs() as logs:
        assert scripted.choose(config) == "cuda"
    assert logs == [
        {"event": "vocoder_engines_unused", "log_level": "warning", "reason": str(failure), "vocoder": "cuda"}
    ]
    assert scripted.lines == [f"vocoder: TensorRT's engines are not used: {failure}"]
    with pytest.raises(EngineError, match=f"--vocoder-backend tensorrt: {failure}"):
        scripted.choose(replace(config, vocoder_backend="tensorrt"))
    assert scripted.choose(replace(config, vocoder_backend="cuda")) == "cuda"


@pytest.mark.parametrize("failure", [TensorrtError("could not launch"), RuntimeError("no capture\nCUDA's advice")])
def test_engines_that_cannot_be_run(monkeypatch: pytest.MonkeyPatch, config: EngineConfig, failure: Exception) -> None:
    def fail(*_: object) -> None:
        raise failure

    scripted = Scripted(monkeypatch)
    monkeypatch.setattr(choice, "call_ms", fail)
    assert scripted.choose(config) == "cuda"
    assert scripted.lines[-1] == f"vocoder: TensorRT's engines are not used: {str(failure).splitlines()[0]}"


def test_what_was_named_is_not_measured(monkeypatch: pytest.MonkeyPatch, config: EngineConfig) -> None:
    scripted = Scripted(monkeypatch, tensorrt_ms=9.0)
    assert scripted.choose(replace(config, vocoder_backend="tensorrt")) == "tensorrt"
    assert not scripted.lines


def test_a_cpu_computes_by_torch() -> None:
    config = replace(CONFIG, max_active_clauses=1)
    assert load_vocoder(config, MODEL, CPU, start=ModelStart(CPU.device, SILENT)).name == "torch"


def test_a_single_stream_counts_as_much_as_a_crowd() -> None:
    assert mean_ratio([0.2, 8.0], [0.4, 4.0]) == pytest.approx(1.0)
    assert BUCKETS == [(1, 20), (1, 56), (8, 20), (8, 56), (32, 20), (32, 56)]
