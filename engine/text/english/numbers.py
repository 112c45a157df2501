"""Digits -> English words. Pure. Input is digits as written, never floats."""

import re
from typing import Final

# Longer integers are read digit by digit. Lower -> "one zero zero ..."; higher -> sentences of "quadrillion".
MAX_CARDINAL_DIGITS: Final = 15
# A plain run of this many digits is rather a telephone or account number than a count, unless it is round.
_MIN_CODE_DIGITS: Final = 7
_INDIAN: Final = re.compile(r"\d{1,2}(?:,\d\d)+,\d{3}")
_YEARS: Final = (range(1100, 2000), range(2000, 2100))


def say_digits(digits: str) -> str:
    """One by one: "007" -> zero zero seven."""
    return " ".join(_DIGIT_NAMES[int(digit)] for digit in digits)


def say_integer(digits: str) -> str:
    """As a count, if it can be one."""
    if _INDIAN.fullmatch(digits):
        return _indian(int(digits.replace(",", "")))
    digits = digits.replace(",", "")
    if len(digits) > MAX_CARDINAL_DIGITS or (len(digits) > 1 and digits.startswith("0")):
        return say_digits(digits)
    return _cardinal(int(digits))


def say_number(number: str) -> str:
    """An integer or a decimal fraction: "1,000.50" -> one thousand point five zero; ".5" -> point five."""
    whole, _, fraction = number.partition(".")
    words = [say_integer(whole)] if whole else []
    if fraction:
        words += ["point", say_digits(fraction)]
    return " ".join(words)


def say_plain(number: str) -> str:
    """A number that nothing around it explains: it may be a year or a code."""
    if not number.isdigit():
        return say_number(number)
    if len(number) == 4 and any(int(number) in years for years in _YEARS):
        return say_year(number)
    if len(number) >= _MIN_CODE_DIGITS and not number.endswith("000"):
        return say_digits(number)
    return say_integer(number)


def say_ordinal(digits: str) -> str:
    digits = digits.replace(",", "")
    if len(digits) > MAX_CARDINAL_DIGITS:
        return say_digits(digits)
    words = _cardinal(int(digits))
    start = max(words.rfind(" "), words.rfind("-")) + 1
    last = words[start:]
    return words[:start] + _ORDINALS.get(last, last.removesuffix("y") + "ie" * last.endswith("y") + "th")


def say_year(digits: str) -> str:
    value = int(digits)
    century, year = divmod(value, 100)
    if not century or (century % 10 == 0 and year < 10):  # two thousand and five
        return _cardinal(value)
    if not year:
        return f"{_cardinal(century)} hundred"
    return f"{_cardinal(century)} {'oh-' * (year < 10)}{_below_thousand(year)}"


def say_decade(digits: str) -> str:
    """ "1990" -> nineteen nineties; "80" -> eighties; "6" -> sixes."""
    words = say_year(digits) if len(digits) == 4 else say_integer(digits)
    return words.removesuffix("y") + "ies" if words.endswith("y") else words + ("es" if words.endswith("x") else "s")


def say_minutes(digits: str) -> str:
    """Behind the hour: "05" -> oh five."""
    return f"oh {say_integer(digits[1])}" if digits.startswith("0") else say_integer(digits)


def say_fraction(numerator: str, denominator: str) -> str:
    """ "3/4" -> three quarters; what is no everyday fraction is read as a division."""
    top, bottom = int(numerator), int(denominator)
    if not (0 < top < bottom <= _MAX_NAMED_DENOMINATOR) or numerator[0] == "0" or denominator[0] == "0":
        return f"{say_integer(numerator)} over {say_integer(denominator)}"
    names = {2: ("half", "halves"), 4: ("quarter", "quarters")}
    ordinal = say_ordinal(denominator)
    singular, plural = names.get(bottom, (ordinal, ordinal + "s"))
    return f"{say_integer(numerator)} {singular if top == 1 else plural}"


def _cardinal(value: int) -> str:
    """ "and" stands behind hundreds, and before what is left below a hundred: a thousand and one."""
    if value < 1000:
        return _below_thousand(value)
    words: list[str] = []
    for power, name in _SCALES:
        count, value = divmod(value, power)
        if count:
            words += (_below_thousand(count), name)
    if value:
        words += ("and", _below_thousand(value)) if value < 100 else (_below_thousand(value),)
    return " ".join(words)


def _indian(value: int) -> str:
    """As it is grouped: 1,00,000 is a lakh, 1,00,00,000 a crore."""
    crores, rest = divmod(value, 10**7)
    lakhs, rest = divmod(rest, 10**5)
    parts = [f"{_cardinal(count)} {name}" for count, name in ((crores, "crore"), (lakhs, "lakh")) if count]
    return " ".join([*parts, _cardinal(rest)] if rest or not parts else parts)


def _below_thousand(value: int) -> str:
    hundreds, rest = divmod(value, 100)
    if hundreds:
        return f"{_SMALL[hundreds]} hundred" + (f" and {_below_thousand(rest)}" if rest else "")
    if rest < len(_SMALL):
        return _SMALL[rest]
    tens, ones = divmod(rest, 10)
    return _TENS[tens] + (f"-{_SMALL[ones]}" if ones else "")


_MAX_NAMED_DENOMINATOR: Final = 20
_DIGIT_NAMES: Final = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
_SMALL: Final = (
    *_DIGIT_NAMES,
    *("ten", "eleven", "twelve", "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen"),
)
_TENS: Final = ("", "", "twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety")
_SCALES: Final = ((10**12, "trillion"), (10**9, "billion"), (10**6, "million"), (10**3, "thousand"))
# Those that do not just end in -th.
_ORDINALS: Final = {
    "one": "first",
    "two": "second",
    "three": "third",
    "five": "fifth",
    "eight": "eighth",
    "nine": "ninth",
    "twelve": "twelfth",
}
