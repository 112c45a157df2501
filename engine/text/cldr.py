"""Names of units, currencies, months and weekdays as CLDR has them. Babel is asked once, when a module is loaded."""

from decimal import Decimal
from typing import Final

from babel import Locale
from babel.numbers import get_currency_name
from babel.units import format_unit

_NAMES_WITHOUT_CLDR: Final = {"BTC": "Bitcoin"}


def unit_names(language: str, unit_id: str) -> tuple[str, str]:
    """Names of one, and of many: "length-kilometer" -> kilometer, kilometers. Raises UnknownUnitError."""
    return (
        format_unit(1, unit_id, "long", locale=language).replace("1", "", 1).strip(),
        format_unit(2, unit_id, "long", locale=language).replace("2", "", 1).strip(),
    )


def currency_name(language: str | Locale, code: str, number: int | Decimal) -> str:
    """ "CAD", 2 -> Canadian dollars."""
    return _NAMES_WITHOUT_CLDR.get(code) or get_currency_name(code, count=number, locale=language)


def currency_signs(language: str) -> dict[str, str]:
    """Sign -> code, of those that have a sign of their own: CA$ -> CAD."""
    signs = Locale(language).currency_symbols
    return {sign: code for code, sign in signs.items() if sign[-1:] in "$€£¥₹₩₪₱₫"}


def month_names(language: str) -> tuple[str, ...]:
    return tuple(Locale(language).months["format"]["wide"].values())


def weekday_names(language: str) -> tuple[str, ...]:
    """From Monday on."""
    days = Locale(language).days["format"]["wide"]
    return tuple(days[index] for index in sorted(days))
