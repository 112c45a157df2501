"""Units, currencies and months of a language: CLDR's, by Babel, and what the language's file says otherwise. Pure."""

import re
from collections.abc import Mapping
from decimal import Decimal
from functools import lru_cache
from typing import Final, NamedTuple

from babel import Locale
from babel.numbers import format_decimal, get_currency_symbol, list_currencies
from babel.units import format_compound_unit, format_unit

from voicegate.engine.text.cldr import currency_name
from voicegate.engine.text.languages.definition import LanguageEntry, Plurals, international_signs
from voicegate.engine.text.patterns import any_of

# One number of each plural category that any language has.
_SAMPLES: Final = tuple(map(Decimal, ("1", "2", "5", "0", "3", "11", "21", "100", "1000000", "1.5")))
_DEGREE: Final = "angle-degree"  # whose symbol begins that of a temperature
_PLAIN: Final = "0.#"
_MARKED: Final = 7_777  # stands for the number, where Babel gives the words around it


class Unit(NamedTuple):
    names: Plurals  # with {0} for the number
    form: str
    per: str = ""  # "{0} pro Kilogramm"; "": CLDR has none in words


class Currency(NamedTuple):
    names: Plurals
    form: str
    cents: Plurals  # none: it has none, or they are read as decimals


class Measures:
    """Measures of one language."""

    def __init__(self, language: str, entry: LanguageEntry) -> None:
        self._locale = Locale.parse(language)
        self._entry = entry
        self.decimal_mark: str = self._locale.number_symbols["latn"]["decimal"]
        self.group_mark: str = self._locale.number_symbols["latn"]["group"]
        self.units: Mapping[str, Unit] = self._units()
        self.currencies: Mapping[str, Currency] = self._currencies()
        self.months: Mapping[str, int] = self._months()
        self.weekdays: Mapping[str, str] = self._weekdays()
        self.month_names: Mapping[int, str] = self._locale.months["format"]["wide"]

    def plural(self, number: Decimal, names: Plurals) -> str:
        return names.get(self._locale.plural_form(number), names["other"])

    def _categories(self) -> dict[str, Decimal]:
        """A number of each plural category."""
        found: dict[str, Decimal] = {}
        for sample in _SAMPLES:
            found.setdefault(self._locale.plural_form(sample), sample)
        return found

    def _units(self) -> dict[str, Unit]:
        international = international_signs().units
        own = {_symbol(name, self._locale): name for name in set(international.values()) - {_DEGREE}}
        signs = {sign: name for sign, name in own.items() if sign} | international
        signs |= self._entry.units.signs
        kinds = {name: self._unit(name) for name in set(signs.values())}
        return {sign: kinds[name] for sign, name in signs.items()}

    def _unit(self, name: str) -> Unit:
        form = self._entry.units.forms.get(name, "")
        if (names := self._entry.units.names.get(name)) is not None:
            return Unit(names, form)
        long = {
            category: format_unit(sample, name, "long", _PLAIN, locale=self._locale).replace(
                format_decimal(sample, _PLAIN, locale=self._locale), "{0}"
            )
            for category, sample in self._categories().items()
        }
        rate = format_compound_unit(_MARKED, denominator_unit=name, length="long", format=_PLAIN, locale=self._locale)
        per = (rate or "").replace(str(_MARKED), "{0}").replace("’", "'").replace("\xa0", " ")
        names = {category: pattern.replace("\xa0", " ") for category, pattern in long.items()}
        return Unit(names, form, "" if "/" in per else per)

    def _currencies(self) -> dict[str, Currency]:
        money = self._entry.money
        signs = international_signs().currencies | money.signs
        codes = set(signs.values()) & list_currencies()
        own = {get_currency_symbol(code, self._locale): code for code in codes}
        signs = {sign: code for sign, code in own.items() if not sign.isascii()} | signs
        kinds = {code: self._currency(code) for code in set(signs.values())}
        return {sign: kinds[code] for sign, code in signs.items()}

    def _currency(self, code: str) -> Currency:
        money = self._entry.money
        names = money.names.get(code) or {
            category: currency_name(self._locale, code, sample) for category, sample in self._categories().items()
        }
        return Currency(names, money.forms.get(code, ""), money.cents.get(code, {}))

    def _weekdays(self) -> dict[str, str]:
        """Abbreviations, without a stop."""
        wide = self._locale.days["format"]["wide"]
        return {name.removesuffix("."): wide[day] for day, name in self._locale.days["format"]["abbreviated"].items()}

    def _months(self) -> dict[str, int]:
        """Names and abbreviations, as they are written within a sentence."""
        found: dict[str, int] = {}
        for length in ("wide", "abbreviated"):
            for number, name in self._locale.months["format"][length].items():
                found.setdefault(name.removesuffix("."), number)
        return found


def _symbol(name: str, locale: Locale) -> str:
    """As the language writes the unit behind a number; "": it has none of its own."""
    written = format_unit(_MARKED, name, "short", _PLAIN, locale=locale)
    return written.replace(str(_MARKED), "").replace("\xa0", " ").replace("\u202f", " ").strip()


# Signs of money that a language's own reader does not know -> CLDR's names. These all of them know.
_READ: Final = frozenset("$€£¥₩₹")
_CODES: Final = {
    sign: code
    for sign, code in international_signs().currencies.items()
    if not sign[0].isalpha() and sign[-1] not in _READ
}
_NUMBER: Final = r"\d[\d,]*(?:\.\d+)?(?: ?(?:million|billion|万|亿))?"
_SIGN: Final = any_of(_CODES)
_AMOUNT: Final = re.compile(rf"(?P<before>{_SIGN}) ?(?P<number>{_NUMBER})|(?P<amount>{_NUMBER}) ?(?P<behind>{_SIGN})")
_ALONE: Final = re.compile(_SIGN)


def with_named_currencies(text: str, language: str) -> str:
    """ "₽5" -> "5 Russian rubles"."""
    if text.isascii() or _ALONE.search(text) is None:
        return text
    gap = "" if language == "zh" else " "

    def named(match: re.Match[str]) -> str:
        number = match["number"] or match["amount"]
        return f"{number}{gap}{_name(match['before'] or match['behind'], language, is_one=number == '1')}{gap}"

    return _ALONE.sub(lambda match: f"{gap}{_name(match[0], language, is_one=False)}{gap}", _AMOUNT.sub(named, text))


@lru_cache
def _name(sign: str, language: str, *, is_one: bool) -> str:
    return currency_name(language, _CODES[sign], 1 if is_one else 2)
