"""Digits -> Chinese words: counts, years, clock times, percentages, fractions, scores. Pure.

What else stands at a number was written in Chinese before (`quantities`).
"""

import re
from typing import Final

from voicegate.engine.text.chinese.measures import COUNTED

# Longer runs are read digit by digit. Nobody can follow much shorter ones as counts.
MAX_CARDINAL_DIGITS: Final = 12

_DIGITS: Final = "零一二三四五六七八九"
_NAMES: Final = str.maketrans("0123456789", _DIGITS)
_TELEPHONE_NAMES: Final = str.maketrans("0123456789", "零幺二三四五六七八九")
_PLACES: Final = ("千", "百", "十", "")
_MYRIADS: Final = ("亿", "万", "")
_LARGE: Final = ("百", "千", "万", "亿")
# Numbers that everybody calls by their digits, unless something is counted with them: 110米.
_SERVICES: Final = "110|112|114|119|120|122|10010|10086|12306|12315|12345|12348|12366"

_COUNT: Final = r"\d++(?:\.\d++)?+"
_PERCENT: Final = re.compile(rf"(-?{_COUNT})%")
_YEAR: Final = re.compile(r"(?<!\d)\d{4}(?=年)")
_DECADE: Final = re.compile(r"(?<![\d.])\d0(?=后)")
_SERVICE: Final = re.compile(
    rf"(?<![\d.:/-])(?<![=等于乘加减除满是为])(?:{_SERVICES})(?![\d:/]|\.\d|%|[a-zA-Z]|{COUNTED})"
)
_CLOCK: Final = re.compile(
    r"(?<![\d:.])(?P<hour>[01]?\d|2[0-4]):(?P<minutes>[0-5]\d)(?::(?P<seconds>[0-5]\d))?(?![\d:]|\.\d)"
)
_FRACTION: Final = re.compile(rf"(?<![\d/.])({_COUNT})/({_COUNT})(?![\d/])")
_SCORE: Final = re.compile(r"(?<=\d):(?=\d)")
_TWO: Final = re.compile(rf"(?<![\d.第百千万亿/:-])2(?={COUNTED})")
_NUMBER: Final = re.compile(rf"-?{_COUNT}")


def say_digits(digits: str) -> str:
    """One by one: "302" -> 三零二."""
    return digits.translate(_NAMES)


def say_telephone_digits(digits: str) -> str:
    """One by one, the one as 幺: "110" -> 幺幺零."""
    return digits.translate(_TELEPHONE_NAMES)


def say_count(number: str) -> str:
    """An integer or a decimal fraction, perhaps with a minus: "10.50" -> 十点五零."""
    if number.startswith("-"):
        return "负" + say_count(number[1:])
    whole, _, fraction = number.partition(".")
    is_code = len(whole) > MAX_CARDINAL_DIGITS or (len(whole) > 1 and whole[0] == "0")
    return (say_digits(whole) if is_code else _cardinal(int(whole))) + (f"点{say_digits(fraction)}" if fraction else "")


def say_numbers(text: str) -> str:
    """Every number in `text`, by what stands at it; no ASCII digit is left."""
    text = _PERCENT.sub(lambda match: f"百分之{say_count(match[1])}", _TWO.sub("两", text))
    text = _DECADE.sub(_by_digits, _YEAR.sub(_by_digits, text))
    text = _SERVICE.sub(lambda match: say_telephone_digits(match[0]), text)
    text = _SCORE.sub("比", _CLOCK.sub(_clock, text))
    text = _FRACTION.sub(lambda match: f"{say_count(match[2])}分之{say_count(match[1])}", text)
    return say_digits(_NUMBER.sub(lambda match: say_count(match[0]), text))


def _by_digits(match: re.Match[str]) -> str:
    return say_digits(match[0])


def _clock(match: re.Match[str]) -> str:
    hour = int(match["hour"])
    words = ("两" if hour == 2 else _cardinal(hour)) + "点"
    if match["minutes"] != "00" or match["seconds"]:
        words += f"{_two_digits(match['minutes'])}分"
    return words + (f"{_two_digits(match['seconds'])}秒" if match["seconds"] else "")


def _two_digits(digits: str) -> str:
    return "零" * digits.startswith("0") + ("" if digits == "00" else _cardinal(int(digits)))


def _cardinal(value: int) -> str:
    """Below 10**12, in groups of four places. Zeros between two digits of a group, or before its first, are one 零."""
    if value == 0:
        return "零"
    words, is_gap = "", False
    for index, name in enumerate(_MYRIADS):
        group = value // 10_000 ** (len(_MYRIADS) - 1 - index) % 10_000
        if not group:
            is_gap = words != ""
            continue
        words += "零" * (words != "" and (is_gap or group < 1000)) + _group(group) + name
        is_gap = False
    if words.startswith("一十"):
        return words[1:]
    return "两" + words[1:] if words[0] == "二" and words[1:2] in _LARGE else words


def _group(value: int) -> str:
    words = ""
    for place, digit in zip(_PLACES, f"{value:04}", strict=True):
        if digit != "0":
            words += _DIGITS[int(digit)] + place
        elif words and not words.endswith("零"):
            words += "零"
    return words.rstrip("零")
