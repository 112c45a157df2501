"""What is asked of `tensorrt` is what 10.14, 11.0 and 11.4 have: a package made of their bindings' own signatures.

It refuses names that a version has not and arguments that it does not take, builds nothing and computes nothing.
"""

import json
import re
from collections.abc import Callable
from enum import IntEnum
from pathlib import Path
from typing import Any

import pytest
import torch

from voicegate.bench.tensorrt.library import Session, TensorrtError, build_plan, load_tensorrt

pytestmark = pytest.mark.unit

CONTRACT: dict[str, Any] = json.loads((Path(__file__).parent / "contract.json").read_text())
VERSIONS = [name for name in CONTRACT if not name.startswith("_")]
CPU = torch.device("cpu")
TENSORS = {"x": ("FLOAT", (2, 3)), "context.0": ("BF16", (4,)), "next_x": ("HALF", (1, 1))}


class Logger:
    """Of it the contract has nothing; both bindings that were looked at have this."""

    WARNING = 2

    def __init__(self, min_severity: int = WARNING) -> None:
        pass


class Package:
    """One version. `answers`: what Class.method returns, else another object, or True where a bool is promised."""

    def __init__(self, version: str, **answers: Any) -> None:
        self.__version__ = version
        self.calls: list[tuple[str, tuple[Any, ...]]] = []
        self.assigned: dict[str, Any] = {}
        self.answers = {name.replace("__", "."): answer for name, answer in answers.items()}
        self._described = CONTRACT[version]
        for name, members in self._described["enums"].items():
            setattr(self, name, IntEnum(name, members))
        self.Logger = Logger

    def __getattr__(self, name: str) -> Callable[..., "Object"]:
        if name not in self._described["signatures"]:
            raise AttributeError(f"tensorrt {self.__version__} has no {name}")
        return lambda *arguments: Object(self, name, arguments)

    def check(self, owner: str, method: str, arguments: tuple[Any, ...]) -> str:
        """What it returns, by the signature that takes so many arguments."""
        for signature in self._described["signatures"][owner].get(method, ()):
            inside, returned = re.fullmatch(r"\w+\((.*)\) -> (.*)", signature).groups()  # type: ignore[union-attr]
            parameters = [each for each in inside.split(", ") if not each.startswith("self")]
            num_needed = sum(" = " not in each for each in parameters)
            if num_needed <= len(arguments) <= len(parameters):
                return str(returned)
        raise AssertionError(f"{self.__version__}: {owner}.{method} takes no such arguments: {arguments}")


class Object:
    def __init__(self, package: Package, kind: str, arguments: tuple[Any, ...]) -> None:
        vars(self).update(package=package, kind=kind)
        package.check(kind, "__init__", arguments)

    def __getattr__(self, name: str) -> Any:
        described = self.package._described
        answer = self.package.answers.get(f"{self.kind}.{name}")
        if name in described["properties"].get(self.kind, {}):
            return answer
        if name not in described["signatures"].get(self.kind, {}):
            raise AttributeError(f"tensorrt {self.package.__version__}: {self.kind} has no {name}")
        return lambda *arguments: self._call(name, answer, arguments)

    def __setattr__(self, name: str, value: object) -> None:
        access = self.package._described["properties"].get(self.kind, {}).get(name)
        assert access == "rw", f"{self.kind}.{name} cannot be set"
        self.package.assigned[f"{self.kind}.{name}"] = value

    def _call(self, name: str, answer: Any, arguments: tuple[Any, ...]) -> Any:
        returned = self.package.check(self.kind, name, arguments)
        self.package.calls.append((f"{self.kind}.{name}", arguments))
        if callable(answer):
            return answer(*arguments)
        if f"{self.kind}.{name}" in self.package.answers:
            return answer
        return True if returned == "bool" else made(self.package, returned)


def made(package: Package, kind: str) -> Object:
    found = Object.__new__(Object)
    vars(found).update(package=package, kind=kind)
    return found


def session_package(version: str, **answers: Any) -> Package:
    names = list(TENSORS)
    package = Package(version, ICudaEngine__num_io_tensors=len(names), **answers)
    package.answers |= {
        "ICudaEngine.get_tensor_name": names.__getitem__,
        "ICudaEngine.get_tensor_shape": lambda name: TENSORS[name][1],
        "ICudaEngine.get_tensor_dtype": lambda name: package.DataType[TENSORS[name][0]],
    }
    return package


@pytest.mark.parametrize("version", VERSIONS)
def test_a_strongly_typed_network_is_built(version: str) -> None:
    package = Package(version)
    plan = build_plan(package, Path("step.onnx"))
    assert plan.kind == "IHostMemory"
    flags = dict(package.calls)["Builder.create_network"][0]
    assert flags == 1 << CONTRACT[version]["enums"]["NetworkDefinitionCreationFlag"]["STRONGLY_TYPED"]
    assert package.assigned == {"IBuilderConfig.max_aux_streams": 0}
    assert not any("set_flag" in name for name, _ in package.calls), "precision comes from the file"


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
def test_a_session_has_a_tensor_for_all_that_goes_in_and_out(version: str) -> None:
    package = session_package(version)
    session = Session(package, b"plan", CPU)
    assert {name: (tensor.dtype, tuple(tensor.shape)) for name, tensor in session.tensors.items()} == {
        "x": (torch.float32, (2, 3)),
        "context.0": (torch.bfloat16, (4,)),
        "next_x": (torch.float16, (1, 1)),
    }
    addresses = [arguments for name, arguments in package.calls if name == "IExecutionContext.set_tensor_address"]
    assert addresses == [(name, tensor.data_ptr()) for name, tensor in session.tensors.items()]
    session.enqueue(77)
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
    package = session_package(VERSIONS[0])
    package.answers[refused] = answer
    with pytest.raises(TensorrtError, match=message):
        Session(package, b"plan", CPU).enqueue(1)


def test_without_the_package() -> None:
    with pytest.raises(TensorrtError, match="pip install tensorrt-cu12"):
        load_tensorrt()
