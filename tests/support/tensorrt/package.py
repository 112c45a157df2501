"""A `tensorrt` package made of NVIDIA's bindings' own signatures, 10.14, 11.0 and 11.4: for one that is not there.

It refuses names that a version has not and arguments that it does not take; `Package` computes nothing.
"""

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from typing import Any

CONTRACT: dict[str, Any] = json.loads((Path(__file__).parent / "contract.json").read_text())
VERSIONS = [name for name in CONTRACT if not name.startswith("_")]


class Logger:
    """A logger. The contract has none; both bindings that were looked at have this."""

    WARNING = 2

    def __init__(self, min_severity: int = WARNING) -> None:
        pass


@dataclass(frozen=True)
class OnObject:
    """An answer that is given by the object which is asked."""

    answer: Callable[..., Any]


class Package:
    """One version. `answers`: what Class.method returns, else another object, or True where a bool is promised."""

    def __init__(self, version: str, **answers: Any) -> None:
        self.__version__ = version
        self.calls: list[tuple[str, tuple[Any, ...]]] = []
        self.assigned: dict[str, Any] = {}
        self.answers: dict[str, Any] = {"ICudaEngine.device_memory_size_v2": 1000}
        self.answers |= {name.replace("__", "."): answer for name, answer in answers.items()}
        self.described = CONTRACT[version]
        for name, members in self.described["enums"].items():
            setattr(self, name, IntEnum(name, members))
        self.Logger = Logger

    def __getattr__(self, name: str) -> Callable[..., "Object"]:
        if name not in self.described["signatures"]:
            raise AttributeError(f"tensorrt {self.__version__} has no {name}")
        return lambda *arguments: self._new(name, arguments)

    def _new(self, name: str, arguments: tuple[Any, ...]) -> "Object":
        """Where its answer is None, as the bindings have it: of CUDA's reason only the log tells."""
        if self.answers.get(f"{name}.__init__", self) is None:
            raise TypeError("pybind11::init(): factory function returned nullptr")
        return Object(self, name, arguments)

    def check(self, owner: str, method: str, arguments: tuple[Any, ...]) -> str:
        """Checks a call against the signature that takes so many arguments. Returns its result's type."""
        for signature in self.described["signatures"][owner].get(method, ()):
            inside, returned = re.fullmatch(r"\w+\((.*)\) -> (.*)", signature).groups()  # type: ignore[union-attr]
            parameters = [each for each in inside.split(", ") if not each.startswith("self")]
            num_needed = sum(" = " not in each for each in parameters)
            if num_needed <= len(arguments) <= len(parameters):
                return str(returned)
        raise AssertionError(f"{self.__version__}: {owner}.{method} takes no such arguments: {arguments}")


class Object:
    """An object of one of its classes. `hidden`: state that a stand-in that computes keeps in it."""

    def __init__(self, package: Package, kind: str, arguments: tuple[Any, ...]) -> None:
        vars(self).update(package=package, kind=kind, arguments=arguments, hidden={})
        package.check(kind, "__init__", arguments)

    def __getattr__(self, name: str) -> Any:
        described = self.package.described
        answer = self.package.answers.get(f"{self.kind}.{name}")
        if name in described["properties"].get(self.kind, {}):
            return answer.answer(self) if isinstance(answer, OnObject) else answer
        if name not in described["signatures"].get(self.kind, {}):
            raise AttributeError(f"tensorrt {self.package.__version__}: {self.kind} has no {name}")
        return lambda *arguments: self._call(name, answer, arguments)

    def __setattr__(self, name: str, value: object) -> None:
        access = self.package.described["properties"].get(self.kind, {}).get(name)
        assert access == "rw", f"{self.kind}.{name} cannot be set"
        self.package.assigned[f"{self.kind}.{name}"] = value

    def _call(self, name: str, answer: Any, arguments: tuple[Any, ...]) -> Any:
        returned = self.package.check(self.kind, name, arguments)
        self.package.calls.append((f"{self.kind}.{name}", arguments))
        if isinstance(answer, OnObject):
            return answer.answer(self, *arguments)
        if callable(answer):
            return answer(*arguments)
        if f"{self.kind}.{name}" in self.package.answers:
            return answer
        return True if returned == "bool" else made(self.package, returned)


def made(package: Package, kind: str, **hidden: Any) -> Object:
    found = Object.__new__(Object)
    vars(found).update(package=package, kind=kind, arguments=(), hidden=hidden)
    return found
