"""The tiny model: speech that made way for others in the middle is, bit by bit, the speech that was left alone."""

from dataclasses import replace

import pytest

from tests.support.tiny_engine import CONFIG, HandDrivenEngine, tiny_stages
from voicegate.engine.interface import Done, SpeakingMode

TEXT = "Good morning, how are you today? Fine."


def spoken(mode: SpeakingMode, *, set_aside_at: tuple[int, ...] = (), speed: float = 1.0) -> bytes:
    """After so many steps its front clause is set aside; the next step may take it up again."""
    engine = HandDrivenEngine(replace(CONFIG, llm_ahead_tokens=40))
    utterance_id = engine.submit("u", mode=mode, speed=speed)
    engine.core.push_text(utterance_id, TEXT)
    engine.core.end_text(utterance_id)
    for step in range(max(set_aside_at, default=0)):
        engine.step()
        if step + 1 in set_aside_at:
            (utterance,) = engine.core._roster
            engine.set_aside(utterance)
    engine.run()
    heard = engine.heard[utterance_id]
    assert isinstance(heard.end, Done)
    return heard.pcm


# In the LLM's first tokens, within a block, behind a block, twice in a clause, in the last clause.
PLACES = ((3,), (22,), (33, 51), (26, 74))
IN_ONE_CLAUSE = ((26, 50),)  # `bistream` has one, of fewer steps


@pytest.mark.parametrize(
    ("mode", "places"),
    [
        (SpeakingMode.CLAUSE, PLACES),
        (SpeakingMode.BISTREAM, IN_ONE_CLAUSE),
        (SpeakingMode.INCREMENTAL, PLACES[-1:]),
        pytest.param(SpeakingMode.BISTREAM, PLACES[:-1], marks=pytest.mark.soak),
        pytest.param(SpeakingMode.INCREMENTAL, PLACES[:-1], marks=pytest.mark.soak),
    ],
)
def test_not_a_bit_is_lost_said_twice_or_changed(mode: SpeakingMode, places: tuple[tuple[int, ...], ...]) -> None:
    whole = spoken(mode)
    before = (tiny_stages().llm.num_free_slots, tiny_stages().flow.num_free_blocks)
    for steps in places:
        assert spoken(mode, set_aside_at=steps) == whole
    assert (tiny_stages().llm.num_free_slots, tiny_stages().flow.num_free_blocks) == before


def test_nor_where_the_speed_is_another() -> None:
    assert spoken(SpeakingMode.CLAUSE, set_aside_at=(38,), speed=1.25) == spoken(SpeakingMode.CLAUSE, speed=1.25)


def test_a_sentence_that_is_still_being_written_goes_on() -> None:
    engine = HandDrivenEngine()
    utterance_id = engine.submit("u", mode=SpeakingMode.INCREMENTAL)
    for word in TEXT.split(" "):
        engine.core.push_text(utterance_id, f"{word} ")
        for _ in range(25):
            engine.step()
        (utterance,) = engine.core._roster
        if utterance.clauses:
            engine.set_aside(utterance)
    engine.core.end_text(utterance_id)
    engine.run()
    end = engine.heard[utterance_id].end
    assert isinstance(end, Done)
    assert end.audio_ms > 1000
