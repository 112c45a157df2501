"""A text that is read again as it grows: what a reading feeds, where it pauses, and that one reading is unistream."""

import pytest

from tests.unit.engine.llm.support import (
    END_OF_PROMPT,
    EOS,
    SOS,
    TASK,
    Recording,
    golden_llm_config,
    run_until_stuck,
    scripted,
)
from voicegate.engine.llm.backend import InvalidRequest, LlmPrompt
from voicegate.engine.llm.feed import SequenceState, speech_rows
from voicegate.engine.llm.sequence import Growing, Unistream

CONFIG = golden_llm_config()
PROMPT = LlmPrompt((11, END_OF_PROMPT, 12), (101, 102))


def growing(*, max_tokens: int | None = None) -> Growing:
    return Growing(CONFIG, PROMPT, max_tokens=max_tokens)


def speak(sequence: Growing, tokens: list[int]) -> None:
    for token in tokens:
        assert sequence.state is SequenceState.RUNNABLE
        sequence.advance(token)


def speech(*ids: int) -> list[int]:
    rows: list[int] = speech_rows(CONFIG, ids).tolist()
    return rows


def test_waits_until_it_is_read_and_pauses_where_it_was_told() -> None:
    sequence = growing()
    assert (sequence.state, sequence.feed) == (SequenceState.WAITING, None)
    sequence.read((21, 22), until=3)
    speak(sequence, [1, 2, 3])
    assert (sequence.state, sequence.feed) == (SequenceState.WAITING, None)
    assert sequence.decoded == [1, 2, 3]


def test_a_reading_has_the_words_known_by_then_and_the_speech_made_so_far() -> None:
    sequence = growing()
    sequence.read((21, 22), until=2)
    assert sequence.feed is not None
    assert sequence.feed.rows.tolist() == [*speech(SOS), 11, END_OF_PROMPT, 12, 21, 22, *speech(TASK, 101, 102)]
    assert sequence.feed.num_kept == 0
    speak(sequence, [1, 2])
    sequence.read((21, 22, 23), until=5)
    # An equal beginning stays: sos, the prompt's text and the words known then.
    assert sequence.feed.num_kept == 6
    assert sequence.feed.rows.tolist() == [23, *speech(TASK, 101, 102, 1, 2)]


@pytest.mark.parametrize("second", [(21, 22), (21, 22, 23), (21, 29, 23), (29,), (21,), (101, 102)])
@pytest.mark.parametrize("first", [(21, 22), (21,), (22, 21)])
@pytest.mark.parametrize("num_spoken", [1, 3])
def test_what_stays_is_all_that_two_readings_begin_with_but_for_the_last_position(
    first: tuple[int, ...], second: tuple[int, ...], num_spoken: int
) -> None:
    sequence = growing()
    sequence.read(first, until=num_spoken)
    speak(sequence, [101, 102, 3][:num_spoken])
    before = sequence.layout.tolist()
    sequence.read(second, until=num_spoken + 1)
    now, feed = sequence.layout.tolist(), sequence.feed
    assert feed is not None
    assert feed.num_kept is not None
    assert now[: feed.num_kept] + feed.rows.tolist() == now
    num_common = next((n for n, (one, other) in enumerate(zip(before, now, strict=False)) if one != other), len(before))
    assert feed.num_kept == min(num_common, len(now) - 1)


def test_an_end_pauses_the_reading_while_text_grows_and_ends_the_speech_once_it_is_complete() -> None:
    sequence = growing()
    sequence.read((21,), until=5)
    speak(sequence, [1, 2])
    assert sequence.advance(EOS) is None
    assert (sequence.state, sequence.is_spent, sequence.feed) == (SequenceState.WAITING, True, None)
    sequence.read((21, 22), until=None)
    assert not sequence.is_spent
    assert sequence.feed is not None
    assert sequence.layout.tolist()[-2:] == speech(1, 2), "the end is not fed"
    assert sequence.feed.ignore_eos  # two tokens of a least of four
    speak(sequence, [3, 4])
    assert sequence.feed is not None
    assert not sequence.feed.ignore_eos
    assert sequence.advance(EOS) is None
    assert sequence.state is SequenceState.FINISHED


def test_one_reading_of_complete_text_is_unistream() -> None:
    tokens = [*range(1, 30), EOS]
    whole, grown = Recording(), Recording()
    run_until_stuck(Unistream(CONFIG, PROMPT, (21, 22)), scripted(tokens), whole)
    sequence = growing()
    sequence.read((21, 22), until=None)
    run_until_stuck(sequence, scripted(tokens), grown)
    assert grown == whole
    assert sequence.state is SequenceState.FINISHED


@pytest.mark.parametrize(("limit", "state"), [(5, SequenceState.TRUNCATED), (None, SequenceState.WAITING)])
def test_the_callers_limit_cuts_it_off_in_any_reading(limit: int | None, state: SequenceState) -> None:
    sequence = growing(max_tokens=limit)
    sequence.read((21,), until=5)
    speak(sequence, [1, 2, 3, 4, 5])
    assert sequence.state is state


def test_text_completed_behind_its_length_limit_says_no_more() -> None:
    sequence = growing()
    sequence.read((21,), until=25)
    speak(sequence, list(range(25)))
    sequence.read((21,), until=None)  # 20 tokens at most, and 25 are spoken
    assert (sequence.state, sequence.feed) == (SequenceState.TRUNCATED, None)


def test_what_cannot_be_read_is_refused_and_changes_nothing() -> None:
    sequence = growing()
    with pytest.raises(InvalidRequest, match="without text"):
        sequence.read((), until=3)
    with pytest.raises(InvalidRequest, match="endofprompt"):
        Growing(CONFIG, LlmPrompt()).read((21,), until=3)
    sequence.read((21,), until=2)
    with pytest.raises(InvalidRequest, match="paused"):
        sequence.read((21, 22), until=5)
    speak(sequence, [1, 2])
    with pytest.raises(InvalidRequest, match="would add none"):
        sequence.read((21, 22), until=2)
    assert (sequence.state, sequence.decoded) == (SequenceState.WAITING, [1, 2])
