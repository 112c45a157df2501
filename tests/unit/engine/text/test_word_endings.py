"""A word's end, and its sentence's."""

import pytest

from voicegate.engine.text.word_endings import Ending, word_ending


@pytest.mark.parametrize(
    ("word", "ending"),
    [
        ("word", Ending.NONE),
        ("word,", Ending.CLAUSE),
        ('word,"', Ending.CLAUSE),
        ("word:", Ending.CLAUSE),
        ("-", Ending.CLAUSE_UNLESS_DIGIT),
        ("–", Ending.CLAUSE_UNLESS_DIGIT),
        ("well-", Ending.NONE),
        ("word.", Ending.SENTENCE),
        ("word?!", Ending.SENTENCE),
        ("**word.**", Ending.SENTENCE),
        ("2024.", Ending.SENTENCE),
        ("example.com.", Ending.SENTENCE),
        ("I.", Ending.SENTENCE),
        ("Dr.", Ending.NONE),
        ("(e.g.", Ending.NONE),
        ("E.G.", Ending.NONE),
        ("e.g.,", Ending.CLAUSE),
        ("U.S.", Ending.BEFORE_OPENER),
        ("J.", Ending.BEFORE_OPENER),
        ("Gen.", Ending.NONE),
        ("gen.", Ending.SENTENCE),
        ("dr?", Ending.SENTENCE),
        ("word.”", Ending.UNLESS_LOWER),
        ("word.)", Ending.UNLESS_LOWER),
        ("word...", Ending.UNLESS_LOWER),
        ("word…", Ending.UNLESS_LOWER),
        ("a.m.", Ending.BEFORE_OPENER),
        ("etc.)", Ending.UNLESS_LOWER_OR_DIGIT),
        ("No.", Ending.UNLESS_CODE),
        ("Jan.", Ending.UNLESS_CODE),
        ("好。", Ending.NONE),  # the cutter looks at wide marks one by one
    ],
)
def test_endings(word: str, ending: Ending) -> None:
    assert word_ending(word) is ending


@pytest.mark.parametrize(
    ("ending", "sentence_before", "no_sentence_before"),
    [
        (Ending.UNLESS_LOWER, 'AÉ5"好', "aé"),
        (Ending.UNLESS_LOWER_OR_DIGIT, 'A"好', "a5"),
        (Ending.SENTENCE, "Aa5", ""),
        (Ending.NONE, "", "Aa5"),
    ],
)
def test_the_next_word_decides(ending: Ending, sentence_before: str, no_sentence_before: str) -> None:
    assert all(ending.is_sentence_before(char) for char in sentence_before)
    assert not any(ending.is_sentence_before(char) for char in no_sentence_before)
