"""Character times: each told once, in order, and spans of messages that add up to the time that was told."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from voicegate.protocol.dialects.char_times import CharClock, CharTimes
from voicegate.protocol.messages import AlignmentItem

pytestmark = pytest.mark.unit

HELLO = AlignmentItem("Hello", 0, 500, 0, 5)
YOU = AlignmentItem("you", 500, 800, 6, 9)


def test_words_are_told_with_the_audio_that_they_are_in() -> None:
    clock = CharClock()
    clock.learn([HELLO, YOU])
    assert clock.take(300) == CharTimes(["H", "e", "l"], [0, 100, 200], [100, 100, 100])
    assert clock.take(600) == CharTimes(["l", "o", " ", "y"], [0, 100, 200, 200], [100, 100, 0, 100])
    assert clock.take() == CharTimes(["o", "u"], [0, 100], [100, 100])
    assert clock.take() is None


def test_a_character_is_cut_where_its_audio_is() -> None:
    clock = CharClock()
    clock.learn([HELLO])
    assert clock.take(250) == CharTimes(["H", "e", "l"], [0, 100, 200], [100, 100, 50])
    assert clock.told_ms == 250
    assert clock.take(400) == CharTimes(["l"], [50], [100])


def test_words_that_come_late_count_from_where_the_last_ended() -> None:
    clock = CharClock()
    assert clock.take(600) is None
    clock.learn([HELLO])
    assert clock.take(600) == CharTimes(list("Hello"), [0, 100, 200, 300, 400], [100] * 5)
    clock.learn([YOU])
    assert clock.take(600) == CharTimes([" ", "y"], [0, 0], [0, 100])


def test_text_without_blanks_gets_none() -> None:
    clock = CharClock()
    clock.learn([AlignmentItem("你", 0, 200, 0, 1), AlignmentItem("好", 200, 400, 1, 2)])
    assert clock.take() == CharTimes(["你", "好"], [0, 200], [200, 200])


@given(st.lists(st.tuples(st.integers(0, 300), st.text("ab", min_size=1, max_size=4)), max_size=8), st.integers(1, 200))
def test_spans_add_up(words: list[tuple[int, str]], step_ms: int) -> None:
    items, at_ms, at = [], 0, 0
    for duration_ms, text in words:
        items.append(AlignmentItem(text, at_ms, at_ms + duration_ms, at, at + len(text)))
        at_ms, at = at_ms + duration_ms, at + len(text) + 1
    clock, sum_ms, chars = CharClock(), 0, ""
    heard_at_ms: list[int] = []
    clock.learn(items)
    for until_ms in [*range(step_ms, at_ms + step_ms, step_ms), None]:
        if (times := clock.take(until_ms)) is not None:
            assert len(times.chars) == len(times.starts_ms) == len(times.durations_ms)
            assert times.starts_ms == sorted(times.starts_ms)
            assert min(times.starts_ms + times.durations_ms) >= 0
            told = zip(times.chars, times.starts_ms, strict=True)
            heard_at_ms += [sum_ms + start_ms for char, start_ms in told if char != " "]
            sum_ms += times.starts_ms[-1] + times.durations_ms[-1]
            chars += "".join(times.chars)
            assert sum_ms == clock.told_ms, "who adds spans up has the absolute time"
    assert chars == " ".join(text for _, text in words)
    starts_ms = [
        item.start_ms + (item.end_ms - item.start_ms) * index // len(item.text)
        for item in items
        for index in range(len(item.text))
    ]
    assert heard_at_ms == starts_ms
    assert sum_ms <= at_ms, "a last character may be cut where its audio is"
