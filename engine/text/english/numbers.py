"""Digits -> English words, by num2words. Pure. Input is digits as written, never floats."""

import re
from functools import lru_cache
from typing import Final

from num2words import num2words

# Longer integers are read digit by digit. Lower -> "one zero zero ..."; higher -> sentences of "quadrillion".
MAX_CARDINAL_DIGITS: Final = 15
# A plain run of this many digits is rather a telephone or account number than a count, unless it is round.
_MIN_CODE_DIGITS: Final = 7
# Numbers whose words are kept. Lower -> num2words is asked again, 70 microseconds a number.
_NUM_KEPT: Final = 16_384
_INDIAN: Final = re.compile(r"\d{1,2}(?:,\d\d)+,\d{3}")
_YEARS: Final = (range(1100, 2000), range(2000, 2100))


@lru_cache(_NUM_KEPT)
def _words(value: int, kind: str = "cardinal") -> str:
    """`kind`: cardinal, ordinal or year. Its commas would be pauses."""
    return str(num2words(value, lang="en", to=kind)).replace(",", "")


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
    return _words(int(digits))


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
    return _words(int(digits), "ordinal")


def say_year(digits: str) -> str:
    """ "1905" -> nineteen oh-five; "2005" -> two thousand and five."""
    return _words(int(digits), "year")


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


def _indian(value: int) -> str:
    """As it is grouped: 1,00,000 is a lakh, 1,00,00,000 a crore."""
    crores, rest = divmod(value, 10**7)
    lakhs, rest = divmod(rest, 10**5)
    parts = [f"{_words(count)} {name}" for count, name in ((crores, "crore"), (lakhs, "lakh")) if count]
    return " ".join([*parts, _words(rest)] if rest or not parts else parts)


_MAX_NAMED_DENOMINATOR: Final = 20
_DIGIT_NAMES: Final = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
