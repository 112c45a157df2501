"""Feet and inches by their marks -> their words: 5'11", a 24" screen, 8' x 4'. Pure.

The same marks are quotation marks: one behind a number is a measure unless it closes a quotation.
"""

import re
from typing import Final

# With the inches behind it: 5'11".
_HEIGHT: Final = re.compile(r"(?<![\w'])([3-8])'(\d{1,2})(?:\"|(?!\w))")
_NUMBER_END: Final = re.compile(r"(?<![A-Za-z\d.,:'\"])\d{1,4}(?:\.\d{1,3}|/\d{1,2})?\Z")
_PART_END: Final = re.compile(r"(?<![\d \-])\d/\d{1,2}\Z|(?<!\d)[ (]\d/\d{1,2}\Z")
_BY: Final = re.compile(r" ?[x×] ?(?=\d)")
# In front of a noun it has no plural. These are none, and those tell what somebody said.
_NO_NOUN: Final = r"(?:wide|long|tall|high|deep|thick|apart|by|of|in|or|to|for|are|on|at|from|with|per|each)\b"
_SPEECH: Final = re.compile(r" (?:and|but|he|she|I|they|we|you|said|is|was) [A-Za-z]")
_NOUN: Final = re.compile(rf" (?!{_NO_NOUN}|(?:and|is|was)\b)[A-Za-z]")
_DECADE: Final = re.compile(r"\d0s\b")  # '60s
_MAX_NUMBER_CHARS: Final = 12
_NAMES: Final = {'"': ("inch", "inches"), "'": ("foot", "feet")}


def read_marks_of_length(text: str) -> str:
    text = _HEIGHT.sub(r"\1 foot \2", text) if "'" in text else text
    for mark, names in _NAMES.items():
        if mark in text:
            text = _read_mark(text, mark, *names)
    return text


def _read_mark(text: str, mark: str, one: str, many: str) -> str:
    parts: list[str] = []
    at = 0
    is_quoting = False
    for found in re.finditer(mark, text):
        place, behind = found.start(), found.end()
        before = text[place - 1 : place]
        if (before.isalnum() and text[behind : behind + 1].isalnum()) or _DECADE.match(text, behind):  # don't, 1990's
            continue
        start = max(place - _MAX_NUMBER_CHARS, at)
        number = _NUMBER_END.search(text, start, place)
        if is_quoting or number is None:
            is_quoting = not is_quoting and (mark == '"' or not before.isalnum())
            continue
        if _SPEECH.match(text, behind):
            continue
        by = _BY.match(text, behind)
        if _NOUN.match(text, behind) and by is None:
            said = one
        elif _PART_END.search(text, start, place):
            said = f"of an {one}"
        else:
            said = one if number[0] == "1" else many
        said += " by " if by is not None else ""
        parts += [text[at:place], f" {said}"]
        at = behind if by is None else by.end()
    return "".join([*parts, text[at:]])
