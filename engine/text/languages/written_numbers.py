"""How a language writes numbers: a pattern of them, and the digits in what it matches. Pure."""

import re
from typing import Final, NamedTuple

_APOSTROPHE: Final = "'"


class Digits(NamedTuple):
    whole: str
    fraction: str  # "": it has none


class WrittenNumbers:
    def __init__(self, *, decimal_mark: str, group_marks: str) -> None:
        """`group_marks`: all that part groups of three digits, a blank for any kind of blank."""
        groups = "|".join(rf"(?:{re.escape(mark)}\d{{3}})+" for mark in dict.fromkeys(group_marks + _APOSTROPHE))
        other = "," if decimal_mark == "." else "."
        self.integer = rf"(?:\d{{1,3}}(?:{groups})(?!\d)|\d+)"
        # As others write it: 1,234.56 where the comma is the decimal mark.
        other_way = rf"\d{{1,3}}(?:{re.escape(decimal_mark)}\d{{3}})+{re.escape(other)}\d+"
        # 1.234.567 whatever the language has between groups, and 3.14 where a point parts no three digits.
        points = r"\d{1,3}(?:\.\d{3}){2,}(?!\d)|\d+\.(?!\d{3}(?!\d))\d+|" if other == "." else ""
        self.number = rf"(?:{other_way}|{self.integer}{re.escape(decimal_mark)}\d+|{points}{self.integer})"
        self._decimal_mark, self._other = decimal_mark, other
        self._groups = re.compile(rf"\d{{1,3}}(?:{groups})")
        self._other_way = re.compile(other_way)

    def digits(self, written: str) -> Digits:
        """Of what `number` matches."""
        if self._other_way.fullmatch(written):
            whole, _, fraction = written.partition(self._other)
            return Digits(_only_digits(whole), fraction)
        if self._decimal_mark in written:
            whole, _, fraction = written.rpartition(self._decimal_mark)
            return Digits(_only_digits(whole), fraction)
        if self._groups.fullmatch(written) or written.count(self._other) > 1:
            return Digits(_only_digits(written), "")
        whole, _, fraction = written.partition(self._other)
        return Digits(_only_digits(whole), fraction)


def _only_digits(text: str) -> str:
    return "".join(filter(str.isdecimal, text))
