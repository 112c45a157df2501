"""Names of units, currencies, months and weekdays as CLDR has them. Babel is asked once, when a module is loaded."""

from babel import Locale
from babel.numbers import get_currency_name
from babel.units import format_unit


def unit_names(language: str, unit_id: str) -> tuple[str, str]:
    """Of one, and of many: "length-kilometer" -> kilometer, kilometers. Raises UnknownUnitError."""
    return (
        format_unit(1, unit_id, "long", locale=language).replace("1", "", 1).strip(),
        format_unit(2, unit_id, "long", locale=language).replace("2", "", 1).strip(),
    )


def currency_names(language: str, code: str) -> tuple[str, str]:
    """Of one, and of many: "CAD" -> Canadian dollar, Canadian dollars."""
    return get_currency_name(code, 1, language), get_currency_name(code, 2, language)


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
