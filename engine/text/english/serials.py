"""Letters and digits in one word -> English words and letters: AB12, BA2490, SN-48X2-9931. Rules as in `quantities`.

Letters before digits are spelled, two or three that look like a word too. Digits are said one by one where they are
many or stand among letters, and as a number where they are few: vitamin B12, WPA2, MP3.
"""

import re
from typing import Final

from voicegate.engine.text.cleanup import PAUSE
from voicegate.engine.text.english import numbers
from voicegate.engine.text.english.abbreviations import MONTH_BY_NAME, STATES
from voicegate.engine.text.english.data import CURRENCIES, LONG_SIGNS, MAGNITUDES, UNITS
from voicegate.engine.text.english.letters import is_pronounceable
from voicegate.engine.text.patterns import Match, Source, any_of

# A longer name before digits that can be said is said: COVID19, NASA2024.
_MAX_SPELLED_NAME: Final = 3
_MAX_COUNT_DIGITS: Final = 2
_ORDINAL_ENDS: Final = frozenset({"ST", "ND", "RD", "TH", "S"})
_SIGNS: Final = "".join(CURRENCIES)
_RUN: Final = re.compile(r"[0-9]+|[A-Za-z]+")
_YEAR: Final = re.compile(r"(?:19|20)\d\d")
# Behind digits these are no letters to spell.
_AFTER_DIGITS: Final = frozenset(UNITS) | frozenset(MAGNITUDES) - {"B", "b"} | _ORDINAL_ENDS | {"AM", "PM", "X", "BN"}
# Capitals before four digits that are no name of a code.
_MONTHS: Final = frozenset(month[:3].upper() for month in MONTH_BY_NAME)
_NO_NAMES: Final = any_of({*_MONTHS, *STATES, *LONG_SIGNS, *("I", "A", "AD", "BC", "CE", "BCE", "IN", "OF")})


def spell_all(word: str) -> str:
    """Every letter and digit for itself; a pause between parts: "SN-48X2" -> S N, four eight X two."""
    parts = (" ".join(map(_spelled, part)) for part in re.findall(r"[A-Za-z0-9]+", word))
    return f" {PAUSE.join(parts)} "


def _spell_parts(parts: list[str]) -> str:
    """Likewise, but for words: 1-800-FLOWERS."""
    return f" {PAUSE.join(part.lower() if _is_word(part) else spell_all(part).strip() for part in parts)} "


def _is_word(name: str) -> bool:
    return name.isalpha() and len(name) > _MAX_SPELLED_NAME and is_pronounceable(name)


def _spelled(char: str) -> str:
    return numbers.say_digits(char) if char.isdigit() else char.upper()


def _serial(match: Match) -> str:
    """Capitals and digits, of several parts or none."""
    word = match["serial"]
    parts = word.split("-")
    if len(parts) == 1:
        return _one_part(word) or word
    if parts[0].isdigit() and len(parts) == 2 and parts[1].isalpha():  # a form: 1099-INT
        return word
    runs = [_RUN.findall(part) for part in parts]
    is_long = any(run.isdigit() and len(run) > 3 and not _YEAR.fullmatch(run) for part in runs for run in part)
    is_mixed = any(len(part) > 2 for part in runs)
    if is_long or is_mixed or (len(parts) > 2 and not all(len(part) == 1 for part in parts)):
        return _spell_parts(parts)
    return word


def _one_part(word: str) -> str | None:
    """None: other rules know better."""
    runs = _RUN.findall(word)
    if len(runs) > 2:
        return spell_all(word)
    if runs[0].isdigit():
        return None if runs[1] in _AFTER_DIGITS else f" {runs[0]} {' '.join(runs[1])} "
    name, digits = runs
    is_round = digits.endswith("00") and digits[0] != "0"
    if len(digits) > _MAX_COUNT_DIGITS and not is_round and not _YEAR.fullmatch(digits):
        said = numbers.say_digits(digits)
    elif len(name) == 1:
        return None
    else:
        said = digits
    return f" {name if _is_word(name) else ' '.join(name)} {said} "


def _mixed(match: Match) -> str:
    """Letters for themselves, numbers as numbers."""
    runs = _RUN.findall(match["serial"])
    return f" {' '.join(run if run.isdigit() else ' '.join(run.upper()) for run in runs)} "


def _by_digits(match: Match) -> str:
    return spell_all(match["serial"])


def _pairs(match: Match) -> str:
    return f"{match['name']}{numbers.say_year(match['digits'])} {match['letter'].upper()} "


SERIALS: Final[tuple[Source, ...]] = (
    (r"(?<![\w.-])0[xX](?P<serial>[0-9A-Fa-f]{1,16})(?!\w)", lambda match: f" zero X{spell_all(match[1])}", "0"),
    # Serials of a network card, of a bank account, and names in programs.
    (r"(?<![\w:])(?P<serial>[0-9A-Fa-f]{2}(?:[:-][0-9A-Fa-f]{2}){5})(?![\w:])", _by_digits),
    (
        r"\b(?P<name>(?:SWIFT|BIC)(?: code)?(?: is)?:? )(?P<serial>[A-Z]{6}[A-Z0-9]{2,5})(?!\w)",
        lambda match: f"{match['name']}{spell_all(match['serial'])}",
    ),
    (r"(?<!\w)(?P<serial>[A-Z]{2}\d\d(?: [A-Z0-9]{4}){2,7}(?: [A-Z0-9]{1,3})?)(?!\w)", _by_digits, " "),
    (r"(?<![\w-])(?P<serial>[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})(?![\w-])", _by_digits, "-"),
    (r"(?<![\w.-])(?P<serial>(?=[a-f]*\d)(?=\d*[a-f])(?=[0-9a-f]*\d[0-9a-f]*\d)[0-9a-f]{7,40})(?![\w-])", _by_digits),
    # Capitals and digits; both cases only where it is short: HbA1c, SpO2, IPv6.
    (
        rf"(?<![\w.,-])(?<![{_SIGNS}])(?P<serial>(?=[A-Z0-9-]*[A-Z])(?=[A-Z0-9-]*\d)[A-Z0-9]+(?:-[A-Z0-9]+)*)(?![\w]|-\w|\.\d)",
        _serial,
    ),
    (
        r"(?<![\w.-])(?P<serial>(?=[A-Za-z]*[A-Z][A-Za-z]*\d)(?=\w*[a-z])(?=\w*[A-Z]\w*[A-Z])[A-Za-z0-9]{3,6})(?![\w-])",
        _mixed,
    ),
)
# Behind the rules for codes that have a name.
PAIRS: Final[tuple[Source, ...]] = (
    (
        rf"(?<![\w.-])(?P<name>(?!(?:{_NO_NAMES}) )[A-Z]{{2,5}} )"
        r"(?P<digits>(?!19|20)[1-9]\d{3})(?P<letter>)(?![\w%,:/-]|\.\d)",
        _pairs,
        " ",
    ),
    (r"(?<![\w.,-])(?P<name>)(?P<digits>\d{3,4})(?P<letter>[pP])\b", _pairs),
)
