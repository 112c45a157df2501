"""Character classes that the cutters, the normaliser and the alignment share. Pure.

A *wide* character is one written without blanks between words (Han, kana, bopomofo): it counts as a word.
"""

import re
import unicodedata
from typing import Final

_WIDE: Final = (
    "\u3005-\u3007\u3021-\u3029\u3041-\u3096\u309d-\u309f\u30a1-\u30fa\u30fc-\u30ff\u3105-\u312f\u31a0-\u31bf"
    "\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\uff66-\uff9d\U00020000-\U0003ffff"
)
WIDE_SENTENCE_ENDS: Final = "。？！；｡"
WIDE_CLAUSE_MARKS: Final = "，："
WIDE_LIST_MARK: Final = "、"
LONG_DASHES: Final = "—―⸺"

QUOTES_AND_BRACKETS: Final = frozenset("\"'”’»)]}）］」』】》〉〕")
# Characters that may stand between a wide sentence end and the end of its span.
WIDE_TRAILERS: Final = QUOTES_AND_BRACKETS | frozenset(WIDE_SENTENCE_ENDS + "?!.…*_")

# Ends a run of ordinary characters: whitespace, or a character that is looked at by itself.
RUN_END: Final = re.compile(rf"[\s{_WIDE}{WIDE_SENTENCE_ENDS}{WIDE_CLAUSE_MARKS}{WIDE_LIST_MARK}{LONG_DASHES}]")

_WIDE_PATTERN: Final = re.compile(f"[{_WIDE}]")
_HAN_PATTERN: Final = re.compile("[\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]")


# Scripts with blanks between phrases only: Thai, Lao, Burmese, Khmer.
_PHRASE_LETTER: Final = re.compile("[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff]")
_JOINER: Final = "\u200d"
_NUMBER_SIGNS: Final = frozenset("%‰°℃℉")
_NUMBER_MARKS: Final = frozenset(".,")
# A longer one is torn. Lower -> amounts are; higher -> spans of digits without end are shorter.
_MAX_NUMBER_CHARS: Final = 20


def is_wide(char: str) -> bool:
    return char >= "\u3005" and _WIDE_PATTERN.match(char) is not None


def ends_phrase(word: str) -> bool:
    """Whether `word`, before a blank, is of a script in which the blank ends a phrase."""
    return not word.isascii() and _PHRASE_LETTER.match(split_tail(word)[0][-1:]) is not None


def grapheme_start(text: str, index: int) -> int:
    """The last place up to `index` at which `text` can be cut without parting a letter from its marks; 0 if none."""
    while index and (text[index - 1] == _JOINER or _joins_before(text[index])):
        index -= 1
    return index


def inner_cut(text: str, index: int) -> int:
    """Likewise for a word: nor within a number, nor from its sign, which some language reads nowhere else."""
    index = grapheme_start(text, index)
    before = text[index - 1 : index]
    if not before.isdigit():
        return _number_start(text, index) if before in _NUMBER_MARKS else index
    return _number_start(text, index - (text[index] in _NUMBER_SIGNS))


def _number_start(text: str, index: int) -> int:
    """Where the number begins that `index` is within; `index` itself where nothing is before that, or it is far."""
    start = index
    while start and index - start <= _MAX_NUMBER_CHARS and _is_within_number(text, start):
        start -= 1
    is_near = index - start <= _MAX_NUMBER_CHARS
    return start if start == index or (is_near and text[:start].strip()) else index


def _is_within_number(text: str, index: int) -> bool:
    """A mark behind a digit may be a decimal point: what follows it is not known."""
    before, char = text[index - 1], text[index]
    if before in _NUMBER_MARKS:
        return char.isdigit() and text[index - 2 : index - 1].isdigit()
    return before.isdigit() and (char.isdigit() or char in _NUMBER_MARKS)


def _joins_before(char: str) -> bool:
    return char >= "\u0300" and (char == _JOINER or unicodedata.category(char)[0] == "M")


def has_han(text: str) -> bool:
    return not text.isascii() and _HAN_PATTERN.search(text) is not None


def has_word(text: str) -> bool:
    """Whether there is a letter or a digit in it."""
    return any(char.isalnum() for char in text)


def split_tail(word: str) -> tuple[str, str]:
    """`word` -> up to its last letter or digit without leading punctuation, and what follows: `("e.g.,` -> e.g + .,"""
    end = len(word)
    while end and not word[end - 1].isalnum():
        end -= 1
    start = 0
    while start < end and not word[start].isalnum():
        start += 1
    return word[start:end], word[end:]
