"""Which language a span is read in: by its script, and where the script leaves it open, by a hint. Pure."""

import re
from collections import Counter
from collections.abc import Sequence
from functools import lru_cache
from typing import Final

from voicegate.engine.interface import base_language
from voicegate.engine.text.characters import has_han
from voicegate.engine.text.english.data import DATA
from voicegate.engine.text.languages.definition import common_words
from voicegate.engine.text.latex import FORMULA_COMMAND
from voicegate.engine.text.web import replace_addresses

# Beyond this many Latin words for each Han character, the Han is a quotation: "The character 好 means good". Lower ->
# Chinese full of English terms is read as English; higher -> numbers of an English sentence with a Chinese name in it
# are read in Chinese.
LATIN_WORDS_PER_HAN: Final = 3
# Words of Latin prose for each word of Cyrillic, Hangul, kana, ... Lower -> Russian with an English name in it is read
# as English; higher -> an English sentence with a Russian name in it keeps its digits.
PROSE_WORDS_PER_FOREIGN: Final = 2

_KANA: Final = re.compile("[\u3041-\u3096\u309d-\u309f\u30a1-\u30fa\u30fd-\u30ff\uff66-\uff9d]")
_HAN: Final = re.compile("[\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]")
_LATIN_WORD: Final = re.compile(r"[A-Za-z\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u024f]+")
# Latin words that decide for a Latin language: not "5 km", "GPU", "x" or what is left of an address that is none for a
# mark inside it, which stand in text of any language.
_UNDECIDING: Final = re.compile(r"\d ?[A-Za-z]{1,8}|\b(?:https?|www)\b")
_FORMULA_WORDS: Final = re.compile(rf"{FORMULA_COMMAND}|\b(?:sin|cos|tan|log|lim|exp|max|min)(?=\()")
DECIDING_WORD: Final = re.compile(r"[a-z\u00df-\u00f6\u00f8-\u024f]{3}")
_GREEK: Final = "[\u0370-\u03ff]"
_GREEK_WORD: Final = re.compile(f"{_GREEK}{{2}}")  # one letter is a formula's: πr²
_ADDRESS: Final = "address"  # how an address counts
# Of a Latin text in which a word of another script is quoted: neither names, nor what an address is dictated with, as
# those stand in text of any script.
_PROSE_WORD: Final = re.compile(
    r"\b(?!(?:dot|com|org|net|dash|slash|underscore|plus|www|https?)\b)"
    r"[A-Za-z\u00c0-\u024f]*[a-z\u00df-\u00f6\u00f8-\u024f]{3}"
)
# Script -> languages written in it, the first one for a hint that is not. Only scripts of one language, or nearly.
_SCRIPTS: Final = (
    (re.compile("[\uac00-\ud7a3\u1100-\u11ff\u3131-\u318e]"), ("ko",)),
    (re.compile("[\u0400-\u052f]"), ("ru", "uk", "be", "bg", "sr", "mk", "kk", "ky", "mn", "tg")),
    (re.compile("[\u0e01-\u0e3a\u0e40-\u0e7f]"), ("th",)),
    (re.compile("[\u0600-\u06ff]"), ("ar", "fa", "ur", "ps")),
    (re.compile("[\u0900-\u097f]"), ("hi", "mr", "ne")),
    (_GREEK_WORD, ("el",)),  # one Greek letter is a formula's
    (re.compile("[\u0590-\u05ff]"), ("he", "yi")),
)
_JAPANESE_WORD: Final = re.compile("[\u3005\u3041-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uff66-\uff9d]+")
_FOREIGN_WORD: Final = re.compile("[\u0370-\u1fff\u3131-\u318e\uac00-\ud7a3]+")
_WRITTEN_OTHERWISE: Final = frozenset({"zh", "yue", "ja"}.union(*(languages for _, languages in _SCRIPTS)))
_DEFAULT_LATIN: Final = "en"


def detect_language(text: str, hint: str) -> str:
    """The language to read `text` in: a base language ("zh"), or `hint` itself where the script fits it.

    Kana make it Japanese; Han characters Chinese, unless the hint says Japanese; Hangul, Cyrillic, Thai, ... their
    language; but a quotation in a Latin text decides nothing. Latin words make it the hint, or English if the hint is
    not written in Latin. Text without words ("5 km", "GPU") is in the language of the hint.
    """
    base = base_language(hint)
    if not text.isascii():
        if _KANA.search(text) and (base == "ja" or not _is_quoted(_JAPANESE_WORD, text)):
            return "ja"
        if has_han(text) and (base in ("zh", "yue", "ja") or not _is_quotation(text)):
            return hint if base in ("zh", "yue", "ja") else "zh"
        for script, languages in _SCRIPTS:
            if script.search(text) and (base in languages or not _is_quoted(_FOREIGN_WORD, text)):
                return hint if base in languages else languages[0]
    if base in _WRITTEN_OTHERWISE and has_deciding_word(text):
        return _DEFAULT_LATIN
    return hint


def recorded_language(transcript: str, languages: Sequence[str]) -> str | None:
    """The one of `languages` in which a recording speaks, by its transcript; None: it tells none of them.

    Where the script leaves it open, the one of which the transcript has most common words; the first of equals.
    """
    if not transcript.strip():
        return None
    spoken = base_language(detect_language(transcript, languages[0]))
    candidates = [tag for tag in languages if base_language(tag) not in _WRITTEN_OTHERWISE]
    if spoken in _WRITTEN_OTHERWISE or not candidates:
        return next((tag for tag in languages if base_language(tag) == spoken), None)
    words = Counter(word.lower() for word in _LATIN_WORD.findall(transcript))
    return max(candidates, key=lambda tag: sum(words[word] for word in _common_words(base_language(tag))))


@lru_cache
def _common_words(language: str) -> frozenset[str]:
    return frozenset(DATA["common_words"].split()) if language == "en" else common_words(language)


def has_deciding_word(text: str) -> bool:
    """Whether there is a word, of letters of any script, by which its language can be told."""
    if "\\" in text or "(" in text:
        text = _FORMULA_WORDS.sub(" ", text)
    text = _UNDECIDING.sub(" ", replace_addresses(text, ""))
    return DECIDING_WORD.search(text) is not None or _has_foreign_letter(text)


def may_be_of_hint(text: str, hint: str) -> bool:
    """Whether a text that goes on may be in the language of the hint, though it begins with a few Latin words."""
    if base_language(hint) not in _WRITTEN_OTHERWISE or _has_foreign_letter(text):
        return False
    return len(_LATIN_WORD.findall(_UNDECIDING.sub(" ", text))) <= LATIN_WORDS_PER_HAN


def _has_foreign_letter(text: str) -> bool:
    if text.isascii():
        return False
    return any(char > "\u03ff" and char.isalpha() for char in text) or _GREEK_WORD.search(text) is not None


def _is_quotation(text: str) -> bool:
    """Whether the Han characters stand in a Latin text. An address counts as one word."""
    num_needed = LATIN_WORDS_PER_HAN * len(_HAN.findall(text))
    # An address has a Latin word in it, if not more.
    if len(_LATIN_WORD.findall(text)) < num_needed:
        return False
    return len(_LATIN_WORD.findall(replace_addresses(text, _ADDRESS))) >= num_needed


def _is_quoted(foreign: re.Pattern[str], text: str) -> bool:
    """Likewise for words of a script with blanks, whose reader leaves Latin words and numbers as they are."""
    return len(_PROSE_WORD.findall(text)) >= PROSE_WORDS_PER_FOREIGN * len(foreign.findall(text))
