"""Dates and times of day -> English words. Pure; rules as in `quantities`."""

import re
from typing import Final

from voicegate.engine.text.english import numbers
from voicegate.engine.text.english.abbreviations import MONTH_BY_NAME, MONTHS, stop_behind
from voicegate.engine.text.patterns import Match, Source, any_of

# First year of two digits: '99 is 1999, '24 is 2024 (POSIX strptime %y: from 69 on).
_FIRST_YEAR_OF_1900S: Final = 69
MONTH: Final = rf"(?P<month>{any_of(name.title() for name in MONTH_BY_NAME)})\b\.?"
_DAY: Final = r"(?P<day>\d{1,2})(?:st|nd|rd|th)?(?![\d:%/]|[.,]\d)"
_UNTIL: Final = r"(?:-(?P<until>\d{1,2})(?:st|nd|rd|th)?(?![\d:%/-]|[.,]\d))?"
_YEAR: Final = r"(?:,? (?P<year>\d{4})(?![\d:%/]|[.,]\d))?"
_HALF_DAY: Final = r"(?P<half>[AaPp])(?:\.[Mm]\b\.?|[Mm]\b)"
_START: Final = r"(?<![\w.])(?<!\d,)"  # of a number that stands alone


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


_TIMESTAMP_DATE: Final = r"\d{4}-\d\d-\d\d"
_TIMESTAMP_TIME: Final = r"\d\d:\d\d(?::\d\d(?:\.\d{1,9})?+)?+"
# Before letters and digits in one word are looked at.
TIMESTAMPS: Final[tuple[Source, ...]] = (
    (rf"\b({_TIMESTAMP_DATE})T({_TIMESTAMP_TIME})(?P<zone>Z|[+-]\d\d:?\d\d)?(?!\w)", _timestamp, "T"),
)
DATES_AND_TIMES: Final[tuple[Source, ...]] = (
    (r"(?<![\d-])(?P<year>\d{4})-(?P<first>\d\d?)-(?P<second>\d\d?)(?![\d-])", _month_first, "-"),
    (r"(?<![\d/])(?P<year>\d{4})/(?P<first>\d\d?)/(?P<second>\d\d?)(?![\d/])", _month_first, "/"),
    (rf"(?<=\d) ?- ?(?={MONTH} \d)", " to ", "-"),
    (rf"\b{MONTH} {_DAY}{_UNTIL}{_YEAR}", _month_day),
    (rf"(?:\b[Tt]he )?{_START}(?<![:/$€£-]){_DAY} (?:of )?{MONTH}{_YEAR}", _day_month),
    (
        r"(?<![\d:.])(?P<hour>\d\d?):(?P<minutes>[0-5]\d)(?::(?P<seconds>[0-5]\d))?(?![\d:])"
        rf"(?: ?{_HALF_DAY})?",
        _clock,
        ":",
    ),
    (rf"{_START}(?<!:)(?P<hour>\d\d?) ?{_HALF_DAY}", _hour),
    (
        # Aeroplanes: 747s, 737-800.
        r"(?<![\w.,])7(?P<type>\d7)(?:(?P<many>s)\b|-(?=(?:[789]|10|[1-9]00)(?![\w-]|\.\d))|(?<=Boeing \d{3})\b)",
        lambda match: f" seven {numbers.say_minutes(match['type'])}{match['many'] or ''} ",
        "7",
    ),
    (r"\b1s and 0s\b", "ones and zeros", "1s"),
    (r"(?<![\d.,])'?((?:1[1-9]|20)\d0|[2-9]0)'?s\b", lambda match: f" {numbers.say_decade(match[1])} ", "s"),
)
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
# In a sentence with one of these, and before a time, it is a day: "Your appointment is 2/14 at 2:30pm". What may be an
# everyday fraction is one only right behind the words that dates stand behind.
_DATED: Final = re.compile(
    r"\b(?:appointments?|reservations?|bookings?|booked|book \w+ in|check-?(?:in|out)|(?:re)?schedul\w*|openings?"
    r"|slots?|availab\w*|are you free|meetings?|visits?|flights?|trips?|stay|arriv\w+|depart\w*|deliver\w*|ship\w*"
    r"|pick-?up|due|deadlines?|expir\w+|renew\w*|week of|start(?:s|ing)?|begin\w*|dates?|birthday|born|sessions?"
    r"|events?|interviews?|exams?|closed|valid|meet|see you)\b",
    re.IGNORECASE,
)
_BEFORE_DATE: Final = re.compile(
    r"\b(?:meet|you|is|are|for|on|of|and|or|to|from|until|through|by)(?: the)?[:,]? \Z|[:,-] ?\Z"
)
_TIME_BEHIND: Final = re.compile(r",? (?:at|@|from) \d|,? \d{1,2}(?::\d\d)? ?[ap]\.?m\b", re.IGNORECASE)
_NO_DATE_BEHIND: Final = re.compile(
    r" ?(?:of|cups?|inch(?:es)?|miles?|hours?|tsp|tbsp|(?:tea|table)spoons?|pounds?|lbs?|oz|time|full|off|done|complete"
    r"|empty|price|size|scale|stars?|points?|percent|majority|chance|way|share|tablets?|pills?)\b|[/\d]|\.\d"
)
_ANY_SHORT_DATE: Final = re.compile(r"(?<![\w/.,-])(?P<before>)(?P<first>\d\d?)/(?P<second>\d\d?)(?![\d/])")
_SENTENCE: Final = re.compile(r"[^.!?\n]*\Z")
_MAX_LOOK: Final = 80
# A card's: the month and the year, which is read as the day of a date may be.
_EXPIRY: Final = re.compile(
    r"(?<=\b[Ee]xp)(?P<verb>ir(?:es?|y|ation|ed)(?: date)?:?(?: in| is| on)? )"
    r"0(?P<month>[1-9])/(?P<year>[2-9]\d)(?![\d/])"
)


def _is_dated(match: Match) -> bool:
    """Whether what stands around it says that it is a day."""
    text, start, end = match.string, match.start(), match.end()
    if _NO_DATE_BEHIND.match(text, end):
        return False
    if _TIME_BEHIND.match(text, end):
        return True
    before = text[max(start - _MAX_LOOK, 0) : start]
    sentence = _SENTENCE.search(before)
    if sentence is None or _DATED.search(sentence[0]) is None:
        return False
    return not _is_fraction(match) or _BEFORE_DATE.search(before) is not None


def read_slash_dates(text: str, *, is_day_first: bool) -> str:
    """`is_day_first`: of one that can be read both ways."""
    text = _SLASH_DATE.sub(_day_first if is_day_first else _month_first, text)
    short_date = _short_day_first if is_day_first else _short_month_first
    text = _EXPIRY.sub(_expiry, text)
    text = _SHORT_DATE.sub(short_date, text)
    text = _SHORT_DATE_OR_FRACTION.sub(lambda match: match[0] if _is_fraction(match) else short_date(match), text)
    return _ANY_SHORT_DATE.sub(lambda match: short_date(match) if _is_dated(match) else match[0], text)
