"""Reading of a text that stands after another: as the two are read together, without the earlier part. Pure.

A clause is cut at a colon, and a flush, a stall or a model that takes words one by one cuts anywhere: "your code is |
482913", "Austin, TX | 78701", "4111 1111 | 1111 1111". What a number is, is known from before.
"""

import re
import unicodedata
from collections.abc import Callable
from typing import Final

# Characters of the earlier text that are read again. Lower -> a name far before its number is forgotten; higher ->
# reading takes longer, twice for each character.
MAX_BEFORE_CHARS: Final = 56

# Text before decides nothing of a text after so many plain words.
_PLAIN_START: Final = re.compile(r"\s*(?:[a-z]+[,.;:]?\s+){5}")
# A digit or a sign near its beginning, or capitals there: King Louis | XIV, on | N Main.
_MAY_DEPEND: Final = re.compile(r"[^\sA-Za-z.,;:!?'’]")
_CAPITALS: Final = re.compile(r"[\s*_`\"'“‘(]*[A-Z][A-Za-z]*\b(?!\.\s*[A-Z])")
_LOOK_CHARS: Final = 40
_TRAILING_MARKS: Final = " .,?!;:。，？！；：、"
_ENDS_IN_NUMBER: Final = re.compile(r"[0-9][0-9 -]*\Z")
_STARTS_AS_NUMBER: Final = re.compile("[ -]?[0-9]")
_DIGIT_WORD: Final = re.compile(
    r"[.,，、 ]*(?:(?:zero|one|two|three|four|five|six|seven|eight|nine)\b(?!-)"
    r"|[零一二三四五六七八九幺](?![十百千万亿年月日]))"
)


def end_of(said: str) -> str:
    """The part of it that is kept; nothing where its characters stand for whole phrases."""
    end = said[-MAX_BEFORE_CHARS:]
    is_short = end.isascii() or len(unicodedata.normalize("NFKC", end)) <= 2 * MAX_BEFORE_CHARS
    return end if is_short else ""


def may_depend(text: str) -> bool:
    """Whether what was said before may change how `text` is read: not that of plain words."""
    if _PLAIN_START.match(text) is not None:
        return False
    return _MAY_DEPEND.search(text, 0, _LOOK_CHARS) is not None or _CAPITALS.match(text) is not None


def read_behind(before: str, text: str, read: Callable[[str], str]) -> str | None:
    """How `text` is read behind `before`; None where `before` itself would be read otherwise now, and was said."""
    said, both = read(before).rstrip(_TRAILING_MARKS), read(before + text)
    if not said:
        return None
    if both.startswith(said):
        rest = both[len(said) :]
        is_whole = not (rest[:1].isalnum() and said[-1].isascii() and rest[0].isascii())
        return rest.lstrip(_TRAILING_MARKS) if is_whole and rest[:1] not in ("-", "'") else None
    return _rest_of_digits(before, text, said, both)


def _rest_of_digits(before: str, text: str, said: str, both: str) -> str | None:
    """Rest of a number that was torn, and is read digit by digit as a whole: 48 | 21 after "Your PIN is"."""
    head = _ENDS_IN_NUMBER.search(before)
    if head is None or _STARTS_AS_NUMBER.match(text) is None:
        return None
    num_digits = sum(map(str.isdigit, head[0]))
    is_same = next((index for index, pair in enumerate(zip(said, both, strict=False)) if pair[0] != pair[1]), 0)
    # Where its first digit is said, as far as what is before that is the same.
    for start in sorted(_word_starts(both, is_same))[-num_digits - 1 :]:
        words = re.compile(rf"(?:{_DIGIT_WORD.pattern}){{{num_digits}}}(?={_DIGIT_WORD.pattern})").match(both, start)
        if words is not None:
            return both[words.end() :].lstrip(_TRAILING_MARKS)
    return None


def _word_starts(text: str, end: int) -> list[int]:
    return [index for index in range(end + 1) if not index or text[index - 1] == " " or not text[index - 1].isascii()]
