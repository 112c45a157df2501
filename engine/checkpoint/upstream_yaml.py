"""Upstream's hyperpyyaml configuration as plain data: nothing in it is imported, called or executed.

hyperpyyaml builds objects while it reads (`!new:`, `!name:`, `!apply:`), which makes a configuration a program. Here
a tagged mapping stays a mapping and says what it would have built under the key "!new", "!name" or "!apply".
`!ref <key>` is replaced by the value it points at; `!ref <a> * <b>` by the result, `!ref <folder>/name` by the text.
"""

import ast
import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

from voicegate.engine.checkpoint.conversion import CheckpointError

_CORE: Final = "tag:yaml.org,2002:"
_OBJECT_TAGS: Final = ("!new:", "!name:", "!apply:")
_REFERENCE: Final = re.compile(r"<([^<>]+)>")
# YAML 1.2 as hyperpyyaml reads it; PyYAML alone takes 1e-06 for a text, since it has no dot.
_FLOAT: Final = re.compile(r"[-+]?(\d+(\.\d*)?|\.\d+)([eE][-+]?\d+)?")
_OPERATORS: Final[Mapping[type[ast.operator], Callable[[Any, Any], Any]]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}


class UnfitYaml(CheckpointError):
    """The file is no YAML, or holds a construct that this reader does not know. Names the line."""


@dataclass(frozen=True, slots=True)
class _Reference:
    """A `!ref` that is not resolved yet."""

    expression: str
    line: int


def read_upstream_yaml(path: Path) -> dict[str, Any]:
    """The whole file: dicts, lists, strings, numbers, booleans and None. Raises UnfitYaml."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UnfitYaml(f"{path} cannot be read: {error}") from error
    try:
        return parse_upstream_yaml(text)
    except UnfitYaml as error:
        raise UnfitYaml(f"{path}: {error}") from error


def parse_upstream_yaml(text: str) -> dict[str, Any]:
    """Raises UnfitYaml."""
    try:
        root = yaml.compose(text, Loader=yaml.SafeLoader)  # nodes only: no constructor runs
    except yaml.YAMLError as error:
        raise UnfitYaml(f"no YAML: {' '.join(str(error).split())}") from error
    if not isinstance(root, yaml.MappingNode):
        raise UnfitYaml("the outermost level is not a mapping")
    data: dict[str, Any] = _Reader().read(root)
    resolved: dict[str, Any] = _Resolver(data).resolve(data, ())
    return resolved


class _Reader:
    """Nodes -> data with references still in it."""

    def __init__(self) -> None:
        self._seen: set[int] = set()

    def read(self, node: Any) -> Any:
        if id(node) in self._seen:  # an alias is the very node of its anchor, and may even lie within it
            raise UnfitYaml(f"line {_line(node)}: anchors and aliases (& and *) are not used by this format")
        self._seen.add(id(node))
        tag: str = node.tag
        if tag == "!ref" and isinstance(node, yaml.ScalarNode):
            return _Reference(node.value, _line(node))
        kind = next((prefix for prefix in _OBJECT_TAGS if tag.startswith(prefix)), None)
        if kind is not None:
            return self._object(node, kind.rstrip(":"), tag.removeprefix(kind))
        if isinstance(node, yaml.MappingNode) and tag == f"{_CORE}map":
            return self._mapping(node)
        if isinstance(node, yaml.SequenceNode) and tag == f"{_CORE}seq":
            return [self.read(item) for item in node.value]
        if isinstance(node, yaml.ScalarNode) and tag.startswith(_CORE):
            return _scalar(node)
        raise UnfitYaml(f"line {_line(node)}: the tag {tag} is not known here")

    def _object(self, node: Any, kind: str, target: str) -> dict[str, Any]:
        if isinstance(node, yaml.MappingNode):
            return {kind: target, **self._mapping(node)}
        if isinstance(node, yaml.SequenceNode):
            return {kind: target, "args": [self.read(item) for item in node.value]}
        if node.value:
            raise UnfitYaml(f"line {_line(node)}: {kind}:{target} takes a mapping or a list, not {node.value!r}")
        return {kind: target}

    def _mapping(self, node: Any) -> dict[str, Any]:
        content: dict[str, Any] = {}
        for key_node, value_node in node.value:
            key = self.read(key_node)
            if not isinstance(key, str):
                raise UnfitYaml(f"line {_line(key_node)}: the key {key_node.value!r} is not a plain text")
            if key in content:
                raise UnfitYaml(f"line {_line(key_node)}: the key {key} is there twice")
            content[key] = self.read(value_node)
        return content


class _Resolver:
    """Replaces references, which may point forwards and at values that hold references."""

    def __init__(self, root: Mapping[str, Any]) -> None:
        self._root = root

    def resolve(self, value: Any, trail: tuple[str, ...]) -> Any:
        """`trail`: the keys being resolved, so that a circle is found."""
        if isinstance(value, dict):
            return {key: self.resolve(item, trail) for key, item in value.items()}
        if isinstance(value, list):
            return [self.resolve(item, trail) for item in value]
        return self._reference(value, trail) if isinstance(value, _Reference) else value

    def _reference(self, reference: _Reference, trail: tuple[str, ...]) -> Any:
        names = _REFERENCE.findall(reference.expression)
        if not names:
            raise UnfitYaml(f"line {reference.line}: !ref {reference.expression} names no <key>")
        values = [self._look_up(name, reference, trail) for name in names]
        if reference.expression.strip() == f"<{names[0]}>":
            return values[0]
        if any(isinstance(value, str) for value in values):
            parts = iter(values)
            return _REFERENCE.sub(lambda _: str(next(parts)), reference.expression)
        return _calculate(reference, values)

    def _look_up(self, name: str, reference: _Reference, trail: tuple[str, ...]) -> Any:
        if name in trail:
            raise UnfitYaml(f"line {reference.line}: !ref <{name}> leads back to itself")
        value: Any = self._root
        for key in re.split(r"[.\[\]]+", name.rstrip("]")):
            if not isinstance(value, dict) or key not in value:
                raise UnfitYaml(f"line {reference.line}: !ref <{name}> points at nothing")
            value = value[key]
        return self.resolve(value, (*trail, name))


def _calculate(reference: _Reference, values: list[Any]) -> float:
    """+ - * / // % and parentheses over numbers."""
    numbers = iter(values)
    source = _REFERENCE.sub(lambda _: f"({next(numbers)!r})", reference.expression).strip()

    def value_of(node: ast.expr) -> Any:
        match node:
            case ast.Constant(value=int() | float() as number) if not isinstance(number, bool):
                return number
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                return -value_of(operand)
            case ast.BinOp(left=left, op=op, right=right) if type(op) in _OPERATORS:
                return _OPERATORS[type(op)](value_of(left), value_of(right))
        raise ValueError(f"only numbers and + - * / // % are known, not {ast.unparse(node)}")

    try:
        result: float = value_of(ast.parse(source, mode="eval").body)
    except (SyntaxError, ValueError, ZeroDivisionError, RecursionError) as error:
        raise UnfitYaml(f"line {reference.line}: !ref {reference.expression} cannot be worked out: {error}") from error
    return result


def _scalar(node: Any) -> str | float | bool | None:
    text: str = node.value
    if node.style is not None:  # quoted, or a block of text
        return text
    kind = node.tag.removeprefix(_CORE)
    if kind == "null":
        return None
    if kind == "bool":
        return text.lower() in ("true", "yes", "on")
    if kind == "int" and re.fullmatch(r"[-+]?(0|[1-9]\d*)", text):
        return int(text)
    if kind in ("float", "str") and _FLOAT.fullmatch(text):
        return float(text)
    if kind == "str":
        return text
    raise UnfitYaml(f"line {_line(node)}: {text!r} is a kind of value that this format does not use")


def _line(node: Any) -> int:
    line: int = node.start_mark.line + 1
    return line
