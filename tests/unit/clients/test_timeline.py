"""Tables of arrivals -> what a listener experienced."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from voicegate.clients.python.timeline import Arrival, measure, play


def arrivals_of(*rows: tuple[float, int]) -> list[Arrival]:
    """(arrival in ms, duration in ms), back to back."""
    arrivals: list[Arrival] = []
    pts_48k = 0
    for arrived_ms, duration_ms in rows:
        arrivals.append(Arrival(arrived_ms / 1000, pts_48k, duration_ms * 48))
        pts_48k += duration_ms * 48
    return arrivals


# rows, prebuffer, start, underruns: number, worst, total (all in ms)
PLAYBACKS = {
    "all at once": ([(100, 500)], 0, 100, (0, 0, 0)),
    "just in time": ([(100, 20), (120, 20), (140, 20)], 0, 100, (0, 0, 0)),
    "one gap": ([(100, 20), (150, 20)], 0, 100, (1, 30, 30)),
    "a gap moves the rest": ([(100, 20), (150, 20), (170, 20)], 0, 100, (1, 30, 30)),
    "two gaps": ([(100, 20), (150, 20), (180, 20)], 0, 100, (2, 30, 40)),
    "lead covers a stall": ([(100, 400), (490, 20)], 0, 100, (0, 0, 0)),
    "lead is used up": ([(100, 400), (510, 20)], 0, 100, (1, 10, 10)),
    "prebuffer of several packets": ([(100, 20), (150, 20), (180, 20), (200, 20)], 80, 200, (0, 0, 0)),
    "prebuffer in the first packet": ([(100, 80), (150, 20)], 80, 100, (0, 0, 0)),
    "prebuffer covers part of a gap": ([(100, 80), (190, 20)], 80, 100, (1, 10, 10)),
    "end comes before the prebuffer is full": ([(100, 20), (150, 20)], 200, 150, (0, 0, 0)),
    "clock grain is no gap": ([(100, 20), (120.4, 20)], 0, 100, (0, 0, 0)),
}


@pytest.mark.parametrize(("rows", "prebuffer_ms", "start_ms", "underruns_ms"), PLAYBACKS.values(), ids=PLAYBACKS.keys())
def test_virtual_player(
    rows: list[tuple[float, int]], prebuffer_ms: int, start_ms: float, underruns_ms: tuple[int, float, float]
) -> None:
    playback = play(arrivals_of(*rows), prebuffer_ms)
    assert playback.prebuffer_ms == prebuffer_ms
    assert playback.start_s == pytest.approx(start_ms / 1000)
    underruns = playback.underruns
    assert (underruns.num, underruns.worst_s * 1000, underruns.total_s * 1000) == pytest.approx(underruns_ms)


def test_measures_of_one_context() -> None:
    arrivals = [*arrivals_of((1300, 100), (1450, 100), (1500, 100)), Arrival(1.6, 14_000, 0)]
    timeline = measure(1.0, arrivals, pre_skip_48k=312, end_pts_48k=14_000)
    assert timeline.first_audio_s == pytest.approx(0.3)
    assert timeline.generation_s == pytest.approx(0.5)
    assert timeline.audio_s == pytest.approx((14_000 - 312) / 48_000)
    assert timeline.rtf == pytest.approx(0.5 / timeline.audio_s)
    assert [playback.prebuffer_ms for playback in timeline.playbacks] == [0, 80, 200]
    assert [playback.start_s for playback in timeline.playbacks] == pytest.approx([1.3, 1.3, 1.45])
    assert timeline.playback(0).underruns.worst_s == pytest.approx(0.05)
    assert timeline.playback(200).underruns.num == 0
    with pytest.raises(KeyError):
        timeline.playback(100)


def test_without_an_exact_end_audio_is_what_was_received() -> None:
    assert measure(0.0, arrivals_of((0, 60), (10, 60))).audio_s == pytest.approx(0.12)


@pytest.mark.parametrize(
    ("gap_ms", "c50", "c100"), [(0, True, True), (50, True, True), (51, False, True), (101, False, False)]
)
def test_continuity(gap_ms: int, c50: bool, c100: bool) -> None:
    timeline = measure(0.0, arrivals_of((0, 20), (20 + gap_ms, 20)))
    assert (timeline.is_continuous(50), timeline.is_continuous(100)) == (c50, c100)


def test_continuity_of_a_single_message_is_not_known() -> None:
    assert measure(0.0, arrivals_of((30, 500))).is_continuous(100) is None


def test_no_audio_is_no_timeline() -> None:
    with pytest.raises(ValueError, match="no audio"):
        measure(0.0, [Arrival(1.0, 0, 0)])
    with pytest.raises(ValueError, match="nothing to play"):
        play([], 0)


def test_audio_of_no_length_has_no_real_time_factor() -> None:
    assert measure(0.0, arrivals_of((0, 20)), end_pts_48k=0).rtf == math.inf


@given(
    delays_ms=st.lists(st.integers(0, 300), min_size=1, max_size=20),
    durations_ms=st.lists(st.sampled_from([20, 40, 200]), min_size=20, max_size=20),
)
def test_standing_still_adds_up_to_the_prebuffer_that_would_have_spared_it(
    delays_ms: list[int], durations_ms: list[int]
) -> None:
    rows: list[tuple[float, int]] = []
    for delay_ms, duration_ms in zip(delays_ms, durations_ms, strict=False):
        rows.append((delay_ms + (rows[-1][0] if rows else 0), duration_ms))
    arrivals = arrivals_of(*rows)
    total_s = play(arrivals, 0).underruns.total_s
    start_s = arrivals[0].arrived_s + total_s
    late_s = [a.arrived_s - (start_s + a.pts_48k / 48_000) for a in arrivals]
    assert max(late_s) <= 1e-9
    assert total_s == 0 or max(late_s) == pytest.approx(0)
    assert play(arrivals, 10_000).underruns.num == 0
