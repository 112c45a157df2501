"""How far speech may run into text that is still being written, and what a writer's pace promises."""

from collections.abc import Sequence
from functools import partial

import pytest

from voicegate.engine.core.growth import BlockTime, Needed, WriterPace, beginning


def test_a_pass_holds_fewer_tokens_than_its_words_are_worth() -> None:
    needed = Needed.to_go_on(18, 1.8, 0.8, is_late=False)
    assert needed.but_last == pytest.approx(12.5)
    assert needed.are_there(num_but_last=12.5, num_of_all=12.5)
    assert not needed.are_there(num_but_last=12.4, num_of_all=99)


def test_where_it_presses_more_may_be_said_and_of_the_last_word_too() -> None:
    dry = Needed.to_go_on(18, 1.8, 0.8, is_late=True)
    assert dry.are_there(num_but_last=3, num_of_all=8), "a quarter more than they are worth"
    assert not dry.are_there(num_but_last=3, num_of_all=7.9)
    assert not dry.are_there(num_but_last=0, num_of_all=10), "one word, that may go on"
    assert Needed.to_go_on(18, 1.8, 1.3, is_late=True).are_there(num_but_last=3, num_of_all=10 / 1.3)


def test_a_sentence_begins_with_more_of_its_words_or_with_the_last_of_them() -> None:
    needed = Needed.to_begin(18, 1.8, 0.8, num_second_tokens=0, num_promised=99)
    assert needed.are_there(num_but_last=10, num_of_all=10)
    assert needed.are_there(num_but_last=3, num_of_all=12.6)
    assert not needed.are_there(num_but_last=9.9, num_of_all=12.4)
    slower = Needed.to_begin(18, 1.8, 0.4, num_second_tokens=0, num_promised=99)
    assert not slower.are_there(num_but_last=19.9, num_of_all=24.9), "as much less as its share is"
    assert slower.are_there(num_but_last=20, num_of_all=20)


def test_a_sentence_begins_when_the_next_blocks_words_will_have_come() -> None:
    needed = Needed.to_begin(18, 1.8, 0.8, num_second_tokens=45, num_promised=15)
    assert needed.are_there(num_but_last=14.2, num_of_all=14.2)
    assert not needed.are_there(num_but_last=14.1, num_of_all=99)


@pytest.mark.parametrize(
    ("num_tokens", "held_back_frames", "first_block_s", "block_s", "covered_s"),
    [
        (12, 5, 0.0, 0.0, 0.38),
        (12, 5, 0.0, 0.3, 0.08),
        (12, 5, 0.5, 0.5, 0.38),  # it is heard half a second later
        (12, 8, 0.0, 0.3, 0.02),
        (2, 5, 0.0, 0.0, None),  # who begins with so little will have a gap
    ],
)
def test_a_first_block_covers_what_is_heard_of_it_less_the_time_of_the_second(
    num_tokens: int, held_back_frames: int, first_block_s: float, block_s: float, covered_s: float | None
) -> None:
    first = beginning(
        num_tokens,
        0,
        held_back_frames=held_back_frames,
        first_block_s=first_block_s,
        block_s=block_s,
        is_strained=False,
    )
    assert (first and first.covered_s) == (covered_s and pytest.approx(covered_s))


BEGINNING = partial(beginning, 10, 25, held_back_frames=5, first_block_s=0.1)


def test_a_sentence_begins_with_one_block_where_the_second_can_follow_in_time() -> None:
    first = BEGINNING(block_s=0.3, is_strained=False)
    assert first is not None
    assert (first.num_tokens, first.covered_s) == (10, pytest.approx(0.1))


@pytest.mark.parametrize(("block_s", "is_strained"), [(0.5, False), (0.3, True)])
def test_a_slow_or_strained_engine_makes_two_blocks_of_the_first_reading(block_s: float, is_strained: bool) -> None:
    first = BEGINNING(block_s=block_s, is_strained=is_strained)
    assert first is not None
    assert (first.num_tokens, first.covered_s) == (35, pytest.approx(1.4 - block_s))


@pytest.mark.parametrize("is_strained", [False, True])
def test_nothing_is_begun_where_what_follows_two_blocks_would_be_late_too(is_strained: bool) -> None:
    assert BEGINNING(block_s=1.5, is_strained=is_strained) is None


def test_before_there_is_a_pace_an_ordinary_and_even_one_is_assumed() -> None:
    pace = WriterPace()
    assert 0.7 * 90 < pace.letters_within(1.0, 5.0) < 90
    pace.wrote(4, 5.0)
    assert 0.7 * 90 < pace.letters_within(1.0, 5.0) < 90


def test_who_has_written_nothing_for_longer_than_a_word_takes_pauses() -> None:
    pace = WriterPace()
    assert not pace.has_paused(60.0), "he has not begun"
    pace.wrote(4, 60.0)
    pace.wrote(4, 60.3)
    assert not pace.has_paused(60.6)
    assert pace.has_paused(60.7)


@pytest.mark.parametrize("letters_per_s", [15.0, 50.0, 100.0])
def test_the_pace_that_was_seen_is_counted_on_for_the_most_part(letters_per_s: float) -> None:
    pace = written_by((5 / letters_per_s,) * 60)
    assert 0.75 < pace.letters_within(2.0, 60 * 5 / letters_per_s) / (2 * letters_per_s) < 1


def test_of_who_writes_unevenly_less_is_counted_on() -> None:
    even, uneven = written_by((0.05,) * 8), written_by((0.005, 0.095) * 4)
    assert uneven.letters_within(0.35, 0.4) < 0.6 * even.letters_within(0.35, 0.4)


def test_a_quick_start_is_not_taken_for_a_habit() -> None:
    """One in ten begins so at 10 words a second with intervals as chance has them."""
    pace = written_by((0.01, 0.01))
    assert pace.letters_within(0.35, 0.02) < 0.5 * 0.35 * 90
    assert written_by((0.05, 0.05)).letters_within(0.35, 0.1) > 0.5 * 0.35 * 90, "an ordinary one is"


def test_words_that_come_together_are_one_piece() -> None:
    pace = WriterPace()
    for index in range(5):
        for word in range(4):
            pace.wrote(5, 1.0 + 0.2 * index + 0.0004 * word)
    assert 0.5 < pace.letters_within(1.0, 1.8) / 100 < 1


def test_a_writer_who_pauses_is_expected_to_write_less() -> None:
    pace = WriterPace()
    for index in range(5):
        pace.wrote(5, index * 0.05)
    assert pace.letters_within(1.0, 2.0) < pace.letters_within(1.0, 0.2) / 4


def test_nothing_comes_in_no_time() -> None:
    assert WriterPace().letters_within(-1.0, 0.0) == 0.0


def written_by(intervals_s: Sequence[float]) -> WriterPace:
    """Words of five letters, the first at 0."""
    pace, now_s = WriterPace(), 0.0
    pace.wrote(5, now_s)
    for interval_s in intervals_s:
        now_s += interval_s
        pace.wrote(5, now_s)
    return pace


def test_a_later_block_is_expected_to_take_twice_what_they_take_lately_but_no_longer_than_the_longest() -> None:
    times = BlockTime()
    times.took(0.3, 0.0, is_first=True)
    assert times.expected_later_s(0.0) == pytest.approx(0.3), "nothing else is known"
    times.took(0.5, 0.0, is_first=False)
    assert times.expected_later_s(0.0) == pytest.approx(0.5)
    for _ in range(100):
        times.took(0.05, 0.0, is_first=False)
    assert times.expected_later_s(0.0) == pytest.approx(0.1, rel=0.1)
    assert times.later_s(0.0) == pytest.approx(0.5)
    assert times.expected_later_s(3.0) < 0.07, "the longest is forgotten by and by"


def test_a_slow_block_is_forgotten_by_and_by() -> None:
    times = BlockTime()
    times.took(0.5, 10.0, is_first=False)
    for _ in range(200):
        times.took(0.02, 10.0, is_first=False)
    assert times.later_s(10.0) == pytest.approx(0.5)
    assert times.later_s(12.0) == pytest.approx(0.125)
    times.took(0.2, 12.0, is_first=False)
    assert times.later_s(12.0) == pytest.approx(0.2)


def test_a_slow_engine_is_not_taken_for_a_quick_one_after_a_silence() -> None:
    times = BlockTime()
    times.took(0.3, 0.0, is_first=True)
    assert times.later_s(60.0) == pytest.approx(0.3), "nothing else is known"
    times.took(0.28, 1.0, is_first=False)
    assert times.later_s(60.0) == times.expected_later_s(60.0) == pytest.approx(0.28)
    times.took(0.18, 2.0, is_first=False)
    assert times.later_s(60.0) == times.expected_later_s(60.0) == pytest.approx(0.28), "one was quick: it was chance"
    for _ in range(200):
        times.took(0.18, 3.0, is_first=False)
    assert times.later_s(60.0) == pytest.approx(0.18, rel=0.02), "all are"


def test_until_a_later_block_was_made_a_first_one_tells_how_long_it_will_take() -> None:
    times = BlockTime()
    times.took(0.5, 0.0, is_first=True)
    assert (times.first_s(0.0), times.later_s(0.0)) == (0.5, 0.5)
    times.took(0.3, 0.0, is_first=False)
    assert (times.first_s(0.0), times.later_s(0.0)) == (0.5, 0.3)


def test_the_soonest_first_block_is_the_smallest_lately() -> None:
    times = BlockTime()
    assert times.soonest_first_s(5.0) == 0.0, "nothing is known"
    times.took(0.3, 10.0, is_first=True)
    times.took(0.1, 10.0, is_first=True)
    times.took(0.5, 10.0, is_first=True)
    times.took(0.02, 10.0, is_first=False)
    assert times.soonest_first_s(10.0) == pytest.approx(0.1)
    times.took(0.5, 11.0, is_first=True)
    assert times.soonest_first_s(11.0) == pytest.approx((0.1 + 0.25) / 2), "half the way to what the longest came to"
    assert times.soonest_first_s(90.0) == pytest.approx(0.0)
    times.took(0.4, 90.0, is_first=True)
    assert times.soonest_first_s(90.0) <= times.first_s(90.0)


def test_new_requests_who_wait_long_are_a_sign_of_strain_until_it_is_forgotten() -> None:
    times = BlockTime()
    assert not times.is_strained(0.0)
    times.took(0.02, 0.0, is_first=True)
    times.took(0.3, 0.0, is_first=True)
    assert not times.is_strained(0.0)
    times.took(0.7, 0.0, is_first=True)
    assert times.is_strained(0.9)
    assert not times.is_strained(1.1)


def test_a_slow_engine_is_no_strained_one() -> None:
    times = BlockTime()
    times.took(0.4, 0.0, is_first=True)
    times.took(1.2, 0.0, is_first=True)
    assert not times.is_strained(0.0)
    times.took(1.7, 0.0, is_first=True)
    assert times.is_strained(0.0)
