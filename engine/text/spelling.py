"""Spelling: `<spell>AB-12</spell>` -> its letters, digits and signs by their names, one by one. Pure."""

from typing import Final

from voicegate.engine.interface import base_language
from voicegate.engine.text.chinese.digits import say_digits as say_chinese_digits
from voicegate.engine.text.chinese.measures import SPELLED_SIGNS
from voicegate.engine.text.english.data import DATA
from voicegate.engine.text.english.numbers import say_digits as say_english_digits

_SIGNS: Final = {"en": DATA["spelled_signs"], "zh": SPELLED_SIGNS}
_CHINESE: Final = frozenset({"zh", "yue"})


def spell(text: str, language: str) -> str:
    """Digits stay digits, and signs are left out, in a language whose names for them are not known."""
    base = "zh" if base_language(language) in _CHINESE else base_language(language)
    names = (_name(char, base) for char in text)
    return " ".join(filter(None, names))


def _name(char: str, base: str) -> str:
    if char.isspace():
        return ""
    if char.isdecimal() and char.isascii():
        return {"en": say_english_digits, "zh": say_chinese_digits}.get(base, str)(char)
    return char.upper() if char.isalnum() else _SIGNS.get(base, {}).get(char, "")
