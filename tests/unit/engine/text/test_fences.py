"""Code and prose, and that neither depends on how the text was split."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from voicegate.engine.text.unsaid import MAX_INDENT, Piece, UnsaidSplitter

written = st.lists(
    st.sampled_from(["`", "```", "````", "~~~", "~", "\n", "\r\n", " ", "\t", "py", "x" * 70, "a b", "好"]), max_size=25
).map("".join)


def kinds(text: str, *, size: int) -> str:
    """For each character whether it is code (#) or prose (.)."""
    splitter = UnsaidSplitter()
    pieces: list[Piece] = []
    for start in range(0, len(text), size):
        pieces += splitter.push(text[start : start + size])
    pieces += splitter.flush()
    assert splitter.held == ""
    assert "".join(piece.text for piece in pieces) == text
    return "".join(("#" if piece.is_code else ".") * len(piece.text) for piece in pieces)


@given(written, st.integers(1, 9))
def test_any_split_gives_the_same(text: str, size: int) -> None:
    at_once = kinds(text, size=max(1, len(text)))
    assert kinds(text, size=size) == at_once
    assert kinds(text, size=1) == at_once


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("a\n```\nb\n```\nc", "```\nb\n```\n"),
        ("```py\nb", "```py\nb"),
        ("```\n````\nc", "```\n````\n"),
        ("````\n```\nc", "````\n```\nc"),
        ("```\n~~~\nc", "```\n~~~\nc"),
        ("~~~ `a`\nb\n~~~\nc", "~~~ `a`\nb\n~~~\n"),
        ("```\n``` c\nd", "```\n``` c\nd"),
        ("   ```\nb\n\t```\nc", "   ```\nb\n\t```\n"),
        ("```\r\nb\r\n```\r\nc", "```\r\nb\r\n```\r\n"),
        ("```a``` b", ""),
        ("a ```\nb", ""),
        ("``\nb", ""),
        ("~~a~~\nb", ""),
        (" " * (MAX_INDENT + 1) + "```\nb", ""),
    ],
)
def test_fences(text: str, code: str) -> None:
    marks = kinds(text, size=1)
    assert "".join(char for char, mark in zip(text, marks, strict=True) if mark == "#") == code


def test_prose_is_not_held() -> None:
    splitter = UnsaidSplitter()
    assert splitter.push("a\n  ") == [Piece("a\n")]
    assert splitter.held == "  "
    assert splitter.push("b") == [Piece("  b")]
