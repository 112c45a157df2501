"""Numbers with what stands around them -> English words: dates, times, money, measures, ranges. Pure.

Rules run in order, each over the whole text, the special before the plain. A number is matched possessively (`++`) and
only from its first digit on, so that no rule is worse than linear in a long one.
"""

import re
from typing import Final

from voicegate.engine.text.english import numbers
from voicegate.engine.text.english.abbreviations import MONTHS, WEEKDAY_BY_START
from voicegate.engine.text.english.codes import CODES, NAMES_OF_NUMBERS, SIDES
from voicegate.engine.text.english.data import CURRENCIES, DATA, LONG_SIGNS, MAGNITUDES, PER, UNITS
from voicegate.engine.text.english.dates import DATES_AND_TIMES, TIMESTAMPS, read_slash_dates
from voicegate.engine.text.english.inches import read_marks_of_length
from voicegate.engine.text.english.serials import PAIRS, SERIALS
from voicegate.engine.text.patterns import Match, Source, any_of, apply, rules_of

_START: Final = r"(?<![\w.])(?<!\d,)"  # of a number that stands alone
# With the groups of three that most write, or those of India: 12,34,567.
_NUMBER: Final = r"(?:\d{1,2}(?:,\d\d(?!\d))++,\d{3}(?!\d)|\d++(?:,\d{3}(?!\d))*+)(?:\.\d++)?+"
_SIGNS: Final = "".join(CURRENCIES)
# Letters only right behind the digits: "$3 T-shirt" is none.
_MAGNITUDE: Final = (
    rf"(?: ?(?P<magnitude>{any_of(name for name in MAGNITUDES if len(name) > 1)}"
    rf"|(?<=\d)(?:{any_of(name for name in MAGNITUDES if len(name) == 1)}))\b(?!-))?"
)

# --- money and measures ---------------------------------------------------------------------------------------


def _money(match: Match) -> str:
    amount, magnitude = match["amount"], match["magnitude"]
    singular, plural, cent, cents = CURRENCIES[match["sign"]]
    whole, _, fraction = amount.partition(".")
    if magnitude:
        return f" {numbers.say_number(amount)} {MAGNITUDES[magnitude]} {plural} "
    if cent and len(fraction) == 2 and fraction != "00":
        minor = f"{numbers.say_integer(fraction.lstrip('0'))} {cent if fraction == '01' else cents}"
        if not whole.strip("0"):
            return f" {minor} "
        return f" {numbers.say_integer(whole)} {singular if whole == '1' else plural} and {minor} "
    number = whole if fraction == "00" else amount
    return f" {numbers.say_number(number)} {singular if number == '1' else plural} "


def _money_range(match: Match) -> str:
    magnitude = match["low_magnitude"]
    low = numbers.say_number(match["low"]) + (f" {MAGNITUDES[magnitude]}" if magnitude else "")
    return f" {low} to{_money(match)}"


def _measured_fraction(match: Match) -> str:
    singular, plural = UNITS[match["unit"]]
    is_mixed = match["whole"] is not None
    return f"{_mixed_fraction(match) if is_mixed else _fraction(match)}{plural if is_mixed else singular} "


def _measure(match: Match) -> str:
    singular, plural = UNITS[match["unit"] or match["spaced"]]
    return f" {numbers.say_number(match['number'])} {singular if match['number'] == '1' else plural} "


def _degrees(match: Match) -> str:
    scale = {"C": " celsius", "F": " fahrenheit", None: ""}[match["scale"]]
    return f" {numbers.say_number(match['number'])} {'degree' if match['number'] == '1' else 'degrees'}{scale} "


def _count(match: Match) -> str:
    """A count of things, and no year: "1234 dollars", but "in 2024 sales rose"."""
    number, noun = match["number"], match["noun"]
    before = match.string[max(match.start() - _MAX_LOOK, 0) : match.start()]
    is_late = int(number) in _YEARS_OF_TODAY
    if noun in _MEASURES_BY_NAME:
        is_count = not (is_late and _BEFORE_YEAR.search(before) and noun in _MONEY_BY_NAME)
    else:
        is_count = _is_plural(noun) and not (_BEFORE_ANY_YEAR if is_late else _BEFORE_YEAR).search(before)
    return f" {numbers.say_integer(number)}" if is_count else match[0]


def _is_plural(noun: str) -> bool:
    return noun in _PLURALS or (
        noun.endswith("s") and noun not in _NO_PLURALS and not noun.endswith(("ss", "us", "is"))
    )


def _mixed_fraction(match: Match) -> str:
    fraction = numbers.say_fraction(match["top"], match["bottom"])
    if fraction.startswith("one "):
        fraction = ("an" if fraction.startswith("one e") else "a") + fraction.removeprefix("one")
    return f" {numbers.say_integer(match['whole'])} and {fraction} "


def _fraction(match: Match) -> str:
    is_split = int(match["top"]) + int(match["bottom"]) == 100 and int(match["top"]) >= 50  # 60/40
    if is_split or match[0] in ("24/7", "9/11", "20/20"):
        return f" {numbers.say_integer(match['top'])} {numbers.say_integer(match['bottom'])} "
    return f" {numbers.say_fraction(match['top'], match['bottom'])} "


_MONEY_BY_NAME: Final = frozenset(name for currency in CURRENCIES.values() for name in currency[:2])
_MEASURES_BY_NAME: Final = frozenset(name for names in UNITS.values() for name in names) | _MONEY_BY_NAME
_PLURALS: Final = frozenset(DATA["words"]["plurals_without_s"])
_NO_PLURALS: Final = frozenset(DATA["words"]["no_plurals"])
# Years of which most is written. Before others a plural is rather counted.
_YEARS_OF_TODAY: Final = range(1900, 2100)
_BEFORE_YEAR: Final = re.compile(
    r"\b(?:[Ii]n|[Ss]ince|[Uu]ntil|[Bb]y|[Ff]rom|[Dd]uring|[Bb]efore|[Aa]fter|[Yy]ear|[Cc]irca|[Ll]ate|[Ee]arly"
    r"|[Mm]id) \Z"
)
_BEFORE_ANY_YEAR: Final = re.compile(
    rf"{_BEFORE_YEAR.pattern}|(?:\b(?:[Tt]he|[Tt]his|[Aa]nd|[Oo]f|[Oo]r|to|[Ss]pring|[Ss]ummer|[Ff]all|[Ww]inter)|'s"
    rf"|\b(?:{any_of(MONTHS)}),?) \Z"
)
_MAX_LOOK: Final = 20

_PER: Final = re.compile(rf"/([\d.]* ?)({any_of(PER)})(?![A-Za-z])")


def _per(match: Match) -> str:
    return f" per {match[1]}{match[2] if match[1] else PER[match[2]]}"


_POINTS: Final = str.maketrans(".,", ",.")

# --- the rules ------------------------------------------------------------------------------------------------

# Things measured in inches, and how: a 65 in TV, 12 in. wide.
_INCHES_BEFORE: Final = (
    "(?:TVs?|tele|monitor|screen|display|laptop|tablet|pizza|pipe|wheel|rim|tire|blade|skillet|pan)\\w*\\b"
)
_INCHES_OF: Final = "(?:wide|long|tall|high|deep|thick|apart|by|of|x|in diameter)\\b"
_TIME_BEHIND: Final = r"\d{1,2}(?::[0-5]\d)? ?[AaPp]\.?[Mm]\b"
_BETWEEN: Final[tuple[Source, ...]] = (
    (r"\b([Vv]ersion) [vV](?=\d)", r"\1 ", "ersion"),
    # Money as most of Europe groups it: €1.299,00.
    (r"(?<![\d.,])\d{1,3}(?:\.\d{3})++,\d\d(?!\d)", lambda match: match[0].translate(_POINTS), ","),
    (r"(?<![\d.,])\d{1,3}\.\d{3}\.\d{3}(?![\d.]*\d)", lambda match: match[0].replace(".", ","), "."),
    (r"(\d{3}[ .-]\d{4}) x\.? ?(?=\d{1,5}(?!\w|\.\d))", r"\1 extension ", " x"),
    (
        r"(?<=\d)(?<!\b0)x(?= (?:an?|per|daily|weekly|faster|slower|more|less|higher|lower|bigger|larger|smaller|the"
        r"|as)\b|/[a-z]|[.,;!?](?!\w))",
        " times",
    ),
    (r"(?<![\w.-])(?<!0)(\d++(?:\.\d++)?+)e(-?\d{1,3})(?!\w)", r"\1 E \2", "e"),
    (r"(?<![\d.])(\d{1,3}(?:\.\d{1,3}){3})/(?=\d{1,2}(?!\d|\.\d))", r"\1 slash ", "/"),  # a network
    (
        r"(?<![\w.'-])(?<![Tt]he )(Mon|Wed|Sat|Sun)\.?(?=,? \d{1,2}(?::\d\d)? ?(?:-|to \d|[AaPp]\.?[Mm]\b))",
        lambda match: WEEKDAY_BY_START[match[1]],
    ),
    (r"(\d{2,3})/(?=\d{2,3} ?mmHg)", r"\1 over ", "mmHg"),
    (r"\b((?:BP|[Bb]lood pressure)\D{0,14}\d{2,3})/(?=\d{2,3}(?![\d/]))", r"\1 over ", "/"),
    (r"(?<=ft )(\d{1,2}) in\b(?!\.\w)(?:\.(?= [a-z]))?", r"\1 inches", "ft "),
    (r"(?<=\d) ?° ?([NSEW])\b", lambda match: f" degrees {SIDES[match[1]]}", "°"),
    (r"(?<![\w.,])(\d\d)ers\b", lambda match: f" {numbers.say_integer(match[1]).removesuffix('e')}ers ", "ers"),
    (
        rf"(?<![\w.-])(?P<number>{_NUMBER})-(?P<unit>{any_of(UNITS)})\b(?!\.\w|-)"
        r"(?:\.(?= [a-z]))?",
        lambda match: f" {numbers.say_number(match['number'])} {UNITS[match['unit']][0]} ",
        "-",
    ),
    (rf"(?<=\d)m(?= (?:{any_of(DATA['words']['counted_in_millions'])})\b)", " million", "m "),
    (
        rf"(?:(?<=range )|(?<=interval )|(?<=domain )|(?<=between ))[\[(](-?{_NUMBER}), ?(-?{_NUMBER})[\])]",
        r"\1 to \2",
        "[",
    ),
    (rf"(\w )\[(-?{_NUMBER}(?:, ?-?{_NUMBER}){{0,9}})\]", r"\1\2 ", "["),
    (rf"(?<=\w)\[({_NUMBER})\]", r" \1 ", "["),
    (rf"(?:(?<=[AaPp][Mm])|(?<=[AaPp]\.[Mm]\.)) ?- ?(?={_TIME_BEHIND})", " to ", "-"),
    (r"(?<=:[0-5]\d) ?- ?(?=\d{1,2}:[0-5]\d)", " to ", "-"),
    (rf"(?<![\w.:/$€£-])(\d{{1,2}}(?::[0-5]\d)?)-(?={_TIME_BEHIND})", r"\1 to ", "-"),
    (r"(?<![\d/.-])(\d{1,2})-(?=\d/\d{1,2}(?![\d/]))", r"\1 ", "-"),  # 1-1/2 cups
    (r"(?<=\dh) ?(\d{1,2})m(?![\w/])", r" \1 min"),
    (r"(?<=\d) ?sq\. ?(ft|mi)\b\.?", r" sq \1", "sq."),
    (rf"(?<=\d) in\.? (?={_INCHES_BEFORE})", " inch "),
    (rf"(?<=\d) in\. (?={_INCHES_OF})", " inches "),
    (
        # 10 mg/kg/day; of so many only behind a unit: 250 mg/5 mL, but 3/4 tsp.
        rf"(?<![\d.,])(\d[\d.,]*+(?:[kKMB]\b)?(?: ?[A-Za-zμµ]{{1,20}})?)"
        rf"(?P<rates>(?:/(?:(?<=[A-Za-z]/)\d++(?:\.\d++)?+ ?)?(?:{any_of(PER)}))++)(?![\w/-])",
        lambda match: match[1] + _PER.sub(_per, match["rates"]),
        "/",
    ),
    (r"(?<=\d)/(?=\d{1,3}[kKM]\b)", " per ", "/"),  # $3/1M tokens
    (r"(?<![\d/.])(\d{1,3}\.\d)/(\d{1,3})(?![\d/]|\.\d)", r"\1 out of \2", "/"),
    (r"(?<![\d/.])(5|10|100)/\1(?![\d/]|\.\d)", r"\1 out of \1", "/"),
    (r"(?<![\d/.])(\d{1,3})/(5|10)(?= stars?\b)", r"\1 out of \2", "/"),
    (r"\b((?:[Ss]tep|[Pp]age|[Pp]art|[Ss]lide|[Qq]uestion) \d{1,3})/(?=\d{1,3}(?![\d/]))", r"\1 of ", "/"),
    (r"\b((?:[Rr]ated|[Rr]ating|[Ss]cored?)(?: of| is|:)? \d{1,3})/(?=\d{1,3}(?![\d/]))", r"\1 out of ", "/"),
    (r"(?<=\d)(?<!\b0) ?x ?(?=\d)", " by ", "x"),
    (r"(?<=\d) / (?=\d)", " divided by ", "/"),
    # Seconds, and no decade: "It takes 30s.", but: "in 80s style".
    (
        r"\b((?:[Tt]akes?|[Tt]ook|[Ww]ait(?:s|ed)?|[Aa]fter|[Ee]very|[Ww]ithin|[Aa]nother|[Ll]ast(?:s|ed)|[Uu]p to|than"
        r"|[Tt]imeout:?(?: of| is)?) [2-9]0)s\b",
        r"\1 sec",
        "0s",
    ),
    (r"\b((?:[Ff]or|[Ii]n) [2-9]0)s(?= (?:or|and|before|then)\b|[.,;:!?]|\s*\Z)", r"\1 sec", "0s"),
    (rf"(?<![\w{_SIGNS}])(?P<long>{any_of(LONG_SIGNS)}) ?(?={_NUMBER})", lambda match: LONG_SIGNS[match["long"]]),
    (
        rf"(?<![\w.,:{_SIGNS}])(?P<amount>{_NUMBER}{_MAGNITUDE}) ?(?P<long>{any_of(LONG_SIGNS)})(?!\w)",
        lambda match: LONG_SIGNS[match["long"]] + match["amount"],
    ),
)
# But for money these leave the digits to the rules behind them: "5-10 km" becomes "5 to 10 km".
_RANGES_AND_SIGNS: Final[tuple[Source, ...]] = (
    (
        rf"(?P<sign>[{_SIGNS}])(?P<low>{_NUMBER})(?P<low_magnitude>[kKmMbBT])?-"
        rf"(?P<amount>{_NUMBER}){_MAGNITUDE}(?![\d%-])",
        _money_range,
        "-",
    ),
    (
        r"(?<![\w.,-])([5-9]\d)-(\d\d)(?![\w%-]|[.,:]\d)",
        lambda match: f"{match[1]} {match[2]}" if int(match[1]) + int(match[2]) == 100 else match[0],
        "-",
    ),
    (rf"{_START}(?<![\w-])({_NUMBER})-(?=[{_SIGNS}]?\d)(?!\d++(?:[.,]\d++)*+-)", r"\1 to ", "-"),
    (r"(?:(?<=[%°])|(?<=°[CF]))-(?=\d)", " to ", "-"),
    (rf"(?<=\d[kKmMbBT])-(?=[{_SIGNS}]\d)", " to ", "-"),
    (rf"(?<![\w)%°])-(?=[{_SIGNS}]?\.?\d)", " minus ", "-"),
)
_MEASURES: Final[tuple[Source, ...]] = (
    (rf"(?P<sign>[{_SIGNS}]) ?(?P<amount>{_NUMBER}|\.\d\d(?!\d)){_MAGNITUDE}", _money),
    (rf"{_START}(?P<amount>{_NUMBER})(?P<magnitude>) ?(?P<sign>[{_SIGNS}])(?!\d)", _money),
    (rf"{_START}({_NUMBER}) ?%", lambda match: f" {numbers.say_number(match[1])} percent ", "%"),
    (rf"{_START}(?P<number>{_NUMBER}) ?°(?: ?(?P<scale>[CF])\b)?", _degrees, "°"),
    (
        r"(?<![\d/.])(?:(?P<whole>\d{1,3}) )?(?P<top>\d{1,2})/(?P<bottom>\d{1,2}) ?"
        rf"(?P<unit>{any_of(UNITS)})(?![\w/])",
        _measured_fraction,
        "/",
    ),
    (
        rf"{_START}(?P<number>{_NUMBER})(?:(?P<unit>{any_of(UNITS)})(?!\w|/(?!\d))"
        rf"| (?P<spaced>{any_of(UNITS)})(?![\w/]|\.\w))(?:\.(?= [a-z]))?",
        _measure,
    ),
    (
        rf"{_START}(?P<number>{_NUMBER})(?P<magnitude>k|M|bn|tn)\b(?! (?:run|race|walk)\b)",
        lambda match: f" {numbers.say_number(match['number'])} {MAGNITUDES[match['magnitude']]} ",
    ),
)
_PLAIN: Final[tuple[Source, ...]] = (
    (rf"{_START}(?P<number>[12]\d{{3}})(?= (?:(?:square|cubic) )?(?P<noun>[a-z]{{3,20}})\b)", _count, " "),
    (r"(?<![\d/.])(?P<whole>\d{1,3}) (?P<top>\d{1,3})/(?P<bottom>\d{1,3})(?![\d/])", _mixed_fraction, "/"),
    (r"(?<![\d/.])(?P<top>\d{1,3})/(?P<bottom>\d{1,3})(?![\d/])", _fraction, "/"),
    (rf"{_START}(\d++(?:,\d{{3}}(?!\d))*+)(?:st|nd|rd|th)\b", lambda match: f" {numbers.say_ordinal(match[1])} "),
    (rf"{_START}(\d{{1,4}}):(\d{{1,4}})(?![\d:])", r"\1 to \2", ":"),
    (r"(?<=\d) - (?=\d)", " minus ", "-"),
    (r"(?<=\d) ?[*×] ?(?=\d)", " times "),
    (r"(?<=\d) ?÷ ?(?=\d)", " divided by ", "÷"),
    (r"(?<=\d)\.(?=[a-z])|(?<=[A-Za-z])\.(?=\d)", " point ", "."),
    (r"(?<=[A-Za-z])-(?=\d)", " ", "-"),
    (r"(?<![\w.])(\.\d++)", lambda match: f" {numbers.say_number(match[1])} ", "."),
    (_NUMBER, lambda match: f" {numbers.say_plain(match[0])} "),
)
_RULES: Final = rules_of(
    _BETWEEN
    + NAMES_OF_NUMBERS
    + TIMESTAMPS
    + SERIALS
    + DATES_AND_TIMES
    + CODES
    + PAIRS
    + _RANGES_AND_SIGNS
    + _MEASURES
    + _PLAIN
)

_DIGIT: Final = re.compile(r"\d")


def read_quantities(text: str, *, is_day_first: bool = False) -> str:
    """No digit is left. `is_day_first`: of a slash date that can be read both ways."""
    if _DIGIT.search(text) is None:  # every rule needs one
        return text
    if "/" in text:
        text = read_slash_dates(text, is_day_first=is_day_first)
    return apply(_RULES, read_marks_of_length(text))
