"""A block's measured time: the engine's, without its writer's or listener's."""

from dataclasses import replace

import pytest

from tests.support.hollow_stages import hollow
from tests.support.tiny_engine import CONFIG, HandDrivenEngine
from voicegate.engine.core.growth import BlockTime
from voicegate.engine.interface import SpeakingMode, UtteranceId

PAUSE_S = 3.0


def first_block_s(engine: HandDrivenEngine) -> float:
    return engine.core._reprefills.block_time.first_s(engine.now_s)


def speak_until_heard(engine: HandDrivenEngine, utterance_id: UtteranceId) -> None:
    while not engine.heard[utterance_id].pcm:
        engine.step()


def test_the_pauses_of_who_writes_word_by_word_are_no_time_of_blocks() -> None:
    engine = HandDrivenEngine(CONFIG, stages=hollow().stages)
    utterance_id = engine.submit("u", mode=SpeakingMode.BISTREAM)
    engine.core.push_text(utterance_id, "Good morning, ")
    engine.run()
    assert not engine.heard[utterance_id].pcm
    engine.now_s += PAUSE_S
    engine.core.push_text(utterance_id, "it is very nice to meet you here on a day like this.")
    engine.core.end_text(utterance_id)
    speak_until_heard(engine, utterance_id)
    assert first_block_s(engine) < PAUSE_S / 2


def test_nor_is_the_time_for_which_a_clause_was_set_aside() -> None:
    engine = HandDrivenEngine(CONFIG, stages=hollow().stages)
    utterance_id = engine.submit("u")
    engine.core.push_text(utterance_id, "Good morning, it is very nice to meet you here on a day like this.")
    engine.core.end_text(utterance_id)
    utterance = engine.core._roster.by_id.get(utterance_id)
    assert utterance is not None
    while not utterance.num_started_clauses:
        engine.step()
    engine.set_aside(utterance)
    engine.now_s += PAUSE_S
    speak_until_heard(engine, utterance_id)
    assert first_block_s(engine) < PAUSE_S / 2


def test_the_second_block_of_a_first_reading_tells_what_later_ones_take(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else an engine that was slow once makes two blocks of each first reading, and never learns that it is quick."""
    stages = hollow().stages
    heard_in_full = replace(stages.model, silent_tokens=frozenset())  # so that a reading's tokens make its blocks
    engine = HandDrivenEngine(CONFIG, stages=replace(stages, model=heard_in_full))
    times = engine.core._reprefills.block_time
    times.took(0.1, 0.0, is_first=True)
    times.took(1.0, 0.0, is_first=False)
    monkeypatch.setattr(engine.core._pipeline, "read_again", lambda *_, **__: pytest.fail("it is read once"))
    later = told_later(times)
    utterance_id = engine.submit("u", mode=SpeakingMode.INCREMENTAL)
    engine.core.push_text(utterance_id, "The train to the coast leaves at nine in the morning, and it stops at every ")
    while not later:
        engine.step()
        engine.now_s += 0.01
        assert engine.now_s < 2
    assert later[0] < 0.5
    two_blocks_s = 37 * 0.04
    assert 0.9 * two_blocks_s < len(engine.heard[utterance_id].pcm) / 2 / 24_000 <= two_blocks_s


def told_later(times: BlockTime) -> list[float]:
    """Times of later blocks, as they are told."""
    took, later = times.took, list[float]()

    def noted(seconds: float, now_s: float, *, is_first: bool) -> None:
        took(seconds, now_s, is_first=is_first)
        if not is_first:
            later.append(seconds)

    times.took = noted  # type: ignore[method-assign]
    return later
