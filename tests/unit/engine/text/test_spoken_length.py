"""Lengths in letters: guessed of what is written, counted of what is said."""

import pytest

from tests.unit.engine.text.cases import cases
from voicegate.engine.text.normalize import speakable
from voicegate.engine.text.spoken_length import spoken_letters, written_letters


@pytest.mark.parametrize(
    ("char", "num_letters"),
    [
        ("a", 1),
        (" ", 1),
        (".", 1),
        ("5", 5),
        ("٣", 5),
        ("好", 3),
        ("か", 3),
        ("한", 3),
        ("%", 7),
        ("$", 7),
        ("é", 1),
        ("￥", 6 + 1),
        ("５", 5),
    ],
)
def test_written(char: str, num_letters: int) -> None:
    assert written_letters(char) == num_letters


def test_one_character_may_stand_for_many() -> None:
    assert written_letters("\ufdfa") == 18
    assert written_letters("⒛") == written_letters("2") + written_letters("0") + 1


@pytest.mark.parametrize(
    ("words", "num_letters"),
    [
        ("", 0),
        ("hello there", 10),
        ("forty-two", 8),
        ("don't", 5),
        ("yes, no.", 9),
        ("I am a man", 9),  # one letter takes as long as two
        ("G P U", 9),  # letters that are named
        ("hmm", 9),
        ("你好，世界", 14),
        ("안녕", 6),
        ("Es sind 25", 16),  # digits stay where a language has no reader
    ],
)
def test_spoken(words: str, num_letters: int) -> None:
    assert spoken_letters(words) == num_letters


@pytest.mark.parametrize("name", ["english_text", "chinese", "money_and_measures", "years_dates_times", "codes"])
def test_the_guess_is_right_on_the_whole(name: str) -> None:
    table, language = cases("said")[name], "zh" if name == "chinese" else "en"
    guessed = sum(sum(map(written_letters, text)) for text, _ in table)
    counted = sum(spoken_letters(speakable(text, language)) for text, _ in table)
    assert 0.7 < guessed / counted < 1.4
