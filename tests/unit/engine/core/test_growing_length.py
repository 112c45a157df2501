"""A sentence that is spoken while it grows: what was said of it is in its clause, however long it becomes."""

import re
from dataclasses import replace

import pytest

from tests.support.hollow_stages import hollow
from tests.support.lanes import LateLane
from tests.support.tiny_engine import CONFIG, HandDrivenEngine
from voicegate.engine.interface import Done, SpeakingMode

# With a comma at which it would be cut, where nothing was said of it yet.
LONG = (
    "After the meeting ended late on a Tuesday evening in the small town, the committee members who had travelled"
    " from all over the country to discuss the proposal decided that it would be better to postpone the final decision"
    " until the next meeting which is planned for the second half of the coming year and will take place online."
)


def spoken_ms(words_per_s: float) -> int:
    engine = HandDrivenEngine(replace(CONFIG, lead_ms=3000, stall_ms=350), stages=hollow().stages)
    utterance_id = engine.submit("u", mode=SpeakingMode.INCREMENTAL)
    words = re.findall(r"\S+\s*", LONG)
    num_written = 0
    while (end := engine.heard[utterance_id].end) is None:
        while num_written < len(words) and engine.now_s >= num_written / words_per_s:
            engine.core.push_text(utterance_id, words[num_written])
            num_written += 1
            if num_written == len(words):
                engine.core.end_text(utterance_id)
        engine.step()
    assert isinstance(end, Done)
    return end.audio_ms


@pytest.mark.parametrize("words_per_s", [10, 5, 3])
def test_nothing_of_it_is_said_twice(words_per_s: float) -> None:
    assert spoken_ms(words_per_s) < spoken_ms(1000) + 500


def test_a_reading_that_the_model_ends_is_read_again_with_more_words_alone() -> None:
    """Its words take less time than the voice's letters: each reading is over before its block is whole."""
    parts = hollow(tokens_per_text_token=1)
    engine = HandDrivenEngine(replace(CONFIG, stall_ms=5000), stages=parts.stages)
    utterance_id = engine.submit("u", mode=SpeakingMode.INCREMENTAL)
    for number, word in enumerate(re.findall(r"\S+\s*", LONG), 1):
        engine.core.push_text(utterance_id, word)
        until_s = engine.now_s + 0.1
        while engine.now_s < until_s:
            engine.step()
        assert parts.runner.num_reprefills <= number
    assert parts.runner.num_reprefills > 2
    engine.core.end_text(utterance_id)
    engine.run()
    assert isinstance(engine.heard[utterance_id].end, Done)


@pytest.mark.parametrize("ends_at_ms", range(4, 60, 8))
def test_text_that_comes_while_steps_after_the_models_end_are_on_their_way_is_said(ends_at_ms: int) -> None:
    """Nothing tells the engine that such a step is over but its own output: without it nobody would look again."""
    parts = hollow(tokens_per_text_token=1)
    lane = parts.runner._lane = LateLane()
    engine = HandDrivenEngine(replace(CONFIG, stall_ms=350), stages=parts.stages)
    utterance_id = engine.submit("u", mode=SpeakingMode.INCREMENTAL)
    for word in re.findall(r"\S+\s*", LONG)[:8]:
        engine.core.push_text(utterance_id, word)
    for number in range(4000):
        if number == 2 * ends_at_ms:
            engine.core.push_text(utterance_id, "evening.")
            engine.core.end_text(utterance_id)
        engine.core.step()
        engine.now_s += 0.0005
        if number % 6 == 0 and lane.num_reached < lane.num_marks:  # 3 ms a step
            lane.num_reached += 1
        if engine.heard[utterance_id].end is not None:
            break
    assert isinstance(engine.heard[utterance_id].end, Done)
