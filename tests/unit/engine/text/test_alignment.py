"""Words and their times: in order, without gaps, whole."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from voicegate.engine.interface import AlignedText
from voicegate.engine.text.alignment import align_span, split_spoken, split_words

pytestmark = pytest.mark.unit

written = st.lists(
    st.sampled_from(["word", " ", "it's", ",", "。", "好", "“", "5", "—", "é", "\n", "(", ")"]), max_size=40
).map("".join)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", []),
        (" ... — ", []),
        ("Hello, world!", ["Hello,", "world!"]),
        ("it's  3.14\n(so)", ["it's", "3.14", "(so)"]),
        ("one — two", ["one", "two"]),
        ("你好，世界。", ["你", "好，", "世", "界。"]),
        ("他说：“好。”走", ["他", "说：", "“好。”", "走"]),
        ("用Python写f(x)", ["用", "Python", "写", "f(x)"]),
    ],
)
def test_words(text: str, words: list[str]) -> None:
    assert [word.text for word in split_words(text, 0)] == words


@given(written, st.integers(0, 1000))
def test_words_are_where_they_say(text: str, char_offset: int) -> None:
    end = char_offset
    for word in split_words(text, char_offset):
        assert word.char_start >= end
        end = word.char_end
        assert text[word.char_start - char_offset : end - char_offset] == word.text
        assert any(char.isalnum() for char in word.text)
        assert not any(char.isspace() for char in word.text)


@given(written, st.integers(0, 10_000), st.integers(0, 10_000))
def test_times_cover_the_span_without_gaps(text: str, start_ms: int, duration_ms: int) -> None:
    items = align_span(text, 3, start_ms, start_ms + duration_ms)
    assert len(items) == len(split_words(text, 3))
    if not items:
        return
    assert items[0].start_ms == start_ms
    assert items[-1].end_ms == start_ms + duration_ms
    assert all(item.start_ms <= item.end_ms for item in items)
    assert all(before.end_ms == after.start_ms for before, after in itertools.pairwise(items))


def test_longer_words_last_longer() -> None:
    assert align_span("a four! 4 好", 10, 0, 1300) == (
        AlignedText("a", 0, 100, 10, 11),
        AlignedText("four!", 100, 500, 12, 17),
        AlignedText("4", 500, 1000, 18, 19),
        AlignedText("好", 1000, 1300, 20, 21),
    )


def test_a_span_that_ends_before_it_starts_has_no_length() -> None:
    assert [(item.start_ms, item.end_ms) for item in align_span("a b", 0, 100, 50)] == [(100, 100), (100, 100)]


@pytest.mark.parametrize(
    ("at_ms", "spoken"),
    [
        (0, ""),
        (399, ""),
        (400, "Four"),
        (799, "Four"),
        (800, "Four more"),
        (900, "Four more"),
        (1300, "Four more. Last!"),
    ],
)
def test_split_at_whole_words(at_ms: int, spoken: str) -> None:
    text = "Four more. Last!"
    items = [*align_span("Four more", 0, 0, 800), *align_span(" Last!", 10, 900, 1300)]
    assert text[: split_spoken(items, at_ms)] == spoken


def test_nothing_spoken() -> None:
    assert split_spoken([], 1000) == 0
