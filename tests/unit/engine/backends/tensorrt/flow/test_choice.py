"""Choice of the flow's backend: the named one, or an error; else the quicker one, by shape, and it is told which."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from structlog.testing import capture_logs

from tests.support.golden import TINY_MODEL_DIR
from tests.support.tiny_engine import CONFIG
from voicegate.engine.backends.tensorrt.engine_files import EngineFilesError
from voicegate.engine.backends.tensorrt.flow.choice import FlowParts, choose_engines
from voicegate.engine.backends.tensorrt.flow.shape import ENGINE_SHAPES, FlowShape
from voicegate.engine.backends.tensorrt.library import TensorrtError
from voicegate.engine.config import EngineConfig
from voicegate.engine.device.lanes import HOST_LANE
from voicegate.engine.flow.cuda.config import FlowCudaConfig
from voicegate.engine.interface import EngineError
from voicegate.engine.load.devices import Device
from voicegate.engine.load.progress import Lines
from voicegate.engine.model.model_json import load_model_config

MODEL = load_model_config(TINY_MODEL_DIR)
CPU = Device(torch.device("cpu"), HOST_LANE, HOST_LANE)
OURS_MS = 8.0
ONE = [shape for shape in ENGINE_SHAPES if shape.num_rows == 1]


class Scripted:
    """The parts of a flow, and how long a block of each shape takes. `failure`: of TensorRT's."""

    def __init__(
        self,
        monkeypatch: pytest.MonkeyPatch,
        *,
        theirs_ms: Mapping[FlowShape, float] | None = None,
        failure: Exception | None = None,
    ) -> None:
        self.lines: list[str] = []
        self._failure = failure
        self._theirs_ms = theirs_ms or {}
        monkeypatch.setattr(FlowParts, "engines", lambda _: self._engines())
        monkeypatch.setattr(FlowParts, "block_ms", lambda _, engines: self._block_ms(engines))
        monkeypatch.setattr(FlowParts, "bound", lambda _, engines: engines)

    def _engines(self) -> dict[FlowShape, str]:
        if self._failure is not None:
            raise self._failure
        return {shape: shape.name for shape in ENGINE_SHAPES}

    def _block_ms(self, engines: Mapping[FlowShape, str]) -> tuple[dict[FlowShape, float], dict[FlowShape, float]]:
        assert list(engines) == list(ENGINE_SHAPES)
        theirs = {shape: self._theirs_ms.get(shape, 2 * OURS_MS) for shape in engines}
        return theirs, dict.fromkeys(engines, OURS_MS)

    def choose(self, config: EngineConfig) -> Any:
        parts = FlowParts(config, MODEL, CPU, FlowCudaConfig(has_graphs=False))
        return choose_engines(parts, Lines(self.lines.append))


@pytest.fixture
def config(tmp_path: Path) -> EngineConfig:
    """With engines, whatever they are worth."""
    (tmp_path / "manifest.json").write_text("torn")
    return replace(CONFIG, tensorrt_dir=tmp_path)


def test_the_quicker_one_of_each_shape_and_it_is_told(monkeypatch: pytest.MonkeyPatch, config: EngineConfig) -> None:
    scripted = Scripted(monkeypatch, theirs_ms={ONE[0]: 6.0, ONE[1]: OURS_MS, ONE[2]: 7.0})
    with capture_logs() as logs:
        assert scripted.choose(config) == {ONE[0]: ONE[0].name, ONE[2]: ONE[2].name}
    assert scripted.lines[-1] == (
        "flow: TensorRT for batches of 1 after up to 250 frames (0.75 times ours), 1 after up to 1000 frames "
        "(0.88 times ours); our kernels for all others"
    )
    assert logs[-1] == {
        "event": "flow_chosen",
        "log_level": "info",
        "tensorrt": [ONE[0].name, ONE[2].name],
        "of": len(ENGINE_SHAPES),
    }
    measured = [each for each in logs if each["event"] == "flow_measured"]
    assert [(each["rows"], each["context_frames"]) for each in measured] == [
        (shape.num_rows, shape.context_frames) for shape in ENGINE_SHAPES
    ]
    assert [each["tensorrt_ms"] for each in measured[:3]] == [6.0, OURS_MS, 7.0]
    assert {each["cuda_ms"] for each in measured} == {OURS_MS}


def test_where_none_is_quicker_it_is_told(monkeypatch: pytest.MonkeyPatch, config: EngineConfig) -> None:
    scripted = Scripted(monkeypatch, theirs_ms={ONE[1]: 10.0})
    with capture_logs() as logs:
        assert scripted.choose(config) is None
    assert scripted.lines[-1] == "flow: our kernels; TensorRT's blocks take 1.25 times theirs at the least"
    assert logs[-1]["tensorrt"] == []


def test_without_engines_nothing_is_measured(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    scripted = Scripted(monkeypatch)
    assert scripted.choose(replace(CONFIG, tensorrt_dir=tmp_path)) is None
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
        assert scripted.choose(config) is None
    assert logs == [{"event": "flow_engines_unused", "log_level": "warning", "reason": str(failure), "flow": "cuda"}]
    assert scripted.lines == [f"flow: TensorRT's engines are not used: {failure}"]
    with pytest.raises(EngineError, match=f"--flow-backend tensorrt: {failure}"):
        scripted.choose(replace(config, flow_backend="tensorrt"))
    assert scripted.choose(replace(config, flow_backend="cuda")) is None


@pytest.mark.parametrize("failure", [TensorrtError("could not launch"), RuntimeError("no capture\nCUDA's advice")])
@pytest.mark.parametrize("where", ["block_ms", "bound"])
def test_engines_that_cannot_be_run(
    monkeypatch: pytest.MonkeyPatch, config: EngineConfig, failure: Exception, where: str
) -> None:
    def fail(*_: object) -> None:
        raise failure

    scripted = Scripted(monkeypatch, theirs_ms={ONE[0]: 1.0})
    monkeypatch.setattr(FlowParts, where, fail)
    assert scripted.choose(config) is None
    assert scripted.lines[-1] == f"flow: TensorRT's engines are not used: {str(failure).splitlines()[0]}"


def test_what_was_named_is_not_measured(monkeypatch: pytest.MonkeyPatch, config: EngineConfig) -> None:
    scripted = Scripted(monkeypatch)
    assert list(scripted.choose(replace(config, flow_backend="tensorrt"))) == list(ENGINE_SHAPES)
    assert not scripted.lines
