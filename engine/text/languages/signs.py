"""Signs -> their words, where they mean something: at a number or a word. Pure.

A run of one sign is an ornament, a hyphen between letters is one.
"""

import re
from typing import Final

from voicegate.engine.text.languages.converters import Converters
from voicegate.engine.text.languages.definition import LanguageEntry
from voicegate.engine.text.languages.rules import Said
from voicegate.engine.text.patterns import any_of

# Signs that are said in every language; each has its words for them.
SIGNS: Final = "%‰°+=<>±×÷≈≤≥≠√∞§&@#²³^/:~-"
_ORNAMENT: Final = re.compile(r"([=<>+#&@^~/:-])\1+")
# Units between a number and the dash of its range: 9時〜17時, 9h-17h.
_UNIT_END: Final = re.compile(r"\d ?[^\W\d_]{1,2}\Z")
_AMOUNT_END: Final = re.compile(r"(?:[\d%‰°€$£¥₽₩²³]|°[CF])\Z")
_SERIAL_END: Final = re.compile(r"[A-Z]\d+[A-Z]+\d*\Z")  # A1B2-9923
_RESULT: Final = re.compile(r" ?[=+×÷*]")
_TERM: Final = re.compile(r"[=+×÷*] ?[\d.,]+ ?\Z")
_MAX_LOOK: Final = 12


class Signs:
    def __init__(self, entry: LanguageEntry, converters: Converters) -> None:
        self._entry = entry
        self._converters = converters
        self._number = re.compile(converters.written.number)
        self.currencies = frozenset(sign for sign in converters.measures.currencies if not sign[0].isalpha())
        currency = any_of(self.currencies)
        self._run = re.compile(rf"[{re.escape(SIGNS)}]+|{currency}")
        self._amount = re.compile(rf" ?(?:{currency})? ?(?=\d)")

    def say(self, text: str, place: int) -> Said | None:
        run = self._run.match(text, place)
        assert run is not None, "a sign stands there"
        end = run.end()
        before = text[max(place - 2, 0) : place].rstrip(" ")[-1:]
        behind = text[end : end + 2].lstrip(" ")[:1]
        if run[0] in ("-", "~"):
            return self._dash(text, place, end)
        if run[0] in (":", "/") or _ORNAMENT.fullmatch(run[0]):
            words = self._between(text, place, end, run[0], behind)
            return Said(self._apart(words), end) if words else None
        signs = [run[0]] if run[0] in self._entry.signs else run[0]
        names = " ".join(filter(None, (self._name(sign, behind) for sign in signs)))
        is_said = before.isalnum() or behind.isalnum() or before in ")²³%°" or behind in "(√-$€£"
        return Said(self._apart(names), end) if is_said and names else None

    def is_of_word(self, char: str) -> bool:
        """Whether what stands behind `char` is of the same word."""
        return char.isalpha() and (char.isascii() or self._entry.blanks == "around")

    def _between(self, text: str, place: int, end: int, sign: str, behind: str) -> str:
        """A colon or a slash between two numbers."""
        if len(sign) == 1 and text[place - 1 : place].isdecimal() and text[end : end + 1].isdecimal():
            return self._entry.signs.get(sign, "")
        if sign == "/" and text[place - 2 : place].strip(" ").isdecimal() and behind.isdecimal():
            return self._entry.signs["÷"]
        return ""

    def _name(self, sign: str, behind: str) -> str:
        if sign in self.currencies:
            return self._converters.measures.currencies[sign].names["other"]
        if sign == "#":
            return self._entry.signs.get("#" if behind.isdecimal() else "#tag", "")
        return self._entry.signs.get(sign, "")

    def _dash(self, text: str, place: int, end: int) -> Said | None:
        """A minus, a range, or a hyphen; between blanks and no numbers it is a pause."""
        behind = self._amount.match(text, end)
        if behind is None:
            return None
        start = max(place - _MAX_LOOK, 0)
        before = text[start:place]
        amount = before.rstrip(" ")
        if _SERIAL_END.search(before):
            return Said(" ", end)
        if _AMOUNT_END.search(amount) or _UNIT_END.search(amount):
            is_minus = text[place] == "-" and self._is_arithmetic(text, before, behind.end())
            return Said(self._apart(self._entry.minus if is_minus else self._entry.range), end)
        if self.is_of_word(before[-1:]) or before[-1:].isdecimal():
            return Said("" if self._entry.blanks == "none" else " ", end)
        if text[place] == "-" and text[end : end + 1] == " " and amount:
            return None
        word = self._entry.minus if text[place] == "-" else self._entry.signs["≈"]
        return Said(self._converters.glued(f"{word} "), end)

    def _is_arithmetic(self, text: str, before: str, behind: int) -> bool:
        second = self._number.match(text, behind)
        is_result = second is not None and _RESULT.match(text, second.end()) is not None
        return is_result or _TERM.search(before) is not None

    def _apart(self, words: str) -> str:
        return self._converters.glued(f" {words} ")
