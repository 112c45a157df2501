"""`data.toml`, with the names that Babel has for it."""

import tomllib
from importlib import resources
from typing import Any, Final, NamedTuple

from voicegate.engine.text import cldr

LANGUAGE: Final = "en"
DATA: Final[dict[str, Any]] = tomllib.loads((resources.files(__package__) / "data.toml").read_text(encoding="utf-8"))


class Currency(NamedTuple):
    one: str
    many: str
    hundredth: str = ""  # none: the currency has none that is said
    hundredths: str = ""


def unit_names() -> dict[str, tuple[str, str]]:
    """Symbol -> one, many."""
    return {
        symbol: cldr.unit_names(LANGUAGE, names) if isinstance(names, str) else (names[0], names[1])
        for symbol, names in DATA["units"].items()
    }


def currency_of_sign() -> dict[str, str]:
    """Sign or code, as it stands at an amount -> ISO 4217 code."""
    signs: dict[str, str] = cldr.currency_signs(LANGUAGE) | DATA["currencies"]
    return signs | {code: code for code in DATA["currency_codes"]["codes"]}


def currency_names() -> dict[str, Currency]:
    """By ISO 4217 code."""
    return {code: _currency(code) for code in currency_of_sign().values()}


def _currency(code: str) -> Currency:
    if code in DATA["currency_names"]:
        return Currency(*DATA["currency_names"][code])
    hundredths = DATA["currency_hundredths"].items()
    hundredth = next((name for name, codes in hundredths if code in codes), "")
    return Currency(*cldr.currency_names(LANGUAGE, code), hundredth, f"{hundredth}s" if hundredth else "")
