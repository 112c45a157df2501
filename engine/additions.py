"""Additions beside the core: a second family of models, and other ways to run a model. Their registry.

Nothing in the core imports these folders: an import contract in pyproject.toml says so. A model directory or a setting
names an addition, and `load` imports the module of it that the core asks for. So a folder can be removed, and what
names it gets an error that says so.

An addition is a line here and a folder, whose `addition.py` has ADDITION: an object of the type that load/seams.py has
for its kind. A family has two modules more: `config.token2wav` reads its part of model.json, without torch;
`checkpoint.reading.read_checkpoint` is for `voicegate convert`.
"""

from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Final


@dataclass(frozen=True, slots=True)
class Addition:
    name: str  # as model.json (a family) or a setting has it
    kind: str
    folder: str  # below engine/

    @property
    def package(self) -> str:
        return f"{__package__}.{self.folder.replace('/', '.')}"


ADDITIONS: Final = (
    Addition("cosyvoice2-stepaudio2", "family", "families/stepaudio2"),
    Addition("tensorrt-llm", "llm", "backends/tensorrt_llm"),
    Addition("vllm", "llm", "backends/vllm"),
    Addition("tensorrt", "token2wav", "backends/tensorrt"),
    Addition("disaggregated", "layout", "backends/disaggregated"),
)


class MissingAddition(ValueError):
    """This installation lacks a requested part. The message names the folder."""


def names(kind: str) -> tuple[str, ...]:
    """All that are registered, whether they are installed or not."""
    return tuple(each.name for each in ADDITIONS if each.kind == kind)


def is_installed(name: str) -> bool:
    try:
        spec = find_spec(_named(name).package)
    except ModuleNotFoundError:  # the folder above it is not there
        return False
    return spec is not None and spec.origin is not None  # else a folder that has __pycache__ alone


def load(name: str, module: str) -> Any:
    """A module of an addition. Raises MissingAddition, and what importing it raises, such as for a missing package."""
    found = _named(name)
    if not is_installed(name):
        raise MissingAddition(f"{name} is not part of this installation: engine/{found.folder} is missing")
    return import_module(f"{found.package}.{module}")


def _named(name: str) -> Addition:
    return next(each for each in ADDITIONS if each.name == name)
