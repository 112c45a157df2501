"""How early a word may leave: as soon as nothing that can follow changes how it is read, and never before."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.engine.text.cases import cases
from voicegate.engine.text.normalize import speakable
from voicegate.engine.text.segmenter import Granularity, Segmenter, SegmenterConfig
from voicegate.engine.text.word_cutter import finished_length

CASES = cases("word_cutter")


def released(text: str) -> list[str]:
    """The words that leave before more text comes."""
    return [span.text for span in Segmenter(SegmenterConfig(granularity=Granularity.WORD)).push(text)]


@pytest.mark.parametrize(
    ("text", "words"),
    CASES["when_a_word_leaves"],
)
def test_when_a_word_leaves(text: str, words: list[str]) -> None:
    assert released(text) == words


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("你好", []),
        ("你好，", []),  # a quotation mark may follow
        ("你好，世", ["你好，"]),
        ("一二三四五六", []),
        ("一二三四五六七", ["一二三四五六"]),
        ("我等了你们2小", []),
        ("我等了你们2小时才", []),
        ("我等了你们2小时才回来", ["我等了你们2小时才"]),
        ("我用 GPU 跑", ["我用", " GPU"]),
        ("您的登录验证码是482913，请勿", ["您的登录验证码是482913，"]),  # what names a code stays with it
    ],
)
def test_wide_text_leaves_in_groups(text: str, words: list[str]) -> None:
    assert released(text) == words


@pytest.mark.parametrize(
    ("text", "finished"),
    [
        ("你好", "你"),  # a mark may follow the other
        ("你好，", "你好，"),
        ("你好，世", "你好，"),
        ("我有2", "我"),
        ("我有2小", "我"),
        ("我有2小时空", "我"),
        ("我有2小时空闲", "我有2小时空"),
        ("24年5月", ""),
        ("第2", ""),
        ("密码是48", ""),
        ("验证他的", "验证他"),
        ("我用 GPU 跑", "我用 GPU"),
    ],
)
def test_by_character_nothing_waits_that_is_decided(text: str, finished: str) -> None:
    assert text[: finished_length(text, wide_group_chars=1)] == finished


# --- whatever follows ------------------------------------------------------------------------------------------

PLAIN = [
    "so",
    "there",
    "I",
    "May",
    "March",
    "mild",
    "people",
    "the",
    "The",
    "They",
    "kilo",
    "it's",
    "well-known",
    "Amy",
    "a",
]
NUMBERS = ["5", "$5", "3:30", "2024", "1,000", "3.5", "20", "1st", "22nd"]
TOGETHER = ["million", "pm", "p.m.", "km", "Dr.", "No.", "U.S.", "J.", "etc.", "Jan.", "-", "°C", "min", "Smith", "of"]
SIGNS = ["*", "€", "−", "×"]
MARKS = ["", "", "", ",", "?", "!", ".", ";", ":", "...", ")", '"']
words = st.tuples(st.sampled_from(PLAIN + NUMBERS), st.sampled_from(MARKS)).map("".join) | st.sampled_from(
    TOGETHER + SIGNS
)
sentences = st.lists(words, min_size=1, max_size=8).map(" ".join)
continuations = st.lists(
    st.sampled_from([*PLAIN, *NUMBERS, *TOGETHER, *MARKS, *(f" {sign} " for sign in SIGNS), " ", " "]), max_size=8
).map("".join)


@given(sentences, continuations)
def test_what_has_left_is_the_start_of_what_leaves_of_any_longer_text(text: str, continuation: str) -> None:
    words = released(text)
    assert released(text + continuation)[: len(words)] == words


@given(sentences, continuations)
def test_what_has_left_is_read_the_same_whatever_follows(text: str, continuation: str) -> None:
    """Within the whole text, that is: the words of both readings are compared, marks left out."""
    length = len("".join(released(text)))
    before = speakable(text[:length])
    whole = speakable(text + continuation)
    spoken = [word.strip(".,?!;:") for word in before.split()]
    assert [word.strip(".,?!;:") for word in whole.split()][: len(spoken)] == spoken
