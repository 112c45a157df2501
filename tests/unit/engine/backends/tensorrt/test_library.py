"""Calls of `tensorrt` are those that 10.14, 11.0 and 11.4 have, and nothing that fails goes unseen."""

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from tests.support.tensorrt.package import CONTRACT, VERSIONS, Package
from voicegate.engine.backends.tensorrt.library import (
    LoadedEngine,
    TensorrtError,
    TensorSpec,
    build_plan,
    load_tensorrt,
)

CPU = torch.device("cpu")
TENSORS = {"x": ("FLOAT", (2, 3)), "frames": ("INT32", (2,)), "state": ("BF16", (4,)), "next_x": ("HALF", (1, 1))}
DTYPES = {"FLOAT": torch.float32, "INT32": torch.int32, "BF16": torch.bfloat16, "HALF": torch.float16}


def engine_package(version: str) -> Package:
    names = list(TENSORS)
    package = Package(version, ICudaEngine__num_io_tensors=len(names))
    modes = package.TensorIOMode
    package.answers |= {
        "ICudaEngine.get_tensor_name": names.__getitem__,
        "ICudaEngine.get_tensor_shape": lambda name: TENSORS[name][1],
        "ICudaEngine.get_tensor_dtype": lambda name: package.DataType[TENSORS[name][0]],
        "ICudaEngine.get_tensor_mode": lambda name: modes.OUTPUT if name == "next_x" else modes.INPUT,
    }
    return package


def tensors() -> dict[str, torch.Tensor]:
    return {name: torch.zeros(shape, dtype=DTYPES[dtype]) for name, (dtype, shape) in TENSORS.items()}


def scratch(num_bytes: int = 1000) -> torch.Tensor:
    return torch.empty(num_bytes, dtype=torch.uint8)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("has_tf32", [False, True])
def test_a_strongly_typed_network_is_built(version: str, has_tf32: bool) -> None:
    package = Package(version)
    plan = build_plan(package, Path("step.onnx"), has_tf32=has_tf32)
    assert plan.kind == "IHostMemory"
    flags = dict(package.calls)["Builder.create_network"][0]
    assert flags == 1 << CONTRACT[version]["enums"]["NetworkDefinitionCreationFlag"]["STRONGLY_TYPED"]
    assert package.assigned == {"IBuilderConfig.max_aux_streams": 0}
    assert not any("set_flag" in name for name, _ in package.calls), "precision comes from the file"
    cleared = [arguments for name, arguments in package.calls if name == "IBuilderConfig.clear_flag"]
    assert cleared == ([] if has_tf32 else [(package.BuilderFlag.TF32,)]), "TensorRT rounds float32 by default"


@pytest.mark.parametrize("version", VERSIONS)
def test_what_is_refused_is_told(version: str) -> None:
    unread = Package(
        version,
        OnnxParser__parse_from_file=False,
        OnnxParser__num_errors=2,
        OnnxParser__get_error=lambda index: f"reason {index}",
    )
    unread.answers["OnnxParser.parse_from_file"] = False
    with pytest.raises(TensorrtError, match="cannot read it: reason 0; reason 1"):
        build_plan(unread, Path("step.onnx"))
    with pytest.raises(TensorrtError, match="found no kernels"):
        build_plan(Package(version, Builder__build_serialized_network=None), Path("step.onnx"))


@pytest.mark.parametrize("version", VERSIONS)
def test_all_that_goes_in_and_out_has_a_place(version: str) -> None:
    package = engine_package(version)
    engine = LoadedEngine(package, b"plan", CPU)
    assert engine.tensors["x"] == TensorSpec(torch.float32, (2, 3), is_input=True)
    assert engine.tensors["next_x"] == TensorSpec(torch.float16, (1, 1), is_input=False)
    given, room = tensors(), scratch()
    bound = engine.bind(given, room)
    calls = [(name, arguments) for name, arguments in package.calls if name.startswith("IExecutionContext")]
    assert calls == [
        ("IExecutionContext.set_device_memory", (room.data_ptr(), 1000)),
        *(("IExecutionContext.set_tensor_address", (name, tensor.data_ptr())) for name, tensor in given.items()),
    ]
    bound.enqueue(77)
    assert package.calls[-1] == ("IExecutionContext.execute_async_v3", (77,))


@pytest.mark.parametrize(
    ("refused", "answer", "message"),
    [
        ("Runtime.deserialize_cuda_engine", None, "built by another TensorRT"),
        ("ICudaEngine.create_execution_context", None, "too little GPU memory"),
        ("IExecutionContext.set_tensor_address", False, "takes no address for x"),
        ("IExecutionContext.execute_async_v3", False, "could not launch"),
    ],
)
def test_nothing_that_fails_goes_unseen(refused: str, answer: object, message: str) -> None:
    package = engine_package(VERSIONS[0])
    package.answers[refused] = answer
    with pytest.raises(TensorrtError, match=message):
        LoadedEngine(package, b"plan", CPU).bind(tensors(), scratch()).enqueue(1)


@pytest.mark.parametrize("version", VERSIONS)
def test_where_cuda_does_not_fit(version: str) -> None:
    """As with the package of another CUDA than the driver's: it makes nothing, and says why in its log alone."""
    message = f"TensorRT {version} does not start on this GPU .*; its log says why.*: pip install tensorrt-cu13"
    for name in ("Builder", "OnnxParser"):
        package = engine_package(version)
        package.answers[f"{name}.__init__"] = None
        with pytest.raises(TensorrtError, match=message):
            build_plan(package, Path("step.onnx"))
    package = engine_package(version)
    package.answers["Runtime.__init__"] = None
    with pytest.raises(TensorrtError, match=message):
        LoadedEngine(package, b"plan", CPU)


def test_a_type_that_nothing_here_has() -> None:
    package = engine_package(VERSIONS[0])
    package.answers["ICudaEngine.get_tensor_dtype"] = lambda name: package.DataType.FP8
    with pytest.raises(TensorrtError, match="x is of a type"):
        LoadedEngine(package, b"plan", CPU)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"x": torch.zeros(2, 3, dtype=torch.float16)}, r"x is \(torch.float16"),
        ({"x": torch.zeros(3, 2)}, r"x is .*\(3, 2\).*; the engine has .*\(2, 3\)"),
        ({"x": torch.zeros(3, 2).T}, "not contiguous"),
        ({"y": torch.zeros(1)}, "the engine has .*, not .*y"),
    ],
)
def test_a_tensor_that_would_be_read_as_what_it_is_not(change: dict[str, torch.Tensor], message: str) -> None:
    engine = LoadedEngine(engine_package(VERSIONS[0]), b"plan", CPU)
    with pytest.raises(TensorrtError, match=message):
        engine.bind(tensors() | change, scratch())


def test_too_little_scratch() -> None:
    engine = LoadedEngine(engine_package(VERSIONS[0]), b"plan", CPU)
    with pytest.raises(TensorrtError, match="wants 1000 bytes"):
        engine.bind(tensors(), scratch(999))


def test_without_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tensorrt", None)
    with pytest.raises(TensorrtError, match="pip install tensorrt-cu13"):
        load_tensorrt()


@pytest.mark.parametrize("version", ["8.6.1", "10.13.3", "12.0.0", "unknown"])
def test_a_version_that_nothing_here_was_written_for(monkeypatch: pytest.MonkeyPatch, version: str) -> None:
    package = Package(VERSIONS[0])
    package.__version__ = version
    monkeypatch.setitem(sys.modules, "tensorrt", package)  # type: ignore[arg-type]
    with pytest.raises(TensorrtError, match=f"tensorrt {version} .*10.14 or later"):
        load_tensorrt()


@pytest.mark.parametrize("version", VERSIONS)
def test_the_versions_that_were_looked_at(monkeypatch: pytest.MonkeyPatch, version: str) -> None:
    package = Package(version)
    monkeypatch.setitem(sys.modules, "tensorrt", package)  # type: ignore[arg-type]
    assert load_tensorrt() is package


def test_an_address_that_tensorrt_would_not_take() -> None:
    """On a GPU alone: the stand-ins' memory is the CPU's."""
    engine = LoadedEngine(engine_package(VERSIONS[0]), b"plan", CPU)
    engine.device = torch.device("cuda")
    given: dict[str, Any] = {
        name: SimpleNamespace(
            dtype=tensor.dtype,
            shape=tensor.shape,
            device=engine.device,
            is_contiguous=lambda: True,
            data_ptr=lambda: 0x1240,
        )
        for name, tensor in tensors().items()
    }
    with pytest.raises(TensorrtError, match="x lies at 0x1240, which is no multiple of 256"):
        engine.bind(given, scratch())
