"""Words that a dictionary says otherwise than they are written. Pure; what it returns is still to be read.

An entry is found where it stands as words of its own ("SQL" in "SQL-based", not in "MySQL"); where text has no blanks
between words, anywhere. Of several that begin at one place the longest counts, of equal ones the first dictionary's.
"""

import re
import unicodedata
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from voicegate.engine.dictionary import NO_ENTRIES, Dictionary, folded

# Scripts from here on have no blanks between words, or hang particles on them.
_FIRST_UNBLANKED: Final = "\u2e80"
# Where an entry may begin: a letter behind none, a sign, a letter of these scripts.
_START: Final = re.compile(rf"(?<![^\W_{_FIRST_UNBLANKED}-\U0010ffff])[^\W_]|[^\w\s]|_|[{_FIRST_UNBLANKED}-\U0010ffff]")


class _Place(NamedTuple):
    start: int
    end: int  # of the entry that is found there; where none is, `start`
    said: str
    is_open: bool  # more text may make a longer one of it


class Pronunciation:
    """`dictionaries`: the first one has precedence."""

    def __init__(self, dictionaries: Sequence[Dictionary] = ()) -> None:
        self._dictionaries = tuple(dictionary for dictionary in dictionaries if len(dictionary))
        self._latest = ("", "")  # a text, and how it is said: who has asked how long that is asks for it next

    def said(self, text: str) -> str:
        """`text` with its entries as they are said, and nothing else changed."""
        if not self._dictionaries:
            return text
        if text != self._latest[0]:
            self._latest = text, self._replaced(text)
        return self._latest[1]

    def _replaced(self, text: str) -> str:
        parts: list[str] = []
        rest = 0
        for place in self._places(text):
            if place.end > place.start:
                parts += (text[rest : place.start], _apart(place, text))
                rest = place.end
        return "".join((*parts, text[rest:]))

    def whole_length(self, text: str, length: int) -> int:
        """The longest start of `text`, up to `length`, that ends in no entry, nor in what may become one."""
        if not self._dictionaries:
            return length
        for place in self._places(text):
            if place.start >= length:
                break
            if place.is_open or place.end > length:
                return place.start
        return length

    def may_go_on(self, text: str) -> bool:
        """Whether more text may make an entry, or a longer one, of how `text` ends."""
        return bool(self._dictionaries) and any(place.is_open for place in self._places(text))

    def _places(self, text: str) -> Iterator[_Place]:
        """Where entries are, or may come to be; in order, none within another."""
        folded_text, behind = folded(text), 0
        for match in _START.finditer(text):
            start = match.start()
            if start < behind or _is_inside_word(text, start):
                continue
            place = self._place(text, folded_text, start)
            if place.end > start or place.is_open:
                behind = place.end
                yield place

    def _place(self, text: str, folded_text: str, start: int) -> _Place:
        end, said, is_open = start, "", False
        for dictionary in self._dictionaries:
            if (entries := dictionary.look_up(text, folded_text, start)) is NO_ENTRIES:
                continue
            is_open = is_open or entries.is_open
            whole = (found for found in reversed(entries.found) if not _is_inside_word(text, found[0]))
            if (longest := next(whole, None)) is not None and longest[0] > end:
                end, said = longest
        return _Place(start, end, said, is_open)


def _is_inside_word(text: str, index: int) -> bool:
    """Whether what stands before and behind `index` is one word."""
    return 0 < index < len(text) and _is_joined(text[index - 1], text[index])


def _is_joined(before: str, behind: str) -> bool:
    return max(before, behind) < _FIRST_UNBLANKED and _is_of_word(before) and _is_of_word(behind)


def _is_of_word(char: str) -> bool:
    return char.isalnum() or (not char.isascii() and unicodedata.category(char)[0] == "M")


def _apart(place: _Place, text: str) -> str:
    """Words of an entry like ".NET", with blanks where it would run into another word."""
    said = place.said
    if place.start and _is_joined(text[place.start - 1], said[0]):
        said = f" {said}"
    if place.end < len(text) and _is_joined(said[-1], text[place.end]):
        said = f"{said} "
    return said
