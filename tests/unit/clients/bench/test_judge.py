"""Figures from records made by hand."""

import msgspec
import pytest

from voicegate.clients.bench.judge import figures, judge, seconds_per_letter
from voicegate.clients.bench.plan import Outcome, Record

SECOND = 48_000


RECORD = Record(
    visit=0,
    turn=0,
    outcome=Outcome.DONE,
    due_s=10.0,
    sent_s=10.01,
    ended_s=13.0,
    num_letters=40,
    words_per_s=None,
    is_slow=False,
    arrivals=((10.11, SECOND), (11.0, SECOND)),
)


def altered(**changes: object) -> Record:
    return msgspec.structs.replace(RECORD, **changes)


def test_first_audio_counts_from_the_first_text() -> None:
    heard = judge(RECORD)
    assert heard is not None
    assert heard.first_audio_ms == pytest.approx(100.0)
    assert heard.audio_s == 2.0
    assert heard.worst_gap_ms(0) == 0.0
    assert heard.rtf == pytest.approx(0.495)


def test_what_is_audible_is_so_when_a_player_comes_to_it() -> None:
    # 100 ms to the first message, half a second of silence in it.
    heard = judge(altered(audible_48k=SECOND // 2))
    assert heard is not None
    assert heard.audible_ms == pytest.approx(600.0)
    assert heard.first_audio_ms == pytest.approx(100.0)
    # A second of silence, then 200 ms without anything, then another quarter of a second of silence.
    late = judge(altered(arrivals=((10.11, SECOND), (11.31, SECOND), (15.0, SECOND)), audible_48k=SECOND * 5 // 4))
    assert late is not None
    assert late.audible_ms == pytest.approx(1_550.0)
    # The first sample of a message that came late.
    edge = judge(altered(arrivals=((10.11, SECOND), (11.31, SECOND)), audible_48k=SECOND))
    assert edge is not None
    assert edge.audible_ms == pytest.approx(1_300.0)


def test_what_was_not_measured_is_not_audible_at_any_time() -> None:
    heard = judge(RECORD)
    assert heard is not None
    assert heard.audible_ms is None
    assert figures([RECORD], window_s=(5.0, 20.0))["audible_ms"] is None
    measured = [RECORD, altered(audible_48k=SECOND // 2), altered(audible_48k=0, is_slow=True)]
    row = figures(measured, window_s=(5.0, 20.0))
    assert (row["audible_ms"]["num"], row["audible_ms"]["max"]) == (1, 600.0)


@pytest.mark.parametrize(
    ("arrivals", "second_chunk_ms"),
    [
        (((10.11, SECOND), (11.0, SECOND)), 890.0),
        # A server's first chunk in several messages, none of them late after the one before.
        (((10.11, 1_920), (10.1107, 25_920), (11.0, SECOND)), 890.0),
        (((10.11, 1_920), (10.114, 1_920), (10.118, 1_920), (11.0, SECOND)), 890.0),
        (((10.11, 1_920), (10.12, 25_920), (11.0, SECOND)), 10.0),
        # One chunk alone: its end is told at 13.
        (((10.11, SECOND),), 2_890.0),
        (((10.11, 1_920), (10.1107, 25_920)), 2_890.0),
    ],
)
def test_messages_that_come_together_are_one_chunk(
    arrivals: tuple[tuple[float, int], ...], second_chunk_ms: float
) -> None:
    record = altered(arrivals=arrivals)
    heard = judge(record)
    assert heard is not None
    assert heard.second_chunk_ms == pytest.approx(second_chunk_ms)
    assert figures([record], window_s=(5.0, 20.0))["second_chunk_ms"]["max"] == pytest.approx(second_chunk_ms)


def test_a_total_ends_where_the_end_is_told() -> None:
    heard = judge(RECORD)
    assert heard is not None
    assert heard.total_ms == pytest.approx(2_990.0)
    row = figures([RECORD, altered(ended_s=14.0)], window_s=(5.0, 20.0))
    assert (row["total_ms"]["max"], row["total_ms"]["num"]) == (3_990.0, 2)


@pytest.mark.parametrize("outcome", [Outcome.CANCELLED, Outcome.CUT_OFF])
def test_who_does_not_hear_the_end_has_no_total_nor_second_chunk(outcome: Outcome) -> None:
    heard = judge(altered(outcome=outcome, cancelled_s=12.0 if outcome is Outcome.CANCELLED else None))
    assert heard is not None
    assert (heard.total_ms, heard.rtf, heard.second_chunk_ms) == (None, None, None)


def test_who_interrupts_waits_until_the_server_says_that_it_has_stopped() -> None:
    told = altered(outcome=Outcome.CANCELLED, cancelled_s=12.0, stopped_s=12.025, ended_s=12.5)
    untold = altered(outcome=Outcome.CANCELLED, cancelled_s=12.0, ended_s=12.5)
    heard = judge(told)
    assert heard is not None
    assert heard.stop_ms == pytest.approx(25.0)
    row = figures([RECORD, told, untold], window_s=(5.0, 20.0))
    assert (row["stop_ms"]["max"], row["stop_ms"]["num"]) == (25.0, 1)
    assert figures([RECORD, untold], window_s=(5.0, 20.0))["stop_ms"] is None


def test_the_last_audio_after_an_interruption_counts() -> None:
    told = altered(outcome=Outcome.CANCELLED, cancelled_s=12.0, stopped_s=12.025, ended_s=12.5)
    row = figures([told, msgspec.structs.replace(told, last_audio_s=12.02)], window_s=(5.0, 20.0))
    assert (row["last_audio_ms"]["num"], row["last_audio_ms"]["p50"], row["last_audio_ms"]["max"]) == (2, 0.0, 20.0)
    untold = altered(outcome=Outcome.CANCELLED, cancelled_s=12.0, last_audio_s=12.02)
    assert figures([untold], window_s=(5.0, 20.0))["last_audio_ms"] is None


def test_the_wall_of_a_run_is_shared_by_all_its_audio() -> None:
    # From 10.01 to 20, for 2 s, 2 s and none; those before the window count too, as they do upstream.
    records = [
        RECORD,
        altered(due_s=12.0, sent_s=12.0, ended_s=20.0),
        altered(outcome=Outcome.REFUSED, sent_s=11.0, ended_s=11.1, arrivals=()),
    ]
    assert figures(records, window_s=(11.0, 30.0))["wall_per_audio"] == pytest.approx(9.99 / 4.0, abs=1e-4)
    silent = altered(outcome=Outcome.CUT_OFF, arrivals=())
    assert figures([silent], window_s=(5.0, 20.0))["wall_per_audio"] is None


def test_a_gap_is_what_the_player_waits() -> None:
    heard = judge(altered(arrivals=((10.0, SECOND), (11.2, SECOND), (12.25, SECOND))))
    assert heard is not None
    assert {each: heard.gaps_ms[each] for each in (0, 80)} == {
        0: pytest.approx((200.0, 50.0)),
        80: pytest.approx((200.0, 50.0)),
    }
    row = figures([altered(arrivals=((10.0, SECOND), (11.12, SECOND), (12.2, SECOND)))], window_s=(5.0, 20.0))
    assert row["by_prebuffer_ms"]["0"] == {
        "longest_ms": 120.0,
        "c50": 0.0,
        "num_gaps_over_50_ms": 2,
        "c100": 0.0,
        "num_gaps_over_100_ms": 1,
        "c200": 1.0,
        "num_gaps_over_200_ms": 0,
    }
    # Whose player collects 200 ms begins with the second message.
    small = 4_800
    slow = altered(arrivals=((10.0, small), (10.05, SECOND), (11.2, SECOND)))
    players = figures([slow], window_s=(5.0, 20.0))["by_prebuffer_ms"]
    assert [players[each]["longest_ms"] for each in ("0", "80", "200")] == [100.0, 100.0, 50.0]


@pytest.mark.parametrize(
    "arrivals",
    [((10.11, SECOND),), ((10.11, 1_920), (10.1107, SECOND)), ((10.11, 1_920), (10.114, 1_920), (10.118, 960))],
)
def test_one_chunk_says_nothing_of_continuity(arrivals: tuple[tuple[float, int], ...]) -> None:
    heard = judge(altered(arrivals=arrivals))
    assert heard is not None
    assert not heard.is_judged
    row = figures([RECORD, altered(arrivals=arrivals)], window_s=(5.0, 20.0))
    assert (row["num_judged_for_continuity"], row["c50"]) == (1, 1.0)


def test_the_second_chunk_comes_before_the_first_has_been_played() -> None:
    early = altered(arrivals=((10.11, 1_920), (10.111, SECOND - 1_920), (10.61, SECOND)))  # a second, by half of one
    late = altered(arrivals=((10.11, SECOND), (11.31, SECOND)))
    row = figures([early, late, altered(arrivals=((10.11, SECOND),))], window_s=(5.0, 20.0))
    assert (row["headroom_ms"]["min"], row["headroom_ms"]["num"]) == (-200.0, 2)
    heard = judge(early)
    assert heard is not None
    assert heard.headroom_ms == pytest.approx(500.0)


def test_who_is_interrupted_while_waiting_has_waited_until_then() -> None:
    heard = judge(altered(outcome=Outcome.CANCELLED, arrivals=((10.0, SECOND),), cancelled_s=11.5, ended_s=11.6))
    assert heard is not None
    assert heard.worst_gap_ms(0) == pytest.approx(500.0)


def test_who_is_cut_off_without_audio_has_waited_all_the_time() -> None:
    heard = judge(altered(outcome=Outcome.CUT_OFF, arrivals=()))
    assert heard is not None
    assert heard.first_audio_ms == pytest.approx(2_990.0)


@pytest.mark.parametrize("outcome", [Outcome.REFUSED, Outcome.FAILED])
def test_who_was_not_served_says_nothing_of_speed(outcome: Outcome) -> None:
    assert judge(altered(outcome=outcome, arrivals=())) is None


def test_figures_of_a_window() -> None:
    records = [
        RECORD,
        altered(words_per_s=20.0, arrivals=((10.21, SECOND), (11.5, SECOND))),
        altered(outcome=Outcome.REFUSED, arrivals=(), message="overloaded: no room"),
        altered(is_slow=True, arrivals=((10.11, SECOND), (18.0, SECOND))),
        altered(due_s=25.0),
    ]
    row = figures(records, window_s=(5.0, 20.0))
    assert row["first_audio_ms"]["num"] == 2
    assert row["first_audio_ms_by_writer"]["20"]["p50"] == pytest.approx(200.0)
    assert {writer: gaps["c100"] for writer, gaps in row["continuity_by_writer"].items()} == {"whole": 1.0, "20": 0.0}
    assert (row["c50"], row["c100"], row["num_judged_for_continuity"]) == (0.5, 0.5, 2)
    assert row["gap_ms"]["num_listeners"] == 1
    assert row["gap_ms"]["longest"] == pytest.approx(290.0)
    assert row["outcomes"] == {"done": 3, "cancelled": 0, "refused": 1, "failed": 0, "cut_off": 0}
    assert row["slow_readers"]["done"] == 1
    assert row["messages"] == ["overloaded: no room"]


def test_the_live_are_those_that_play() -> None:
    row = figures([RECORD], window_s=(10.0, 14.0))  # due at 10, plays from 10.11 for 2 s, ended at 13
    assert row["live"] == 0.8  # 3.0 of 4 s
    assert row["audio_s_per_s"] == 0.5


def test_a_listener_is_one_however_much_is_left_to_play_when_it_speaks_again() -> None:
    """Alone, and in a closed load, the next turn does not wait until the one before has been played."""
    turns = [
        altered(turn=number, due_s=due_s, sent_s=due_s, ended_s=due_s + 0.1, arrivals=((due_s + 0.05, 2 * SECOND),))
        for number, due_s in enumerate((10.0, 10.2, 10.4, 10.6))
    ]
    assert figures(turns, window_s=(10.0, 12.0))["live"] == 1.0
    others = [msgspec.structs.replace(record, visit=1) for record in turns]
    assert figures([*turns, *others], window_s=(10.0, 12.0))["live"] == 2.0


def test_letters_take_as_long_as_they_took() -> None:
    assert seconds_per_letter([RECORD, altered(outcome=Outcome.CANCELLED)]) == 2.0 / 40
    assert seconds_per_letter([]) is None


def test_of_few_who_hear_the_end_letters_are_not_learned() -> None:
    """Where most are interrupted, those that are not are the shortest."""
    interrupted = [altered(outcome=Outcome.CANCELLED, cancelled_s=10.7)] * 2
    assert seconds_per_letter([RECORD, *interrupted]) is None
