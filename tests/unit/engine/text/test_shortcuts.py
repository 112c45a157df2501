"""Plain words take short ways through the text rules: they come out as they would the long way."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from voicegate.engine.text import clause_cutter, fences, word_cutter
from voicegate.engine.text.cleanup import clean_characters
from voicegate.engine.text.punctuation import tidy

pytestmark = pytest.mark.unit

_NEVER = re.compile(r"(?!)")
_PIECES = [
    *("the", "train", "May", "may", "Dr.", "is", "I", "don't", "well-known", "e.g.", "5", "30", "pm", "km", "Ok", "é"),
    *(" ", " ", " ", " ", "  ", "\n", ",", ".", "?", "!", ";", ":", "'", "-", "...", "<b", "`", "x/y", "今天", "，"),
]
texts = st.lists(st.sampled_from(_PIECES), max_size=14).map("".join)


@given(texts, st.booleans(), st.booleans())
def test_tidy(text: str, keep_inner_stops: bool, keep_digit_marks: bool) -> None:
    # A bracket at the beginning is no break, and no plain word.
    the_long_way = tidy("(" + text, keep_inner_stops=keep_inner_stops, keep_digit_marks=keep_digit_marks)
    assert tidy(text, keep_inner_stops=keep_inner_stops, keep_digit_marks=keep_digit_marks) == the_long_way


@pytest.mark.parametrize("char", [chr(code) for code in range(128)])
def test_characters(char: str) -> None:
    assert clean_characters("a" + char) + " " == clean_characters("a" + char + "\t")


@given(texts)
def test_the_words_that_are_whole(text: str) -> None:
    found = word_cutter.finished_length(text)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(word_cutter, "_PLAIN_WORDS", _NEVER)
        assert word_cutter.finished_length(text) == found


@given(st.lists(texts, max_size=4))
def test_lines_that_are_no_fence(pieces: list[str]) -> None:
    def taken(pushes: list[str]) -> str:
        splitter = fences.FenceSplitter()
        found = [piece for text in pushes for piece in splitter.push(text)] + splitter.flush()
        return "".join(piece.text for piece in found if not piece.is_code)

    assert taken(pieces) == taken(["".join(pieces)])


@given(texts, st.integers(4, 40))
def test_where_clauses_end(text: str, max_letters: int) -> None:
    def cuts() -> list[int]:
        cutter = clause_cutter.ClauseCutter(
            first_min_letters=8, first_min_words=2, soft_min_letters=12, min_letters=3, max_letters=max_letters
        )
        rest, found = text, []
        while (cut := cutter.next_cut(rest)) is not None:
            found.append(cut)
            rest = rest[cut:]
        return found

    found = cuts()
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(clause_cutter.ClauseCutter, "_takes_whole", lambda *_: False)
        assert cuts() == found
