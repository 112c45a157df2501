"""Words that nothing ends get a full stop, as upstream's frontend gives them one: a model goes on after them else."""

import pytest

from tests.support.tiny_tokenizer import tiny_tokenizer
from voicegate.engine.core.clause_feed import ClauseFeed
from voicegate.engine.interface import SpeakingMode

ENDS = {
    "Hi": "Hi.",
    " you": "you.",
    "Your table is booked ": "Your table is booked.",
    "**Milk and eggs**": "Milk and eggs.",
    "Platform 9": "Platform nine.",
    "Really?": "Really?",
    "First, ": "First,",
    "I was about to —": "I was about to,",
    "好的": "好的。",
    "…": "",
    "": "",
}


def feed_of(mode: SpeakingMode, *, is_normalized: bool = True) -> ClauseFeed:
    return ClauseFeed(
        0, mode, tiny_tokenizer(), language="en", max_clause_tokens=750, is_normalized=is_normalized
    )  # fmt: skip


def ids_of(feed: ClauseFeed) -> list[int]:
    return [id_ for clause in feed.clauses for id_ in clause.text_ids]


@pytest.mark.parametrize("mode", SpeakingMode)
@pytest.mark.parametrize(("text", "words"), ENDS.items())
def test_words_without_a_mark_at_their_end_get_one(mode: SpeakingMode, text: str, words: str) -> None:
    feed = feed_of(mode)
    for char in text:
        feed.push(char)
        feed.read_all()
        if feed.has_growing:
            feed.grow()
    feed.end()
    feed.read_all()
    assert tuple(ids_of(feed)) == tiny_tokenizer().encode_spoken(words)


@pytest.mark.parametrize("mode", SpeakingMode)
def test_a_flush_and_a_writer_that_stops_end_words_too(mode: SpeakingMode) -> None:
    feed = feed_of(mode)
    feed.push("One moment")
    feed.flush("f")
    feed.push("I look it up ")
    feed.read_all()
    feed.stalled(says_half_words=False)
    assert [tuple(clause.text_ids) for clause in feed.clauses] == [
        *map(tiny_tokenizer().encode_spoken, ("One moment.", "I look it up."))
    ]


@pytest.mark.parametrize("mode", SpeakingMode)
def test_text_that_is_to_be_read_as_it_is_gets_none(mode: SpeakingMode) -> None:
    feed = feed_of(mode, is_normalized=False)
    feed.push("Hi")
    feed.end()
    feed.read_all()
    assert tuple(ids_of(feed)) == tiny_tokenizer().encode_spoken("Hi")


def test_the_end_is_what_a_pass_that_has_begun_is_given_last() -> None:
    feed = feed_of(SpeakingMode.BISTREAM)
    feed.push("Your table ")
    feed.read_all()
    (clause,) = feed.clauses
    clause.text_ids = []  # the LLM has them
    feed.push("is booked")
    feed.end()
    feed.read_all()
    assert tuple(clause.text_ids) == tiny_tokenizer().encode_spoken(" is booked.")
