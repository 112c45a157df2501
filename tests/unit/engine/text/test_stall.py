"""Text whose writer has paused: whole words are said, in both granularities, and nothing twice."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from voicegate.engine.text.segmenter import Granularity, Segmenter, SegmenterConfig


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("Let me check ", "Let me check"),
        ("Let me che", "Let me"),
        ("One moment, let me check.", "One moment, let me check."),
        ("It costs $5 ", "It costs"),  # million?
        ("See you on the ", "See you on"),  # the 4th of July?
        ("It is 3", "It is"),
        ("It is 3.", "It is"),  # 3.5?
        ("Ask Dr. ", "Ask"),
        ("Hm", ""),
        ("", ""),
        ("  ", ""),
        ("稍等，我看一下。", "稍等，我看一下。"),
    ],
)
def test_a_pause_releases_whole_words(text: str, said: str) -> None:
    segmenter = Segmenter()
    spans = [*segmenter.push(text), *segmenter.flush_stalled()]
    assert "".join(span.text for span in spans).rstrip() == said
    assert segmenter.flush_stalled() == []


def test_words_are_released_already_but_for_the_last() -> None:
    segmenter = Segmenter(SegmenterConfig(granularity=Granularity.WORD))
    assert [span.text for span in segmenter.push("Let me check.")] == ["Let", " me"]
    assert [span.text for span in segmenter.flush_stalled()] == [" check."]


@given(
    pushes=st.lists(st.text(alphabet="aZ3 .,$\n。我", max_size=12), max_size=8),
    granularity=st.sampled_from(Granularity),
)
def test_stalls_anywhere_lose_and_repeat_nothing(pushes: list[str], granularity: Granularity) -> None:
    segmenter = Segmenter(SegmenterConfig(granularity=granularity, max_letters=40))
    spans = []
    for text in pushes:
        spans += segmenter.push(text)
        spans += segmenter.flush_stalled()
    spans += segmenter.flush()
    assert "".join(span.text for span in spans) == "".join(pushes)
    position = 0
    for span in spans:
        assert (span.char_start, span.char_end) == (position, position + len(span.text))
        position = span.char_end
