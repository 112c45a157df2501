"""A block's measured time: the engine's, without its writer's or listener's."""

from tests.support.hollow_stages import hollow
from tests.support.tiny_engine import CONFIG, HandDrivenEngine
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
