"""Where entries of a dictionary are found, and which of them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.engine.text.cases import cases
from voicegate.engine.dictionary import Dictionary
from voicegate.engine.text.normalize import SpanReader
from voicegate.engine.text.pronunciation import Pronunciation
from voicegate.engine.text.segmenter import Granularity, Segmenter, SegmenterConfig, TextSpan

CASES = cases("pronunciation")

ENTRIES = {
    "sql": "sequel",
    "SQL Server": "sequel server",
    "US": "you ess",
    "new york": "the big apple",
    "new york city": "gotham",
    ".net": "dot net",
    "c++": "see plus plus",
    "重庆": "虫庆",
    "海": "hai",
    "k8s": "kubernetes",
}
PRONUNCIATION = Pronunciation((Dictionary(ENTRIES),))


@pytest.mark.parametrize(
    ("text", "said"),
    CASES["words_are_found_as_words_of_their_own"],
)
def test_words_are_found_as_words_of_their_own(text: str, said: str) -> None:
    assert PRONUNCIATION.said(text) == said


def test_what_is_said_is_not_looked_up_again() -> None:
    assert Pronunciation((Dictionary({"a": "b", "b": "a"}),)).said("a b") == "b a"


def test_the_first_dictionary_has_precedence_but_the_longest_entry_counts() -> None:
    pronunciation = Pronunciation((Dictionary({"SQL": "mine"}), Dictionary({"sql": "theirs", "sql server": "longer"})))
    assert pronunciation.said("SQL sql SQL server") == "mine theirs longer"


@pytest.mark.parametrize(
    ("text", "length", "whole"),
    [
        ("I love", 6, 6),
        ("I love New", 10, 7),  # York?
        ("I love New", 6, 6),
        ("I love New Yor", 10, 7),
        ("I love New York ", 10, 7),
        ("I love New York ", 16, 7),  # City?
        ("I love New Jersey ", 10, 10),
    ],
)
def test_no_part_of_an_entry_is_whole(text: str, length: int, whole: int) -> None:
    assert PRONUNCIATION.whole_length(text, length) == whole


def is_inside_word(text: str, index: int) -> bool:
    return (
        text[index - 1 : index + 1].isascii()
        and text[max(index - 1, 0) : index + 1].isalnum()
        and 0 < index < len(text)
    )


def said_by_hand(text: str, entries: dict[str, str]) -> str:
    """The rule at its simplest: at every place every entry, the longest first, one with capitals before others."""
    out, start = "", 0
    while start < len(text):
        for written in sorted(entries, key=lambda each: (len(each), each != each.lower()), reverse=True):
            end = start + len(written)
            found = text[start:end] if written != written.lower() else text[start:end].lower()
            if found == written and not is_inside_word(text, start) and not is_inside_word(text, end):
                out, start = out + entries[written], end
                break
        else:
            out, start = out + text[start], start + 1
    return out


words = st.text("abA重", min_size=1, max_size=3)


@given(
    st.text("abA 重", max_size=16),
    st.dictionaries(st.lists(words, min_size=1, max_size=3).map(" ".join), st.sampled_from("虫丁口"), max_size=6),
)
def test_found_as_by_hand(text: str, entries: dict[str, str]) -> None:
    assert Pronunciation((Dictionary(entries),)).said(text) == said_by_hand(text, entries)


# --- streamed -------------------------------------------------------------------------------------------------


@given(st.lists(st.sampled_from(["I", "love", "New", "York", "City", "SQL", "Server", "US."]), max_size=12), st.data())
def test_words_of_a_phrase_leave_together_at_any_split(words: list[str], data: st.DataObject) -> None:
    text = " ".join(words)
    segmenter = Segmenter(SegmenterConfig(granularity=Granularity.WORD), pronunciation=PRONUNCIATION)
    spans, start = [], 0
    while start < len(text):
        end = data.draw(st.integers(start + 1, len(text)))
        spans += segmenter.push(text[start:end])
        start = end
    spans += segmenter.flush()
    assert "".join(span.text for span in spans) == text
    assert "".join(PRONUNCIATION.said(span.text) for span in spans) == PRONUNCIATION.said(text)


def test_a_word_that_begins_no_phrase_is_not_held() -> None:
    segmenter = Segmenter(SegmenterConfig(granularity=Granularity.WORD), pronunciation=PRONUNCIATION)
    assert [span.text for span in segmenter.push("I love New York a lot ")] == ["I", " love", " New York a", " lot"]


# --- read -----------------------------------------------------------------------------------------------------


def read(text: str, **options: bool) -> str:
    reader = SpanReader("en", pronunciation=PRONUNCIATION, **options)  # type: ignore[arg-type]
    return reader.read(TextSpan(text, 0, len(text)))


def test_what_is_said_is_read_as_text_is() -> None:
    assert read("**SQL** costs $5 in the US.") == "sequel costs five dollars in the you ess."


def test_without_normalisation_the_model_is_given_what_is_written() -> None:
    assert read("SQL costs $5\n — &  <|endofprompt|>3.5%\x07", is_normalized=False) == "sequel costs $5 - & 3.5%"
    assert read(" ... ", is_normalized=False) == ""
