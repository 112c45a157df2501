"""Patterns of the readers of numbers, with their readings, tried in order; Roman numerals. Pure."""

import re
from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

Match = re.Match[str]
Reading = str | Callable[[Match], str]  # what is said in the place of what matched


class Rule(NamedTuple):
    pattern: re.Pattern[str]
    reading: Reading
    needed: str  # of every text that the pattern matches in: most have none, and are not searched


Source = tuple[str, Reading] | tuple[str, Reading, str]  # a pattern, its reading, and perhaps what it needs


def any_of(names: Iterable[str]) -> str:
    """A pattern of these names, the longest first."""
    return "|".join(re.escape(name) for name in sorted(names, key=len, reverse=True))


def rules_of(sources: Iterable[Source]) -> tuple[Rule, ...]:
    return tuple(Rule(re.compile(source[0]), source[1], source[2] if len(source) == 3 else "") for source in sources)


def apply(rules: Iterable[Rule], text: str) -> str:
    for pattern, reading, needed in rules:
        if needed in text:
            text = pattern.sub(reading, text)
    return text


# A Roman numeral that is not written by mistake: 3999 at most.
_ROMAN: Final = re.compile("M{0,3}(?:CM|CD|D?C{0,3})(?:XC|XL|L?X{0,3})(?:IX|IV|V?I{0,3})")
_ROMAN_VALUES: Final = {"I": 1, "V": 5, "X": 10, "L": 50, "C": 100, "D": 500, "M": 1000}


def roman_value(numeral: str) -> int | None:
    if not numeral or _ROMAN.fullmatch(numeral) is None:
        return None
    values = [_ROMAN_VALUES[letter] for letter in numeral]
    behind = [*values[1:], 0]
    return sum(-value if value < following else value for value, following in zip(values, behind, strict=True))
