"""Ranges whose dash stands between blanks, or is a long one -> the form in which the readers know ranges: 5-7. Pure."""

import re
from typing import Final

from voicegate.engine.text.cleanup import PAUSE

_NUMBER: Final = r"[0-9]++(?:,[0-9]{3})*+(?:\.[0-9]++)?"
_MONEY: Final = "[$€£¥￥]"
_SPACED: Final = re.compile(
    rf"(?P<low_sign>{_MONEY}?)(?<![A-Za-z0-9_.,])(?P<low>{_NUMBER})(?P<unit>%|[kKM]\b)?"
    rf" (?P<dash>[-–]) (?={_MONEY}?(?P<high>{_NUMBER}))"
)
# Words before that make a difference of it: x = 9 + 5 - 7, what is 5 - 7?
_OPERATOR_BEFORE: Final = re.compile(
    r"(?:[-–+*/×÷=^<>] ?|\b(?:[Ww]hat is|[Ww]hat's|[Cc]alculate|[Cc]ompute|[Ee]valuate|[Ss]olve|[Ss]ubtract|equals) )\Z"
)
_RESULT_BEHIND: Final = re.compile(r" ?[=+*/×÷^]| ?[-–] ?\d| equals\b| is\b|等于")
# From morning to afternoon, though the greater one is first.
_HOURS_BEFORE: Final = re.compile(r"(?:\b(?:[Oo]pen|[Hh]ours|from|are)|day|days|Mon|Fri|Sat|Sun)[:,]? \Z")
_HOURS_BEHIND: Final = re.compile(r" (?:daily|every day|weekdays|on weekdays|(?:on )?(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun))")
_FIRST_HOURS: Final = range(6, 13)
_MAX_LOOK: Final = 20
# A long dash is a pause elsewhere; Chinese writes ranges with it.
_LONG_DASH: Final = re.compile(rf"(?:(?<=[\d%年月日号点时分度元])|(?<=°[CF])){PAUSE}(?=[$€£¥]?\d)")


def with_tight_ranges(text: str) -> str:
    """ "5 - 7 days" -> "5-7 days"; "5 - 3" is a difference. Before characters are folded: an en dash is no minus."""
    return _SPACED.sub(_tight, text) if " - " in text or " – " in text else text


def with_long_dashes_of_ranges(text: str) -> str:
    """Chinese, its characters folded: 9:00—21:00 -> 9:00~21:00."""
    return _LONG_DASH.sub("~", text) if PAUSE in text else text


def _tight(match: re.Match[str]) -> str:
    text, end = match.string, match.end("high")
    if _RESULT_BEHIND.match(text, end) or _OPERATOR_BEFORE.search(
        text, max(match.start() - _MAX_LOOK, 0), match.start()
    ):
        return match[0]
    low, high = (float(match[name].replace(",", "")) for name in ("low", "high"))
    is_range = match["dash"] == "–" or low < high or _are_hours(match, low, high)
    return f"{match['low_sign']}{match['low']}{match['unit'] or ''}-" if is_range else match[0]


def _are_hours(match: re.Match[str], low: float, high: float) -> bool:
    if low not in _FIRST_HOURS or not 0 < high < low or match["low_sign"] or match["unit"]:
        return False
    before = _HOURS_BEFORE.search(match.string, max(match.start() - _MAX_LOOK, 0), match.start())
    return before is not None or _HOURS_BEHIND.match(match.string, match.end("high")) is not None
