"""Where a span that takes too long to say is parted in two, so that each half is read as it was in the whole. Pure."""

from collections.abc import Iterable
from itertools import accumulate

from voicegate.engine.text.characters import grapheme_start, inner_cut
from voicegate.engine.text.open_markup import markup_ranges
from voicegate.engine.text.segmenter import TextSpan
from voicegate.engine.text.spoken_length import written_letters
from voicegate.engine.text.word_cutter import WordCutter
from voicegate.engine.text.word_endings import Ending, word_ending
from voicegate.engine.text.word_rules import ENGLISH, WordRules


def part(span: TextSpan, rules: WordRules = ENGLISH) -> tuple[TextSpan, TextSpan] | None:
    """Two spans that follow each other and cover it; None if it is one letter with its marks."""
    text = span.text
    letters = list(accumulate(map(written_letters, text), initial=0))
    place = _best_place(text, letters, rules)
    return None if place is None else span.split(place)


def _best_place(text: str, letters: list[int], rules: WordRules) -> int | None:
    """Nearest to the middle: behind a mark, if that is not far from it; else between words; else within the word."""

    def nearest(places: Iterable[int], *, is_far_allowed: bool = True) -> int | None:
        place = min(places, key=lambda index: abs(2 * letters[index] - letters[-1]), default=None)
        is_near = place is not None and letters[-1] <= 4 * letters[place] <= 3 * letters[-1]
        return place if is_far_allowed or is_near else None

    words = _word_ends(text, max_letters=letters[-1] + 1, rules=rules)
    lead = len(text) - len(text.lstrip())
    inner = range(1, len(text))
    return (
        nearest((end for end in words if _ends_with_mark(text[:end], rules)), is_far_allowed=False)
        or nearest(words)
        or nearest(index for index in inner if index > lead and text[index].isspace())
        or nearest((index for index in inner if _is_behind_punctuation(text, index)), is_far_allowed=False)
        or nearest(index for index in inner if inner_cut(text, index) == index)
        or nearest(index for index in inner if grapheme_start(text, index) == index)
    )


def _word_ends(text: str, *, max_letters: int, rules: WordRules) -> list[int]:
    """Within it, where nothing is read together with what follows, nor is of the same code, link, tag or formula."""
    cutter, ends, start = WordCutter(max_letters=max_letters, rules=rules), [], 0
    while (cut := cutter.next_cut(text[start:])) is not None:
        start += cut
        if start < len(text):
            ends.append(start)
    ranges = markup_ranges(text)
    return [end for end in ends if not any(begin < end < behind for begin, behind in ranges)]


def _ends_with_mark(text: str, rules: WordRules) -> bool:
    return word_ending(text.split()[-1], rules) is not Ending.NONE


def _is_behind_punctuation(text: str, index: int) -> bool:
    return text[index].isalnum() and not text[index - 1].isalnum()
