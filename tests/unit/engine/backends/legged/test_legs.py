"""A sequence as requests: ids of the merged vocabulary, ends, strays, pauses, and room. No package, no threads."""

from typing import Any

import pytest

from tests.unit.engine.backends.legged.support import CONFIG, VOCABULARY
from voicegate.engine.backends.legged.legs import Leg, LeggedSequence, LegNews
from voicegate.engine.llm.backend import LlmPrompt, SequenceOutput, SequenceRequest
from voicegate.engine.llm.bistream import Bistream
from voicegate.engine.llm.sequence import Growing, make_sequence

FIRST = VOCABULARY.first_speech_id
EOS = VOCABULARY.eos_id
FILL = FIRST + CONFIG.fill_id
TEXT_STRAY, ZERO_ROW = 5, VOCABULARY.num_ids  # no speech: a text id, a row that pads the table
PROMPT = LlmPrompt((1, CONFIG.end_of_prompt_id or 0), (7,))


def legged(*, max_positions: int = 100, **request: Any) -> LeggedSequence:
    made = SequenceRequest(1, PROMPT, **{"text_ids": (10, 11), "max_tokens": 4, "seed": 9, **request})
    sequence = make_sequence(CONFIG, made)
    assert not isinstance(sequence, Bistream)
    return LeggedSequence(made, sequence, CONFIG, VOCABULARY, max_positions=max_positions)


def growing() -> LeggedSequence:
    return legged(text_ids=(), is_growing=True, max_tokens=50)


def read(subject: LeggedSequence, text_ids: tuple[int, ...], *, until: int | None) -> Leg | None:
    assert isinstance(subject.sequence, Growing)
    subject.sequence.read(text_ids, until=until)
    subject.lay_out()
    return subject.next_leg()


def speech(*tokens: int) -> tuple[int, ...]:
    return tuple(FIRST + token for token in tokens)


def told(subject: LeggedSequence, *ids: int, finish_reason: str | None = None) -> SequenceOutput | None:
    subject.take(LegNews(0, ids, finish_reason))
    return subject.output(is_leg_over=finish_reason is not None)


def test_a_prompt_in_the_merged_vocabulary() -> None:
    leg = legged().next_leg()
    assert leg == Leg(
        (FIRST + CONFIG.sos_id, 1, 3, 10, 11, FIRST + CONFIG.task_id, FIRST + 7),
        max_tokens=4,
        seed=9,
        spoken=(),
        min_tokens=4,
    )


@pytest.mark.parametrize("end", [(EOS,), ()])
def test_it_ends_whether_the_end_is_shown_or_not(end: tuple[int, ...]) -> None:
    subject = legged()
    subject.next_leg()
    assert told(subject, *speech(4, 5)) == SequenceOutput(1, (4, 5))
    assert told(subject, *end, finish_reason="stop") == SequenceOutput(1, is_final=True)
    assert subject.has_ended
    assert subject.next_leg() is None


@pytest.mark.parametrize("end", [FILL, FIRST + CONFIG.sos_id, FIRST + CONFIG.num_speech_rows - 1])
def test_other_ids_that_end_speech_end_it_here(end: int) -> None:
    """The package is told of one alone: what it makes until it has heard of the abort is nobody's."""
    subject = legged()
    subject.next_leg()
    assert told(subject, *speech(4), end, *speech(5)) == SequenceOutput(1, (4,), is_final=True)
    assert subject.num_strays == 0


def test_a_length_limit() -> None:
    subject = legged()
    subject.next_leg()
    output = told(subject, *speech(1, 2, 3, 4), finish_reason="length")
    assert output == SequenceOutput(1, (1, 2, 3, 4), is_final=True, is_truncated=True)


def test_strays_are_no_speech_and_are_made_up_for() -> None:
    subject = legged()
    subject.next_leg()
    assert told(subject, *speech(1), TEXT_STRAY, ZERO_ROW, *speech(2), finish_reason="length") == SequenceOutput(
        1, (1, 2)
    )
    assert subject.num_strays == 2
    again = subject.next_leg()
    assert again is not None
    assert again.prompt_ids[-3:] == speech(7, 1, 2), "what is no speech is not fed again"
    assert (again.max_tokens, again.spoken) == (2, (1, 2))


def test_strays_alone_are_a_failure_not_a_circle() -> None:
    subject = legged()
    subject.next_leg()
    output = told(subject, TEXT_STRAY, TEXT_STRAY, TEXT_STRAY, TEXT_STRAY, finish_reason="length")
    assert output is not None
    assert output.error is not None
    assert "no speech" in output.error
    assert subject.next_leg() is None


def test_a_reading_pauses_when_its_leg_is_over() -> None:
    subject = growing()
    assert subject.next_leg() is None
    leg = read(subject, (10, 11), until=3)
    assert leg is not None
    assert leg.max_tokens == 3
    assert told(subject, *speech(4, 5, 6)) == SequenceOutput(1, (4, 5, 6)), "its keys are not stored yet"
    assert told(subject, finish_reason="length") == SequenceOutput(1, is_paused=True)
    leg = read(subject, (10, 11, 12), until=None)
    assert leg is not None
    assert leg.prompt_ids == (
        *(FIRST + CONFIG.sos_id, 1, 3, 10, 11, 12, FIRST + CONFIG.task_id),
        *speech(7, 4, 5, 6),
    )
    assert (leg.max_tokens, leg.spoken) == (47, (4, 5, 6))
    assert told(subject, *speech(8), EOS, finish_reason="stop") == SequenceOutput(1, (8,), is_final=True)


@pytest.mark.parametrize("end", [(EOS,), (FILL,), ()])
def test_an_end_before_the_text_is_complete_is_a_pause(end: tuple[int, ...]) -> None:
    subject = growing()
    read(subject, (10, 11), until=3)
    paused = SequenceOutput(1, (4,), is_paused=True, is_spent=True)
    assert told(subject, *speech(4), *end, finish_reason="stop") == paused
    assert subject.next_leg() is None
    leg = read(subject, (10, 11, 12), until=3)
    assert leg is not None
    assert (leg.max_tokens, leg.spoken) == (2, (4,))
    assert told(subject, *speech(5, 6), finish_reason="length") == SequenceOutput(1, (5, 6), is_paused=True)


def test_a_slot_without_room() -> None:
    subject = legged(max_positions=9)
    leg = subject.next_leg()
    assert leg is not None
    assert leg.max_tokens == 2
    assert told(subject, *speech(1, 2), finish_reason="length") == SequenceOutput(1, (1, 2))
    assert subject.next_leg() is None
    output = subject.output(is_leg_over=True)
    assert output is not None
    assert output.error == "text and speech need more than the 9 positions of an LLM slot"
    assert legged(max_positions=6).next_leg() is None


@pytest.mark.parametrize("reason", ["cancelled", "timeout", "something new"])
def test_an_end_that_nobody_asked_for_is_a_failure(reason: str) -> None:
    subject = legged()
    subject.next_leg()
    output = told(subject, *speech(1), finish_reason=reason)
    assert output == SequenceOutput(1, (1,), error=f"the LLM's executor ended this sequence: {reason}")


def test_no_text_is_nothing_to_ask_for() -> None:
    subject = legged(text_ids=())
    assert subject.next_leg() is None
    assert subject.output(is_leg_over=False) == SequenceOutput(1, is_final=True)
