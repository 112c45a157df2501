"""Where a span is parted that takes too long to say."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from voicegate.engine.text.segmenter import TextSpan
from voicegate.engine.text.splitting import part


def halves(text: str) -> tuple[str, str]:
    parted = part(TextSpan(text, 0, len(text)))
    assert parted is not None
    return parted[0].text, parted[1].text


@pytest.mark.parametrize(
    ("text", "first"),
    [
        ("one two three four, five six seven", "one two three four,"),  # behind a mark near the middle
        ("one, two three four five six seven", "one, two three four"),  # not one that is far from it
        ("we were at 3:30 pm there", "we were at"),  # between words that are not read together
        ("it is $5 million and", "it is"),
        ("see [the docs of it](http://a.b) now and then so on", "see [the docs of it](http://a.b)"),
        ("so use `git commit -a` now and then again", "so use `git commit -a`"),
        ("5 6 7 8", "5 6"),  # all of them read together: at a blank
        ("1,234;5,678;9,012;3,456", "1,234;5,678;"),  # one word: behind punctuation
        ("7777", "77"),
        ("77%", "7"),  # a sign stays with its number
        ("7%", "7"),
        ("ab" + "e\u0301" * 4, "ab" + "e\u0301"),  # no letter is parted from its marks
        ("你好，世界。", "你好，"),
        ("  777777", "  777"),
    ],
)
def test_places(text: str, first: str) -> None:
    assert halves(text) == (first, text[len(first) :])


def test_the_middle_is_of_what_is_spoken() -> None:
    assert halves("777777 and this is said")[0] == "777777"


@pytest.mark.parametrize("text", ["7", "e\u0301\u0302", "好"])
def test_one_letter_is_not_parted(text: str) -> None:
    assert part(TextSpan(text, 0, len(text))) is None


@example("a,", 0)
@given(st.text(alphabet="a7 .,$<[]()`\n好。\u0301\ufdfa", min_size=1, max_size=60), st.integers(0, 9))
def test_the_halves_are_the_whole(text: str, start: int) -> None:
    parted = part(TextSpan(text, start, start + len(text)))
    if parted is None:
        return
    before, behind = parted
    assert before.text
    assert behind.text
    assert before.text + behind.text == text
    assert (before.char_start, before.char_end) == (start, start + len(before.text))
    assert (behind.char_start, behind.char_end) == (before.char_end, start + len(text))
