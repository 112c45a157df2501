"""Clauses are cut by what is spoken: no pass reaches its limit at a slow voice's pace, and nothing is lost by that."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.support.tiny_tokenizer import tiny_tokenizer, words_of
from voicegate.engine import units
from voicegate.engine.core.clause import Clause
from voicegate.engine.core.clause_feed import ClauseFeed
from voicegate.engine.dictionary import Dictionary
from voicegate.engine.interface import SpeakingMode
from voicegate.engine.text.characters import is_wide
from voicegate.engine.text.normalize import speakable
from voicegate.engine.text.pronunciation import Pronunciation

MAX_CLAUSE_TOKENS = 750
SLOW_MS_PER_LETTER = 92
MODES = [SpeakingMode.CLAUSE, SpeakingMode.BISTREAM]

AMOUNTS = (
    "The offers were $777,777.77 and $373,377.73 and $777,373.37 and $337,773.77 and $773,737.73 and $377,777.37 and "
    "$737,373.73 and $877,777.78 and that is all that anybody has put on the table for it until this evening came"
)
HOSTILE = {
    "amounts": AMOUNTS,
    "counts": "1,777, " * 60,
    "counts without blanks": "1,777," * 60,
    "digits": "7" * 500,
    "a chain of numbers": "7 " * 400,
    "letters": "W X " * 200,
    "signs": "≥ a ≤ b " * 60,
    "a phrase in one character": "\ufdfa" * 40,
    "underscores": "a" + "_" * 60 + "b@example.com ",
    "decimals": "377.777377 " * 40,
    "Chinese counts": "花了7777777元，" * 40,
    "Chinese digits": "号码是" + "7" * 400,
    "Chinese without marks": "好" * 400,
    "Chinese percentages": "7.77%" * 80,
}
ITEMS = [
    "$777,777.77",
    " and ",
    ", ",
    "1,777",
    " 7",
    "WXW ",
    "75%",
    "≥ a",
    "元，",
    "好",
    "word ",
    "Yes. ",
    "\ufdfa",
    "_@x.com",
]


def clauses_of(text: str, mode: SpeakingMode, *, max_clause_tokens: int = MAX_CLAUSE_TOKENS) -> list[Clause]:
    feed = ClauseFeed(0, mode, tiny_tokenizer(), language="en", max_clause_tokens=max_clause_tokens)
    feed.push(text)
    feed.end()
    feed.read_all()
    return list(feed.clauses)


def spoken_s(words: str) -> float:
    letters = sum(3 if is_wide(char) else 1 for char in words if char.isalnum())
    return letters * SLOW_MS_PER_LETTER / 1000


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", HOSTILE)
def test_no_clause_is_longer_than_its_pass_may_be(name: str, mode: SpeakingMode) -> None:
    limit_s = MAX_CLAUSE_TOKENS * units.MS_PER_TOKEN / 1000
    clauses = clauses_of(HOSTILE[name], mode)
    assert max(spoken_s(words_of(clause.text_ids)) for clause in clauses) < limit_s


@pytest.mark.parametrize("mode", MODES)
@given(st.lists(st.sampled_from(ITEMS), max_size=120).map("".join), st.integers(100, 750))
def test_that_holds_for_any_text_and_limit(mode: SpeakingMode, text: str, max_clause_tokens: int) -> None:
    for clause in clauses_of(text, mode, max_clause_tokens=max_clause_tokens):
        assert spoken_s(words_of(clause.text_ids)) < max_clause_tokens * units.MS_PER_TOKEN / 1000


@pytest.mark.parametrize("mode", MODES)
@given(st.lists(st.sampled_from(ITEMS), max_size=60).map("".join))
@example(" 7好1,77775%")  # behind Chinese a percent sign is read with its number, and alone not at all
@example("好$777,777.77")
@example(" and _@x.com元，≥ a$777,777.77")  # behind a wide mark a sign alone is said as behind a blank
def test_every_character_is_in_one_clause_or_not_said(mode: SpeakingMode, text: str) -> None:
    end = 0
    for clause in clauses_of(text, mode, max_clause_tokens=100):
        assert clause.char_start >= end
        assert speakable(text[end : clause.char_start], "en") == ""
        end = clause.char_start + len(clause.text)
        assert all(
            char in (written, " ") for char, written in zip(clause.text, text[clause.char_start : end], strict=True)
        )
    assert speakable(text[end:], "en") == ""


@pytest.mark.parametrize("mode", MODES)
def test_a_list_is_parted_between_its_items(mode: SpeakingMode) -> None:
    items = [f"${amount:,}.77" for amount in range(777_777, 777_797)]
    clauses = clauses_of(", ".join(items), mode)
    assert len(clauses) > 3
    assert [item for clause in clauses for item in clause.text.strip(" ,").replace(",  ", ", ").split(", ")] == items
    said = " ".join(words_of(clause.text_ids) for clause in clauses)
    assert said.replace(",", "") == " ".join(map(speakable, items)) + "."


@pytest.mark.parametrize("mode", MODES)
def test_prose_is_cut_as_it_was(mode: SpeakingMode) -> None:
    """Text that is written as it is said needs no other bounds."""
    sentence = "some words that go on and on without a mark, "
    first, second, *_ = clauses_of(sentence * 20, mode)
    if mode is SpeakingMode.CLAUSE:
        assert (first.text, second.text) == (sentence, sentence * 2)
    else:
        assert 300 < len(first.text) < 360


def test_a_growing_clause_is_ended_where_it_was_known_if_the_rest_is_too_long() -> None:
    """Else what was said of it might be said again: its pass goes on with the text that it was given."""
    feed = ClauseFeed(0, SpeakingMode.INCREMENTAL, tiny_tokenizer(), language="en", max_clause_tokens=MAX_CLAUSE_TOKENS)
    known: dict[int, str] = {}  # of every clause while it grew, by its start
    for number in range(7_770, 7_800):
        feed.push(f"{number:,} and ")
        while feed.has_unread:
            feed.read()
        clause = feed.grow()
        if clause is not None and not clause.is_text_complete:
            known[clause.char_start] = clause.text
    feed.end()
    feed.read_all()
    assert "".join(clause.text for clause in feed.clauses) == feed.text
    assert all(spoken_s(words_of(clause.text_ids)) < 30 for clause in feed.clauses)
    assert all(clause.text.startswith(known.get(clause.char_start, "")) for clause in feed.clauses)
    assert len(known) > 3


LONG_TO_SAY = (
    "The team that maintains SQL and the people who write SQL and those who teach SQL and those who only read of SQL "
    "agree that in the neighbourhood of extraordinary international organisations SQL remains unquestionably there."
)


@pytest.mark.parametrize("size", range(1, 8))
def test_a_growing_clause_is_not_ended_within_a_word_that_has_gone_on(size: int) -> None:
    feed = ClauseFeed(
        0,
        SpeakingMode.INCREMENTAL,
        tiny_tokenizer(),
        language="en",
        max_clause_tokens=MAX_CLAUSE_TOKENS,
        pronunciation=Pronunciation((Dictionary({"sql": "structured query language"}),)),
    )
    for start in range(0, len(LONG_TO_SAY), size):
        feed.push(LONG_TO_SAY[start : start + size])
        while feed.has_unread:
            feed.read()
        feed.grow()
    feed.end()
    feed.read_all()
    texts = [clause.text for clause in feed.clauses]
    assert len(texts) > 1
    assert "".join(texts) == LONG_TO_SAY
    assert " ".join(texts).split() == LONG_TO_SAY.split()
