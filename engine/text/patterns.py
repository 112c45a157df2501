"""Patterns of the readers of numbers, with their readings, tried in order. Pure."""

import re
from collections.abc import Callable, Iterable
from typing import NamedTuple

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
