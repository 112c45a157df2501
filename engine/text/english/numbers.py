"""Digits -> English words. Pure; the only module that knows num2words. Input is digits as written, never floats."""

from typing import Final

from num2words import num2words

# Longer integers are read digit by digit. Lower -> "one zero zero ..."; higher -> sentences of "quadrillion".
MAX_CARDINAL_DIGITS: Final = 15
# A plain run of this many digits is rather a telephone or account number than a count, unless it is round.
_MIN_CODE_DIGITS: Final = 7
_YEARS: Final = (range(1100, 2000), range(2000, 2100))


def say_digits(digits: str) -> str:
    """One by one: "007" -> zero zero seven."""
    return " ".join(_DIGIT_NAMES[int(digit)] for digit in digits)


def say_integer(digits: str) -> str:
    """As a count, if it can be one."""
    digits = digits.replace(",", "")
    if len(digits) > MAX_CARDINAL_DIGITS or (len(digits) > 1 and digits.startswith("0")):
        return say_digits(digits)
    return _words(int(digits), "cardinal")


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
    return _words(int(digits), "year")


def say_decade(digits: str) -> str:
    """ "1990" -> nineteen nineties; "80" -> eighties."""
    words = say_year(digits) if len(digits) == 4 else say_integer(digits)
    return words.removesuffix("y") + "ies" if words.endswith("y") else words + "s"


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


def _words(value: int, to: str) -> str:
    # num2words writes "one thousand, two hundred": the comma would be heard as a break.
    return str(num2words(value, lang="en", to=to)).replace(",", "")


_MAX_NAMED_DENOMINATOR: Final = 20
_DIGIT_NAMES: Final = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
