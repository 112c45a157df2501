"""Character times: each told once, in order, and spans of messages that add up to the time that was told."""

from hypothesis import given
from hypothesis import strategies as st

from voicegate.protocol.dialects.char_times import CharClock, CharTimes, Told
from voicegate.protocol.messages import AlignmentItem

HELLO = AlignmentItem("Hello", 0, 500, 0, 5)
YOU = AlignmentItem("you", 500, 800, 6, 9)


def clock_of(text: str = "Hello you") -> CharClock:
    clock = CharClock()
    clock.write(text)
    return clock


def forms(told: Told | None) -> tuple[str, str]:
    assert told is not None
    written, spoken = ("".join(times.chars) if times is not None else "" for times in (told.written, told.spoken))
    return written, spoken


def same(chars: str, starts_ms: list[int], durations_ms: list[int], zero_ms: int = 0) -> Told:
    times = CharTimes(list(chars), starts_ms, durations_ms)
    return Told(zero_ms, times, times)


def test_words_are_told_with_the_audio_that_they_are_in() -> None:
    clock = clock_of()
    clock.learn([HELLO, YOU])
    assert clock.take(300) == same("Hel", [0, 100, 200], [100, 100, 100])
    assert clock.take(600) == same("lo y", [0, 100, 200, 200], [100, 100, 0, 100], 300)
    assert clock.take() == same("ou", [0, 100], [100, 100], 600)
    assert clock.take() is None


def test_a_character_is_cut_where_its_audio_is() -> None:
    clock = clock_of()
    clock.learn([HELLO])
    assert clock.take(250) == same("Hel", [0, 100, 200], [100, 100, 50])
    assert clock.told_ms == 250
    assert clock.take(400) == same("l", [50], [100], 250)


def test_words_that_come_late_count_from_where_the_last_ended() -> None:
    clock = clock_of()
    assert clock.take(600) is None
    clock.learn([HELLO])
    assert clock.take(600) == same("Hello", [0, 100, 200, 300, 400], [100] * 5)
    clock.learn([YOU])
    assert clock.take(600) == same(" y", [0, 0], [0, 100], 500)


def test_text_without_blanks_gets_none() -> None:
    clock = clock_of("你好")
    clock.learn([AlignmentItem("你", 0, 200, 0, 1), AlignmentItem("好", 200, 400, 1, 2)])
    assert clock.take() == same("你好", [0, 200], [200, 200])


def test_what_is_not_said_is_written_and_takes_no_time() -> None:
    clock = clock_of("— Hi\n\n**you**…")
    clock.write(" and")
    clock.learn([AlignmentItem("Hi", 0, 200, 2, 4), AlignmentItem("you", 200, 500, 8, 11)])
    told = clock.take()
    assert told is not None
    assert told.written == CharTimes(
        list("— Hi  **you"), [0, 0, 0, 100, 200, 200, 200, 200, 200, 300, 400], [0, 0, 100, 100, 0, 0, 0, 0, *[100] * 3]
    )
    assert told.spoken == CharTimes(list("Hi you"), [0, 100, 200, 200, 300, 400], [100, 100, 0, 100, 100, 100])
    clock.reach(14)
    told = clock.take()
    blank = CharTimes([" "], [0], [0])
    assert told == Told(500, CharTimes(list("**…"), [0, 0, 0], [0, 0, 0]), blank), "words are parted"
    clock.learn([AlignmentItem("and", 500, 800, 15, 18)])
    assert forms(clock.take()) == (" and", "and"), "and once only"


def test_the_end_parts_the_last_word() -> None:
    clock = clock_of("Hello")
    clock.learn([HELLO])
    clock.take(600)
    clock.end()
    assert clock.take() == same(" ", [0], [0], 500)
    clock.end()
    assert clock.take() is None


def test_a_wide_gap_is_cut() -> None:
    clock = clock_of("Hello" + " " * 100_000 + "you")
    clock.learn([HELLO, AlignmentItem("you", 500, 800, 100_005, 100_008)])
    assert forms(clock.take()) == ("Hello" + " " * 4096 + "you", "Hello you")


@given(st.lists(st.tuples(st.integers(0, 300), st.text("ab", min_size=1, max_size=4)), max_size=8), st.integers(1, 200))
def test_spans_add_up(words: list[tuple[int, str]], step_ms: int) -> None:
    items, at_ms, at = [], 0, 0
    for duration_ms, text in words:
        items.append(AlignmentItem(text, at_ms, at_ms + duration_ms, at, at + len(text)))
        at_ms, at = at_ms + duration_ms, at + len(text) + 1
    written = " ".join(text for _, text in words)
    clock, sum_ms, chars = clock_of(written), 0, ""
    heard_at_ms: list[int] = []
    clock.learn(items)
    for until_ms in [*range(step_ms, at_ms + step_ms, step_ms), None]:
        if (told := clock.take(until_ms)) is not None:
            times = told.written
            assert told == Told(sum_ms, times, times)
            assert times is not None
            assert len(times.chars) == len(times.starts_ms) == len(times.durations_ms)
            assert times.starts_ms == sorted(times.starts_ms)
            assert min(times.starts_ms + times.durations_ms) >= 0
            named = zip(times.chars, times.starts_ms, strict=True)
            heard_at_ms += [sum_ms + start_ms for char, start_ms in named if char != " "]
            sum_ms += times.starts_ms[-1] + times.durations_ms[-1]
            chars += "".join(times.chars)
            assert sum_ms == clock.told_ms, "who adds spans up has the absolute time"
    assert chars == written
    starts_ms = [
        item.start_ms + (item.end_ms - item.start_ms) * index // len(item.text)
        for item in items
        for index in range(len(item.text))
    ]
    assert heard_at_ms == starts_ms
    assert sum_ms <= at_ms, "a last character may be cut where its audio is"
