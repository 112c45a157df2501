"""A timeline in words."""

from voicegate.clients.python.report import timeline_lines
from voicegate.clients.python.timeline import Arrival, measure


def test_lines_name_what_was_measured() -> None:
    arrivals = [Arrival(0.123, 0, 4_800), Arrival(0.283, 4_800, 48_000)]
    assert timeline_lines(measure(0.0, arrivals, pre_skip_48k=312)) == [
        "time to first audio        123 ms",
        "audio                     1.09 s",
        "real-time factor          0.26",
        "underruns, no buffer         1, worst 60 ms",
        "underruns, 80 ms             1, worst 60 ms",
        "underruns, 200 ms            0",
        "A player without a buffer would have paused for more than 50 ms. Either the text came slowly, or this machine "
        "makes speech too slowly: a buffer hides that; fewer streams, more cores or a GPU mend it.",
    ]


def test_nothing_to_hear_is_said() -> None:
    assert timeline_lines(None) == ["there was nothing to say"]


def test_speech_without_a_gap_and_in_one_message_has_no_remark() -> None:
    smooth = [Arrival(0.1, 0, 4_800), Arrival(0.15, 4_800, 48_000)]
    for arrivals in (smooth, smooth[:1]):
        assert timeline_lines(measure(0.0, arrivals))[-1] == "underruns, 200 ms            0"
