"""Units, magnitudes and currencies as they stand at a number: how they are read. Pure tables, of `data.toml`."""

from typing import Final

from voicegate.engine.text.english.data import DATA, currency_names, currency_of_sign, unit_names

# Symbol -> one, many.
UNITS: Final[dict[str, tuple[str, str]]] = unit_names()
# Not read as units behind a blank.
ONLY_ATTACHED: Final = frozenset(DATA["unit_rules"]["only_attached"])
# What may stand behind the slash of "$20/month".
PER: Final[dict[str, str]] = DATA["per"]
MAGNITUDES: Final[dict[str, str]] = DATA["magnitudes"]
_CURRENCY_OF_SIGN: Final = currency_of_sign()
_NAMES: Final = currency_names()
# A currency of one sign is written with it, and one of several letters with a character that no text holds: "CA$".
# The rules know one character a currency then.
_OWN_SIGNS: Final = {code: sign for sign, code in reversed(_CURRENCY_OF_SIGN.items()) if len(sign) == 1}
_SIGN_OF_CURRENCY: Final = {code: chr(0xE100 + index) for index, code in enumerate(_NAMES)} | _OWN_SIGNS
CURRENCIES: Final = {sign: _NAMES[code] for code, sign in _SIGN_OF_CURRENCY.items()}
# As they stand at amounts, beside the signs themselves: CA$ 5, USD 45.00, 45 EUR, Rs. 500.
LONG_SIGNS: Final = {
    sign: _SIGN_OF_CURRENCY[code] for sign, code in _CURRENCY_OF_SIGN.items() if sign != _SIGN_OF_CURRENCY[code]
}
CURRENCY_CODES: Final = frozenset(sign for sign in LONG_SIGNS if sign.isalpha())

_CONCENTRATIONS: Final = frozenset(
    f"{unit}/{part}" for unit in ("g", "mg", "mcg", "mmol") for part in ("L", "dL", "mL", "kg")
)
_SPELLED_MAGNITUDES: Final = frozenset(name for name in MAGNITUDES if len(name) > 1)
_HALF_DAYS: Final = frozenset({"am", "pm", "AM", "PM", "a.m", "p.m", "A.M", "P.M"})
# Words that belong to the number before a blank: the reading of both depends on each other.
AFTER_NUMBER: Final = (
    frozenset(UNITS) - ONLY_ATTACHED
    | _CONCENTRATIONS
    | _SPELLED_MAGNITUDES
    | _HALF_DAYS
    | CURRENCY_CODES
    | frozenset({"°C", "°F", "in"})
)
