"""Text that comes more slowly than it is said: a writer's own pace is no pause, and its speech does not drag."""

import re
from dataclasses import replace

import pytest

from tests.support.hollow_stages import hollow
from tests.support.tiny_engine import CONFIG, HandDrivenEngine
from voicegate.engine.core import constants
from voicegate.engine.core.growth import WriterPace
from voicegate.engine.interface import Done, SpeakingMode

TEXT = "Would you like me to book the hotel for two nights, or should I look for something closer to the station?"


def paced(interval_s: float, *, num_words: int = 4) -> WriterPace:
    pace = WriterPace()
    for number in range(num_words):
        pace.wrote(4, 10.0 + number * interval_s)
    return pace


@pytest.mark.parametrize(
    ("interval_s", "is_slow", "pause_s"), [(0.05, False, 0.1), (0.25, False, 0.5), (0.5, True, 1.0), (5.0, True, 2.5)]
)
def test_what_a_pause_is_goes_by_the_writers_own_pace(interval_s: float, is_slow: bool, pause_s: float) -> None:
    pace = paced(interval_s)
    assert (pace.is_slow, pace.pause_s) == (is_slow, pytest.approx(pause_s))
    assert pace.has_paused(10.0 + 3 * interval_s + 0.01) is is_slow, "nothing is bridged between slow words"
    assert pace.has_paused(10.0 + 3 * interval_s + constants.PAUSE_S + 0.01)


def test_one_long_interval_is_no_habit() -> None:
    assert not paced(0.5, num_words=2).is_slow


@pytest.mark.parametrize("words_per_s", [1.0, 2.0])
def test_a_sentence_is_one_pass_however_slowly_it_is_written(words_per_s: float) -> None:
    engine = HandDrivenEngine(replace(CONFIG, stall_ms=350), stages=hollow().stages)
    utterance_id = engine.submit("u", mode=SpeakingMode.INCREMENTAL)
    utterance = engine.core._roster.by_id.get(utterance_id)
    assert utterance is not None
    words = re.findall(r"\s*\S+", TEXT)
    heard_behind = 0
    for number, word in enumerate(words, 1):
        engine.core.push_text(utterance_id, word)
        until_s = engine.now_s + 1 / words_per_s
        while engine.now_s < until_s:
            engine.step()
        heard_behind = heard_behind or (number if engine.heard[utterance_id].pcm else 0)
    assert heard_behind <= 5, "a gap follows in any case: its first words are not kept waiting"
    engine.core.end_text(utterance_id)
    engine.run()
    assert isinstance(engine.heard[utterance_id].end, Done)
    assert utterance.num_started_clauses == 1


def test_a_slow_writer_who_stops_is_spoken_all_the_same() -> None:
    engine = HandDrivenEngine(replace(CONFIG, stall_ms=350), stages=hollow().stages)
    utterance_id = engine.submit("u", mode=SpeakingMode.INCREMENTAL)
    for word in ("Would", " you", " like", " me", " to "):
        engine.core.push_text(utterance_id, word)
        until_s = engine.now_s + 0.5
        while engine.now_s < until_s:
            engine.step()
    utterance = engine.core._roster.by_id.get(utterance_id)
    assert utterance is not None
    until_s = engine.now_s + constants.MAX_PAUSE_S
    while engine.now_s < until_s:
        engine.step()
    assert not utterance.clauses
