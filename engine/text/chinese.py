"""Chinese: cleaned text -> text that the model reads by itself. Pure. Digits stay: full normalisation is to come."""

import re
from typing import Final

from engine.text.punctuation import tidy

_READINGS: Final = (
    (re.compile(r"(\d++(?:\.\d++)?+) ?%"), r"百分之\1"),
    (re.compile(r"(?<=\d) ?°C\b"), "摄氏度"),
    (re.compile(r"(?<=\w) ?& ?(?=\w)"), "和"),
    (re.compile(r"(?<=\w) ?\+ ?(?=\w)"), "加"),
    (re.compile(r"(?<=\w) ?= ?(?=\w)"), "等于"),
)


def read_chinese(text: str) -> str:
    for pattern, reading in _READINGS:
        text = pattern.sub(reading, text)
    return tidy(text, keep_digit_marks=True)
