"""Words of a frame: "{day:ordinal.en} {month}[ {year:year}]" with the groups of its match. Pure.

A part in brackets is left out where one of its groups did not match. A converter may have no words for what matched:
the whole template has none then, and the frame does not count.
"""

import re
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

# A matched group, a form -> its words; None: it has none.
Converter = Callable[[str, str], str | None]

_SLOT: Final = re.compile(r"\{(\w+):(\w+)(?:\.(\w+))?\}")
_OPTIONAL: Final = re.compile(r"\[([^\[\]]*)\]")


class TemplateError(ValueError):
    """A template names a group or a converter that is not there."""


class _Slot(NamedTuple):
    group: str
    converter: Converter
    form: str


class _Part(NamedTuple):
    pieces: tuple[str | _Slot, ...]
    is_optional: bool


class Template:
    def __init__(self, text: str, groups: Sequence[str], converters: dict[str, Converter]) -> None:
        self._parts = tuple(
            _Part(_pieces(part, groups, converters), is_optional=index % 2 == 1)
            for index, part in enumerate(_OPTIONAL.split(text))
            if part
        )

    def fill(self, match: re.Match[str]) -> str | None:
        said: list[str] = []
        for part in self._parts:
            if part.is_optional and any(
                match[piece.group] is None for piece in part.pieces if isinstance(piece, _Slot)
            ):
                continue
            for piece in part.pieces:
                words = piece if isinstance(piece, str) else piece.converter(match[piece.group] or "", piece.form)
                if words is None:
                    return None
                said.append(words)
        return "".join(said)


def _pieces(text: str, groups: Sequence[str], converters: dict[str, Converter]) -> tuple[str | _Slot, ...]:
    pieces: list[str | _Slot] = []
    rest = 0
    for slot in _SLOT.finditer(text):
        group, converter, form = slot.groups()
        if group not in groups:
            raise TemplateError(f"{text!r} names the group {group!r}; there are {', '.join(groups)}")
        if converter not in converters:
            raise TemplateError(f"{text!r} names the converter {converter!r}; there are {', '.join(converters)}")
        pieces += [text[rest : slot.start()], _Slot(group, converters[converter], form or "")]
        rest = slot.end()
    return tuple(piece for piece in (*pieces, text[rest:]) if piece != "")
