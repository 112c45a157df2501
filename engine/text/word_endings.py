"""A written word's end, and its sentence's: sometimes only the next word tells. Pure."""

from enum import Enum
from typing import Final

from voicegate.engine.text.characters import QUOTES_AND_BRACKETS, split_tail
from voicegate.engine.text.english.abbreviations import Kind
from voicegate.engine.text.word_rules import ENGLISH, WordRules

_SENTENCE_ENDS: Final = ".?!…‽"
_CLAUSE_MARKS: Final = ",;:"
_DASHES: Final = frozenset("-–")
_AMOUNT_SIGNS: Final = frozenset("$€£¥")


class Ending(Enum):
    NONE = "none"
    CLAUSE = "clause"
    SENTENCE = "sentence"
    # Decided by the first character of the next word:
    UNLESS_LOWER = "unless lower case follows"  # "Stop!" she said; well... perhaps
    UNLESS_LOWER_OR_DIGIT = "unless lower case or a digit follows"  # etc. and; No. 5; 12 in. wide
    CLAUSE_UNLESS_DIGIT = "a clause, unless a digit follows"  # it is late - go; 12 - 5
    # Decided by the whole next word:
    BEFORE_OPENER = "if a word that opens sentences follows"  # U.S. They
    UNLESS_CODE = "unless lower case, a number or a code follows"  # serial no. SN-48

    def is_sentence_before(self, char: str) -> bool:
        """Whether the sentence ended, now that the next word starts with `char`."""
        match self:
            case Ending.UNLESS_LOWER:
                return not char.islower()
            case Ending.UNLESS_LOWER_OR_DIGIT:
                return not char.islower() and not char.isdigit()
            case _:
                return self is Ending.SENTENCE

    def is_sentence_before_word(self, word: str, rules: WordRules) -> bool:
        """Likewise where the whole next word decides."""
        if self is Ending.UNLESS_CODE:
            return not (word[0].islower() or rules.is_number_or_code(word))
        return rules.opens_sentence(word)

    def is_clause_before(self, char: str) -> bool:
        """Likewise for a clause, where the sentence has not ended."""
        is_amount = char.isdigit() or char in _AMOUNT_SIGNS
        return self is Ending.UNLESS_LOWER or (self is Ending.CLAUSE_UNLESS_DIGIT and not is_amount)


def word_ending(word: str, rules: WordRules = ENGLISH) -> Ending:
    """Ending of a word that is followed by whitespace or the like."""
    stem, tail = split_tail(word)
    if tail == "!=" and not stem:
        return Ending.NONE
    last = next(
        (index for index in range(len(tail) - 1, -1, -1) if tail[index] in _SENTENCE_ENDS + _CLAUSE_MARKS), None
    )
    if last is None:
        return Ending.CLAUSE_UNLESS_DIGIT if not stem and _DASHES.issuperset(tail) else Ending.NONE
    if tail[last] in _CLAUSE_MARKS:
        return Ending.CLAUSE
    if "..." in tail or "…" in tail:
        return Ending.UNLESS_LOWER
    if tail.startswith(".") and "?" not in tail and "!" not in tail:
        match rules.kind(stem):
            case Kind.CONTINUES | Kind.NAME:
                return Ending.NONE
            case Kind.LETTERS:
                return Ending.BEFORE_OPENER
            case Kind.NUMBER:
                return Ending.UNLESS_CODE
            case Kind.MAY_END:
                return Ending.UNLESS_LOWER_OR_DIGIT
            case None:
                pass
    is_quoted = any(char in QUOTES_AND_BRACKETS for char in tail[last + 1 :])
    return Ending.UNLESS_LOWER if is_quoted else Ending.SENTENCE
