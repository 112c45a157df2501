"""Words of English that only the next one tells how to read: 1999 meters, 3m users, on N Main, Mon, Jan 6. Pure."""

import re
from typing import Final

from voicegate.engine.text.characters import split_tail
from voicegate.engine.text.english.abbreviations import MONTH_BY_NAME, WEEKDAY_BY_START
from voicegate.engine.text.english.data import DATA, UNITS

# Before a number without a stop: Hwy 1.
BEFORE_NUMBER: Final = frozenset(DATA["before_numbers"])
# Between numbers: 10 x 10; and the first word of a unit of two: sq ft.
FIRST_OF_UNIT: Final = frozenset(unit.split()[0] for unit in UNITS if " " in unit)

_SIDES: Final = frozenset("NSEW")  # of a street, whose name follows
# A year or so many, meters or millions, times.
_AMBIGUOUS: Final = re.compile(r"(?:1[1-9]|20)\d\d|\d[\d.,]*[mx]")
# A mark of feet or inches, or one that closes a quotation: the next word tells.
_MARK_OF_LENGTH: Final = re.compile(r".*\d[\"'”’″′]")
_WEEKDAYS: Final = frozenset({"Mon", "Wed", "Sat", "Sun"})  # words too, unless a month or another day follows


def may_be_continued(word: str) -> bool:
    stem, tail = split_tail(word)
    is_weekday = stem in _WEEKDAYS and tail in ("", ",")
    is_paired = is_weekday or word in _SIDES or _MARK_OF_LENGTH.fullmatch(word) is not None
    return is_paired or (not tail and _AMBIGUOUS.fullmatch(stem) is not None)


def may_belong(held: str, start: str) -> bool | None:
    """Whether some word with this start may be read with the one before it; None: other rules know."""
    stem = split_tail(held)[0]
    first = next((char for char in start if char.isalnum()), "")
    if stem in _WEEKDAYS or held in _SIDES:
        return not first or first.isupper() or first.isdigit()
    is_first = held.removesuffix(".") in FIRST_OF_UNIT
    return True if is_first or _AMBIGUOUS.fullmatch(stem) or _MARK_OF_LENGTH.fullmatch(held) else None


def belongs(held: str, word: str) -> bool | None:
    """Whether the word is; None: other rules know."""
    stem = split_tail(word)[0]
    held_stem = split_tail(held)[0]
    if held_stem in _WEEKDAYS:
        is_date = (stem[:1].isupper() and stem.lower() in MONTH_BY_NAME) or stem[:3] in WEEKDAY_BY_START
        return is_date or stem[:1].isdigit()
    if held in _SIDES:
        return stem[:1].isdigit() or stem[:1].isupper()
    if (first := held.removesuffix(".")) in FIRST_OF_UNIT:  # sq. ft.
        return f"{first} {stem}" in UNITS
    if _MARK_OF_LENGTH.fullmatch(held):
        return True
    return True if _AMBIGUOUS.fullmatch(held_stem) and stem.isalpha() else None
