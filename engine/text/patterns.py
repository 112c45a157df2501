"""What the readers of numbers are written in: patterns with their readings, tried in order. Pure."""

import re
from collections.abc import Callable, Iterable

Match = re.Match[str]
Source = tuple[str, str | Callable[[Match], str]]  # a pattern, and what is said in its place
Rule = tuple[re.Pattern[str], str | Callable[[Match], str]]


def any_of(names: Iterable[str]) -> str:
    """A pattern of these names, the longest first."""
    return "|".join(re.escape(name) for name in sorted(names, key=len, reverse=True))


def rules_of(sources: Iterable[Source]) -> tuple[Rule, ...]:
    return tuple((re.compile(pattern), reading) for pattern, reading in sources)
