"""An LLM's text for itself is not said, however it is cut into messages."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from voicegate.engine.text.normalize import SpanReader, speakable
from voicegate.engine.text.segmenter import Granularity, Segmenter, SegmenterConfig, TextSpan
from voicegate.engine.text.unsaid import without_unsaid


def spans_of(pieces: list[str], granularity: Granularity = Granularity.CLAUSE) -> list[TextSpan]:
    segmenter = Segmenter(SegmenterConfig(granularity=granularity))
    return [*(span for piece in pieces for span in segmenter.push(piece)), *segmenter.flush()]


def said(pieces: list[str], granularity: Granularity = Granularity.CLAUSE) -> str:
    return " ".join(filter(None, map(SpanReader("en").read, spans_of(pieces, granularity))))


@pytest.mark.parametrize("size", [1, 2, 3, 7, 1000])
@pytest.mark.parametrize("granularity", Granularity)
@pytest.mark.parametrize(
    ("text", "spoken"),
    [
        ("<think>The user wants 42.</think>The answer is here.", "The answer is here."),
        ("<think>\nOne. Two.\n\n```py\nx\n</think>\n\nHello there.", "Hello there."),
        ("Well. <THINK>no\n</Think> Yes.", "Well. Yes."),
        ("<thinking>a</think>b</thinking>Go.", "Go."),
        ("[THINK]a[/THINK]Go.", "Go."),
        ("◁think▷a◁/think▷Go.", "Go."),
        ('<tool_call>\n{"name": "x"}\n</tool_call>\nGo.', "Go."),
        ("Go. <think>never closed. No.", "Go."),
        ("Go.</think> On.", "Go. On."),
        ("```\n<think>\n```\nGo.", "Go."),
        ("The `<think>` tag is here.", "The think tag is here."),
        ("İ. <think>x</think> Go.", "İ. Go."),
        ("I saw <thi", "I saw less than thi"),
        ("a <thinker> b", "a b"),
    ],
)
def test_thoughts(text: str, spoken: str, granularity: Granularity, size: int) -> None:
    assert said([text[start : start + size] for start in range(0, len(text), size)], granularity) == spoken
    assert speakable(text) == spoken


pieces = st.sampled_from(
    [
        "a",
        " b. ",
        "<",
        ">",
        "think",
        "<think>",
        "</think>",
        "</",
        "[think]",
        "`",
        "```\n",
        "\n",
        "<tool_call>",
        "\\",
        "🙂",
    ]
)


@given(st.lists(pieces, max_size=14).map("".join), st.integers(1, 9), st.sampled_from(Granularity))
def test_any_split_gives_the_same_spans(text: str, size: int, granularity: Granularity) -> None:
    spans = spans_of([text[start : start + size] for start in range(0, len(text), size)], granularity)
    assert spans == spans_of([text], granularity)
    assert "".join(span.text for span in spans) == text


def test_a_flush_in_a_thought_ends_nothing() -> None:
    segmenter = Segmenter()
    spans = [*segmenter.push("<think>a"), *segmenter.flush(), *segmenter.push("b</think>Go."), *segmenter.flush()]
    assert [span.text for span in spans if not span.is_code] == ["Go."]


def test_nothing_waits_that_can_be_no_tag() -> None:
    segmenter = Segmenter()
    segmenter.push("a < b <thi")
    assert segmenter.pending_text == "a < b "
    segmenter.push("ng")
    assert segmenter.pending_text == "a < b <thing"


def test_of_a_whole_text() -> None:
    assert without_unsaid("a\n```\nb\n```\nc<think>d</think> e") == "a\n\n\nc\n\n e"
    assert without_unsaid("no `fence`") == "no `fence`"


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("```a<think>b\nc</think>d\n```\ne", "e"),  # in the line of a fence a thought's tag is code
        ("<think>a</think>```\nb\n```\nc", "c"),  # behind a thought alone a line is still at its start
        ("<think>a\n```\nb</think>c", "c"),
        ('<break time="1s"/>```\nb', '<break time="1s"/>```\nb'),
    ],
)
@pytest.mark.parametrize("size", [1, 2, 5, 100])
def test_beside_fences(text: str, kept: str, size: int) -> None:
    spans = spans_of([text[start : start + size] for start in range(0, len(text), size)])
    assert "".join(span.text for span in spans if not span.is_code or span.pause_ms) == kept
