"""English as data, and of it units, magnitudes and currencies as they stand at a number. Pure tables."""

from typing import Any, Final, NamedTuple

from voicegate.engine.text import cldr
from voicegate.engine.text.data_files import read_data

LANGUAGE: Final = "en"
DATA: Final = read_data("english", dict[str, Any])


class Currency(NamedTuple):
    one: str
    many: str
    hundredth: str = ""  # none: the currency has none that is said
    hundredths: str = ""


def _currency(code: str) -> Currency:
    if code in DATA["currency_names"]:
        return Currency(*DATA["currency_names"][code])
    hundredths = DATA["currency_hundredths"].items()
    hundredth = next((name for name, codes in hundredths if code in codes), "")
    one, many = (cldr.currency_name(LANGUAGE, code, number) for number in (1, 2))
    return Currency(one, many, hundredth, f"{hundredth}s" if hundredth else "")


# Symbol -> one, many.
UNITS: Final[dict[str, tuple[str, str]]] = {
    symbol: cldr.unit_names(LANGUAGE, names) if isinstance(names, str) else (names[0], names[1])
    for symbol, names in DATA["units"].items()
}
# Words that may stand after the slash of "$20/month".
PER: Final[dict[str, str]] = DATA["per"]
MAGNITUDES: Final[dict[str, str]] = DATA["magnitudes"]
# Sign or code, as it stands at an amount -> ISO 4217 code.
_CURRENCY_OF_SIGN: Final[dict[str, str]] = (
    cldr.currency_signs(LANGUAGE) | DATA["currencies"] | {code: code for code in DATA["currency_codes"]["codes"]}
)
_NAMES: Final = {code: _currency(code) for code in _CURRENCY_OF_SIGN.values()}
# A currency of one sign is written with it, and one of several letters with a character that no text holds: "CA$".
# The rules know one character a currency then.
_OWN_SIGNS: Final = {code: sign for sign, code in reversed(_CURRENCY_OF_SIGN.items()) if len(sign) == 1}
_SIGN_OF_CURRENCY: Final = {code: chr(0xE100 + index) for index, code in enumerate(_NAMES)} | _OWN_SIGNS
CURRENCIES: Final = {sign: _NAMES[code] for code, sign in _SIGN_OF_CURRENCY.items()}
# As they stand at amounts, beside the signs themselves: CA$ 5, USD 45.00, 45 EUR, Rs. 500.
LONG_SIGNS: Final = {
    sign: _SIGN_OF_CURRENCY[code] for sign, code in _CURRENCY_OF_SIGN.items() if sign != _SIGN_OF_CURRENCY[code]
}
CURRENCY_CODES: Final = frozenset(LONG_SIGNS)

_SPELLED_MAGNITUDES: Final = frozenset(name for name in MAGNITUDES if len(name) > 1)
_HALF_DAYS: Final = frozenset({"am", "pm", "AM", "PM", "a.m", "p.m", "A.M", "P.M"})
# Words that belong to the number before a blank: the reading of both depends on each other.
AFTER_NUMBER: Final = (
    frozenset(UNITS) | _SPELLED_MAGNITUDES | _HALF_DAYS | CURRENCY_CODES | frozenset({"°C", "°F", "in"})
)
