"""Where spans end, and that neither the split of the input nor its size changes that."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.engine.text.cases import cases
from voicegate.engine.text.segmenter import MAX_LETTERS, Granularity, Segmenter, SegmenterConfig, TextSpan

CASES = cases("segmenter")

PIECES = [
    *" \n\t.,;:?!…-—\"')(*#é",
    *["a", "A", "I", "1", "5", "好", "。", "，", "！", "”", "」"],
    *[
        "Dr.",
        "e.g.",
        "U.S.",
        "p.m.",
        "etc.",
        "No.",
        "J.",
        "3.14",
        "1,000",
        "May",
        "$3.50",
        "Yes.",
        "...",
        "\n- ",
        "\n\n",
    ],
    *["pm", "million", "km", "hello", "there", "你好世界", "word" * 20, " " * 70],
    *[
        "They",
        "The",
        "\n```",
        "```py\n",
        "\n```\n",
        "\n~~~~\n",
        "`",
        "  ```\nx = 1\n  ```\n",
        "[a b](http://x.y/z)",
        "<a ",
    ],
    *[
        'href="x">',
        "[breath]",
        "$x^2$",
        "https://a.b/c.d",
        "สวัสดี",
        "ครับ ",
        "e\u0301",
        "\u0301",
        "👨\u200d👩",
        "\ud83d",
        "か",
        "한국",
    ],
    *["?!", "……", "“好。”", "| a | b |\n"],
]
written = st.lists(st.sampled_from(PIECES), max_size=60).map("".join) | st.text(max_size=80)
granularities = st.sampled_from(Granularity)


def segment(text: str, *, config: SegmenterConfig, sizes: list[int]) -> list[TextSpan]:
    segmenter = Segmenter(config)
    spans: list[TextSpan] = []
    start, turn = 0, 0
    while start < len(text):
        size = sizes[turn % len(sizes)]
        spans += segmenter.push(text[start : start + size])
        start, turn = start + size, turn + 1
    spans += segmenter.flush()
    assert segmenter.pending == ""
    return spans


def texts(text: str, granularity: Granularity = Granularity.CLAUSE) -> list[str]:
    """Spans of what is pushed at once, the flushed one after a bar."""
    segmenter = Segmenter(SegmenterConfig(granularity=granularity))
    decided = [span.text for span in segmenter.push(text)]
    return [*decided, "|", *(span.text for span in segmenter.flush())]


# --- properties -----------------------------------------------------------------------------------------------


@given(written, granularities, st.lists(st.integers(1, 9), min_size=1, max_size=8))
def test_any_split_gives_the_same_spans(text: str, granularity: Granularity, sizes: list[int]) -> None:
    config = SegmenterConfig(granularity=granularity)
    at_once = segment(text, config=config, sizes=[max(1, len(text))])
    assert segment(text, config=config, sizes=sizes) == at_once
    assert segment(text, config=config, sizes=[1]) == at_once


@given(written, granularities, st.integers(1, 40))
def test_spans_cover_the_text_and_respect_the_limit(text: str, granularity: Granularity, max_letters: int) -> None:
    config = SegmenterConfig(granularity=granularity, max_letters=max_letters)
    spans = segment(text, config=config, sizes=[7])
    assert "".join(span.text for span in spans) == text
    offset = 0
    for span in spans:
        assert (span.char_start, span.char_end) == (offset, offset + len(span.text))
        assert 0 < len(span.text) <= max_letters
        offset = span.char_end


@given(written)
def test_flush_in_the_middle_loses_nothing(text: str) -> None:
    segmenter = Segmenter()
    half = len(text) // 2
    spans = [*segmenter.push(text[:half]), *segmenter.flush(), *segmenter.push(text[half:]), *segmenter.flush()]
    assert "".join(span.text for span in spans) == text
    assert segmenter.flush() == []


@given(written, granularities, st.lists(st.integers(1, 9), min_size=1, max_size=8), st.integers(1, 5))
def test_stalls_lose_nothing(text: str, granularity: Granularity, sizes: list[int], every: int) -> None:
    segmenter = Segmenter(SegmenterConfig(granularity=granularity))
    spans: list[TextSpan] = []
    start = turn = 0
    while start < len(text):
        size = sizes[turn % len(sizes)]
        spans += segmenter.push(text[start : start + size])
        start, turn = start + size, turn + 1
        if turn % every == 0:
            stalled = segmenter.flush_stalled()
            assert len(stalled) <= 1
            assert not any(span.is_code for span in stalled)
            assert segmenter.flush_stalled() == []
            spans += stalled
    spans += segmenter.flush()
    assert "".join(span.text for span in spans) == text
    assert [span.char_start for span in spans] == [0, *(span.char_end for span in spans)][: len(spans)]


@given(written, written, granularities)
def test_a_fence_separates(before: str, behind: str, granularity: Granularity) -> None:
    before, behind = before.replace("`", "").replace("~", ""), behind.replace("`", "").replace("~", "")
    code = "```py\nx = '1. Two.'\n```\n"
    spans = segment(f"{before}\n{code}{behind}", config=SegmenterConfig(granularity=granularity), sizes=[5])
    assert "".join(span.text for span in spans if span.is_code) == code
    assert "".join(span.text for span in spans if not span.is_code) == f"{before}\n{behind}"


@given(
    st.lists(
        st.sampled_from(["Dr.", "3.14", "1,000", "x" * 30, "a", "U.S.", "it's", "$3.50", "—", "«so»"]), max_size=30
    )
)
def test_words_are_cut_only_before_whitespace(words: list[str]) -> None:
    spans = segment(" ".join(words), config=SegmenterConfig(granularity=Granularity.WORD), sizes=[3])
    assert all(span.text.startswith(" ") for span in spans[1:])
    assert not any(span.text.endswith(" ") for span in spans)


@pytest.mark.parametrize("granularity", Granularity)
@pytest.mark.parametrize("unit", ["x", " ", "好", "word ", "Well, ", "Yes. ", "\n", "- a\n", "5 ", "Dr. ", ".", "—"])
def test_large_texts_stay_in_bounds(granularity: Granularity, unit: str) -> None:
    text = unit * (100_000 // len(unit))
    segmenter = Segmenter(SegmenterConfig(granularity=granularity))
    spans = segmenter.push(text)
    assert len(segmenter.pending) <= MAX_LETTERS
    assert max(len(span.text) for span in spans) <= MAX_LETTERS
    assert "".join(span.text for span in spans) + segmenter.pending == text


def test_a_word_without_end_is_cut_at_the_limit() -> None:
    assert [len(text) for text in texts("x" * 20_000) if text != "|"] == [240] * 83 + [80]


# --- clauses --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "spans"),
    CASES["clauses"],
)
def test_clauses(text: str, spans: list[str]) -> None:
    assert texts(text) == spans


def test_only_the_first_span_may_end_at_an_early_comma() -> None:
    text = "Well, here is what I can do, if you like. Then there is what you can do, if you like, I am sure."
    assert texts(text) == [
        "Well, here is what I can do, ",
        "if you like. ",
        "|",
        "Then there is what you can do, if you like, I am sure.",
    ]


@pytest.mark.parametrize("mark", [", ", "; ", ": ", " - ", " – ", "—", "——", "，", '!" ', "... ", "\n"])
def test_clause_marks(mark: str) -> None:
    text = f"this is the first of the two halves{mark}and"
    assert texts(text)[1:] == ["|", "and"]


def test_a_later_span_may_end_at_a_comma_once_it_is_long() -> None:
    later = "and this sentence goes on, " * 4
    assert texts("Hello there. " + later) == ["Hello there. ", "and this sentence goes on, " * 3, "|", later[:27]]


def test_blanks_of_thai_end_phrases() -> None:
    phrase = "ยินดีที่ได้รู้จักทุกคน"
    assert texts(f"{phrase} {phrase} {phrase}") == [f"{phrase} {phrase} ", "|", phrase]


@pytest.mark.parametrize("granularity", Granularity)
@pytest.mark.parametrize("letter", ["e\u0301", "ที่", "👨\u200d👩\u200d👧", "e" + "\u0301" * 9])
def test_a_forced_cut_parts_no_letter_from_its_marks(granularity: Granularity, letter: str) -> None:
    config = SegmenterConfig(granularity=granularity, max_letters=50)
    spans = segment(letter * 60, config=config, sizes=[1])
    assert len(spans) > 1
    assert all(span.text[0] == letter[0] and len(span.text) % len(letter) == 0 for span in spans)


def test_long_code_is_released_in_pieces() -> None:
    code = "```\n" + "x = 1\n" * 100
    segmenter = Segmenter()
    spans = segmenter.push(code)
    assert [len(span.text) for span in spans] == [MAX_LETTERS] * (len(code) // MAX_LETTERS)
    assert all(span.is_code for span in spans)
    assert len(segmenter.pending) <= MAX_LETTERS


def test_a_flush_closes_a_fence_whose_line_is_not_over() -> None:
    segmenter = Segmenter()
    segmenter.push("```\nx\n```")
    assert [span.is_code for span in segmenter.flush()] == [True]
    assert segmenter.push(" And so on. Then") == [TextSpan(" And so on. ", 9, 21)]


def test_a_forced_cut_is_at_whitespace() -> None:
    first, *_ = texts("some word " * 30)
    assert first == "some word " * 24


def test_a_forced_cut_is_rather_at_a_late_clause_mark() -> None:
    config = SegmenterConfig(soft_min_letters=1000, first_min_letters=1000, max_letters=40)
    segmenter = Segmenter(config)
    assert [span.text for span in segmenter.push("one two three four, five six seven eight nine")] == [
        "one two three four, "
    ]
    segmenter = Segmenter(config)
    assert next(span.text for span in segmenter.push("one, " + "x" * 15 + " " + "y" * 40)) == "one, " + "x" * 15 + " "


@pytest.mark.parametrize(
    "text", ["This is a line, and", " " * 30 + "This is a line, and", "Extraordinarily extraordinary, and"]
)
def test_the_first_comma_needs_length_and_words(text: str) -> None:
    assert Segmenter().push(text) == []


def test_a_forced_cut_of_wide_text_is_at_a_list_mark() -> None:
    segmenter = Segmenter(SegmenterConfig(max_letters=30))
    assert [span.text for span in segmenter.push("一二三四五六、七八九十")] == ["一二三四五六、"]


def test_what_is_kept_is_no_part_of_a_forced_cut() -> None:
    segmenter = Segmenter(SegmenterConfig(max_letters=60))
    assert segmenter.push("如果您在 Python 里遇到了") == []
    segmenter.keep(len("如果您在 Python 里遇到"))
    assert [span.text for span in segmenter.push("无法解决的问题请您先阅读")] == [
        "如果您在 Python 里遇到了无法解决的问题请您先"
    ]


@pytest.mark.parametrize("granularity", Granularity)
@pytest.mark.parametrize("number", ["12345678", "12.5", "1,234.56", "99%"])
@pytest.mark.parametrize("num_before", range(10, 20))
def test_a_forced_cut_tears_no_number(number: str, num_before: int, granularity: Granularity) -> None:
    before, behind = "好" * num_before, "元左右吧"
    spans = segment(before + number + behind, config=SegmenterConfig(granularity, max_letters=60), sizes=[1])
    assert any(number in span.text for span in spans)


def test_a_forced_cut_tears_digits_without_end() -> None:
    spans = segment("9" * 200, config=SegmenterConfig(max_letters=150), sizes=[1])
    assert [len(span.text) for span in spans] == [30] * 6 + [20]


def test_wide_text_counts_threefold() -> None:
    first, *_ = texts("好" * 200)
    assert first == "好" * (MAX_LETTERS // 3)


# --- words ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "spans"),
    CASES["words"],
)
def test_words(text: str, spans: list[str]) -> None:
    assert texts(text, Granularity.WORD) == spans


def test_a_forced_cut_of_words_is_behind_a_whole_word() -> None:
    segmenter = Segmenter(SegmenterConfig(granularity=Granularity.WORD, max_letters=10))
    assert [span.text for span in segmenter.push("Prof. Smithson")] == ["Prof."]


# --- stalls ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "left"),
    CASES["what_a_stall_leaves"],
)
def test_what_a_stall_leaves(text: str, left: str) -> None:
    segmenter = Segmenter()
    for char in text:
        segmenter.push(char)
    segmenter.flush_stalled()
    assert segmenter.pending.lstrip("\n") == left


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("Hello there.", ""),
        ("Hello wor", " wor"),
        ("It is 3.", " 3."),
        ("the U.S.", " U.S."),
        ("```\nx. y ", "```\nx. y "),
    ],
)
def test_what_a_stall_leaves_of_words(text: str, left: str) -> None:
    segmenter = Segmenter(SegmenterConfig(granularity=Granularity.WORD))
    segmenter.push(text)
    segmenter.flush_stalled()
    assert segmenter.pending == left


def test_a_mark_that_stays_open_holds_back_no_longer_than_markup() -> None:
    segmenter = Segmenter()
    segmenter.push("A [lone bracket " + "and more words " * 9)
    assert [span.text for span in segmenter.flush_stalled()] == ["A"]
    segmenter.push("and even more words of it")
    assert [span.text[-2:] for span in segmenter.flush_stalled()] == ["of"]


# --- the rest -------------------------------------------------------------------------------------------------


def test_pending_is_what_no_span_holds_yet() -> None:
    segmenter = Segmenter()
    assert [span.text for span in segmenter.push("Hello there. How are")] == ["Hello there. "]
    assert segmenter.pending == "How are"
    assert segmenter.flush() == [TextSpan("How are", 13, 20)]
    assert segmenter.pending == ""
    assert segmenter.push("") == []


@pytest.mark.parametrize("granularity", Granularity)
def test_after_a_flush_nothing_is_left_of_what_was_pending(granularity: Granularity) -> None:
    flushed = Segmenter(SegmenterConfig(granularity=granularity))
    for _ in range(50):
        flushed.push("some 5 ")
        flushed.flush()
    fresh = Segmenter(SegmenterConfig(granularity=granularity))
    fresh.push("Hello. x ")
    fresh.flush()
    text = "5 is here, and this goes on at once. So"
    assert [span.text for span in flushed.push(text)] == [span.text for span in fresh.push(text)]


def test_a_flush_of_whitespace_leaves_the_first_span_to_come() -> None:
    segmenter = Segmenter()
    segmenter.push("  ")
    segmenter.flush()
    assert [span.text for span in segmenter.push("Here is what I can do, and")] == []
    assert [span.text for span in segmenter.push(" here is all of it, and")] == [
        "Here is what I can do, and here is all of it, "
    ]


def test_a_limit_of_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="max_letters"):
        SegmenterConfig(max_letters=0)
