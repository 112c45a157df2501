"""Stars and slashes that are operators -> × and ÷, which the readers name. Pure, language-independent.

Before markup is dropped: elsewhere a star is emphasis, and a slash a pause.
"""

import re
from typing import Final

_OPERAND_BEHIND: Final = r"(?=[\w(√]|[$€£¥]\d)"
# Of a number, a bracket or a single letter: "2 * x". Between words it may be a bullet whose line break got lost.
_PRODUCT: Final = re.compile(
    rf"(?:(?<=[\d)²³%])|(?<=\b[A-Za-z])) \* {_OPERAND_BEHIND}|(?<=[\w)]) \* (?=[\d(√]|[$€£¥]\d|[A-Za-z]\b)"
    r"|(?<=[\d)])\*(?=\()"
)
# Of an equation, between any words. One does not go on behind a mark.
_PART: Final = re.compile(r"[^,;，；。]+")
_EQUATION: Final = re.compile(r"(?<![=!<>])=(?![=>])")
_PRODUCT_OF_WORDS: Final = re.compile(rf"(?<=[\w)]) \* {_OPERAND_BEHIND}")
_QUOTIENT: Final = re.compile(
    rf"(?<=[\w)]) / {_OPERAND_BEHIND}|(?<==[A-Za-z])/(?=[A-Za-z]\b)|(?<== [A-Za-z])/(?=[A-Za-z]\b)"
)


def with_operator_signs(text: str) -> str:
    """ "v = d / t" -> "v = d ÷ t"."""
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
