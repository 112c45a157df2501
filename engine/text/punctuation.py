"""Anything -> words with at most one mark between them: the form in which text leaves the normaliser. Pure.

`.,?!;:` and a blank behind ordinary letters, `。，？！；：、` behind wide ones; `'` and `-` only between letters.
"""

import re
import unicodedata
from typing import Final

from voicegate.engine.text.characters import is_wide
from voicegate.engine.text.cleanup import PAUSE, SIGNS, without_stray_marks

# By how much of a break they are; the greatest of a run is kept.
_MARKS: Final = "?!.;:,、"
_TO_ASCII: Final = str.maketrans("？！。；：，", "?!.;:,")
_TO_WIDE: Final = str.maketrans("?!.;:,", "？！。；：，")
_ENDS: Final = frozenset(_MARKS + "？！。；：，")
_LEFTOVER: Final = str.maketrans(
    {**dict.fromkeys("()[]{}|", PAUSE), **dict.fromkeys('"#$%&*+/<=>@\\^_`~\n', " "), **dict.fromkeys(SIGNS, " ")}
)
_READ_BY_MODELS: Final = frozenset("$%+=") | SIGNS
_LEFTOVER_OF_MODELS: Final = {code: said for code, said in _LEFTOVER.items() if chr(code) not in _READ_BY_MODELS}
_SEPARATOR: Final = re.compile(rf"([\s.,?!;:'\-。，？！；：、{PAUSE}]+)")
_INNER_MARKS: Final = frozenset("'-.,:")
_ELLIPSIS: Final = re.compile(r"\.{2,}")
_DASH: Final = re.compile(r"\s-+\s|--")
_DASHES: Final = ("-", "–", "—", "―")
_WORD: Final = "[A-Za-z]+(?:['-][A-Za-z]+)*"
_TIDY: Final = re.compile(rf"{_WORD}(?:[.,?!;:]? {_WORD})*[.,?!;:]?")


def tidy(text: str, *, keep_inner_stops: bool = False, keep_digit_marks: bool = False, keep_signs: bool = False) -> str:
    """One mark between words, none before the first. "" if there is no letter or digit.

    `keep_inner_stops`: "e.g" and "node.js" stay for a reader to come; `keep_digit_marks`: 3.14, 1,000 and 3:30 too;
    `keep_signs`: a model is to read what signs mean.
    """
    if _TIDY.fullmatch(text):  # what is read over and over while it grows is plain words, most often
        return text
    if not text.isascii():  # a reading may have replaced the letter that carried a mark
        text = unicodedata.normalize("NFC", without_stray_marks(text))
    pieces = _SEPARATOR.split(text.translate(_LEFTOVER_OF_MODELS if keep_signs else _LEFTOVER))
    if not pieces[0]:  # the text starts with a separator
        pieces = pieces[2:]
    parts: list[str] = []
    for index in range(0, len(pieces), 2):
        word, separator, following = (*pieces[index : index + 3], "", "")[:3]
        if not word:
            break
        parts.append(word)
        is_inner = separator in _INNER_MARKS and following != ""
        if is_inner and (
            separator in "'-"
            or (keep_inner_stops and separator == "." and word[-1].isalpha() and following[0].isalpha())
            or (keep_digit_marks and word[-1].isdigit() and following[0].isdigit())
        ):
            parts.append(separator)
        elif keep_inner_stops and separator.startswith(".,"):  # Inc., a company
            parts.append("., " if following else ".,")
        else:
            parts.append(_joint(separator, word[-1], following))
    return "".join(parts)


def end_of_words(words: str, text: str) -> str:
    """Mark that the end of `words` lacks, which are said of `text`: behind a dash a comma, else a full stop.

    Upstream's frontend adds a full stop, too (split_paragraph). Without one the tiny model made no sound of 29 in 320
    short texts, and went on after the last word of others.
    """
    if not words or words[-1] in _ENDS:
        return ""
    mark = "," if text.rstrip().endswith(_DASHES) else "."
    return mark.translate(_TO_WIDE) if is_wide(words[-1]) else mark


def _joint(separator: str, before: str, following: str) -> str:
    if separator in ("", " "):
        return separator if following else ""
    marks = set(_ELLIPSIS.sub("," if following else ".", separator.translate(_TO_ASCII)))
    if following and (PAUSE in marks or _DASH.search(separator)):
        marks.add(",")
    mark = next((mark for mark in _MARKS if mark in marks), "")
    if not mark:
        return " " if following else ""
    if is_wide(before):
        return mark.translate(_TO_WIDE)
    return mark.replace("、", ",") + (" " if following else "")
