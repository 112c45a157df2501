"""Numbers as a language says them: num2words, asked once for each, and forms as the language's file has them. Pure."""

import re
from collections.abc import Sequence
from decimal import Decimal
from functools import lru_cache
from typing import Final

from num2words import num2words

from voicegate.engine.text.languages.definition import FormEntry, NumbersEntry

# More digits than this are no count that anybody says.
MAX_COUNT_DIGITS: Final = 15
# Words of so many numbers are kept for each language. Lower -> num2words is asked again, 70 microseconds a number.
_NUM_KEPT: Final = 16_384


class NumberWords:
    def __init__(self, language: str, entry: NumbersEntry, *, glue: str) -> None:
        """`language`: of num2words. `glue`: between digits that are said one by one."""
        self._language = language
        self._entry = entry
        self._glue = glue
        self._cached = lru_cache(_NUM_KEPT)(self._ask)

    def cardinal(self, number: int, form: str = "") -> str:
        return self._cached("cardinal", number, form)

    def ordinal(self, number: int, form: str = "") -> str:
        return self._cached("ordinal", number, form)

    def year(self, number: int) -> str:
        return self._cached("year", number, "")

    def native(self, number: int) -> str | None:
        """For counting things, where the language has a second series: Korean 한, 두, 세."""
        native = self._entry.native
        if native is None or not 1 <= number <= 99:
            return None
        return native.exceptions.get(number) or native.tens[number // 10] + native.ones[number % 10]

    def digits(self, text: str) -> str:
        """One by one."""
        return self._one_by_one(text, self._entry.digits)

    def number(self, whole: str, fraction: str, form: str = "") -> str:
        """Digits before the decimal mark, and those after it."""
        entry = self._entry
        if len(whole) > MAX_COUNT_DIGITS or (len(whole) > 1 and whole.startswith("0")):
            said = self.digits(whole)
            return f"{said} {entry.decimal} {self.digits(fraction)}" if fraction else said
        if not fraction:
            return self.cardinal(int(whole), form)
        if entry.decimals == "num2words" and len(fraction) <= 3:
            return str(num2words(Decimal(f"{whole}.{fraction}"), lang=self._language))
        is_pair = entry.decimals == "pairs" and len(fraction) == 2 and fraction[0] != "0"
        one_by_one = self._one_by_one(fraction, entry.decimal_digits or entry.digits)
        behind = self.cardinal(int(fraction)) if is_pair else one_by_one
        return f"{self.cardinal(int(whole))} {entry.decimal} {behind}"

    def _one_by_one(self, text: str, names: Sequence[str]) -> str:
        return self._glue.join(names[int(digit)] for digit in text if digit.isdecimal())

    def _ask(self, kind: str, number: int, form: str) -> str:
        is_ordinal = kind == "ordinal"
        forms = self._entry.ordinal_forms if is_ordinal else self._entry.forms
        known = forms[form] if form else FormEntry()
        if is_ordinal and number in self._entry.ordinals:
            said = self._entry.ordinals[number]
        else:
            said = str(num2words(number, lang=self._language, to=kind, **known.arguments))
        for pattern, ending in known.endings:
            said, num = re.subn(pattern, ending, said, count=1)
            if num:
                break
        return said
