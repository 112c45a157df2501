"""Background work on the real core and hollow models: live streams do not feel it, and it comes to its end."""

from dataclasses import replace

import pytest
from structlog.testing import capture_logs

from tests.support.hollow_stages import hollow
from tests.support.tiny_engine import CONFIG, HandDrivenEngine
from voicegate.engine.interface import AudioReady, Done, UtteranceId

SENTENCE = "The train to the coast leaves at nine. "
PACED = replace(CONFIG, lead_ms=1_000)


def say(engine: HandDrivenEngine, name: str, text: str, *, is_background: bool = False) -> UtteranceId:
    utterance_id = engine.submit(name, is_background=is_background)
    engine.core.push_text(utterance_id, text)
    engine.core.end_text(utterance_id)
    return utterance_id


def made_s(engine: HandDrivenEngine, utterance_id: UtteranceId) -> float:
    return 0.02 * sum(len(e.packets) for e in engine.heard[utterance_id].events if isinstance(e, AudioReady))


def steps_until_heard(engine: HandDrivenEngine, utterance_id: UtteranceId) -> int:
    num_steps = 0
    while not made_s(engine, utterance_id):
        engine.step()
        num_steps += 1
    return num_steps


@pytest.mark.parametrize("is_concurrent", [False, True])
def test_a_new_request_goes_before_background_work_that_came_first(is_concurrent: bool) -> None:
    engine = HandDrivenEngine(PACED, replace(hollow().stages, is_concurrent=is_concurrent))
    parts = [say(engine, f"part {number}", SENTENCE * 8, is_background=True) for number in range(3)]
    for _ in range(5):
        engine.step()
    live = say(engine, "live", SENTENCE)
    num_beside = steps_until_heard(engine, live)
    alone = HandDrivenEngine(PACED, replace(hollow().stages, is_concurrent=is_concurrent))
    by_itself = say(alone, "live", SENTENCE)
    assert num_beside <= steps_until_heard(alone, by_itself) + 12, "no more than what was begun before"
    engine.run()
    alone.run()
    assert all(isinstance(engine.heard[name].end, Done) for name in (*parts, live))
    assert engine.heard[live].pcm == alone.heard[by_itself].pcm


def test_background_work_is_made_without_a_pause_and_a_live_stream_with_its_lead() -> None:
    engine = HandDrivenEngine(PACED, hollow().stages)
    part, live = say(engine, "part", SENTENCE * 8, is_background=True), say(engine, "live", SENTENCE * 8)
    while not engine.core.step().is_idle:
        pass
    assert isinstance(engine.heard[part].end, Done)
    assert made_s(engine, live) < 3 < made_s(engine, part)


def test_background_work_goes_on_beside_live_streams_that_always_have_work() -> None:
    """With a lead without end: it crawls, and ends before them."""
    config = replace(CONFIG, lead_ms=60_000)
    engine = HandDrivenEngine(config, replace(hollow(num_slots=6).stages, is_concurrent=True))
    part = say(engine, "part", SENTENCE, is_background=True)
    live = [say(engine, f"live {number}", SENTENCE * 40) for number in range(4)]
    while engine.heard[part].end is None:
        assert engine.step()
        assert any(engine.heard[name].end is None for name in live)
    assert isinstance(engine.heard[part].end, Done)


def test_it_does_not_make_few_live_streams_many() -> None:
    engine = HandDrivenEngine(replace(CONFIG, max_active_clauses=40), hollow(num_slots=40).stages)
    for number in range(30):
        say(engine, f"part {number}", SENTENCE, is_background=True)
    engine.step()
    roster = engine.core._roster
    assert len(roster.background) == 30
    assert not roster.are_many()


def test_where_memory_runs_out_background_work_makes_way_for_all_others() -> None:
    engine = HandDrivenEngine(replace(CONFIG, expected_tokens_per_text_token=0), hollow(num_blocks=6).stages)
    part = say(engine, "part", SENTENCE * 2, is_background=True)
    for _ in range(40):
        engine.step()
    live = [say(engine, f"live {number}", SENTENCE * 2) for number in range(3)]
    with capture_logs() as logs:
        engine.run()
    aside = [entry["utterance"] for entry in logs if entry["event"] == "clause_set_aside"]
    assert aside[0] == part
    assert all(isinstance(engine.heard[name].end, Done) for name in (part, *live))


def test_background_work_that_waits_for_room_does_not_hurry_live_streams() -> None:
    """Where a live stream waits for room the others are made ahead of their lead, to be through sooner."""
    engine = HandDrivenEngine(replace(PACED, max_active_clauses=2), hollow(num_slots=2).stages)
    live = [say(engine, f"live {number}", SENTENCE * 4) for number in range(2)]
    part = say(engine, "part", SENTENCE, is_background=True)
    for _ in range(20):
        engine.step()
    assert not engine.core._roster.is_room_short
    while any(engine.heard[name].end is None for name in (part, *live)):
        engine.step()
    assert isinstance(engine.heard[part].end, Done)
