"""Breaks in streamed text: found however the text is split, and nothing else is taken for one."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from voicegate.engine.text.breaks import MAX_PAUSE_MS
from voicegate.engine.text.segmenter import Granularity, Segmenter, SegmenterConfig, TextSpan
from voicegate.engine.text.unsaid import Piece, UnsaidSplitter


def parts_of(pieces: list[str]) -> list[Piece]:
    splitter = UnsaidSplitter()
    parts = [part for piece in pieces for part in splitter.push(piece)]
    return [*parts, *splitter.flush()]


@pytest.mark.parametrize(
    ("tag", "pause_ms"),
    [
        ('<break time="1s"/>', 1000),
        ('<break time="1.5s" />', 1500),
        ("<break time='250ms'/>", 250),
        ("<break time=.4s>", 400),
        ('<BREAK strength="weak" TIME="0.8S"></break>', 800),
        ('<break time="60s"/>', MAX_PAUSE_MS),
        ("<#0.5#>", 500),
        ("<#2#>", 2000),
        ("<#0.01#>", 10),
        ("<#99.99#>", MAX_PAUSE_MS),
        ("[pause]", 500),
        ("[Short pause]", 250),
        ("[long pause]", 1000),
        ("<#0#>", 0),
        ("<#x#>", 0),
        ("<#1.#>", 0),
        ("<#100#>", 0),
        ("[pauses]", 0),
        ('<break time="0s"/>', 0),
        ('<break time="."/>', 0),
        ('<break time="1"/>', 0),
        ('<break time="soon"/>', 0),
        ('<break strength="strong"/>', 0),
        ("<break/>", 0),
        ("<breakfast time='1s'/>", 0),
        ("a < break time='1s' >", 0),
        ("<break time='1s'\n/>", 0),
        (f"<break {'x' * 100} time='1s'/>", 0),
    ],
)
def test_which_tags_are_breaks(tag: str, pause_ms: int) -> None:
    parts = parts_of(["Wait", tag, "here."])
    assert "".join(part.text for part in parts) == f"Wait{tag}here."
    assert [part.pause_ms for part in parts if part.pause_ms] == [pause_ms] * bool(pause_ms)


def test_nothing_waits_that_can_be_no_tag() -> None:
    splitter = UnsaidSplitter()
    assert splitter.push("5 < 6 <b>so</b> <brea") == [Piece("5 < 6 <b>so</b> ")]
    assert splitter.held == "<brea"
    assert splitter.push("d") == [Piece("<bread")]
    assert splitter.push('<break time="1s') == []
    assert splitter.push("<") == [Piece('<break time="1s')]


pieces = st.sampled_from(
    [
        *("a", " b. ", "<", ">", "<b", "<break", ' time="1s"', "/>", '<break time="0.5s"/>', "\n", "```\n"),
        *("<#", "1", "#>", "[pause]"),
    ]
)
texts = st.lists(pieces, max_size=12).map("".join)


def joined(parts: list[Piece]) -> list[Piece]:
    result: list[Piece] = []
    for part in parts:
        if result and part.is_code is result[-1].is_code and not part.pause_ms and not result[-1].pause_ms:
            result[-1] = Piece(result[-1].text + part.text, part.is_code)
        else:
            result.append(part)
    return result


@given(texts, st.integers(1, 5))
def test_any_split_gives_the_same_parts(text: str, size: int) -> None:
    parts = parts_of([text[start : start + size] for start in range(0, len(text), size)])
    assert "".join(part.text for part in parts) == text
    assert all(part.text for part in parts)
    assert joined(parts) == joined(parts_of([text]))


@given(texts, st.integers(1, 5), st.sampled_from(Granularity))
def test_any_split_gives_the_same_spans(text: str, size: int, granularity: Granularity) -> None:
    def spans_of(pieces: list[str]) -> list[TextSpan]:
        segmenter = Segmenter(SegmenterConfig(granularity=granularity))
        return [*(span for piece in pieces for span in segmenter.push(piece)), *segmenter.flush()]

    spans = spans_of([text[start : start + size] for start in range(0, len(text), size)])
    assert spans == spans_of([text])
    assert "".join(span.text for span in spans) == text
    assert all(text[span.char_start : span.char_end] == span.text for span in spans)


def test_code_has_no_breaks() -> None:
    segmenter = Segmenter()
    spans = [*segmenter.push('Hi.\n```\n<break time="1s"/>\n```\n<break time="1s"/>'), *segmenter.flush()]
    assert [span.pause_ms for span in spans] == [0, 0, 1000]


def test_where_text_is_said_as_it_is_written_a_tag_is_text() -> None:
    segmenter = Segmenter(SegmenterConfig(has_breaks=False))
    assert [*segmenter.push('Hi <break time="1s"/> there.'), *segmenter.flush()] == [
        TextSpan('Hi <break time="1s"/> there.', 0, 28)
    ]
