"""Markup that is open at the end of a text, and text that only looks like it."""

import pytest

from voicegate.engine.text.open_markup import MAX_OPEN_CHARS, is_in_tag, markup_ranges, open_markup_start


@pytest.mark.parametrize(
    ("text", "open_text"),
    [
        ("a `b` c", ""),
        ("a `b c", "`b c"),
        ("a [b](c) d", ""),
        ("a [b](c d", "[b](c d"),
        ("a [b]", "[b]"),  # its address may follow
        ("a [b] c", ""),
        ("a <b>c</b> d", ""),
        ("a <b c", "<b c"),
        ("a < b c", ""),
        ("a <|b", "<|b"),
        ("$$a$$ b", ""),
        ("$$a b", "$$a b"),
        ("\\(a\\) b", ""),
        ("\\[a b", "\\[a b"),
        ("a $x = 2", "$x = 2"),
        ("a $\\frac{b", "$\\frac{b"),
        ("a $x = 2$ b", ""),
        ("$AAPL is at $5, $xyz", ""),
        ("a [" + "b " * MAX_OPEN_CHARS, ""),
    ],
)
def test_what_is_open(text: str, open_text: str) -> None:
    assert text[open_markup_start(text) :] == open_text


@pytest.mark.parametrize(
    ("text", "is_in"),
    [('<a href="x', True), ("<a ", True), ("<a", False), ("<a b>", False), ("x <y", False), ("a", False)],
)
def test_tags(text: str, is_in: bool) -> None:
    assert is_in_tag(text) is is_in


def test_ranges_are_of_what_is_whole() -> None:
    text = "a `b c` [d](e f) < g <h i> $$j k$$ `l m"
    assert [text[begin:end] for begin, end in markup_ranges(text)] == ["`b c`", "[d](e f)", "<h i>", "$$j k$$"]
