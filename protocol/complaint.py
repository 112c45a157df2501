"""Complaints of msgspec about a value, in words that also name the choices, where there is a list of them."""

import re
from functools import cache
from typing import Final

import msgspec
from msgspec import inspect

# Length of a complaint, which may quote the peer. Lower -> the field after a long value is cut off; higher -> more is
# sent back of what came.
_MAX_CHARS: Final = 200
_NO_CHOICE: Final = re.compile(r"Invalid enum value .* - at `\$\.([\w.]+)`", re.DOTALL)


def complaint(error: msgspec.ValidationError, kind: type[object]) -> str:
    """`kind`: what the value was to be read as."""
    account = str(error)
    found = _NO_CHOICE.fullmatch(account)
    # mypy takes instances' __hash__ for the class's own.
    choices = _choices(kind, found[1]) if found else ()  # type: ignore[arg-type]
    return account[:_MAX_CHARS] + (f"; it must be one of {', '.join(choices)}" if choices else "")


@cache
def _choices(kind: type[object], path: str) -> tuple[str, ...]:
    """Empty where the path leads to no list of values."""
    found: list[inspect.Type] = [inspect.type_info(kind)]
    for name in path.split("."):
        fields = (field for each in found if isinstance(each, inspect.StructType) for field in each.fields)
        found = [member for field in fields if field.encode_name == name for member in _members(field.type)]
    return tuple(str(value) for each in found if isinstance(each, inspect.LiteralType) for value in each.values)


def _members(kind: inspect.Type) -> tuple[inspect.Type, ...]:
    return kind.types if isinstance(kind, inspect.UnionType) else (kind,)
