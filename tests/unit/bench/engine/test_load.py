"""Schedules, and what a listener gets from tables of arrivals."""

import random
from itertools import islice, pairwise

import pytest

from voicegate.bench.engine.load import (
    Heard,
    continuity,
    listen,
    played_out_s,
    poisson_starts_s,
    staggered_starts_s,
    text_times_s,
)
from voicegate.clients.python.timeline import Arrival


def arrivals_of(*rows: tuple[float, int]) -> list[Arrival]:
    """(arrival in ms, duration in ms), back to back."""
    arrivals: list[Arrival] = []
    pts_48k = 0
    for arrived_ms, duration_ms in rows:
        arrivals.append(Arrival(arrived_ms / 1000, pts_48k, duration_ms * 48))
        pts_48k += duration_ms * 48
    return arrivals


def test_staggered_starts_are_evenly_spread_and_leave_out_the_end() -> None:
    assert staggered_starts_s(4, 10.0) == [0.0, 2.5, 5.0, 7.5]


def test_poisson_starts_come_at_the_rate_and_are_the_seeds() -> None:
    starts = list(islice(poisson_starts_s(5.0, random.Random(1)), 4000))
    assert starts == list(islice(poisson_starts_s(5.0, random.Random(1)), 4000))
    assert starts == sorted(starts)
    assert starts[0] > 0
    assert starts[-1] / 4000 == pytest.approx(0.2, rel=0.05)
    # The mark of a Poisson process: gaps vary as much as they are long.
    gaps = [after - before for before, after in pairwise(starts)]
    variance = sum((gap - 0.2) ** 2 for gap in gaps) / len(gaps)
    assert variance**0.5 == pytest.approx(0.2, rel=0.1)


def test_text_comes_at_a_steady_pace_from_the_start() -> None:
    assert text_times_s(4, 2.0) == [0.0, 0.5, 1.0, 1.5]


# Due at 1 s. First a slice of 40 ms and right behind it the rest of the first chunk, 460 ms; then a block.
def heard_of(second_ms: float) -> Heard:
    return listen(1.0, arrivals_of((1100, 40), (1105, 460), (second_ms, 1000)))


def test_a_listener_in_time() -> None:
    heard = heard_of(1400)
    assert heard.first_audio_ms == pytest.approx(100)
    assert heard.buffered_audio_ms == pytest.approx(105)
    assert heard.audio_ms == pytest.approx(1500)
    assert heard.rtf == pytest.approx(0.4 / 1.5)
    assert heard.second_chunk_headroom_ms == pytest.approx(200)  # 1100 + 500 - 1400
    assert heard.worst_underrun_ms == 0
    assert heard.worst_buffered_underrun_ms == 0
    assert not heard.is_cut_off


def test_a_late_second_chunk_is_negative_headroom_and_an_underrun() -> None:
    heard = heard_of(1660)
    assert heard.second_chunk_headroom_ms == pytest.approx(-60)
    assert heard.worst_underrun_ms == pytest.approx(60)
    assert heard.worst_buffered_underrun_ms == pytest.approx(55)  # it began 5 ms later


def test_a_player_without_prebuffer_suffers_the_gap_that_a_prebuffer_covers() -> None:
    heard = listen(0.0, arrivals_of((100, 40), (200, 40), (205, 400)))
    assert heard.worst_underrun_ms == pytest.approx(60)
    assert heard.worst_buffered_underrun_ms == 0
    assert heard.buffered_audio_ms == pytest.approx(200)


def test_audio_in_one_event_cannot_be_judged() -> None:
    heard = listen(0.0, arrivals_of((100, 40)))
    assert (heard.worst_underrun_ms, heard.worst_buffered_underrun_ms) == (None, None)
    assert heard.second_chunk_headroom_ms is None
    assert heard.buffered_audio_ms == pytest.approx(100)


def test_slices_are_not_a_second_chunk() -> None:
    assert listen(0.0, arrivals_of((100, 40), (110, 40), (125, 400))).second_chunk_headroom_ms is None


def test_no_audio_is_an_error_unless_cut_off() -> None:
    with pytest.raises(ValueError, match="no audio"):
        listen(0.0, [])


def test_who_is_cut_off_counts_with_what_had_been_waited() -> None:
    unheard = listen(1.0, [], cut_off_s=3.5)
    assert (unheard.first_audio_ms, unheard.buffered_audio_ms) == (2500, 2500)
    assert (unheard.rtf, unheard.worst_underrun_ms, unheard.is_cut_off) == (None, None, True)

    starving = listen(1.0, arrivals_of((1100, 200)), cut_off_s=1.8)
    assert starving.worst_underrun_ms == pytest.approx(500)
    assert starving.rtf is None

    content = listen(1.0, arrivals_of((1100, 1000)), cut_off_s=1.8)
    assert content.worst_underrun_ms == 0

    barely = listen(1.0, arrivals_of((1100, 40)), cut_off_s=1.5)
    assert barely.buffered_audio_ms == pytest.approx(500)


def test_playing_ends_after_audio_and_gaps() -> None:
    assert played_out_s(arrivals_of((100, 40), (200, 40)), prebuffer_ms=0) == pytest.approx(0.240)
    assert played_out_s(arrivals_of((100, 500), (150, 500)), prebuffer_ms=80) == pytest.approx(1.100)


@pytest.mark.parametrize(
    ("worst_ms", "c50", "c100"),
    [([], None, None), ([None], None, None), ([0.0, 50.0, 50.1, 101.0], 0.5, 0.75), ([0.0, None, 200.0], 0.5, 0.5)],
)
def test_continuity_is_the_share_of_those_who_can_be_judged(
    worst_ms: list[float | None], c50: float | None, c100: float | None
) -> None:
    assert continuity(worst_ms, 50) == c50
    assert continuity(worst_ms, 100) == c100
