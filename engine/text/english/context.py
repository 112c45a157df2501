"""What a text is read as behind another that was said already: a code, a seat, a state. Pure.

A clause is cut at a colon, and a stall or a model that takes words one by one cuts anywhere: "your code is | 482913".
"""

import re
from typing import Final

from voicegate.engine.text.english.abbreviations import STATES
from voicegate.engine.text.english.codes import (
    CALL,
    CODE_END,
    CODE_NAME,
    NUMBERED_THINGS,
    PLACES,
    PRESS,
    SERVICES,
    STATE,
)
from voicegate.engine.text.english.letters import REGNAL, RULERS, STATE_CODE

# Of what was said before, that any of these looks at.
MAX_BEFORE_CHARS: Final = 80

_MARKS: Final = r"[\s*_`\"'“‘(]*"
_BEHIND_NAME: Final = re.compile(rf"\b{CODE_NAME}{_MARKS}\Z")
_CODE: Final = re.compile(rf"({_MARKS}(?:(?:is|are):? )?{_MARKS})(\d{{3,}}){CODE_END}")
_BEHIND_THING: Final = re.compile(rf"\b(?:{NUMBERED_THINGS}):?{_MARKS}\Z")
_NUMBER_SIGN: Final = re.compile(rf"{_MARKS}#:? ?(\d{{3,}}){CODE_END}")
_BEHIND_CALL: Final = re.compile(rf"\b{CALL} ?\Z")
_SERVICE: Final = re.compile(rf"(\s*)({SERVICES}){CODE_END}")
_BEHIND_PLACE: Final = re.compile(rf"\b(?:{PLACES}) ?\Z")
_PLACE: Final = re.compile(r"(\s*\d{1,4})(?=[A-Z]\b)")
_BEHIND_CITY: Final = re.compile(r"[a-z], ?\Z")
_STATE: Final = re.compile(rf"(\s*){STATE_CODE}")
_BEHIND_RULER: Final = re.compile(rf"\b(?:{RULERS}) ?\Z")
_REGNAL: Final = re.compile(rf"(\s*)({'|'.join(REGNAL)})\b(?!['.-])")
_BEHIND_STATE: Final = re.compile(rf", {STATE} ?\Z")
_ZIP: Final = re.compile(r"(\s*)(\d{5})(?![\w%]|[.,:/]\d)")
# A range whose dash is a word of its own, and what a program compares with, as the reader knows it.
_BEHIND_TIME: Final = re.compile(r"(?:\d ?[AaPp]\.?[Mm]\.?|\d:[0-5]\d) ?\Z")
_BEHIND_DIGIT: Final = re.compile(r"\d ?\Z")
_UNTIL: Final = re.compile(r"\s*([-–]) ?(?=\d)")
_BEHIND_VALUE: Final = re.compile(r"[A-Za-z0-9_)\]] ?\Z")
_COMPARISONS: Final = {"==": "=", "===": "=", "!=": "≠", ">=": "≥", "<=": "≤"}
_SIGNS: Final = frozenset("=!<>-–")
_BEHIND_KEY: Final = re.compile(rf"\b(?:{PRESS})(?: the)? ?\Z")
_STAR_KEY: Final = re.compile(r"\s*\*(\d{0,4})(?=[ .,;]|\Z)")
_BEHIND_STARS: Final = re.compile(r"(?:\*{4}|\b[xX]{4})[ -]?\Z")
_LAST_DIGITS: Final = re.compile(r"(\s*)(\d{3,4})(?!\w)")


def in_context(before: str, text: str) -> str:
    """`text` so that it is read alone as it would be behind `before`, of which MAX_BEFORE_CHARS are enough."""
    if (match := _STATE.match(text)) is not None and _BEHIND_CITY.search(before) is not None:
        text = f"{match[1]}{STATES[match[2]]}{text[match.end() :]}"
    if (match := _REGNAL.match(text)) is not None and _BEHIND_RULER.search(before) is not None:
        return f"{match[1]}the {REGNAL[match[2]]}{text[match.end() :]}"
    if (first := text.lstrip()[:1]) in _SIGNS:
        return _sign_in_context(before, text)
    if first == "*" and (match := _STAR_KEY.match(text)) is not None and _BEHIND_KEY.search(before) is not None:
        return f"star {' '.join(match[1])}{text[match.end() :]}"
    if first.isdigit() and (match := _LAST_DIGITS.match(text)) is not None and _BEHIND_STARS.search(before) is not None:
        return f"{match[1]}ending in {' '.join(match[2])}{text[match.end() :]}"
    if first == "#" and (match := _NUMBER_SIGN.match(text)) is not None and _BEHIND_THING.search(before) is not None:
        return f" number {' '.join(match[1])}{text[match.end() :]}"
    for behind, pattern in ((_BEHIND_NAME, _CODE), (_BEHIND_STATE, _ZIP), (_BEHIND_CALL, _SERVICE)):
        if (match := pattern.match(text)) is not None and behind.search(before) is not None:
            return f"{match[1]}{' '.join(match[2])}{text[match.end() :]}"
    if (match := _PLACE.match(text)) is not None and _BEHIND_PLACE.search(before) is not None:
        return f"{match[1]} {text[match.end() :]}"
    return text


def _sign_in_context(before: str, text: str) -> str:
    if (comparison := _COMPARISONS.get(text.strip())) is not None and _BEHIND_VALUE.search(before) is not None:
        return f" {comparison} "
    if (match := _UNTIL.match(text)) is not None and _begins_range(before, match[1]):
        return f" to {text[match.end() :]}"
    return text


def _begins_range(before: str, dash: str) -> bool:
    """A hyphen between two numbers may be a minus."""
    behind = _BEHIND_TIME.search(before) or (_BEHIND_DIGIT.search(before) if dash == "–" else None)
    return behind is not None
