"""`voicegate build` with a stand-in for TensorRT that computes: engines are built, checked, kept, and found stale."""

import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import onnx
import pytest
import torch

from tests.support.flow import drain, open_stream
from tests.support.golden import TINY_MODEL_DIR
from tests.support.tensorrt.computing import computing_package
from tests.support.tensorrt.package import VERSIONS, Package
from tests.support.tiny_engine import CONFIG
from voicegate.engine.backends.tensorrt import build as tensorrt_build
from voicegate.engine.backends.tensorrt import library, recipes, wanted
from voicegate.engine.backends.tensorrt.addition import ADDITION
from voicegate.engine.backends.tensorrt.build import Built, Recipe, build_engines
from voicegate.engine.backends.tensorrt.engine_files import EngineFilesError
from voicegate.engine.backends.tensorrt.flow import choice as flow_choice
from voicegate.engine.backends.tensorrt.flow.choice import FlowParts, choose_engines
from voicegate.engine.backends.tensorrt.flow.shape import FlowShape
from voicegate.engine.backends.tensorrt.flow.step_graph import flow_step_model
from voicegate.engine.backends.tensorrt.recipes import FlowRecipe, VocoderRecipe
from voicegate.engine.backends.tensorrt.vocoder.filter_graph import filter_model
from voicegate.engine.backends.tensorrt.vocoder.shape import FilterShape
from voicegate.engine.backends.tensorrt.wanted import WantedEngines, flow_engines, vocoder_engines
from voicegate.engine.config import EngineConfig
from voicegate.engine.device import lanes
from voicegate.engine.device.lanes import HOST_LANE
from voicegate.engine.flow.block_pool import BlockPool
from voicegate.engine.flow.cuda.config import FlowCudaConfig
from voicegate.engine.flow.cuda.solver import CudaSolver
from voicegate.engine.flow.runner import FlowRunner
from voicegate.engine.flow.stream import BlockRow
from voicegate.engine.flow.torch.solver import TorchSolver
from voicegate.engine.interface import EngineError
from voicegate.engine.load.cosyvoice3 import load_flow_model
from voicegate.engine.load.devices import Device
from voicegate.engine.load.progress import SILENT, Lines, Progress
from voicegate.engine.model.model_json import load_model_config
from voicegate.engine.vocoder.cuda.config import VocoderCudaConfig

CPU = torch.device("cpu")
CUDA = VocoderCudaConfig(precision="float32", batch_buckets=(1, 2), frame_buckets=(1,))
SHAPES = (FlowShape(1, 50, 100), FlowShape(2, 50, 50))
SINGLE = (FlowShape(1, 50, 50), FlowShape(1, 50, 100))
NAMES = {
    "vocoder": ["vocoder_1x1", "vocoder_2x1"],
    "flow": ["flow_step_1x50_behind_100", "flow_step_2x50_behind_50"],
}
MODEL = load_model_config(TINY_MODEL_DIR)


class GpuInName:
    """A device whose type is cuda, where all the rest is the CPU's."""

    type = "cuda"


def written_once(write: Callable[..., onnx.ModelProto]) -> Callable[..., onnx.ModelProto]:
    """By the shape alone."""
    written: dict[object, onnx.ModelProto] = {}

    def copied(*arguments: Any, **named: Any) -> onnx.ModelProto:
        (shape,) = (each for each in arguments if isinstance(each, (FilterShape, FlowShape)))
        if shape not in written:
            written[shape] = write(*arguments, **named)
        copy = onnx.ModelProto()
        copy.CopyFrom(written[shape])  # to save one moves its weights into a file
        return copy

    return copied


FILTER_MODEL, STEP_MODEL = written_once(filter_model), written_once(flow_step_model)


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Package]:
    """A machine with a version of the package and one kind of GPU, whose memory is the CPU's."""
    monkeypatch.setattr(tensorrt_build, "choose_device", lambda name: GpuInName)
    monkeypatch.setattr(tensorrt_build, "LoadedEngine", lambda trt, plan, _: library.LoadedEngine(trt, plan, CPU))
    monkeypatch.setattr(recipes, "filter_model", FILTER_MODEL)
    monkeypatch.setattr(recipes, "flow_step_model", STEP_MODEL)
    monkeypatch.setattr(tensorrt_build, "on_device", lambda _: lanes.on_device(CPU))
    for module in (tensorrt_build, wanted):
        monkeypatch.setattr(module, "gpu_name", lambda _: "a GPU")

    def install(version: str) -> Package:
        package = computing_package(version)
        monkeypatch.setitem(sys.modules, "tensorrt", package)  # type: ignore[arg-type]
        return package

    return install


@pytest.fixture
def config(tmp_path: Path) -> EngineConfig:
    return replace(CONFIG, tensorrt_dir=tmp_path / "engines", vocoder_precision="float32", precision="float32")


def recipe_of(part: str, config: EngineConfig) -> Recipe:
    return VocoderRecipe(config, MODEL, CUDA) if part == "vocoder" else FlowRecipe(config, MODEL, SHAPES)


def wanted_of(part: str, config: EngineConfig) -> WantedEngines[Any, Any]:
    return vocoder_engines(config, MODEL, CUDA) if part == "vocoder" else flow_engines(config, MODEL, SHAPES)


def build(config: EngineConfig, *parts: str, progress: Progress = SILENT, is_forced: bool = False) -> Built:
    recipes = [recipe_of(part, config) for part in parts or NAMES]
    return build_engines(config, progress, recipes=recipes, is_forced=is_forced)


@pytest.mark.parametrize("version", [VERSIONS[0], VERSIONS[-1]])
def test_engines_of_both_parts_are_built_once(
    machine: Callable[[str], Package], config: EngineConfig, version: str
) -> None:
    package = machine(version)
    lines: list[str] = []
    built = build(config, progress=Lines(lines.append))
    assert (built.directory, built.num_built, built.num_kept) == (config.tensorrt_dir, 4, 0)
    assert built.num_bytes > 1000
    for part, told in (("vocoder", lines[:3]), ("flow", lines[3:])):
        assert told[0] == f"{part}: 2 of 2 engines to build: TensorRT {version}, float32, a GPU"
        assert [line.split(":")[0] for line in told[1:]] == NAMES[part]
    assert sum(name == "IBuilderConfig.clear_flag" for name, _ in package.calls) == 4, "float32 is not rounded to tf32"
    engines = {part: wanted_of(part, config).find(config, CPU).load(CPU) for part in NAMES}
    assert [engine.tensors["filtered"].shape for engine in engines["vocoder"].values()] == [(1, 121, 18), (2, 121, 18)]
    assert [engine.tensors["next_x"].shape for engine in engines["flow"].values()] == [(1, 50, 80), (2, 50, 80)]


@pytest.mark.parametrize("part", NAMES)
def test_what_is_there_and_does_is_kept(machine: Callable[[str], Package], config: EngineConfig, part: str) -> None:
    machine(VERSIONS[0])
    build(config)
    assert config.tensorrt_dir is not None
    (config.tensorrt_dir / f"{NAMES[part][1]}.engine").write_bytes(b"torn")
    again = build(config)
    assert (again.num_built, again.num_kept) == (1, 3), "the torn one"
    assert build(config, part, is_forced=True).num_built == 2
    changed = replace(config, vocoder_precision="float16", precision="bfloat16")
    with pytest.raises(EngineError, match=r"stale .precision float32 then, b?float16 now"):
        ADDITION.usable(part, changed, MODEL, torch.device("cuda"))
    machine(VERSIONS[1])
    with pytest.raises(EngineError, match=f"stale .tensorrt {VERSIONS[0]} then, {VERSIONS[1]} now"):
        ADDITION.usable(part, config, MODEL, torch.device("cuda"))
    assert build(config, part).num_built == 2, "another version of TensorRT"
    other = next(name for name in NAMES if name != part)
    with pytest.raises(EngineFilesError, match="stale"):
        wanted_of(other, config).find(config, CPU)


@pytest.mark.parametrize("part", NAMES)
def test_an_engine_that_computes_something_else_is_not_kept(
    machine: Callable[[str], Package], config: EngineConfig, part: str
) -> None:
    package = machine(VERSIONS[0])
    package.answers["IExecutionContext.execute_async_v3"] = True  # nothing is computed
    with pytest.raises(EngineError, match=rf"{NAMES[part][0]} computes something else than the model.*error \d\.\d"):
        build(config, part)
    assert config.tensorrt_dir is not None
    assert not list(config.tensorrt_dir.glob("*.engine"))


def test_what_tensorrt_refuses(machine: Callable[[str], Package], config: EngineConfig) -> None:
    """All that it may refuse: test_library.py."""
    machine(VERSIONS[-1]).answers |= {"OnnxParser.parse_from_file": False, "OnnxParser.num_errors": 0}
    with pytest.raises(EngineError, match="cannot read it"):
        build(config, "flow")


@pytest.mark.parametrize(
    "error", [torch.OutOfMemoryError("CUDA out of memory. Tried"), RuntimeError("CUDA error: busy")]
)
def test_what_cuda_refuses(
    machine: Callable[[str], Package], config: EngineConfig, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    """As where a gateway has the GPU's memory."""
    machine(VERSIONS[-1])

    def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr(tensorrt_build, "LoadedEngine", fail)
    with pytest.raises(EngineError, match=rf"cannot build engines of .*: {str(error)[:15]}"):
        build(config, "vocoder")


def test_without_the_package(machine: Callable[[str], Package], config: EngineConfig) -> None:
    with pytest.raises(EngineError, match="tensorrt cannot be imported"):
        build(config)


def test_without_a_gpu(config: EngineConfig) -> None:
    with pytest.raises(EngineError, match="engines are built for the GPU that they run on"):
        build_engines(replace(config, device="cpu"), SILENT)


def test_a_model_that_is_not_there(config: EngineConfig, tmp_path: Path) -> None:
    with pytest.raises(EngineError, match=r"cannot build engines of .*nothing"):
        build_engines(replace(config, model_dir=tmp_path / "nothing"), SILENT)


@pytest.fixture
def parts(monkeypatch: pytest.MonkeyPatch, config: EngineConfig) -> FlowParts:
    """Parts of a flow whose engines are named, as a GPU would be served."""
    monkeypatch.setattr(flow_choice, "flow_engines", partial(flow_engines, shapes=SINGLE))
    named = replace(config, flow_backend="tensorrt", is_eager=True)
    return FlowParts(named, MODEL, Device(CPU, HOST_LANE, HOST_LANE), FlowCudaConfig(has_graphs=False))


def test_a_flow_has_what_was_built(machine: Callable[[str], Package], parts: FlowParts) -> None:
    """Engines on disk compute a single stream's blocks."""
    package, config = machine(VERSIONS[-1]), parts.config
    with pytest.raises(EngineError, match=r"--flow-backend tensorrt: no engines of the flow .*, or use auto or cuda"):
        choose_engines(parts, SILENT)
    build_engines(config, SILENT, recipes=[FlowRecipe(config, MODEL, SINGLE)])
    flow = load_flow_model(config.model_dir, MODEL, CPU, dtype=torch.float32)
    pool = BlockPool(
        MODEL.cosyvoice3_flow.estimator,
        num_steps=MODEL.flow.num_euler_steps,
        num_blocks=4,
        device=CPU,
        dtype=torch.float32,
    )
    solver = CudaSolver(flow, pool, parts.cuda, engines=choose_engines(parts, SILENT))
    assert solver.name == "tensorrt"
    assert choose_engines(replace(parts, config=replace(config, flow_backend="cuda")), SILENT) is None
    package.calls.clear()
    found = drain(runner := FlowRunner(flow, pool, solver, max_streams=1), open_stream(runner, 42))
    assert (
        sum(name == "IExecutionContext.execute_async_v3" for name, _ in package.calls) == 2 * MODEL.flow.num_euler_steps
    ), "steps of two blocks"
    plain = FlowRunner(flow, pool, TorchSolver(flow, pool, max_streams=1), max_streams=1)
    torch.testing.assert_close(found, drain(plain, open_stream(plain, 42)), rtol=0, atol=1e-4)


def test_a_shape_that_is_not_taken_is_our_kernels(machine: Callable[[str], Package], parts: FlowParts) -> None:
    """The larger one would do as well, but that is not what was measured."""
    machine(VERSIONS[-1])
    build_engines(parts.config, SILENT, recipes=[FlowRecipe(parts.config, MODEL, SINGLE)])
    engines = parts.bound({SINGLE[1]: parts.engines()[SINGLE[1]]})
    found = [engines.shape_for([BlockRow((0,) * count, 9, 50)], 50) for count in range(4)]
    assert found == [None, None, SINGLE[1], None]
