"""English abbreviations written with a full stop: how they are read, and whether a sentence may end with them. Pure."""

import re
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache
from typing import Final

from voicegate.engine.text import cldr
from voicegate.engine.text.english.data import DATA, LANGUAGE


class Kind(Enum):
    CONTINUES = "continues"  # more of the sentence follows: Dr. Smith
    NAME = "name"  # an abbreviation only if written with a capital and before one: Gen. Lee, but: the next gen.
    NUMBER = "number"  # an abbreviation only before a number: No. 5, but: No. I won't.
    MAY_END = "may end"  # the sentence may be over: etc.
    LETTERS = "letters"  # over only before a word that opens sentences: U.S. They, but: U.S. Army, J. Smith


@dataclass(frozen=True, slots=True)
class Abbreviation:
    reading: str
    kind: Kind


MONTHS: Final = cldr.month_names(LANGUAGE)
WEEKDAYS: Final = cldr.weekday_names(LANGUAGE)
WEEKDAY_BY_START: Final = {day[:3]: day for day in WEEKDAYS}
MONTH_BY_NAME: Final = {
    **{month.lower(): month for month in MONTHS},
    **{month[:3].lower(): month for month in MONTHS},
    "sept": "September",
}

# Keys are lower case, without the last full stop.
ABBREVIATIONS: Final[dict[str, Abbreviation]] = {
    **{
        name: Abbreviation(reading, kind)
        for kind in Kind
        for name, reading in DATA["abbreviations"][kind.name.lower()].items()
    },
    **{short: Abbreviation(month, Kind.NUMBER) for short, month in MONTH_BY_NAME.items() if month.lower() != short},
}

# In capitals only the others are something else: 5 PM EST., Denver, CO., ask HR.
_IN_CAPITALS: Final = frozenset({*DATA["abbreviation_rules"]["in_capitals"], *MONTH_BY_NAME})

# Words that only look like one of these, or are another: Ft. Worth, but 6 ft.; Smith v. Jones, but John V. Smith.
_BY_CASE: Final[dict[str, Abbreviation | None]] = {"Ft": Abbreviation("fort", Kind.NAME), "V": None}

# As they stand behind a city, or before a postal code.
STATES: Final[dict[str, str]] = DATA["states"]
# Written with a capital only at the start of a sentence, and no names.
SENTENCE_OPENERS: Final = frozenset(DATA["words"]["sentence_openers"])

_NEXT_WORD: Final = re.compile(r"\s*([^\s]{1,20})")
_DOTTED_LETTERS: Final = re.compile(r"[A-Za-z](?:\.[A-Za-z])+")


def opens_sentence(word: str) -> bool:
    """Whether a word as written opens one: "They," and "It's", but not "I." (an initial)."""
    stem = word.lstrip("\"'“‘([*_")
    if stem.endswith("."):
        return False
    return stem.rstrip(",:;!?…\"'”’)]*_").partition("'")[0].partition("’")[0] in SENTENCE_OPENERS


def stop_behind(match: re.Match[str]) -> str:
    """A full stop that the match took in ("p.m.") and that also ends the sentence."""
    if not match[0].endswith("."):
        return ""
    word = _NEXT_WORD.match(match.string, match.end())
    return "." if word is None or opens_sentence(word[1]) else ""


@lru_cache(maxsize=1024)
def abbreviation(word: str) -> Abbreviation | None:
    """The abbreviation of a word as written, before its last full stop."""
    if word[:1].isdigit():  # a 12-oz. can
        word = word.rpartition("-")[2]
    if word in _BY_CASE:
        return _BY_CASE[word]
    name = word.lower()
    is_another = len(word) > 1 and word.isalpha() and word.isupper() and name not in _IN_CAPITALS
    return None if is_another else ABBREVIATIONS.get(name)


def abbreviation_kind(word: str) -> Kind | None:
    """Kind of a word before its last full stop: "Dr", "U.S", "J"; None for an ordinary word."""
    entry = abbreviation(word)
    if entry is not None:
        return None if entry.kind is Kind.NAME and not word[0].isupper() else entry.kind
    is_initial = len(word) == 1 and word.isascii() and word.isupper() and word != "I"
    return Kind.LETTERS if is_initial or _DOTTED_LETTERS.fullmatch(word) else None
