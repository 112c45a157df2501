"""A host that looks late: a short text's two blocks were launched behind each other, and it fetches both at once."""

from dataclasses import replace

import pytest

from tests.support.hollow_stages import hollow
from tests.support.lanes import LateLane, on_lane
from tests.support.tiny_engine import CONFIG, HandDrivenEngine, Heard
from tests.support.word_times import words_in_time
from voicegate.engine.interface import Done, Flushed, SpeakingMode

WORDS = ["one", "two", "six", "ten", "red", "old", "new", "big", "day", "sun", "sea", "car", "dog"]


def spoken(text: str, mode: SpeakingMode, *, is_late: bool, is_flushed: bool) -> Heard:
    """On lanes of a GPU whose LLM is always seen at once; flow and vocoder too, or once nothing else is to be done."""
    models, llm, lane = hollow(tokens_per_text_token=1, holds_back=False), LateLane(), LateLane()
    stages = replace(
        models.stages, llm=on_lane(models.runner, llm), token2wav_lane=lane, is_concurrent=True, frames_ahead=0
    )
    engine = HandDrivenEngine(CONFIG, stages)
    utterance_id = engine.submit("u", mode=mode)
    engine.core.push_text(utterance_id, text)
    if is_flushed:
        engine.core.flush_text(utterance_id, "f")
        engine.core.push_text(utterance_id, " And now this.")
    engine.core.end_text(utterance_id)
    while engine.heard[utterance_id].end is None:
        is_idle = engine.core.step().is_idle
        llm.num_reached = llm.num_marks
        if is_idle or not is_late:
            lane.num_reached = lane.num_marks
    return engine.heard[utterance_id]


@pytest.mark.parametrize("num_words", range(7, 13))  # of some the last block has hardly a token
@pytest.mark.parametrize("is_flushed", [False, True])
@pytest.mark.parametrize("mode", [SpeakingMode.CLAUSE, SpeakingMode.BISTREAM])
def test_nothing_of_it_is_lost_and_it_is_spoken_only_with_the_last(
    mode: SpeakingMode, is_flushed: bool, num_words: int
) -> None:
    text = f"{' '.join(WORDS[:num_words])}."
    prompt, late = (spoken(text, mode, is_late=is_late, is_flushed=is_flushed) for is_late in (False, True))
    assert isinstance(late.end, Done)
    assert late.pcm == prompt.pcm
    assert words_in_time(late.events)[-1].end_ms <= late.end.audio_ms
    ends = [[event.audio_ms for event in heard.events if isinstance(event, Flushed)] for heard in (prompt, late)]
    assert len(ends[0]) == is_flushed
    assert ends[0] == ends[1]
