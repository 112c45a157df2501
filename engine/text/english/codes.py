"""Numbers that count nothing -> English words: telephones, PINs, seats, versions. Pure; rules as in `quantities`."""

import re
from typing import Final

from voicegate.engine.text.cleanup import PAUSE
from voicegate.engine.text.english import numbers
from voicegate.engine.text.english.abbreviations import ABBREVIATIONS, MONTH_BY_NAME, STATES, Kind
from voicegate.engine.text.english.data import DATA
from voicegate.engine.text.english.streets import STREETS
from voicegate.engine.text.patterns import Match, Source, any_of

_NUMBERED: Final = {
    spelling
    for name, entry in ABBREVIATIONS.items()
    if entry.kind is Kind.NUMBER and name not in MONTH_BY_NAME
    for spelling in (name, name.title())
}
# Things with a number of their own: "Order: #4821".
NUMBERED_THINGS: Final = (
    "[Aa]ccount|[Oo]rder|[Cc]onfirmation|[Tt]racking|[Rr]eference|[Tt]icket|[Ii]nvoice|[Cc]ase|[Cc]laim|[Pp]olicy"
    "|[Mm]ember|[Bb]ooking|[Rr]eservation|[Rr]outing|[Ss]erial|[Cc]ard|[Pp]hone"
)
# Behind these a number is read digit by digit: "your order number is 4821".
_CODE_NAMES: Final = (
    r"[Cc]odes?|PINs?|[Pp]asscodes?|OTP|[Zz]ip|ZIP|[Pp]ostcode|[Ee]xtension|[Ee]xt\.?|ID"
    r"|[Tt]ext \w{1,12} to"
    r"|[Ll]ast (?:four(?: digits)?|4(?: digits|(?=:)))(?: of (?:your|my|the) \w{1,12}(?: \w{1,12})?)?"
    r"|(?:[Cc]ard|[Aa]ccount|[Nn]umber)(?: \w{1,20})? (?:ending|ends)(?: in| with)?"
    rf"|(?:{NUMBERED_THINGS}):?(?: {{1,2}}(?:[Nn]umber|[Nn]o\.)| ?#)"
)
CODE_NAME: Final = rf"(?:{_CODE_NAMES})(?: is| are)?:?"
CALL: Final = "(?:[Cc]all|[Dd]ial|[Tt]ext)"
STATE: Final = f"(?:{any_of(STATES)})"
_ZIP: Final = r"\d{5}(?:-\d{4})?(?![\w%]|[.,:/]\d)"
# One that begins with a letter: SN-48.
CODE: Final = "[A-Z][A-Z0-9-]{0,19}[0-9]"
# Behind the digits of a code: it is no part of an amount, a date or a word.
CODE_END: Final = r"(?![\w%]|[.,:/-]\d)"
# Services that everybody calls by their digits.
SERVICES: Final = "[2-8]11|988|999|112|111|101"
# Behind these a letter at the number is one: seat 14B.
PLACES: Final = any_of(spelling for name in DATA["words"]["places"] for spelling in (name, name.title()))
# As they stand before a number without a full stop: Hwy 1, Apt 4.
_BEFORE_NUMBER: Final[dict[str, str]] = DATA["before_numbers"]

# Behind these a star is a telephone's key.
PRESS: Final = "[Pp]ress|[Hh]it|[Dd]ial|[Pp]ush"
_STAR_KEY: Final = re.compile(
    rf"\b(?P<name>(?:{PRESS}|or)(?: the)?) (?P<quote>[\"'`]?)\*(?P<digits>\d{{0,4}})(?P=quote)"
    r"(?=[ .,;]|\Z)(?! ?\*)"
)
SIDES: Final = {
    **{"N": "north", "S": "south", "E": "east", "W": "west"},
    **{"NE": "northeast", "NW": "northwest", "SE": "southeast", "SW": "southwest"},
}
_STREET: Final = rf"(?:{any_of([*STREETS, *(name.title() for name in STREETS.values())])})"


def _say_groups(text: str) -> str:
    return PAUSE.join(map(numbers.say_digits, re.findall("[0-9]+", text)))


def _phone(match: Match) -> str:
    plus = "plus " if match[0].startswith("+") and not match[0].startswith("+1") else ""
    return f" {plus}{_say_groups(match[0])} "


def _code(match: Match) -> str:
    return f"{match['name']}{_say_groups(match['digits'])} "


def _port(match: Match) -> str:
    return f" {_say_groups(match['digits'])} "


def _state(match: Match) -> str:
    return f"{match['gap']}{STATES[match['state']]} {_say_groups(match['digits'])} "


# Sides of a street: 500 W 5th Ave, on N Main St, Pennsylvania Ave NW.
_SIDE_BEFORE: Final = re.compile(
    rf"(?:(?<=\d )|(?<=\A))({any_of(SIDES)}) "
    rf"(?=\d{{1,3}}(?:st|nd|rd|th)\b|(?:[A-Z][a-z]+ ){{1,2}}{_STREET}\b)"
)
_SIDE_BEHIND_PREPOSITION: Final = re.compile(
    rf"\b((?:on|at|to|down|from|near|along|onto|up|off|via) )({any_of(SIDES)}) (?=[A-Z][a-z]|\d)"
)
_SIDE_BEHIND: Final = re.compile(rf"\b({_STREET}\.? )({any_of(SIDES)})\b(?=,|[.;]?(?:\s|\Z))")


def read_sides(text: str) -> str:
    """North of a street, written with its letter."""
    text = _SIDE_BEHIND.sub(lambda match: f"{match[1]}{SIDES[match[2]]}", text)
    text = _SIDE_BEHIND_PREPOSITION.sub(lambda match: f"{match[1]}{SIDES[match[2]]} ", text)
    return _SIDE_BEFORE.sub(lambda match: f"{SIDES[match[1]]} ", text)


def read_star_keys(text: str) -> str:
    """A telephone's: "press *", "dial *67". Before emphasis is dropped."""
    return (
        _STAR_KEY.sub(lambda match: f"{match['name']} star {' '.join(match['digits'])}", text) if "*" in text else text
    )


def _side(match: Match) -> str:
    """Side of a motorway."""
    return f" {' '.join(match['road'])} {numbers.say_plain(match['number'])} {SIDES[match['side']]} "


def _numbered(match: Match) -> str:
    return f"{ABBREVIATIONS[match['name'].lower()].reading} "


def _version(match: Match) -> str:
    parts = match["parts"].split(".")
    point = " dot " if len(parts) == 4 else " point "  # four: an internet address
    return (" version " if match["v"] else " ") + point.join(map(numbers.say_integer, parts)) + " "


def _savings_plan(match: Match) -> str:
    return f" four oh {numbers.say_digits(match['last'])} {match['plan'] or 'k'} "


def _place(match: Match) -> str:
    return f"{match['name']} {numbers.say_plain(match['number'])} {match['letter']} "


# Before numbers and codes are read: Apt 3C, serial no. SN-48.
NAMES_OF_NUMBERS: Final[tuple[Source, ...]] = (
    (rf"\b({any_of(_BEFORE_NUMBER)})\.? (?=\d)", lambda match: f"{_BEFORE_NUMBER[match[1]]} "),
    # "Just a sec. 3 results" are no section.
    (rf"\b(?P<name>(?!(?<=\b[Aa] )sec|(?<=\bone )sec|(?<=\d )sec)(?:{any_of(_NUMBERED)}))\. ?(?=\d)", _numbered, "."),
    (rf"(?P<name>\bno|(?<=[a-z] )No)\. ?(?={CODE})", _numbered, "o."),
)
CODES: Final[tuple[Source, ...]] = (
    (r"\b(?P<name>[Pp]ort )(?P<digits>[1-9]\d{2,4}(?!\d))" + CODE_END, _code, "ort "),
    (
        r"(?:(?<=[A-Za-z])|(?<=\.\d)|(?<=\.\d\d)|(?<=\.\d{3})):(?P<name>)(?P<digits>[1-9]\d{3,4})(?=/|[.,;]?(?:\s|\Z))",
        _port,
        ":",
    ),
    (r"\bCO2\b", "C O two", "CO2"),  # a formula that everybody spells
    # Tax forms and savings, of which nobody counts so many.
    (r"(?<![\w.,$€£-])10(40|98|99)s\b", lambda match: f" ten {numbers.say_decade(match[1])} ", "10"),
    (r"(?<=[Ff]orm )10(?=(?:40|98|99)\b)", "10 ", "orm 10"),
    (r"(?<![\w.,$€£-])40(?P<last>[13])(?:\((?P<plan>[kb])\)|k\b)", _savings_plan, "40"),
    (r"(?<=\b[A-Z]-)(\d)s\b", lambda match: f" {numbers.say_decade(match[1])} ", "-"),
    (r"(?<![\w-])\+\d{7,15}(?!\d)", _phone, "+"),
    (r"(?<![\w.-])(?:\+\d{1,3}[ .-]?|1[ .-])?(?:\(\d{3}\) ?|\d{3}[ .-])\d{3}[ .-]\d{4}(?![\d-])", _phone),
    (r"(?<![\w-])\+\d{1,3}(?:[ .-]\(?\d{1,8}\)?| \(0\)\d{1,5}){2,5}(?![\d-])", _phone, "+"),
    (r"(?<![\w.-])(?:0\d{2,4}|\(0\d{1,4}\)) \d{3,6}(?: \d{3,4})?(?![\d-])", _phone, "0"),
    (r"(?<![\w.-])\d{3}-\d{4}(?![\d-])", _phone, "-"),
    (r"(?<![\w.-])\d{3}-\d\d-\d{4}(?![\d-])", _phone, "-"),  # of social security
    (r"(?<![\w.-])1[38]00([ -])\d{3}\1\d{3}(?![\d-])", _phone, "00"),
    (
        r"(?<![\w.-])(?!(?:19|20)\d\d[ -](?:19|20))\d{4}([ -])\d{4}(?:\1\d{4}){1,4}(?![\d-])",
        _phone,
    ),  # a card's, or of a parcel
    # Of an order: 112-4567890-1234567, and of a bank: 12-34-56.
    (r"(?<![\w.-])(?=(?:\d-?){9})\d{2,8}(?:-\d{2,8}){2,5}(?![\w-])", _phone, "-"),
    (r"(?<![\w.-])\d{1,7}(?:-\d{1,7}){3,5}(?![\w-])", _phone, "-"),  # a book's
    (
        rf"\b(?P<name>{CODE_NAME} [\"'(]?)"
        rf"(?P<digits>\d{{3,4}}(?:[ -]\d{{3,4}}){{1,4}}|\d\d(?:-\d\d){{2}}|\d{{3,}}+){CODE_END}",
        _code,
    ),
    (rf"\b(?P<name>{CALL} )(?P<digits>{SERVICES}){CODE_END}", _code),
    (r"(?<![\w.,:/$€£#-])(?P<name>)(?P<digits>911)(?![\w%/-]|[.,:]\d| [a-z]{2,20}s\b)", _code, "911"),
    (rf"(?<=[A-Za-z])(?P<gap>,? )(?P<state>{STATE}) (?P<digits>{_ZIP})", _state),
    (rf"\b(?P<gap>)(?P<state>{STATE}) (?P<digits>{_ZIP})", _state),
    (rf"\b(?P<name>(?:ending|ends) in )(?P<digits>(?!(?:19|20)\d\d)\d{{4}}){CODE_END}", _code, " in "),
    (r"\b(?P<road>I|[A-Z]{2})-(?P<number>\d{1,3}) ?(?P<side>[NSEW])\b(?!['.-]\w)", _side, "-"),
    (r"(?<![\w.,$€£-])(?P<name>)(?P<number>\d{1,4})(?P<letter>B) (?=[A-Z][a-z])", _place, "B "),
    (rf"\b(?P<name>{PLACES}) (?P<number>\d{{1,4}})(?P<letter>[A-Z])\b(?!-\w)", _place),
    (r"(?<![\w.])(?P<v>)(?P<parts>\d++(?:\.\d++){2,}+)", _version, "."),
    (r"(?<!\w)(?P<v>[vV])(?:\. ?)?(?P<parts>(?:(?<!V)\d++|\d++(?=\.\d))(?:\.\d++)*+)", _version),
    (r"(?<=[Vv]ersion )(?P<v>)(?P<parts>\d++\.\d++)", _version, "ersion"),
)
