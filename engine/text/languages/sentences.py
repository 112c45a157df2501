"""Where sentences of a language end, by its file and by sentencex' abbreviations. Pure."""

import re
from functools import lru_cache
from typing import Final

from sentencex import segment

from voicegate.engine.text.english.abbreviations import Kind
from voicegate.engine.text.languages.definition import load
from voicegate.engine.text.languages.measures import Measures

# A shorter word before a stop may be an abbreviation that nobody has listed.
_MAX_SHORT_CHARS: Final = 3
_LETTERS: Final = re.compile(r"[^\W\d_](?:\.[^\W\d_])*")
_NUMBER: Final = re.compile(r"\d+(?:[.,]\d+)*")
_ROMAN: Final = re.compile("[IVX]+")
_NUMBER_SIGNS: Final = frozenset({"n°", "N°", "nº", "Nº", "n.º", "N.º", "n.°", "N.°"})
_LATIN: Final = re.compile("[A-Za-z]")


class Sentences:
    def __init__(self, language: str) -> None:
        entry = load(language)
        measures = Measures(language, entry)
        self._language = language
        self._has_ordinal_stops = entry.has_ordinal_stops
        self._openers = frozenset(entry.openers.split())
        pieces = (piece for name in (*entry.abbreviations, *entry.ending_abbreviations) for piece in name.split())
        self._abbreviations = frozenset(piece.removesuffix(".") for piece in pieces if piece.endswith("."))
        self.is_latin = _LATIN.search(entry.openers) is not None
        self.is_wide = entry.blanks == "none"
        self.has_capital_months = any(name[0].isupper() for name in measures.months)
        self.months = frozenset(name.lower() for name in (*measures.months, *measures.weekdays))
        days = {day for name in measures.weekdays for day in (name, name.capitalize())}
        self.before_number = _NUMBER_SIGNS | measures.currencies.keys()
        self.before_number |= (
            {day + marks for day in days for marks in ("", ".", ",", ".,")} if not self.is_wide else set()
        )
        units = {word for sign in measures.units for word in sign.split()}
        self.after_number = frozenset({*units, *measures.currencies, *entry.magnitudes})
        self.links = frozenset({*entry.links.split(), *entry.times, *entry.magnitudes})
        self._knows = lru_cache(4096)(self._is_known)

    def kind(self, word: str) -> Kind | None:
        """Kind of a word before its last full stop."""
        word = word.rpartition("'")[2].rpartition("’")[2]  # l'avv. Rossi
        if _NUMBER.fullmatch(word) or _ROMAN.fullmatch(word):
            return Kind.LETTERS if self._has_ordinal_stops and "," not in word else Kind.MAY_END
        if _LETTERS.fullmatch(word) or self._knows(word):
            return Kind.LETTERS
        return Kind.MAY_END if len(word) <= _MAX_SHORT_CHARS else None

    def opens_sentence(self, word: str) -> bool:
        """Whether a word as written opens one."""
        stem = word.lstrip("\"'“‘„«»([*_¿¡")
        if stem.endswith("."):
            return False
        stem = stem.rstrip(",:;!?…\"'”’»“)]*_")
        return stem in self._openers or stem.partition("'")[0].partition("’")[0] + "'" in self._openers

    def _is_known(self, word: str) -> bool:
        """Whether it is an abbreviation: of our file, or of sentencex, which parts no sentence behind one."""
        return (
            word in self._abbreviations
            or word[:1].lower() + word[1:] in self._abbreviations
            or (word.isalpha() and len(segment(self._language, f"x {word}. Y")) == 1)
        )


@lru_cache
def sentences_of(language: str) -> Sentences:
    return Sentences(language)
