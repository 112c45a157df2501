"""English: cleaned text -> words and marks only. Pure."""

import re
from typing import Final

from voicegate.engine.text.cleanup import PAUSE, WIDE_PUNCTUATION
from voicegate.engine.text.english.abbreviations import ABBREVIATIONS, WEEKDAY_BY_START, stop_behind
from voicegate.engine.text.english.codes import read_sides
from voicegate.engine.text.english.data import DATA
from voicegate.engine.text.english.letters import is_spelled, read_letters
from voicegate.engine.text.english.quantities import read_quantities
from voicegate.engine.text.english.streets import STREETS
from voicegate.engine.text.patterns import any_of
from voicegate.engine.text.punctuation import tidy

_WEEKDAY: Final = rf"({any_of(WEEKDAY_BY_START)})(?:r?s)?(?:day|nesday|urday)?\b\.?"
_MONEY: Final = "[$€£]"


def _days(match: re.Match[str]) -> str:
    stop = "." if match[0].endswith("day.") else stop_behind(match)
    return f"{WEEKDAY_BY_START[match[1]]} to {WEEKDAY_BY_START[match[2]]}{stop}"


_BEFORE_NUMBERS: Final = (
    (re.compile(rf"\b{_WEEKDAY} ?- ?{_WEEKDAY}"), _days),
    (re.compile(r"(?<=\w) ?<= ?(?=[\w$€£-])"), " ≤ "),
    (re.compile(r"(?<=\w) ?>= ?(?=[\w$€£-])"), " ≥ "),
    (re.compile(r"(?<=\w) ?!= ?(?=[\w$€£-])"), " ≠ "),
    (re.compile(r"(?<=\w) ?===? ?(?=[\w$€£-])"), " = "),
    (re.compile(rf"(?<=[\d%]) ?(?:-+|=)> ?(?={_MONEY}?\d)"), " to "),
    (re.compile(r" ?(?:-+|=)> ?"), f"{PAUSE} "),
    (re.compile(r"(?<=[A-Za-z]{2}) > (?=[A-Z])"), f"{PAUSE} "),  # a way through menus
    (re.compile(r"(?:(?<=\d/\d)|(?<=\d/\d\d)|(?<=/\d{4}))(?: ?- ?(?=\d\d?/\d\d?/\d)|-(?=\d\d?/\d))"), " to "),
    # A minus, of numbers and single letters; between words it is a dash.
    (
        re.compile(rf"(?:(?<=[\d²³)])|(?<=[a-z])(?<![A-Za-z'][a-z])) - (?=[\d(√]|{_MONEY}\d|[a-z](?![A-Za-z']))"),
        " minus ",
    ),
    (re.compile(r"(?:(?<=[\d%])|(?<=\d[kKM]))\+(?![\w+])"), " plus "),
    (re.compile(r"\b((?:[Pp]ress|[Hh]it|[Dd]ial|or|then)(?: the)? )#"), r"\1pound"),
    (re.compile(r"(?<!\S)#(?= (?:key|sign|button)\b)"), "pound"),
    (re.compile(r"\b([A-Z])&([A-Z])s\b"), r"\1 and \2's"),  # M&Ms
    # As the continent writes an amount.
    (re.compile(r"(?<![\d.,])(\d+),(\d\d?)(?= ?[$€£¥₹₩](?!\d))"), r"\1.\2"),
    (re.compile(r"(?<=[$€£])( ?\d{1,3}),(\d\d)(?![\d,]|\.\d)"), r"\1.\2"),
    (re.compile(r"(?<=[\d/])( ?)(km|m|cm|mm|ft|mi|yd|in)²"), r"\1sq \2"),
    (re.compile(r"(?<=[\d/])( ?)(m|cm|mm|ft|yd|in)³"), r"\1cu \2"),
    (re.compile("²"), " squared"),
    (re.compile("³"), " cubed"),
    (re.compile(r"(?<=[A-Za-z\d)]) ?\^ ?(?=-?[A-Za-z\d])"), " to the power of "),
    (re.compile("√ ?"), " square root of "),
    (re.compile(r"(?<=[A-Za-z]) #(?=:| \d)"), " number"),
    (re.compile(r"#(?=[A-Z]{1,5}-?\d|[A-Z]-[A-Z0-9-]*\d)"), " number "),
    (re.compile(r"\b([Hh]ashtag:?) #(?=\w)"), r"\1 "),
    # Many digits behind it count nothing: PO #88213.
    (re.compile(r"#(\d{4,})(?![\w%]|[.,]\d)"), lambda match: f" number {' '.join(match[1])} "),
    (re.compile(r"#(?=\d)"), " number "),
    (re.compile(r"\b([CF])#"), r"\1 sharp "),
    (re.compile(r"#(?=[A-Za-z])"), " hashtag "),
    (re.compile(r"\b([A-Z])([A-Z]?)&([A-Z])\b"), r" \1 \2 and \3"),  # R&D, AT&T
    (re.compile(r"(?<=[\d%]) ?~ ?(?=\d)"), "-"),
    (re.compile(r"[~≈] ?(?=[$€£]?\d)"), " about "),
    (re.compile(r"(?<=[A-Za-z])\+\+"), " plus plus "),
)


def _pair(match: re.Match[str]) -> str:
    """AM/FM: where one is spelled, the other one is."""
    return " ".join(match[1] + match[2]) if any(map(is_spelled, match.groups())) else match[0]


_CODE: Final = any_of(DATA["currency_codes"]["codes"])
# As it is written by hand: "w/ milk", "w/o sugar".
_SHORTHAND: Final = (
    (re.compile(r"(?<![\w/])w/o(?![\w/])"), "without"),
    (re.compile(r"(?<![\w/])w/(?= ?[A-Za-z]| [\d$€£]|\s?\Z)"), "with "),
    (re.compile(r"(?<![\w/])c/o(?![\w/])"), "care of"),
    # Two currencies: EUR/USD.
    (re.compile(rf"\b({_CODE})/({_CODE})\b"), lambda match: " ".join(match[1] + match[2])),
    (re.compile(r"\b([A-Z]{2})/([A-Z]{2})\b"), _pair),
    (re.compile(r"\b([Nn])os?\. of\b"), r"\1umber of"),
)
_SHORT_WORDS: Final = re.compile(rf"(?<![\w.-])(?:{any_of(DATA['shorthand'])})(?!\w|-[a-z]|\.\w)")
_SIGN_BEFORE_NUMBERS: Final = re.compile("[²³^√#&~≈+=>$€£¥₹₩-]")  # every one of these rules needs one
# "wait .env" is a name, and "./run.sh" another.
_LEADING_DOT: Final = re.compile(r"(?:(?<=\s)|^)(?:\.NET\b|\./(?=\w)|\.(?=[A-Za-z]{2}))")
_SYMBOL_NAMES: Final[dict[str, str]] = DATA["sign_names"]
_SYMBOLS: Final = re.compile(r"[&@+=%<>×÷±≈≤≥≠∞§‰°#$€£¥₹₩*^\\/~|\"-]+")

# "Dr", "Ave", "Fri" and their like are read without a full stop, too.
_PLAIN_WORD: Final = (
    rf"(?!(?:Mr|Mrs|Ms|Prof|vs|{any_of(STREETS)}|{any_of(DATA['shorthand'])}|Mon|Tues?|Wed|Thu(?:rs?)?|Fri|Sat|Sun)\b)"
    r"(?:[A-Z]?[a-z]+|[A-DF-MO-RT-VX-Z])(?:'[a-z]+)*"  # N, S, E and W may be sides of a street
)
_PLAIN: Final = re.compile(rf"{_PLAIN_WORD}(?:[,;?!]? {_PLAIN_WORD})*[.,;?!]?")


def is_read_as_written(text: str) -> bool:
    """Whether nothing that reads a text finds anything in this one, which is no number, name or markup: plain words."""
    if _PLAIN.fullmatch(text) is None:
        return False
    return not text.endswith(".") or text[:-1].rpartition(" ")[2].lower() not in ABBREVIATIONS


def read_english(text: str, *, is_day_first: bool = False) -> str:
    text = _LEADING_DOT.sub(_leading_dot, text)
    if "/" in text or "o. of" in text:
        for pattern, words in _SHORTHAND:
            text = pattern.sub(words, text)
    if _SIGN_BEFORE_NUMBERS.search(text) is not None:
        for pattern, reading in _BEFORE_NUMBERS:
            text = pattern.sub(reading, text)
    text = _SHORT_WORDS.sub(lambda match: DATA["shorthand"][match[0]], read_sides(text))
    text = _SYMBOLS.sub(_symbol, read_quantities(text, is_day_first=is_day_first))
    return tidy(read_letters(tidy(text, keep_inner_stops=True)))


def _leading_dot(match: re.Match[str]) -> str:
    return {".NET": "dot net", "./": ""}.get(match[0], "dot ")


def _symbol(match: re.Match[str]) -> str:
    """A sign alone or at a word is read; a run of signs ("===", "->") is an ornament."""
    symbols, text = match[0], match.string
    before = text[match.start() - 1] if match.start() else " "
    behind = text[match.end()] if match.end() < len(text) else " "
    if set(symbols) == {"-"}:
        return symbols
    name = _SYMBOL_NAMES.get(symbols)
    is_apart = (before.isspace() or before in "(" + WIDE_PUNCTUATION) and (behind.isspace() or behind in ",.;:!?)")
    if name is None or not (before.isalnum() or behind.isalnum() or is_apart):
        return " "
    return f" {name} "
