"""LaTeX of an LLM's answer -> the signs and letters that the readers name: `\\frac{1}{2}` -> 1/2, `x^2` -> x². Pure.

Only what is said the same way in every formula; a command without a reading is left out, its argument stays.
"""

import re
from typing import Any, Final

from voicegate.engine.text.data_files import read_data
from voicegate.engine.text.patterns import any_of

_DATA: Final = read_data("latex", dict[str, Any])
_COMMANDS: Final[dict[str, str]] = {
    **_DATA["commands"],
    **{name: letter for letter in _DATA["greek"].split() for name in (letter, letter.capitalize())},
}
# One that any formula may have, as a pattern.
FORMULA_COMMAND: Final = rf"\\(?:[dt]?frac|sqrt|{any_of(_COMMANDS)})(?![A-Za-z])"
_ARGUMENT: Final = r"\{([^{}\\$\n]{1,60})\}"

# "$5 and $10" is money: no blank inside the dollars, no digit behind them (Pandoc's tex_math_dollars), and something
# in between that prices have not.
_INLINE: Final = re.compile(r"(?<![A-Za-z0-9$\\])\$(?=[^\s$])([^$\n]{1,200}?)(?<=[^\s\\])\$(?![A-Za-z0-9$])")
_LOOKS_LIKE_MATH: Final = re.compile(r"[\\^_={}<>+*/]|[A-Za-z]\Z|[A-Za-z]\(")
_DELIMITER: Final = re.compile(r"\\[()\[\]]|\$\$")
_FRACTION: Final = re.compile(rf"\\[dt]?frac{_ARGUMENT}{_ARGUMENT}")
_ROOT: Final = re.compile(rf"\\sqrt{_ARGUMENT}")
_WORDS: Final = re.compile(
    r"\\(?:text|mathbb|mathcal|mathrm|mathbf|mathit|operatorname|textbf|textit|boxed|vec|hat|bar)\b" + _ARGUMENT
)
_COMMAND: Final = re.compile(r"\\([A-Za-z]{2,20})(?![A-Za-z])[ ]?")
_SPACING: Final = re.compile(r"\\[,;:! ]|\\\\(?=[\s]|$)")
_POWER: Final = re.compile(r"(?<=[\w)\]}])\^(?:\{([23])\}|([23])(?!\d))")
_POWER_GROUP: Final = re.compile(r"\^\{([^{}\n]{1,60})\}")
_INDEX: Final = re.compile(r"(?<=[A-Za-z])_(?:\{([^{}\n]{1,60})\}|([A-Za-z0-9])(?![A-Za-z0-9_]))")
_SIGNS: Final = {"2": "²", "3": "³"}
_MAX_NESTING: Final = 3


def read_latex(text: str) -> str:
    """`text` with its formulas as signs. What no formula has is left as it is."""
    if "$" in text:
        text = _INLINE.sub(_inline, text)
    if "\\" in text or "$$" in text:
        text = _formula(text)
    return _powers(text) if "^" in text else text


def _inline(match: re.Match[str]) -> str:
    return _scripts(_formula(match[1])) if _LOOKS_LIKE_MATH.search(match[1]) or len(match[1]) == 1 else match[0]


def _formula(text: str) -> str:
    is_display = _DELIMITER.search(text) is not None
    text = _DELIMITER.sub(" ", text)
    text = _powers(_COMMAND.sub(lambda match: f" {_COMMANDS[match[1]]} " if match[1] in _COMMANDS else match[0], text))
    for _ in range(_MAX_NESTING):
        text = _ROOT.sub(r"√\1", _FRACTION.sub(_fraction, _WORDS.sub(r"\1", text)))
    text = _SPACING.sub(" ", text)
    return _scripts(text) if is_display else text


def _fraction(match: re.Match[str]) -> str:
    top, bottom = match[1].strip(), match[2].strip()
    if top.isdigit() and bottom.isdigit():
        return f" {top}/{bottom} "
    return f" {top} ÷ {bottom} "


def _scripts(text: str) -> str:
    """Scripts of a formula only: "snake_case" has no index."""
    text = _INDEX.sub(lambda match: f" {match[1] or match[2]}", _powers(text))
    return text.replace("{", " ").replace("}", " ")


def _powers(text: str) -> str:
    return _POWER_GROUP.sub(r"^\1", _POWER.sub(lambda match: _SIGNS[match[1] or match[2]], text))
