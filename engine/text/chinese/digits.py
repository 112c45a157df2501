"""Digits -> Chinese words. The only module that knows wetext, the runtime of WeTextProcessing; pure but for its tables.

wetext reads counts, years, dates, times, percentages, fractions, scores and mobile numbers, with the measure words that
decide between 二 and 两. It gets a number with the Han characters around it and nothing else: it takes about 0.1 ms a
character, and more for each the longer the text is, and what it does to Latin letters and quotes is not wanted.
"""

import re
from functools import lru_cache
from typing import Final

from wetext import Normalizer

# wetext reads all from 17 digits on as several numbers; nobody can follow much shorter ones.
MAX_CARDINAL_DIGITS: Final = 12

_NAMES: Final = str.maketrans("0123456789", "零一二三四五六七八九")
_TELEPHONE_NAMES: Final = str.maketrans("0123456789", "零幺二三四五六七八九")

_HAN: Final = "[\u3400-\u4dbf\u4e00-\u9fff]"
_NUMBER: Final = r"-?\d(?:[\d.:/%]{0,15}[\d%])?+"
_CONTEXT: Final = re.compile(rf"{_HAN}{{0,3}}{_NUMBER}(?:{_HAN}{{1,3}}{_NUMBER}){{0,5}}{_HAN}{{0,3}}")
_NORMALIZER: Final = Normalizer(lang="zh", operator="tn")


def say_digits(digits: str) -> str:
    """One by one: "302" -> 三零二."""
    return digits.translate(_NAMES)


def say_telephone_digits(digits: str) -> str:
    """One by one, the one as 幺: "110" -> 幺幺零."""
    return digits.translate(_TELEPHONE_NAMES)


def say_numbers(text: str) -> str:
    """Every number in `text`, by what the Han characters at it say; no ASCII digit is left."""
    return say_digits(_CONTEXT.sub(_in_context, text))


def _in_context(match: re.Match[str]) -> str:
    return _normalized(match[0])


@lru_cache(maxsize=4096)
def _normalized(text: str) -> str:
    return str(_NORMALIZER.normalize(text))
