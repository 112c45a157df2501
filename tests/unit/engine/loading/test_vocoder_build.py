"""`voicegate build` with a stand-in for TensorRT that computes: engines are built, checked, kept, and found stale."""

import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import onnx
import pytest
import torch

from tests.support.golden import TINY_MODEL_DIR
from tests.support.tensorrt.computing import computing_package
from tests.support.tensorrt.package import VERSIONS, Package
from tests.support.tiny_engine import CONFIG
from voicegate.engine.config import EngineConfig
from voicegate.engine.device import lanes
from voicegate.engine.device.tensorrt import library
from voicegate.engine.interface import EngineError
from voicegate.engine.loading import vocoder_build, vocoder_engines
from voicegate.engine.loading.progress import SILENT, Lines
from voicegate.engine.loading.vocoder_build import Built, build_vocoder
from voicegate.engine.loading.vocoder_engines import find_engines, usable_engines
from voicegate.engine.model.config import VocoderConfig
from voicegate.engine.model.model_json import load_model_config
from voicegate.engine.token2wav.vocoder.cuda.config import VocoderCudaConfig
from voicegate.engine.token2wav.vocoder.tensorrt import filter_graph
from voicegate.engine.token2wav.vocoder.tensorrt.shape import FilterShape

pytestmark = pytest.mark.unit

CPU = torch.device("cpu")
CUDA = VocoderCudaConfig(precision="float32", batch_buckets=(1, 2), frame_buckets=(1,))
MODEL = load_model_config(TINY_MODEL_DIR)


class GpuInName:
    """A device whose type is cuda, where all the rest is the CPU's."""

    type = "cuda"


@pytest.fixture(scope="module")
def graphs() -> Callable[..., onnx.ModelProto]:
    """Each is written once."""
    written: dict[FilterShape, onnx.ModelProto] = {}

    def filter_model(config: VocoderConfig, weights: Any, shape: FilterShape, *, low: str) -> onnx.ModelProto:
        if shape not in written:
            written[shape] = filter_graph.filter_model(config, weights, shape, low=low)
        copied = onnx.ModelProto()
        copied.CopyFrom(written[shape])  # to save one moves its weights into a file
        return copied

    return filter_model


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch, graphs: Callable[..., onnx.ModelProto]) -> Callable[[str], Package]:
    """Of a version of the package: with one kind of GPU, whose memory is the CPU's."""
    monkeypatch.setattr(vocoder_build, "choose_device", lambda name: GpuInName)
    monkeypatch.setattr(vocoder_build, "LoadedEngine", lambda trt, plan, _: library.LoadedEngine(trt, plan, CPU))
    monkeypatch.setattr(vocoder_build, "filter_model", graphs)
    monkeypatch.setattr(vocoder_build, "on_device", lambda _: lanes.on_device(CPU))
    for module in (vocoder_build, vocoder_engines):
        monkeypatch.setattr(module, "gpu_name", lambda _: "a GPU")

    def install(version: str) -> Package:
        package = computing_package(version)
        monkeypatch.setitem(sys.modules, "tensorrt", package)  # type: ignore[arg-type]
        return package

    return install


@pytest.fixture
def config(tmp_path: Path) -> EngineConfig:
    return replace(CONFIG, tensorrt_dir=tmp_path / "engines", vocoder_precision="float32")


def build(config: EngineConfig, **settings: Any) -> Built:
    return build_vocoder(config, SILENT, cuda=CUDA, **settings)


@pytest.mark.parametrize("version", [VERSIONS[0], VERSIONS[-1]])
def test_engines_are_built_once(machine: Callable[[str], Package], config: EngineConfig, version: str) -> None:
    package = machine(version)
    lines: list[str] = []
    built = build_vocoder(config, Lines(lines.append), cuda=CUDA)
    assert (built.directory, built.num_built, built.num_kept) == (config.tensorrt_dir, 2, 0)
    assert built.num_bytes > 1000
    assert lines[0] == f"2 of 2 engines to build: TensorRT {version}, float32, a GPU"
    assert [line.split(":")[0] for line in lines[1:]] == ["vocoder_1x1", "vocoder_2x1"]
    assert sum(name == "IBuilderConfig.clear_flag" for name, _ in package.calls) == 2, "float32 is not rounded to tf32"
    engines = find_engines(config, MODEL, CUDA, CPU).load(CPU)
    assert {bucket: engine.tensors["filtered"].shape for bucket, engine in engines.items()} == {
        (1, 1): (1, 121, 18),
        (2, 1): (2, 121, 18),
    }


def test_what_is_there_and_does_is_kept(machine: Callable[[str], Package], config: EngineConfig) -> None:
    machine(VERSIONS[0])
    build(config)
    assert config.tensorrt_dir is not None
    (config.tensorrt_dir / "vocoder_2x1.engine").write_bytes(b"torn")
    again = build(config)
    assert (again.num_built, again.num_kept) == (1, 1), "the torn one"
    assert build(config, is_forced=True).num_built == 2
    machine(VERSIONS[1])
    with pytest.raises(EngineError, match=f"stale .tensorrt {VERSIONS[0]} then, {VERSIONS[1]} now"):
        usable_engines(replace(config, vocoder_precision="float32"), MODEL, torch.device("cuda"))
    assert build(config).num_built == 2, "another version of TensorRT"


def test_an_engine_that_computes_something_else_is_not_kept(
    machine: Callable[[str], Package], config: EngineConfig
) -> None:
    package = machine(VERSIONS[0])
    package.answers["IExecutionContext.execute_async_v3"] = True  # nothing is computed
    with pytest.raises(EngineError, match=r"vocoder_1x1 computes something else than the model.*error 1\.0e\+00"):
        build(config)
    assert config.tensorrt_dir is not None
    assert not list(config.tensorrt_dir.glob("*.engine"))


@pytest.mark.parametrize(
    ("answer", "value", "message"),
    [
        ("OnnxParser.parse_from_file", False, "cannot read it"),
        ("Builder.build_serialized_network", None, "found no kernels for it, or ran out of memory"),
        ("Runtime.deserialize_cuda_engine", None, "too little GPU memory"),
        ("ICudaEngine.create_execution_context", None, "too little GPU memory for the engine's context"),
    ],
)
def test_what_tensorrt_refuses(
    machine: Callable[[str], Package], config: EngineConfig, answer: str, value: object, message: str
) -> None:
    package = machine(VERSIONS[-1])
    package.answers[answer] = value
    package.answers.setdefault("OnnxParser.num_errors", 0)
    with pytest.raises(EngineError, match=message):
        build(config)


def test_without_the_package(machine: Callable[[str], Package], config: EngineConfig) -> None:
    with pytest.raises(EngineError, match="tensorrt cannot be imported"):
        build(config)


def test_without_a_gpu(config: EngineConfig) -> None:
    with pytest.raises(EngineError, match="engines are built for the GPU that they run on"):
        build(replace(config, device="cpu"))


def test_a_model_that_is_not_there(config: EngineConfig, tmp_path: Path) -> None:
    with pytest.raises(EngineError, match=r"cannot build engines of .*nothing"):
        build(replace(config, model_dir=tmp_path / "nothing"))
