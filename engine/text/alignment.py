"""Which word is heard when: an estimate from lengths, for captions and for what a cancel leaves unsaid. Pure.

The model gives no word times; time is spread over a span's words in proportion to the letters of each. That is off by
some 100 ms inside a span and exact at its borders.
"""

import unicodedata
from bisect import bisect_right
from collections.abc import Iterable
from itertools import accumulate

from voicegate.engine.interface import AlignedText
from voicegate.engine.text.characters import is_wide
from voicegate.engine.text.segmenter import TextSpan
from voicegate.engine.text.spoken_length import WIDE_LETTERS, written_letters


def letters(text: str) -> int:
    """A length that time is about proportional to; numerals are longer when said, which is not counted."""
    return sum(WIDE_LETTERS if is_wide(char) else 1 for char in text if char.isalnum())


def split_words(text: str, char_offset: int) -> list[TextSpan]:
    """Words as written with the punctuation at them; each wide character is one. No whitespace, no bare punctuation."""
    words: list[TextSpan] = []
    start: int | None = None  # of the present word
    has_letter = has_wide = False
    for index, char in enumerate(text + " "):
        wide = is_wide(char)
        # Opening punctuation stays with the wide character behind it, closing punctuation with the one before.
        opens = wide or (has_wide and (char.isalnum() or unicodedata.category(char) in ("Ps", "Pi")))
        if char.isspace() or (has_letter and opens):
            if start is not None and has_letter:
                words.append(TextSpan(text[start:index], char_offset + start, char_offset + index))
            start, has_letter, has_wide = None, False, False
        if not char.isspace():
            start = index if start is None else start
            has_letter = has_letter or char.isalnum()
            has_wide = has_wide or wide
    return words


def align_span(span_text: str, char_start: int, start_ms: int, end_ms: int) -> tuple[AlignedText, ...]:
    """Times for the words of a span: without gaps from `start_ms` to `end_ms`; empty if it has no word."""
    words = split_words(span_text, char_start)
    if not words:
        return ()
    duration_ms = max(0, end_ms - start_ms)
    borders = list(accumulate((_weight(word.text) for word in words), initial=0))
    times = [start_ms + duration_ms * border // borders[-1] for border in borders]
    return tuple(
        AlignedText(word.text, word_start_ms, word_end_ms, word.char_start, word.char_end)
        for word, word_start_ms, word_end_ms in zip(words, times, times[1:], strict=False)
    )


def split_spoken(items: Iterable[AlignedText], at_ms: int) -> int:
    """How many characters of the utterance were said at `at_ms`: up to the end of the last word heard to its end.

    `items` are in order, as `align_span` returns them for one span after the other.
    """
    words = list(items)
    num_spoken = bisect_right(words, at_ms, key=lambda word: word.end_ms)
    return words[num_spoken - 1].char_end if num_spoken else 0


def _weight(word: str) -> int:
    return sum(written_letters(char) for char in word if char.isalnum())
