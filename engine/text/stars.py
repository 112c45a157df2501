"""Stars that are operators or hide digits of a number, and slashes that divide. Pure, language-independent.

Read before markup is dropped: elsewhere a star is emphasis or a bullet, and a slash a pause.
"""

import re
from typing import Final

_OPERAND_BEHIND: Final = r"(?=[\w(√]|[$€£¥]\d)"
# A star after a number, a bracket or a single letter: "2 * x". Between words it may be a bullet whose line break got
# lost.
_PRODUCT: Final = re.compile(
    rf"(?:(?<=[\d)²³%])|(?<=\b[A-Za-z])) \* {_OPERAND_BEHIND}|(?<=[\w)]) \* (?=[\d(√]|[$€£¥]\d|[A-Za-z]\b)"
    r"|(?<=[\d)])\*(?=\()"
)
# Part of an equation, between any words. One does not go on after a mark.
_PART: Final = re.compile(r"[^,;，；。]+")
_EQUATION: Final = re.compile(r"(?<![=!<>])=(?![=>])")
_PRODUCT_OF_WORDS: Final = re.compile(rf"(?<=[\w)]) \* {_OPERAND_BEHIND}")
_QUOTIENT: Final = re.compile(
    rf"(?<=[\w)]) / {_OPERAND_BEHIND}|(?<==[A-Za-z])/(?=[A-Za-z]\b)|(?<== [A-Za-z])/(?=[A-Za-z]\b)"
)


def with_operator_signs(text: str) -> str:
    """ "v = d / t" -> "v = d ÷ t": the readers name these signs."""
    if "*" not in text and ("/" not in text or "=" not in text):
        return text
    return "\n".join(map(_line, text.split("\n")))


def _line(line: str) -> str:
    if "=" in line:
        line = _PART.sub(_equation, line)
    return _PRODUCT.sub(" × ", line) if "*" in line else line


def _equation(match: re.Match[str]) -> str:
    part = match[0]
    return _QUOTIENT.sub(" ÷ ", _PRODUCT_OF_WORDS.sub(" × ", part)) if _EQUATION.search(part) else part


# Cards and telephones.
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
