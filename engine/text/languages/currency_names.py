"""Signs of money that a language's own reader does not know -> CLDR's names: 5 ₽ is five Russian rubles. Pure."""

import re
from functools import lru_cache
from typing import Final

from voicegate.engine.text.cldr import currency_name
from voicegate.engine.text.languages.definition import international_signs
from voicegate.engine.text.patterns import any_of

# These are read by every language's own reader.
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
