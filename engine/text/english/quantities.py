"""Numbers with what stands around them -> English words: dates, times, money, measures, ranges. Pure.

Rules run in order, each over the whole text, the special before the plain. A number is matched possessively (`++`) and
only from its first digit on, so that no rule is worse than linear in a long one.
"""

import re
from typing import Final

from voicegate.engine.text.english import numbers
from voicegate.engine.text.english.abbreviations import MONTH_BY_NAME, MONTHS, stop_behind
from voicegate.engine.text.english.codes import CODES
from voicegate.engine.text.english.measures import CURRENCIES, LONG_SIGNS, MAGNITUDES, ONLY_ATTACHED, PER, UNITS
from voicegate.engine.text.english.serials import PAIRS, SERIALS
from voicegate.engine.text.patterns import Match, Source, any_of, apply, rules_of

# Of two digits: '99 is 1999, '24 is 2024 (POSIX strptime %y: from 69 on).
_FIRST_YEAR_OF_1900S: Final = 69

_START: Final = r"(?<![\w.])(?<!\d,)"  # of a number that stands alone
# With the groups of three that most write, or those of India: 12,34,567.
_NUMBER: Final = r"(?:\d{1,2}(?:,\d\d(?!\d))++,\d{3}(?!\d)|\d++(?:,\d{3}(?!\d))*+)(?:\.\d++)?+"
_MONTH: Final = rf"(?P<month>{any_of(name.title() for name in MONTH_BY_NAME)})\b\.?"
_DAY: Final = r"(?P<day>\d{1,2})(?:st|nd|rd|th)?(?![\d:%/]|[.,]\d)"
_UNTIL: Final = r"(?:-(?P<until>\d{1,2})(?:st|nd|rd|th)?(?![\d:%/-]|[.,]\d))?"
_YEAR: Final = r"(?:,? (?P<year>\d{4})(?![\d:%/]|[.,]\d))?"
_HALF_DAY: Final = r"(?P<half>[AaPp])(?:\.[Mm]\b\.?|[Mm]\b)"
_SIGNS: Final = "".join(CURRENCIES)
# Letters only right behind the digits: "$3 T-shirt" is none.
_MAGNITUDE: Final = (
    rf"(?: ?(?P<magnitude>{any_of(name for name in MAGNITUDES if len(name) > 1)}"
    rf"|(?<=\d)(?:{any_of(name for name in MAGNITUDES if len(name) == 1)}))\b(?!-))?"
)

# --- dates and times ------------------------------------------------------------------------------------------


def _date(match: Match, month: int, day: int) -> str:
    """Month and day as written, or exchanged if only that makes a date."""
    if month > 12:
        month, day = day, month
    if not (1 <= month <= 12 and 1 <= day <= 31):
        return match[0]
    return f" {MONTHS[month - 1]} {numbers.say_ordinal(str(day))}, {numbers.say_plain(_full_year(match['year']))} "


def _month_first(match: Match) -> str:
    return _date(match, int(match["first"]), int(match["second"]))


def _day_first(match: Match) -> str:
    return _date(match, int(match["second"]), int(match["first"]))


def _short_date(match: Match, month: int, day: int) -> str:
    if not (1 <= month <= 12 and 1 <= day <= 31):
        return match[0]
    return f"{match['before']}{MONTHS[month - 1]} {numbers.say_ordinal(str(day))} "


def _short_month_first(match: Match) -> str:
    return _short_date(match, int(match["first"]), int(match["second"]))


def _short_day_first(match: Match) -> str:
    return _short_date(match, int(match["second"]), int(match["first"]))


def _is_fraction(match: Match) -> bool:
    return int(match["first"]) < int(match["second"]) and int(match["second"]) in _EVERYDAY_DENOMINATORS


def _expiry(match: Match) -> str:
    return f"{match['verb']}{MONTHS[int(match['month']) - 1]} {numbers.say_integer(match['year'])} "


def _full_year(year: str) -> str:
    return year if len(year) == 4 else f"{'19' if int(year) >= _FIRST_YEAR_OF_1900S else '20'}{year}"


def _year_behind(match: Match) -> str:
    return f", {numbers.say_plain(match['year'])}" if match["year"] else ""


def _month_day(match: Match) -> str:
    if not 1 <= int(match["day"]) <= 31:
        return match[0]
    month = MONTH_BY_NAME[match["month"].lower()]
    until = f" to {numbers.say_ordinal(match['until'])}" if match["until"] else ""
    return f"{month} {numbers.say_ordinal(match['day'])}{until}{_year_behind(match)} "


def _day_month(match: Match) -> str:
    if not 1 <= int(match["day"]) <= 31:
        return match[0]
    month = MONTH_BY_NAME[match["month"].lower()]
    stop = "" if match["year"] else stop_behind(match)
    return f"the {numbers.say_ordinal(match['day'])} of {month}{_year_behind(match)}{stop} "


def _timestamp(match: Match) -> str:
    """A program's: 2024-03-15T14:30:00Z."""
    return f"{match[1]}, {match[2].partition('.')[0]}{' UTC' if match['zone'] == 'Z' else ''}"


def _clock(match: Match) -> str:
    hour, minutes, seconds, half = match["hour"], match["minutes"], match["seconds"], match["half"]
    if int(hour) > 24:
        return match[0]
    words = [numbers.say_integer(hour.lstrip("0") or "0")]
    has_seconds = (seconds or "00") != "00"
    if minutes != "00" or has_seconds:
        words.append(numbers.say_minutes(minutes))
    elif not half:
        words.append("o'clock" if int(hour) <= 12 else "hundred")
    if has_seconds:
        words.append(f"and {numbers.say_integer(seconds.lstrip('0') or '0')} seconds")
    if half:
        words.append(f"{half.upper()} M{stop_behind(match)}")
    return f" {' '.join(words)} "


def _hour(match: Match) -> str:
    return f" {numbers.say_integer(match['hour'].lstrip('0') or '0')} {match['half'].upper()} M{stop_behind(match)} "


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


def _mixed_fraction(match: Match) -> str:
    fraction = numbers.say_fraction(match["top"], match["bottom"])
    if fraction.startswith("one "):
        fraction = ("an" if fraction.startswith("one e") else "a") + fraction.removeprefix("one")
    return f" {numbers.say_integer(match['whole'])} and {fraction} "


def _fraction(match: Match) -> str:
    if match[0] in ("24/7", "9/11", "50/50", "20/20"):
        return f" {numbers.say_integer(match['top'])} {numbers.say_integer(match['bottom'])} "
    return f" {numbers.say_fraction(match['top'], match['bottom'])} "


# --- the rules ------------------------------------------------------------------------------------------------

# What is so many inches, and how it is: a 65" TV, 12 in. wide.
_INCHES_BEFORE: Final = (
    "(?:TVs?|tele|monitor|screen|display|laptop|tablet|pizza|pipe|wheel|rim|tire|blade|skillet|pan)\\w*\\b"
)
_INCHES_OF: Final = "(?:wide|long|tall|high|deep|thick|apart|by|of|x|in diameter)\\b"
_TIMESTAMP_DATE: Final = r"\d{4}-\d\d-\d\d"
_TIMESTAMP_TIME: Final = r"\d\d:\d\d(?::\d\d(?:\.\d{1,9})?+)?+"
_TIME_BEHIND: Final = r"\d{1,2}(?::[0-5]\d)? ?[AaPp]\.?[Mm]\b"
_BETWEEN: Final[tuple[Source, ...]] = (
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
    (rf"(?<=\d)(?:\"| in\.?) (?={_INCHES_BEFORE})", " inch "),
    (rf"(?<=\d) in\. (?={_INCHES_OF})", " inches "),
    (
        rf"(?<![\d.,])(\d[\d.,]*+(?:[kKMB]\b)?(?: ?[A-Za-z]{{1,20}})?)/(?P<per>{any_of(PER)})(?![\w/-])",
        lambda match: f"{match[1]} per {PER[match['per']]}",
        "/",
    ),
    (r"(?<![\d/.])(\d{1,3}\.\d)/(\d{1,3})(?![\d/]|\.\d)", r"\1 out of \2", "/"),
    (r"(?<![\d/.])(5|10|100)/\1(?![\d/]|\.\d)", r"\1 out of \1", "/"),
    (r"(?<![\d/.])(\d{1,3})/(5|10)(?= stars?\b)", r"\1 out of \2", "/"),
    (r"\b((?:[Ss]tep|[Pp]age|[Pp]art|[Ss]lide|[Qq]uestion) \d{1,3})/(?=\d{1,3}(?![\d/]))", r"\1 of ", "/"),
    (r"\b((?:[Rr]ated|[Rr]ating|[Ss]cored?)(?: of| is|:)? \d{1,3})/(?=\d{1,3}(?![\d/]))", r"\1 out of ", "/"),
    (r"(?<=\d) / (?=\d)", " divided by ", "/"),
    # Seconds, and no decade: "It takes 30s.", but: "in 80s style".
    (
        r"\b((?:[Tt]akes?|[Tt]ook|[Ww]ait(?:s|ed)?|[Aa]fter|[Ee]very|[Ww]ithin|[Aa]nother|[Ll]ast(?:s|ed)|[Uu]p to|than"
        r"|[Tt]imeout:?(?: of| is)?) [2-9]0)s\b",
        r"\1 sec",
        "0s",
    ),
    (r"\b((?:[Ff]or|[Ii]n) [2-9]0)s(?= (?:or|and|before|then)\b|[.,;:!?]|\s*\Z)", r"\1 sec", "0s"),
    (rf"\b({_TIMESTAMP_DATE})T({_TIMESTAMP_TIME})(?P<zone>Z|[+-]\d\d:?\d\d)?(?!\w)", _timestamp, "T"),
    (rf"(?<![\w{_SIGNS}])(?P<long>{any_of(LONG_SIGNS)}) ?(?={_NUMBER})", lambda match: LONG_SIGNS[match["long"]]),
    (
        rf"(?<![\w.,:{_SIGNS}])(?P<amount>{_NUMBER}{_MAGNITUDE}) ?(?P<long>{any_of(LONG_SIGNS)})(?!\w)",
        lambda match: LONG_SIGNS[match["long"]] + match["amount"],
    ),
)
_DATES_AND_TIMES: Final[tuple[Source, ...]] = (
    (r"(?<![\d-])(?P<year>\d{4})-(?P<first>\d\d?)-(?P<second>\d\d?)(?![\d-])", _month_first, "-"),
    (r"(?<![\d/])(?P<year>\d{4})/(?P<first>\d\d?)/(?P<second>\d\d?)(?![\d/])", _month_first, "/"),
    (rf"(?<=\d) ?- ?(?={_MONTH} \d)", " to ", "-"),
    (rf"\b{_MONTH} {_DAY}{_UNTIL}{_YEAR}", _month_day),
    (rf"(?:\b[Tt]he )?{_START}(?<![:/$€£-]){_DAY} (?:of )?{_MONTH}{_YEAR}", _day_month),
    (
        r"(?<![\d:.])(?P<hour>\d\d?):(?P<minutes>[0-5]\d)(?::(?P<seconds>[0-5]\d))?(?![\d:])"
        rf"(?: ?{_HALF_DAY})?",
        _clock,
        ":",
    ),
    (rf"{_START}(?<!:)(?P<hour>\d\d?) ?{_HALF_DAY}", _hour),
    (
        r"(?<![\w.,])7(\d7)s\b",
        lambda match: f" seven {numbers.say_integer(match[1].lstrip('0'))}s ",
        "7s",
    ),  # aeroplanes
    (r"\b1s and 0s\b", "ones and zeros", "1s"),
    (r"(?<![\d.,])'?((?:1[1-9]|20)\d0|[2-9]0)'?s\b", lambda match: f" {numbers.say_decade(match[1])} ", "s"),
)
# But for money these leave the digits to the rules behind them: "5-10 km" becomes "5 to 10 km".
_RANGES_AND_SIGNS: Final[tuple[Source, ...]] = (
    (
        rf"(?P<sign>[{_SIGNS}])(?P<low>{_NUMBER})(?P<low_magnitude>[kKmMbBT])?-"
        rf"(?P<amount>{_NUMBER}){_MAGNITUDE}(?![\d%-])",
        _money_range,
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
        rf"(?P<unit>{any_of(set(UNITS) - ONLY_ATTACHED)})(?![\w/])",
        _measured_fraction,
        "/",
    ),
    (
        rf"{_START}(?P<number>{_NUMBER})(?:(?P<unit>{any_of(UNITS)})(?![\w/])"
        rf"| (?P<spaced>{any_of(set(UNITS) - ONLY_ATTACHED)})(?![\w/]|\.\w))(?:\.(?= [a-z]))?",
        _measure,
    ),
    (
        rf"{_START}(?P<number>{_NUMBER})(?P<magnitude>k|M|bn)\b",
        lambda match: f" {numbers.say_number(match['number'])} {MAGNITUDES[match['magnitude']]} ",
    ),
)
_PLAIN: Final[tuple[Source, ...]] = (
    (r"(?<![\d/.])(?P<whole>\d{1,3}) (?P<top>\d{1,3})/(?P<bottom>\d{1,3})(?![\d/])", _mixed_fraction, "/"),
    (r"(?<![\d/.])(?P<top>\d{1,3})/(?P<bottom>\d{1,3})(?![\d/])", _fraction, "/"),
    (rf"{_START}(\d++(?:,\d{{3}}(?!\d))*+)(?:st|nd|rd|th)\b", lambda match: f" {numbers.say_ordinal(match[1])} "),
    (rf"{_START}(\d{{1,4}}):(\d{{1,4}})(?![\d:])", r"\1 to \2", ":"),
    (r"(?<=\d) - (?=\d)", " minus ", "-"),
    (r"(?<=\d)x(?=\d)", " by ", "x"),
    (r"(?<=\d) ?[*×] ?(?=\d)", " times "),
    (r"(?<=\d) ?÷ ?(?=\d)", " divided by ", "÷"),
    (r"(?<=\d)\.(?=[a-z])|(?<=[A-Za-z])\.(?=\d)", " point ", "."),
    (r"(?<=[A-Za-z])-(?=\d)", " ", "-"),
    (r"(?<![\w.])(\.\d++)", lambda match: f" {numbers.say_number(match[1])} ", "."),
    (_NUMBER, lambda match: f" {numbers.say_plain(match[0])} "),
)
_RULES: Final = rules_of(_BETWEEN + SERIALS + _DATES_AND_TIMES + CODES + PAIRS + _RANGES_AND_SIGNS + _MEASURES + _PLAIN)

_DIGIT: Final = re.compile(r"\d")
_SLASH_DATE: Final = re.compile(r"(?<![\d/])(?P<first>\d\d?)/(?P<second>\d\d?)/(?P<year>\d{4}|\d\d)(?![\d/])")


# Behind a weekday or one of these words it is a day and no fraction.
_SHORT_DATE: Final = re.compile(
    r"\b(?P<before>(?:[Oo]n|[Dd]ue|[Uu]ntil|[Ss]ince|[Ee]xpir(?:es?|ed|ing)|[Tt]oday|[Tt]omorrow"
    r"|(?:Mon|Tue|Wednes|Thurs|Fri|Satur|Sun)day|Mon|Tues?|Wed|Thu|Thurs|Fri|Sat|Sun),? \(?)"
    r"(?P<first>\d\d?)/(?P<second>\d\d?)(?![\d/])"
    r"(?! (?:of|cups?|inch|miles?)\b)"
)
# ... and behind these, where it is no everyday fraction: "by 4/1", but: increase it by 3/4.
_SHORT_DATE_OR_FRACTION: Final = re.compile(
    r"\b(?P<before>(?:[Bb]y|[Bb]efore|[Aa]fter|[Ff]rom|[Tt]hrough|[Tt]o|[Uu]ntil) )"
    r"(?P<first>\d\d?)/(?P<second>\d\d?)(?![\d/])(?! (?:of|cups?|inch|miles?)\b)"
)
_EVERYDAY_DENOMINATORS: Final = frozenset({2, 3, 4, 5, 6, 8, 10, 16})
# A card's: the month and the year, which is read as the day of a date may be.
_EXPIRY: Final = re.compile(
    r"(?<=\b[Ee]xp)(?P<verb>ir(?:es?|y|ation|ed)(?: date)?:?(?: in| is| on)? )"
    r"0(?P<month>[1-9])/(?P<year>[2-9]\d)(?![\d/])"
)


def read_quantities(text: str, *, is_day_first: bool = False) -> str:
    """No digit is left. `is_day_first`: of a slash date that can be read both ways."""
    if _DIGIT.search(text) is None:  # every rule needs one
        return text
    if "/" in text:
        text = _SLASH_DATE.sub(_day_first if is_day_first else _month_first, text)
        short_date = _short_day_first if is_day_first else _short_month_first
        text = _EXPIRY.sub(_expiry, text)
        text = _SHORT_DATE.sub(short_date, text)
        text = _SHORT_DATE_OR_FRACTION.sub(lambda match: match[0] if _is_fraction(match) else short_date(match), text)
    return apply(_RULES, text)
