"""Numbers of which stars hide a part: cards and telephones. Pure.

Before markup is dropped, because a star alone is emphasis, or a bullet.
"""

import re
from typing import Final

_HIDDEN: Final = re.compile(
    r"(?P<named>ending (?:in|with) |ends (?:in|with) |last four(?: digits)?:? |尾号[是为：:]? ?)?"
    r"(?<![\d*])(?P<first>\d{0,6})"
    r"(?:(?:\*{4,}+|(?<![A-Za-z])[xX]{4}(?![A-Za-z]))[ -]?){1,4}+(?P<last>\d{3,4})(?![\w*])"
    r"|(?<![\w-])[*xX]{3}-[*xX]{2}-(?P<social>\d{4})(?![\w-])"
)


def read_hidden_digits(text: str, ending: str) -> str:
    """`ending` is what is said before the last digits, of which each is said for itself: "ending in"."""

    def read(match: re.Match[str]) -> str:
        digits = " ".join(match["last"] or match["social"])
        first = f"{' '.join(match['first'])}, " if match["first"] else " "
        return f"{first}{match['named'] or ending}{digits}"

    return _HIDDEN.sub(read, text) if "*" in text or "x" in text or "X" in text else text
