"""A language's rules for the ends of its words and sentences. Pure.

The cutters look at words alone: which are abbreviations, which open sentences, and which are read with a number.
"""

import re
from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from voicegate.engine.interface import base_language
from voicegate.engine.text.english.abbreviations import MONTH_BY_NAME, Kind, abbreviation_kind, opens_sentence
from voicegate.engine.text.english.codes import CODE
from voicegate.engine.text.english.data import AFTER_NUMBER, CURRENCY_CODES
from voicegate.engine.text.english.word_pairs import BEFORE_NUMBER, FIRST_OF_UNIT
from voicegate.engine.text.languages.definition import known_languages
from voicegate.engine.text.languages.sentences import Sentences, sentences_of

_CYRILLIC: Final = re.compile("[\u0400-\u052f]")
# Scripts whose languages have forms of a number by the word after it.
_CYRILLIC_OR_HANGUL: Final = re.compile("[\u0400-\u052f\uac00-\ud7a3]")
_ANY_LETTER: Final = re.compile(r"[^\W\d_]")
_NUMERAL: Final = re.compile("[IVX]+")
_FRACTIONS: Final = tuple("½¼¾⅓⅔⅛⅜⅝⅞⅕⅖⅗⅘⅙⅚")
_CODE: Final = re.compile(CODE)
_OF: Final = frozenset({"of"})
# Words before a stop whose kind is kept: a cutter asks several times for each.
_NUM_KEPT_WORDS: Final = 4_096
_RUSSIAN: Final = "ru"


@dataclass(frozen=True, slots=True)
class WordRules:
    kind: Callable[[str], Kind | None]  # of a word before its last full stop
    opens_sentence: Callable[[str], bool]  # of a word as written
    months: Collection[str]  # in small letters
    has_capital_months: bool
    before_number: Collection[str]
    after_number: Collection[str]
    links: Collection[str]  # between the parts of a date or a range: 5 of May, 1. bis 3. Mai
    # A word behind a number that has one of these is read with it: its end tells the number's form.
    takes: re.Pattern[str] | None
    has_numerals: bool = True  # XIX secolo
    is_english: bool = False
    firsts_of_units: Collection[str] = ()  # of several words: sq ft

    def is_month(self, stem: str) -> bool:
        return (stem[:1].isupper() or not self.has_capital_months) and stem.lower() in self.months

    def may_be_month(self, start: str, stem: str) -> bool:
        """Whether a word that begins so may become one; `stem` is `start` without marks."""
        first = next((char for char in start if char.isalnum()), "")
        is_cased = first.isupper() or (first != "" and not self.has_capital_months)
        return is_cased and any(name.startswith(stem.lower()) for name in self.months)

    def is_number(self, stem: str) -> bool:
        """Whether the word behind it may decide how it is read."""
        return (
            stem[-1:].isdigit()
            or stem[-1:] in _FRACTIONS
            or (self.has_numerals and _NUMERAL.fullmatch(stem) is not None)
        )

    def is_number_or_code(self, word: str) -> bool:
        """Whether it is what "no." may stand before."""
        return word[:1].isdigit() or (self.is_english and _CODE.match(word) is not None)

    def is_taken(self, word: str) -> bool:
        """Whether a word is read with the number before it, whatever it is."""
        return self.takes is not None and self.takes.search(word) is not None


@lru_cache
def word_rules(language: str) -> WordRules:
    """Words in Cyrillic letters are Russian's in all of them.

    Latin words of a language without a file, or of one that is written otherwise, are English's.
    """
    base = base_language(language)
    own = sentences_of(base) if base in known_languages() else None

    @lru_cache(_NUM_KEPT_WORDS)
    def kind(word: str) -> Kind | None:
        found = _sentences(own, word)
        return abbreviation_kind(word) if found is None else found.kind(word)

    def opens(word: str) -> bool:
        found = _sentences(own, word)
        return opens_sentence(word) if found is None else found.opens_sentence(word)

    if own is None:
        return WordRules(
            kind,
            opens,
            months=MONTH_BY_NAME,
            has_capital_months=True,
            before_number=CURRENCY_CODES | BEFORE_NUMBER,
            after_number=AFTER_NUMBER,
            links=_OF,
            takes=_CYRILLIC_OR_HANGUL,
            has_numerals=False,
            is_english=True,
            firsts_of_units=FIRST_OF_UNIT,
        )
    return WordRules(
        kind,
        opens,
        months=own.months,
        has_capital_months=own.has_capital_months,
        before_number=own.before_number,
        after_number=own.after_number,
        links=own.links,
        takes=_CYRILLIC_OR_HANGUL if own.is_wide else _ANY_LETTER,
    )


def _sentences(own: Sentences | None, word: str) -> Sentences | None:
    """By whose rules a word is looked at; None: by English ones."""
    if not word.isascii() and _CYRILLIC.search(word) is not None:
        return sentences_of(_RUSSIAN)
    return own if own is not None and (own.is_latin or word[:1].isdigit()) else None


ENGLISH: Final = word_rules("en")
