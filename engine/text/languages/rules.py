"""Which form a number has by what stands before and behind it: a language's `agreement` and `units.cases`. Pure."""

import re
from collections.abc import Iterable
from typing import Final, NamedTuple

# Characters of the earlier text that any rule or frame looks at.
MAX_BEFORE_CHARS: Final = 60


class Said(NamedTuple):
    """Words in the place of a part of the text."""

    words: str
    end: int  # of the part


_WORD: Final = r"[^\W_]"
NO_WORD_BEFORE: Final = rf"(?<!{_WORD})"
NO_WORD_BEHIND: Final = rf"(?!{_WORD})"


class Rule(NamedTuple):
    behind: re.Pattern[str]
    numbers: re.Pattern[str]
    before: re.Pattern[str] | None
    form: str | None  # None: the number is left to the model
    plural: str


def first(rules: Iterable[Rule], text: str, match: re.Match[str]) -> Rule | None:
    """The number that matched, alone or with its unit: the group `number`, where there is one."""
    number = match["number"] if "number" in match.re.groupindex else match[0]
    for rule in rules:
        if (
            rule.numbers.fullmatch(number)
            and rule.behind.match(text, match.end())
            and is_behind(rule.before, text, match.start())
        ):
            return rule
    return None


def is_behind(pattern: re.Pattern[str] | None, text: str, place: int) -> bool:
    """Whether what is before `place` ends as the pattern has it."""
    return pattern is None or pattern.search(text, max(place - MAX_BEFORE_CHARS, 0), place) is not None
