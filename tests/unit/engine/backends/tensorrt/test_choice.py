"""Choice of a part's backend: the named one, or an error; else the quicker one, measured, and it is told which."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch
from structlog.testing import capture_logs

from tests.support.golden import TINY_MODEL_DIR
from tests.support.tiny_engine import CONFIG
from voicegate.engine.backends.tensorrt.engine_files import EngineFilesError
from voicegate.engine.backends.tensorrt.flow.choice import FlowParts, choose_engines
from voicegate.engine.backends.tensorrt.flow.shape import ENGINE_SHAPES, FlowShape
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
from voicegate.engine.flow.cuda.config import FlowCudaConfig
from voicegate.engine.interface import EngineError
from voicegate.engine.load.devices import Device
from voicegate.engine.load.progress import SILENT, Lines
from voicegate.engine.load.startup import ModelStart
from voicegate.engine.load.token2wav import load_vocoder
from voicegate.engine.model.model_json import load_model_config
from voicegate.engine.vocoder.cuda.config import VocoderCudaConfig

MODEL = load_model_config(TINY_MODEL_DIR)
CPU = Device(torch.device("cpu"), HOST_LANE, HOST_LANE)
OURS_MS = 8.0
ONE = [shape for shape in ENGINE_SHAPES if shape.num_rows == 1]
BUCKETS = measured_buckets(VocoderCudaConfig())


class Scripted:
    """A part of a model whose steps do nothing, or raise what `failures` has by their names."""

    part: ClassVar[str]
    measuring: ClassVar[str]  # a step

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.failures: dict[str, Exception] = {}

    def step(self, name: str, made: Any) -> Any:
        if name in self.failures:
            raise self.failures[name]
        return made

    def choose(self, config: EngineConfig) -> Any:
        """Returns the choice; None: our kernels."""
        raise NotImplementedError


class ScriptedFlow(Scripted):
    part = "flow"
    measuring = "block_ms"

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__()
        self.theirs_ms: Mapping[FlowShape, float] = {ONE[0]: 1.0}
        found = {shape: shape.name for shape in ENGINE_SHAPES}
        monkeypatch.setattr(FlowParts, "engines", lambda _: self.step("engines", found))
        monkeypatch.setattr(FlowParts, "block_ms", lambda _, engines: self.step("block_ms", self._ms(engines)))
        monkeypatch.setattr(FlowParts, "bound", lambda _, engines: self.step("bound", engines))

    def _ms(self, engines: Mapping[FlowShape, str]) -> tuple[dict[FlowShape, float], dict[FlowShape, float]]:
        assert list(engines) == list(ENGINE_SHAPES)
        theirs = {shape: self.theirs_ms.get(shape, 2 * OURS_MS) for shape in engines}
        return theirs, dict.fromkeys(engines, OURS_MS)

    def choose(self, config: EngineConfig) -> Any:
        parts = FlowParts(config, MODEL, CPU, FlowCudaConfig(has_graphs=False))
        return choose_engines(parts, Lines(self.lines.append))


@dataclass
class Renderer:
    """One that is only chosen."""

    name: str


class ScriptedVocoder(Scripted):
    part = "vocoder"
    measuring = "call_ms"

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__()
        self.theirs_ms = 1.0
        monkeypatch.setattr(VocoderParts, "kernels", lambda _: Renderer("cuda"))
        monkeypatch.setattr(VocoderParts, "engines", lambda _: self.step("engines", Renderer("tensorrt")))
        monkeypatch.setattr(choice, "call_ms", self._ms)

    def _ms(self, renderer: Renderer, buckets: Sequence[tuple[int, int]]) -> list[float]:
        assert list(buckets) == BUCKETS
        ms = self.theirs_ms if renderer.name == "tensorrt" else OURS_MS
        return self.step("call_ms", [ms] * len(buckets))  # type: ignore[no-any-return]

    def choose(self, config: EngineConfig) -> Any:
        nothing: Any = None
        parts = VocoderParts(config, MODEL, nothing, CPU, VocoderCudaConfig())
        chosen = choose_renderer(parts, Lines(self.lines.append))
        return None if chosen is None or chosen.name == "cuda" else chosen


PARTS: dict[str, type[ScriptedFlow | ScriptedVocoder]] = {"flow": ScriptedFlow, "vocoder": ScriptedVocoder}


@pytest.fixture(params=PARTS)
def scripted(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Scripted:
    """Each part, with engines that are quicker than our kernels."""
    return PARTS[request.param](monkeypatch)


@pytest.fixture
def config(tmp_path: Path) -> EngineConfig:
    """With engines, whatever they are worth."""
    (tmp_path / "manifest.json").write_text("torn")
    return replace(CONFIG, tensorrt_dir=tmp_path)


def naming(config: EngineConfig, scripted: Scripted, backend: str) -> EngineConfig:
    backends: dict[str, Any] = {f"{scripted.part}_backend": backend}
    return replace(config, **backends)


def test_what_was_named_and_what_is_not_there_is_not_measured(
    scripted: Scripted, config: EngineConfig, tmp_path: Path
) -> None:
    scripted.failures[scripted.measuring] = AssertionError("measured")
    assert scripted.choose(naming(config, scripted, "tensorrt")) is not None
    assert scripted.choose(naming(config, scripted, "cuda")) is None
    assert scripted.choose(replace(CONFIG, tensorrt_dir=tmp_path / "none")) is None
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
def test_engines_that_cannot_be_had(scripted: Scripted, config: EngineConfig, failure: Exception) -> None:
    """`auto` goes on, and says why; whoever named them is refused."""
    part, scripted.failures["engines"] = scripted.part, failure
    with capture_logs() as logs:
        assert scripted.choose(config) is None
    assert logs == [
        {"event": f"{part}_engines_unused", "log_level": "warning", "reason": str(failure), part: "cuda"},
    ]
    assert scripted.lines == [f"{part}: TensorRT's engines are not used: {failure}"]
    with pytest.raises(EngineError, match=f"--{part}-backend tensorrt: {failure}"):
        scripted.choose(naming(config, scripted, "tensorrt"))


@pytest.mark.parametrize("failure", [TensorrtError("could not launch"), RuntimeError("no capture\nCUDA's advice")])
def test_engines_that_cannot_be_measured(scripted: Scripted, config: EngineConfig, failure: Exception) -> None:
    scripted.failures[scripted.measuring] = failure
    assert scripted.choose(config) is None
    assert scripted.lines[-1] == f"{scripted.part}: TensorRT's engines are not used: {str(failure).splitlines()[0]}"


def test_a_flow_has_the_quicker_one_of_each_shape(monkeypatch: pytest.MonkeyPatch, config: EngineConfig) -> None:
    flow = ScriptedFlow(monkeypatch)
    flow.theirs_ms = {ONE[0]: 6.0, ONE[1]: OURS_MS, ONE[2]: 7.0}
    with capture_logs() as logs:
        assert flow.choose(config) == {ONE[0]: ONE[0].name, ONE[2]: ONE[2].name}
    assert flow.lines[-1] == (
        "flow: TensorRT for batches of 1 after up to 250 frames (0.75 times ours), 1 after up to 1000 frames "
        "(0.88 times ours); our kernels for all others"
    )
    chosen, names = logs.pop(), [ONE[0].name, ONE[2].name]
    assert chosen == {"event": "flow_chosen", "log_level": "info", "tensorrt": names, "of": len(ENGINE_SHAPES)}
    told = [(each["rows"], each["context_frames"], each["tensorrt_ms"], each["cuda_ms"]) for each in logs]
    assert told == [
        (shape.num_rows, shape.context_frames, flow.theirs_ms.get(shape, 2 * OURS_MS), OURS_MS)
        for shape in ENGINE_SHAPES
    ]
    flow.failures["bound"] = TensorrtError("no room")
    assert flow.choose(config) is None
    flow.theirs_ms = {ONE[1]: 10.0}
    assert flow.choose(config) is None
    assert flow.lines[-1] == "flow: our kernels; TensorRT's blocks take 1.25 times theirs at the least"


@pytest.mark.parametrize(("ratio", "chosen"), [(0.95, "tensorrt"), (1.0, "cuda"), (1.05, "cuda")])
def test_a_vocoder_is_the_quicker_one(
    monkeypatch: pytest.MonkeyPatch, config: EngineConfig, ratio: float, chosen: str
) -> None:
    vocoder = ScriptedVocoder(monkeypatch)
    vocoder.theirs_ms = ratio * OURS_MS
    with capture_logs() as logs:
        assert (vocoder.choose(config) is not None) == (chosen == "tensorrt")
    assert vocoder.lines[-1] == f"vocoder: {chosen}; TensorRT's calls take {ratio:.2f} times ours"
    told = {"event": "vocoder_chosen", "log_level": "info", "vocoder": chosen, "tensorrt_to_cuda": round(ratio, 3)}
    assert logs.pop() == told
    assert [(each["streams"], each["frames"]) for each in logs] == BUCKETS
    assert {(each["tensorrt_ms"], each["cuda_ms"]) for each in logs} == {(vocoder.theirs_ms, OURS_MS)}


def test_a_cpu_computes_by_torch() -> None:
    config = replace(CONFIG, max_active_clauses=1)
    assert load_vocoder(config, MODEL, CPU, start=ModelStart(CPU.device, SILENT)).name == "torch"


def test_a_single_stream_counts_as_much_as_a_crowd() -> None:
    assert mean_ratio([0.2, 8.0], [0.4, 4.0]) == pytest.approx(1.0)
    assert BUCKETS == [(1, 20), (1, 56), (8, 20), (8, 56), (32, 20), (32, 56)]
