"""Numbers as a language says them: num2words, asked once for each, and forms as the language's file has them. Pure."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from functools import lru_cache
from typing import Any, Final

from num2words import num2words

# More digits than this are no count that anybody says.
MAX_COUNT_DIGITS: Final = 15
# Words of so many numbers are kept for each language. Lower -> num2words is asked again, 70 microseconds a number.
_NUM_KEPT: Final = 16_384
# A Roman numeral that is not written by mistake: 3999 at most.
_ROMAN: Final = re.compile("M{0,3}(?:CM|CD|D?C{0,3})(?:XC|XL|L?X{0,3})(?:IX|IV|V?I{0,3})")
_ROMAN_VALUES: Final = {"I": 1, "V": 5, "X": 10, "L": 50, "C": 100, "D": 500, "M": 1000}


@dataclass(frozen=True, slots=True)
class Form:
    """A form ("f", "gen") of a number: arguments for num2words, and other endings for what it returns."""

    arguments: tuple[tuple[str, str], ...] = ()
    endings: tuple[tuple[re.Pattern[str], str], ...] = ()


@dataclass(frozen=True, slots=True)
class Native:
    """Numbers of a second series, for counting things: Korean 한, 두, 세."""

    tens: tuple[str, ...]
    ones: tuple[str, ...]
    exceptions: Mapping[int, str]

    def say(self, number: int) -> str | None:
        if not 1 <= number <= 99:
            return None
        return self.exceptions.get(number) or self.tens[number // 10] + self.ones[number % 10]


def roman_value(numeral: str) -> int | None:
    if not numeral or _ROMAN.fullmatch(numeral) is None:
        return None
    values = [_ROMAN_VALUES[letter] for letter in numeral]
    behind = [*values[1:], 0]
    return sum(-value if value < following else value for value, following in zip(values, behind, strict=True))


class NumberWords:
    """`code`: the language of num2words."""

    def __init__(
        self,
        code: str,
        *,
        decimal_word: str,
        digits: tuple[str, ...],
        decimal_digits: tuple[str, ...],
        forms: Mapping[str, Form],
        ordinal_forms: Mapping[str, Form],
        ordinals: Mapping[int, str],
        native: Native | None,
        decimals: str,
        glue: str,
    ) -> None:
        """`code`: the language of num2words.

        `decimals`: "num2words" says them itself (три целых пять десятых), with "pairs" two digits behind the mark are a
        number (trois virgule vingt-cinq), with "digits" they are said one by one.
        """
        self._code = code
        self._decimal_word = decimal_word
        self._digits = digits
        self._decimal_digits = decimal_digits
        self._forms = {"": Form(), **forms}
        self._ordinal_forms = {"": Form(), **ordinal_forms}
        self._ordinals = ordinals
        self._native = native
        self._decimals = decimals
        self._glue = glue  # between digits that are said one by one
        self._cached = lru_cache(_NUM_KEPT)(self._ask)

    def cardinal(self, number: int, form: str = "") -> str:
        return self._cached("cardinal", number, form)

    def ordinal(self, number: int, form: str = "") -> str:
        return self._cached("ordinal", number, form)

    def year(self, number: int) -> str:
        return self._cached("year", number, "")

    def native(self, number: int) -> str | None:
        return None if self._native is None else self._native.say(number)

    def digits(self, text: str) -> str:
        """One by one."""
        return self._glue.join(self._digits[int(digit)] for digit in text if digit.isdecimal())

    def number(self, whole: str, fraction: str, form: str = "") -> str:
        """Digits before the decimal mark, and those after it."""
        if len(whole) > MAX_COUNT_DIGITS or (len(whole) > 1 and whole.startswith("0")):
            said = self.digits(whole)
            return f"{said} {self._decimal_word} {self.digits(fraction)}" if fraction else said
        if not fraction:
            return self.cardinal(int(whole), form)
        if self._decimals == "num2words" and len(fraction) <= 3:
            return self._decimal(f"{whole}.{fraction}")
        is_pair = self._decimals == "pairs" and len(fraction) == 2 and fraction[0] != "0"
        one_by_one = self._glue.join(self._decimal_digits[int(digit)] for digit in fraction)
        behind = self.cardinal(int(fraction)) if is_pair else one_by_one
        return f"{self.cardinal(int(whole))} {self._decimal_word} {behind}"

    def _decimal(self, number: str) -> str:
        return str(num2words(Decimal(number), lang=self._code))

    def _ask(self, kind: str, number: int, form: str) -> str:
        known = (self._ordinal_forms if kind == "ordinal" else self._forms)[form]
        arguments: dict[str, Any] = dict(known.arguments)
        if kind == "ordinal" and number in self._ordinals:
            said = self._ordinals[number]
        else:
            said = str(num2words(number, lang=self._code, to=kind, **arguments))
        for pattern, ending in known.endings:
            said, num = pattern.subn(ending, said, count=1)
            if num:
                break
        return said
