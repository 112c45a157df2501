"""Every member of NVIDIA's package that is used, and every argument given, is in its published signatures."""

import ast
import inspect
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any, get_type_hints

import pytest

from tests.support.tensorrt_llm import contract
from tests.unit.engine.backends.legged.support import TENSORRT_LLM
from voicegate.engine.backends.tensorrt_llm import library

FOLDER = Path(library.__file__).parent

# Our names of their classes.
OBJECTS = {library.Result: "llmapi.RequestOutput", library.Completion: "llmapi.CompletionOutput"}
MODULES = {library.Package: "", library.LlmApi: "llmapi."}
CALLS = {
    "LLM": ("LLM.__init__", contract.llm_settings()),
    "SamplingParams": ("SamplingParams.__init__", frozenset()),
    "KvCacheConfig": ("llmapi.KvCacheConfig", frozenset()),
    "CudaGraphConfig": ("llmapi.CudaGraphConfig", frozenset()),
    "generate_async": ("LLM.generate_async", frozenset()),
}


def members(protocol: type) -> set[str]:
    named = {name for name in vars(protocol) if not name.startswith("_") or name in ("__aiter__", "__anext__")}
    return named | set(get_type_hints(protocol))


@pytest.mark.parametrize("protocol", OBJECTS)
def test_members_of_its_objects(protocol: type) -> None:
    described = contract.entry(OBJECTS[protocol])
    there = {*described["fields"], *described.get("methods", ()), *described.get("properties", ())}
    assert members(protocol)
    assert members(protocol) <= there


@pytest.mark.parametrize("protocol", MODULES)
def test_members_of_its_modules(protocol: type) -> None:
    names = {name.removeprefix("tensorrt_llm.").removesuffix(".__init__") for name in contract.ENTRIES}
    assert members(protocol)
    for member in members(protocol):
        assert f"{MODULES[protocol]}{member}" in names


def test_methods_of_its_llm() -> None:
    assert members(library.Llm) == {"generate_async", "shutdown"}
    assert str(contract.signature("LLM.shutdown")) == "()"
    theirs = contract.signature("LLM.generate_async").parameters
    for name, ours in inspect.signature(library.Llm.generate_async).parameters.items():
        if name != "self":
            assert ours.default == theirs[name].default, name


def test_a_logits_processor_takes_what_it_is_given() -> None:
    with TENSORRT_LLM.running(is_repetition_aware=True):
        processor = import_module("voicegate.engine.backends.tensorrt_llm.ras_processor").RepetitionAwareProcessor
        ours = list(inspect.signature(processor.__call__).parameters)[1:]
    assert ours == list(contract.signature("sampling_params.LogitsProcessor.__call__").parameters)


def calls() -> Iterator[tuple[str, ast.Call]]:
    """Calls of the package's classes and methods, wherever the backend makes one."""
    for path in sorted(FOLDER.glob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in CALLS:
                yield node.func.attr, node


def test_arguments_of_its_calls() -> None:
    """Also those that no test runs into."""
    seen = set()
    for name, call in calls():
        seen.add(name)
        entry, beyond = CALLS[name]
        described: dict[str, Any] = contract.entry(entry)
        known = {*described.get("fields", ()), *(each["name"] for each in described.get("signature", ())), *beyond}
        given = {keyword.arg for keyword in call.keywords if keyword.arg is not None}
        assert given <= known, name
        assert given or call.args
    assert seen == set(CALLS)


def test_it_is_imported_in_these_places_alone() -> None:
    """Importing it takes long and starts MPI; whoever has it not must not need it."""
    importing = set()
    for path in FOLDER.parents[1].rglob("*.py"):
        named = path.read_text()
        for node in ast.walk(ast.parse(named)) if "tensorrt_llm" in named else ():
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            names += [node.value] if isinstance(node, ast.Constant) and isinstance(node.value, str) else []
            if any(name.split(".")[0] == "tensorrt_llm" and " " not in name for name in names):
                importing.add(path.name)
    assert importing == {"library.py", "ras_processor.py", "requirements.py"}


def test_the_variable_that_keeps_it_in_this_process() -> None:
    assert library.SINGLE_PROCESS in contract.ENTRIES["environment"]
