"""How long text takes to say, counted in letters of alphabetic text. Pure.

Of written text it is a guess, made before it is read; of the words that were read it is counted.
"""

import re
import unicodedata
from functools import lru_cache
from typing import Final

from voicegate.engine.text.characters import is_wide
from voicegate.engine.text.cleanup import SIGNS

# Letters of a wide character: both take about 0.2 s to say. Lower -> spans of wide text last longer.
WIDE_LETTERS: Final = 3
# A syllable of Korean, which is written with blanks, is no wide character.
_HANGUL_LETTERS: Final = 3
# "1,234" is said with 30 letters, "2024" with 16, "25" with 10; the five digits of a code with 20.
_DIGIT_LETTERS: Final = 5
# "percent", "dollars", "equals". Most of them have a name only at a number.
_SIGN_LETTERS: Final = 7
_SIGNS: Final = SIGNS | frozenset("$%<=>^")

# Said too where they stand alone, as normalize.py says them: unless they begin a line, as Markdown has them; at a
# number; and always ("and", "equals").
_NAMED_WITHIN_LINES: Final = frozenset("+>")
_NAMED_AT_NUMBERS: Final = frozenset("$€£¥₹₩°")
_NAMED_ALWAYS: Final = (SIGNS - _NAMED_AT_NUMBERS - frozenset("²³")) | frozenset("&=<%@")
_NAMED_SIGNS: Final = _NAMED_ALWAYS | _NAMED_WITHIN_LINES | _NAMED_AT_NUMBERS
_SHORT_SIGNS: Final = frozenset("&@+")
_SHORT_SIGN_LETTERS: Final = 3

# A letter that is said by its name: "ess", "double u".
_SPELLED_LETTERS: Final = 3
# The break at a mark.
_MARK_LETTERS: Final = 2
# The shortest words take longer than their letters: "a", "I", "oh".
_MIN_WORD_LETTERS: Final = 2

_MARKS: Final = ".,?!;:。，？！；：、"
_WORD_OR_MARK: Final = re.compile(rf"[^\W_]+(?:'[^\W_]+)*|[{_MARKS}]")
_VOWEL: Final = re.compile("[AEIOUYaeiouy]")
_WORDS_OF_ONE_LETTER: Final = frozenset("AIai")


@lru_cache(maxsize=4096)
def written_letters(char: str) -> int:
    """Letters that one written character is likely to be said with; at least 1."""
    if is_wide(char):
        return WIDE_LETTERS
    if char.isdigit():
        return _DIGIT_LETTERS
    if char in _SIGNS:
        return _SIGN_LETTERS
    if char.isascii():
        return 1
    if "\uac00" <= char <= "\ud7a3":
        return _HANGUL_LETTERS
    composed = unicodedata.normalize("NFKC", char)  # one character may stand for a whole phrase
    return 1 if composed == char else sum(map(written_letters, composed)) or 1


def letters_of_words(text: str) -> int:
    """Letters that the words of written text are likely to be said with; 0 where it has none."""
    return sum(written_letters(char) for char in text if char.isalnum())


def letters_of_sign(word: str) -> int:
    """Letters that a sign that stands alone is likely to be said with; 0: it has no name."""
    sign = _sign(word)
    if sign not in _NAMED_SIGNS:
        return 0
    return _SHORT_SIGN_LETTERS if sign in _SHORT_SIGNS else _SIGN_LETTERS


def _sign(word: str) -> str:
    """Without the marks behind it: 200 €, also."""
    return word[:1] + word[1:].rstrip(_MARKS + "）)")


def is_said_alone(text: str, start: int, end: int) -> bool:
    """Whether what stands there between blanks is a sign that is said."""
    sign = _sign(text[start:end])
    if sign in _NAMED_WITHIN_LINES:
        return bool(text[:start].rpartition("\n")[2].strip())
    if sign in _NAMED_AT_NUMBERS:
        return text[:start].rstrip()[-1:].isdigit() or text[end:].lstrip()[:1].isdigit()
    return sign in _NAMED_ALWAYS


def letters_of_break(word: str) -> int:
    """Letters that the pause after a written word is worth."""
    return _MARK_LETTERS if word[-1:] and word[-1] in _MARKS else 0


def spoken_letters(words: str) -> int:
    """Letters of the normaliser's text."""
    return sum(_letters(match[0]) for match in _WORD_OR_MARK.finditer(words))


@lru_cache(maxsize=8192)
def _letters(item: str) -> int:
    if not item[0].isalnum():
        return _MARK_LETTERS
    if not item.isascii() or not item.isalpha():
        return sum(map(written_letters, item))
    is_spelled = item not in _WORDS_OF_ONE_LETTER if len(item) == 1 else _VOWEL.search(item) is None
    return len(item) * _SPELLED_LETTERS if is_spelled else max(len(item), _MIN_WORD_LETTERS)
