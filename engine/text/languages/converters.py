"""Converters that a template may name for a matched group: "{day:ordinal.en}" is the ordinal of the group `day`, in its
form "en".

Each takes what matched and a form, and returns words, or None where it has none.
"""

import re
from decimal import Decimal
from functools import lru_cache
from typing import Final, NamedTuple

from voicegate.engine.text.languages.definition import LanguageEntry
from voicegate.engine.text.languages.measures import Measures
from voicegate.engine.text.languages.number_words import NumberWords
from voicegate.engine.text.languages.templates import Converter
from voicegate.engine.text.patterns import roman_value

_APOSTROPHE: Final = "'"


class Digits(NamedTuple):
    whole: str
    fraction: str  # "": it has none


class WrittenNumbers:
    """How a language writes numbers: a pattern of them, and the digits of a match."""

    def __init__(self, *, decimal_mark: str, group_marks: str) -> None:
        """`group_marks`: all that part groups of three digits, a blank for any kind of blank."""
        groups = "|".join(rf"(?:{re.escape(mark)}\d{{3}})+" for mark in dict.fromkeys(group_marks + _APOSTROPHE))
        other = "," if decimal_mark == "." else "."
        self.integer = rf"(?:\d{{1,3}}(?:{groups})(?!\d)|\d+)"
        # As others write it: 1,234.56 where the comma is the decimal mark.
        other_way = rf"\d{{1,3}}(?:{re.escape(decimal_mark)}\d{{3}})+{re.escape(other)}\d+"
        # 1.234.567 whatever the language has between groups, and 3.14 where a point parts no three digits.
        points = r"\d{1,3}(?:\.\d{3}){2,}(?!\d)|\d+\.(?!\d{3}(?!\d))\d+|" if other == "." else ""
        self.number = rf"(?:{other_way}|{self.integer}{re.escape(decimal_mark)}\d+|{points}{self.integer})"
        self._decimal_mark, self._other = decimal_mark, other
        self._groups = re.compile(rf"\d{{1,3}}(?:{groups})")
        self._other_way = re.compile(other_way)

    def digits(self, written: str) -> Digits:
        """Digits that `number` matches."""
        if self._other_way.fullmatch(written):
            whole, _, fraction = written.partition(self._other)
            return Digits(_only_digits(whole), fraction)
        if self._decimal_mark in written:
            whole, _, fraction = written.rpartition(self._decimal_mark)
            return Digits(_only_digits(whole), fraction)
        if self._groups.fullmatch(written) or written.count(self._other) > 1:
            return Digits(_only_digits(written), "")
        whole, _, fraction = written.partition(self._other)
        return Digits(_only_digits(whole), fraction)


def _only_digits(text: str) -> str:
    return "".join(filter(str.isdecimal, text))


# Ordinals and years beyond are no words of an everyday text, and num2words errs in some of them.
_MAX_ORDINAL: Final = 3_000
_GROUP: Final = re.compile(r"\d+")
_PAIR: Final = re.compile(r"[1-9]\d")


class Converters:
    def __init__(self, language: str, entry: LanguageEntry) -> None:
        numbers = entry.numbers
        self._entry = entry
        self.measures = Measures(language, entry)
        self.written = WrittenNumbers(
            decimal_mark=self.measures.decimal_mark,
            group_marks=_plain_blanks(self.measures.group_mark) + numbers.group_marks,
        )
        self._words = NumberWords(language, numbers, glue="" if entry.blanks == "none" else " ")
        self.by_name: dict[str, Converter] = {
            "number": self.number,
            "count": lambda text, form: self.say(str(int(text)), "", form),  # 09 is nine
            "ordinal": self._ordinal,
            "roman": self._roman,
            "year": self._year,
            "month": self._month,
            "digits": lambda text, form: self._words.digits(text),
            "minutes": self._minutes,
            "hours": self._hours,
            "native": lambda text, form: self._words.native(int(text)) or self.number(text, ""),
            "unit": lambda text, form: self.unit_name(text),
            "text": lambda text, form: text,
        }
        self.fraction = lru_cache(1024)(self._fraction)

    def number(self, text: str, form: str) -> str | None:
        return self.say(*self.written.digits(text), form)

    def say(self, whole: str, fraction: str, form: str) -> str:
        return self.glued(self._words.number(whole, fraction, form))

    def of_unit(self, number: str, sign: str, form: str | None = None, plural: str = "") -> str | None:
        """`form`, `plural`: in place of the unit's own, and of what the number asks for."""
        unit = self.measures.units[sign]
        words = self.number(number, unit.form if form is None else form)
        names = unit.names
        pattern = names.get(plural, names["other"]) if plural else self.measures.plural(self.value(number), names)
        return None if words is None else self.glued(pattern.replace("{0}", words))

    def value(self, number: str) -> Decimal:
        whole, fraction = self.written.digits(number)
        return Decimal(f"{whole}.{fraction}") if fraction else Decimal(whole)

    def unit_name(self, sign: str, plural: str = "") -> str:
        """Alone, of a part of one, or in that plural category of CLDR's."""
        names = self.measures.units[sign].names
        return names.get(plural or self._entry.units.alone, names["other"]).replace("{0}", "").strip()

    def code(self, text: str) -> str:
        """Digit by digit, a pause between groups."""
        return ", ".join(map(self._words.digits, _GROUP.findall(text)))

    def phone(self, text: str) -> str:
        plus = f"{self._entry.signs['+']} " if text.startswith("+") else ""
        groups = _GROUP.findall(text)
        said = ", ".join(map(self._pairs if self._entry.numbers.phone_pairs else self._words.digits, groups))
        return self.glued(plus) + said

    def _pairs(self, group: str) -> str:
        return self._words.cardinal(int(group)) if _PAIR.fullmatch(group) else self._words.digits(group)

    def _fraction(self, top: str, bottom: str) -> str:
        known = self._entry.fractions.get(f"{int(top)}/{int(bottom)}")
        if known is not None:
            return known
        numbers = {"top": self.say(str(int(top)), "", ""), "bottom": self.say(str(int(bottom)), "", "")}
        return self.glued(self._entry.fraction.format(**numbers))

    def _ordinal(self, text: str, form: str) -> str | None:
        digits = "".join(filter(str.isdecimal, text))
        number = int(digits) if len(digits) <= len(str(_MAX_ORDINAL)) else 0
        return self.glued(self._words.ordinal(number, form)) if 0 < number <= _MAX_ORDINAL else None

    def _roman(self, text: str, form: str) -> str | None:
        """`form`: of its ordinal; "cardinal": it is no ordinal."""
        number = roman_value(text)
        if number is None:
            return None
        return self._words.cardinal(number) if form == "cardinal" else self._words.ordinal(number, form)

    def _year(self, text: str, form: str) -> str:
        number = int(text)
        return self.glued(self._words.ordinal(number, form) if form else self._words.year(number))

    def _minutes(self, text: str, form: str) -> str:
        """05 is zero five."""
        return self._words.digits(text) if text.startswith("0") else self.say(text, "", form)

    def _hours(self, text: str, form: str) -> str | None:
        """A whole hour, with its word."""
        return self.of_unit(str(int(text)), "h")

    def _month(self, text: str, form: str) -> str | None:
        """As CLDR has it within a date; of its name, its abbreviation or its number."""
        number = int(text) if text.isdecimal() else self.measures.months.get(text.removesuffix("."))
        return None if number is None else self.measures.month_names.get(number)

    def glued(self, words: str) -> str:
        return words.replace(" ", "") if self._entry.blanks == "none" else words


def _plain_blanks(marks: str) -> str:
    return marks.replace("\xa0", " ").replace("\u202f", " ")
