"""Words and their times: in order, whole, and told before they are heard."""

import itertools
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from voicegate.engine.interface import AlignedText
from voicegate.engine.text.alignment import Sound, WordTimes, split_words
from voicegate.engine.text.normalize import speakable
from voicegate.engine.text.spoken_length import spoken_letters

written = st.lists(
    st.sampled_from(["word", " ", "it's", ",", "。", "好", "“", "5", "—", "é", "\n", "(", ")", "&", "+"]), max_size=40
).map("".join)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", []),
        (" ... — ", []),
        ("Hello, world!", ["Hello,", "world!"]),
        ("it's  3.14\n(so)", ["it's", "3.14", "(so)"]),
        ("one — two", ["one", "two"]),
        ("你好，世界。", ["你", "好，", "世", "界。"]),
        ("他说：“好。”走", ["他", "说：", "“好。”", "走"]),
        ("用Python写f(x)", ["用", "Python", "写", "f(x)"]),
        ("cats & dogs", ["cats", "&", "dogs"]),
        ("2 + 2 = 4 - 0", ["2", "+", "2", "=", "4", "0"]),
        ("+ milk\n> eggs\n- salt", ["milk", "eggs", "salt"]),
        ("50 % off, 5 € each, $ 5", ["50", "%", "off,", "5", "€", "each,", "$", "5"]),
        ("von 200 €, also 30 €.", ["von", "200", "€,", "also", "30", "€."]),
        ("a € b $ c == d -> e", ["a", "b", "c", "d", "e"]),
        ("猫 & 狗 ≥ 5", ["猫", "&", "狗", "≥", "5"]),
    ],
)
def test_words(text: str, words: list[str]) -> None:
    assert [word.text for word in split_words(text, 0)] == words


@given(written, st.integers(0, 1000))
def test_words_are_where_they_say(text: str, char_offset: int) -> None:
    end = char_offset
    for word in split_words(text, char_offset):
        assert word.char_start >= end
        end = word.char_end
        assert text[word.char_start - char_offset : end - char_offset] == word.text
        assert any(char.isalnum() for char in word.text) or word.text.rstrip(",。)") in {"&", "+"}
        assert not any(char.isspace() for char in word.text)


@given(written, st.integers(0, 40))
def test_words_behind_others_are_the_same(text: str, num_told: int) -> None:
    words = split_words(text, 7)
    for told in words[:num_told]:
        rest = split_words(text, 7, begin=told.char_end - 7)
        assert rest == words[words.index(told) + 1 :]


@pytest.mark.parametrize(
    "text", ["cats & dogs", "2 + 2 = 4", "50 % off", "5 € each", "± 5", "a @ b", "x > y", "§ a", "猫 & 狗"]
)
def test_signs_that_are_words_are_said_and_no_others(text: str) -> None:
    for word in split_words(text, 0):
        if not any(char.isalnum() for char in word.text):
            without = text[: word.char_start] + text[word.char_end :]
            assert speakable(text, "en").split() != speakable(without, "en").split()


@pytest.mark.parametrize(
    "text", ["a € b", "+ milk", "> quote", "a -> b", "== title ==", "a / b", "# 5", "a ~ b", "$ ls"]
)
def test_signs_that_are_not_said_are_no_words(text: str) -> None:
    assert all(any(char.isalnum() for char in word.text) for word in split_words(text, 0))


def whole(start_ms: int, end_ms: int) -> Sound:
    """Words of a clause that leaves in one piece."""
    return Sound(start_ms, start_ms, end_ms, end_ms, is_length_known=True, is_last=True)


def tell(times: WordTimes, text: str, sound: Sound, char_start: int = 0) -> tuple[AlignedText, ...]:
    return times.tell(text, sound, char_start=char_start, num_letters=spoken_letters(text))


@given(written, st.integers(0, 10_000), st.integers(0, 10_000))
def test_times_cover_a_clause_without_gaps(text: str, start_ms: int, duration_ms: int) -> None:
    items = tell(WordTimes(70.0), text, whole(start_ms, start_ms + duration_ms), 3)
    assert len(items) == len(split_words(text, 3))
    if not items:
        return
    assert items[0].start_ms == start_ms
    assert items[-1].end_ms == start_ms + duration_ms
    assert all(item.start_ms <= item.end_ms for item in items)
    assert all(before.end_ms == after.start_ms for before, after in itertools.pairwise(items))


def test_longer_words_last_longer_and_so_do_those_before_a_pause() -> None:
    assert tell(WordTimes(70.0), "a four! 4 好", whole(0, 1500), 10) == (
        AlignedText("a", 0, 100, 10, 11),
        AlignedText("four!", 100, 700, 12, 17),
        AlignedText("4", 700, 1200, 18, 19),
        AlignedText("好", 1200, 1500, 20, 21),
    )


@given(st.text(st.characters(max_codepoint=127), max_size=40))
def test_ascii_is_split_as_any_text(text: str) -> None:
    *words, last = split_words(f"{text} é", 0)
    assert last.text == "é"
    assert words == split_words(text, 0)


class Block(NamedTuple):
    """A block of a clause that leaves block by block, its text and its speech tokens coming meanwhile."""

    duration_ms: int
    known_ahead_ms: int
    num_known_chars: int
    is_length_known: bool


blocks = st.lists(
    st.builds(Block, st.integers(0, 1000), st.integers(0, 2000), st.integers(0, 60), st.booleans()),
    min_size=1,
    max_size=4,
)


@given(st.lists(st.tuples(written, blocks), max_size=3), st.floats(1.0, 500.0))
def test_whatever_is_known_when_words_are_told_before_they_are_heard_and_once(
    clauses: list[tuple[str, list[Block]]], ms_per_letter: float
) -> None:
    times, char_start, sent_ms = WordTimes(ms_per_letter), 0, 0
    for text, parts in clauses:
        start_ms, known_ms, num_known = sent_ms, sent_ms, 0
        for part in parts:
            is_last = part is parts[-1]
            until_ms = sent_ms + part.duration_ms
            known_ms = until_ms if is_last else max(known_ms, until_ms + part.known_ahead_ms)
            num_known = len(text) if is_last else max(num_known, part.num_known_chars)
            sound = Sound(start_ms, sent_ms, until_ms, known_ms, part.is_length_known or is_last, is_last)
            told = tell(times, text[:num_known], sound, char_start)
            assert all(sent_ms <= item.start_ms for item in told)
            assert all(item.start_ms < until_ms for item in told) or is_last
            sent_ms = until_ms
        char_start += len(text)
    everything = "".join(text for text, _ in clauses)
    letters = [index for index, char in enumerate(everything) if char.isalnum()]
    assert [
        index for item in times.told for index in range(item.char_start, item.char_end) if index in letters
    ] == letters
    moments = [0, *(moment for item in times.told for moment in (item.start_ms, item.end_ms))]
    assert moments == sorted(moments)
    assert all(everything[item.char_start : item.char_end] == item.text for item in times.told)


def test_a_word_ends_within_what_is_certain_to_be_heard() -> None:
    sound = Sound(start_ms=0, sent_ms=0, until_ms=400, known_ms=520, is_length_known=False, is_last=False)
    assert tell(WordTimes(100.0), "extraordinarily", sound, 0)[0].end_ms == 520


@pytest.mark.parametrize(("known_ms", "is_length_known"), [(1_000, False), (2_100, True)])
def test_what_follows_a_word_that_is_said_for_long_begins_behind_it(known_ms: int, is_length_known: bool) -> None:
    """As if it had been written out: its end is told too soon, and nobody is said to have heard it by then."""
    times, text = WordTimes(50.0), "Pay 1,234,567 now. "
    first = Sound(start_ms=0, sent_ms=0, until_ms=400, known_ms=600, is_length_known=False, is_last=False)
    assert [(item.start_ms, item.end_ms) for item in tell(times, text, first)] == [(0, 163), (163, 600)]
    assert times.num_spoken_chars(600) == 3
    later = Sound(0, 400, 800, known_ms, is_length_known, is_last=False)
    assert tell(times, text, later) == ()
    (last,) = tell(times, text, Sound(0, 800, 2_100, 2_100, is_length_known=True, is_last=True))
    assert (last.start_ms, last.end_ms) == (1_857, 2_100)
    assert [times.num_spoken_chars(at_ms) for at_ms in (1_856, 1_857, 2_099, 2_100)] == [3, 13, 13, 18]


def test_the_pace_of_clauses_that_were_spoken_counts_more_and_more() -> None:
    times = WordTimes(100.0)
    first = Sound(start_ms=0, sent_ms=0, until_ms=400, known_ms=400, is_length_known=False, is_last=False)
    assert [item.text for item in tell(times, "word word word", first, 0)] == ["word"]
    tell(times, "word word word", whole(0, 600), 0)
    for number in range(1, 20):  # 50 ms a letter
        tell(times, "word word word", whole(600 * number, 600 * (number + 1)), 20 * number)
    later = Sound(
        start_ms=12_000, sent_ms=12_000, until_ms=12_400, known_ms=12_400, is_length_known=False, is_last=False
    )
    assert [item.text for item in tell(times, "word word word", later, 400)] == ["word", "word"]


@pytest.mark.parametrize(
    ("at_ms", "spoken"),
    [
        (0, ""),
        (399, ""),
        (400, "Four"),
        (799, "Four"),
        (800, "Four more"),
        (900, "Four more"),
        (1300, "Four more. Last!"),
    ],
)
def test_split_at_whole_words(at_ms: int, spoken: str) -> None:
    text = "Four more. Last!"
    times = WordTimes(70.0)
    tell(times, "Four more", whole(0, 800), 0)
    tell(times, " Last!", whole(900, 1300), 10)
    assert text[: times.num_spoken_chars(at_ms)] == spoken


def test_nothing_spoken() -> None:
    assert WordTimes(70.0).num_spoken_chars(1000) == 0
