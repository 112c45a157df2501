"""How far speech may run into text that is still being written, and what a writer's pace promises."""

import pytest

from voicegate.engine.policy.growth import GrowthLimits, TurnTime, WriterPace

pytestmark = pytest.mark.unit


def test_a_pass_holds_fewer_tokens_than_its_words_are_worth() -> None:
    limits = GrowthLimits(token_share=0.8, lead_s=0.3)
    assert limits.max_tokens(0, 1.8) == 0
    assert limits.max_tokens(10, 1.8) == 14


def test_before_there_is_a_pace_an_ordinary_one_is_assumed() -> None:
    pace = WriterPace()
    assert pace.letters_within(1.0, 5.0) == pytest.approx(90.0)
    pace.wrote(4, 5.0)
    assert pace.letters_within(1.0, 5.0) == pytest.approx(90.0)


@pytest.mark.parametrize("letters_per_s", [15.0, 50.0, 100.0])
def test_the_pace_that_was_seen_is_the_one_that_is_expected(letters_per_s: float) -> None:
    pace = WriterPace()
    for index in range(61):
        pace.wrote(5, index * 5 / letters_per_s)
    assert pace.letters_within(2.0, 60 * 5 / letters_per_s) == pytest.approx(2 * letters_per_s, rel=0.2)


def test_a_writer_who_pauses_is_expected_to_write_less() -> None:
    pace = WriterPace()
    for index in range(5):
        pace.wrote(5, index * 0.05)
    assert pace.letters_within(1.0, 2.0) < pace.letters_within(1.0, 0.2) / 4


def test_nothing_comes_in_no_time() -> None:
    assert WriterPace().letters_within(-1.0, 0.0) == 0.0


def test_a_slow_block_is_forgotten_by_and_by() -> None:
    turn = TurnTime()
    turn.took(0.5)
    for _ in range(40):
        turn.took(0.02)
    assert turn.seconds == pytest.approx(0.02)
