"""Which language a span is read in: by its script, and where the script leaves it open, by a hint. Pure."""

import re
from typing import Final

from voicegate.engine.interface import base_language
from voicegate.engine.text.characters import has_han
from voicegate.engine.text.web import read_addresses, replace_addresses

# Beyond this many Latin words for each Han character, the Han is a quotation: "The character 好 means good". Lower ->
# Chinese full of English terms is read as English; higher -> numbers of an English sentence with a Chinese name in it
# are read in Chinese.
LATIN_WORDS_PER_HAN: Final = 3

_KANA: Final = re.compile("[\u3041-\u3096\u309d-\u309f\u30a1-\u30fa\u30fd-\u30ff\uff66-\uff9d]")
_HAN: Final = re.compile("[\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]")
_LATIN_WORD: Final = re.compile(r"[A-Za-z\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u024f]+")
# Latin words that decide for a Latin language: not "5 km", "GPU", "x" or what is left of an address that is none for a
# mark inside it, which stand in text of any language.
_UNDECIDING: Final = re.compile(r"\d ?[A-Za-z]{1,8}|\b(?:https?|www)\b")
DECIDING_WORD: Final = re.compile(r"[a-z\u00df-\u00f6\u00f8-\u024f]{3}")
_ADDRESS: Final = "address"  # how an address counts
# Script -> languages written in it, the first one for a hint that is not. Only scripts of one language, or nearly.
_SCRIPTS: Final = (
    (re.compile("[\uac00-\ud7a3\u1100-\u11ff\u3131-\u318e]"), ("ko",)),
    (re.compile("[\u0400-\u052f]"), ("ru", "uk", "be", "bg", "sr", "mk", "kk", "ky", "mn", "tg")),
    (re.compile("[\u0e00-\u0e7f]"), ("th",)),
    (re.compile("[\u0600-\u06ff]"), ("ar", "fa", "ur", "ps")),
    (re.compile("[\u0900-\u097f]"), ("hi", "mr", "ne")),
    (re.compile("[\u0370-\u03ff]{2}"), ("el",)),  # one Greek letter is a formula's
    (re.compile("[\u0590-\u05ff]"), ("he", "yi")),
)
_WRITTEN_OTHERWISE: Final = frozenset({"zh", "yue", "ja"}.union(*(languages for _, languages in _SCRIPTS)))
_DEFAULT_LATIN: Final = "en"


def detect_language(text: str, hint: str) -> str:
    """The language to read `text` in: a base language ("zh"), or `hint` itself where the script fits it.

    Kana make it Japanese; Han characters Chinese, unless the hint says Japanese or they are a quotation; Hangul,
    Cyrillic, Thai, ... their language; Latin words the hint, or English if the hint is not written in Latin. Text
    without words ("5 km", "GPU") is in the language of the hint.
    """
    base = base_language(hint)
    if not text.isascii():
        if _KANA.search(text):
            return "ja"
        if has_han(text) and (base in ("zh", "yue", "ja") or not _is_quotation(text)):
            return hint if base in ("zh", "yue", "ja") else "zh"
        for script, languages in _SCRIPTS:
            if script.search(text):
                return hint if base in languages else languages[0]
    if base in _WRITTEN_OTHERWISE and has_deciding_word(text):
        return _DEFAULT_LATIN
    return hint


def has_deciding_word(text: str) -> bool:
    """Whether there is a word, of letters of any script, by which its language can be told."""
    text = _UNDECIDING.sub(" ", read_addresses(text))
    return DECIDING_WORD.search(text) is not None or any(char > "\u0370" and char.isalpha() for char in text)


def _is_quotation(text: str) -> bool:
    """Whether the Han characters stand in a Latin text. An address counts as one word."""
    num_words = len(_LATIN_WORD.findall(replace_addresses(text, _ADDRESS)))
    return num_words >= LATIN_WORDS_PER_HAN * len(_HAN.findall(text))
