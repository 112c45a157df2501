"""Whether "Dr" and "St" stand behind a street's name, or before a person's and a saint's. Pure.

Takes tidied text without digits, as `letters` does: 45 Elm Dr is "forty-five Elm Dr" here.
"""

import re
from typing import Final

from voicegate.engine.text.english.abbreviations import opens_sentence
from voicegate.engine.text.english.data import DATA

# Written without a full stop as often as with one.
STREETS: Final[dict[str, str]] = DATA["streets"]
_BEFORE_PERSONS: Final = {"Dr": "doctor", "St": "saint"}

_STREET_NUMBER: Final = re.compile(
    r"(?:first|second|third|fourth|fifth|sixth|seventh|eighth|ninth|tenth|eleventh|twelfth|teenth|tieth|hundredth)\Z"
)
# Where streets are: at so many, or on, their names.
_NAMES: Final = r"(?:[A-Z][\w']{0,20} ){1,3}\Z"
_HOUSE_NUMBER: Final = re.compile(
    rf"(?:one|two|three|four|five|six|seven|eight|nine|zero|ten|eleven|twelve|teen|ty|hundred|thousand) {_NAMES}"
)
_ON_STREET: Final = re.compile(
    rf"\b(?:on|at|near|off|along|down|onto|to|from|and|via|take|past|north|south|east|west) {_NAMES}"
)
_MAX_NAME_CHARS: Final = 80
# Words that are written with a capital where they open a sentence, and are no street's name: Hello Dr.
_NO_NAME: Final = frozenset({
    "Hi", "Hello", "Hey", "Dear", "Thanks", "Yes", "No", "Ok", "Okay", "Sorry", "Please", "The", "A", "My", "Our",
    "Your", "Ask", "Call", "See", "And", "But", "So", "With", "Is", "To",
})  # fmt: skip
_NEXT_WORD: Final = re.compile(r"[ ,.]{0,3}([^\s]{1,20})")


def street_name(match: re.Match[str]) -> str | None:
    """Street name of the abbreviation that the first group is, with or without its full stop; None if it is of no
    street."""
    is_street = _follows_name(match) and (match[1] not in _BEFORE_PERSONS or not _precedes_name(match))
    return STREETS[match[1]] if is_street else None


def _precedes_name(match: re.Match[str]) -> bool:
    """Whether a person's or a saint's may be behind it: Dr Smith, but 12 Elm Dr. She and 12 Main St. Suite 5."""
    text, start = match.string, max(match.start() - _MAX_NAME_CHARS, 0)
    if not text[match.end() : match.end() + 2].lstrip()[:1].isupper() or _HOUSE_NUMBER.search(
        text, start, match.start()
    ):
        return False
    word = _NEXT_WORD.match(text, match.end())
    opens = word is not None and opens_sentence(word[1])
    return not opens or (match[1] == "Dr" and _ON_STREET.search(text, start, match.start()) is None)


def without_stop(match: re.Match[str]) -> str:
    """Likewise for one that may be of a person, too: Dr Smith, St Louis."""
    if (street := street_name(match)) is not None:
        return street
    behind = match.string[match.end() : match.end() + 2].lstrip()[:1]
    is_persons = match[1] == "Dr" or (match[1] == "St" and behind.isupper())
    return _BEFORE_PERSONS[match[1]] if is_persons else match[0]


def _follows_name(match: re.Match[str]) -> bool:
    """Whether the word before is written with a capital, or counts streets: Main St., 42nd St."""
    before = match.string[max(match.start() - 40, 0) : match.start()].rstrip(" ").rpartition(" ")[2]
    is_name = before[:1].isupper() and before[-1:].isalnum() and before not in _NO_NAME
    return is_name or _STREET_NUMBER.search(before) is not None
