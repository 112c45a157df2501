"""Utterances at rest: when they rest, and that nothing of what they say later is changed by it."""

from dataclasses import replace
from typing import cast

import pytest

from tests.support.hollow_stages import hollow, hollow_voice
from tests.support.tiny_engine import CONFIG, HandDrivenEngine, Heard
from tests.support.word_times import words_in_time
from voicegate.engine.config import EngineConfig
from voicegate.engine.core import constants
from voicegate.engine.core.stages import ReadyVoice, VoiceRoom
from voicegate.engine.interface import (
    AtRest,
    AudioReady,
    Cancelled,
    Done,
    EngineEvent,
    SpeakingMode,
    UtteranceId,
)

STALL_S, STALL_LEAD_S = 0.35, 0.5
STALLING = replace(CONFIG, stall_ms=350, stall_lead_ms=500)
FIRST, SECOND = "Good morning, my friend. ", "It is 12:30 now."
MODES = [SpeakingMode.CLAUSE, SpeakingMode.INCREMENTAL, SpeakingMode.BISTREAM]


def rests_of(heard: Heard) -> list[int]:
    return [event.num_chars for event in heard.events if isinstance(event, AtRest)]


def hollow_engine(config: EngineConfig = CONFIG) -> HandDrivenEngine:
    return HandDrivenEngine(config, hollow().stages)


def until_idle(engine: HandDrivenEngine) -> float | None:
    """When to come back."""
    while True:
        decision = engine.core.step()
        if decision.is_idle:
            return decision.wake_at_s


def until_rest(engine: HandDrivenEngine, utterance_id: UtteranceId) -> None:
    num_before = len(rests_of(engine.heard[utterance_id]))
    while (wake_s := until_idle(engine)) is not None and len(rests_of(engine.heard[utterance_id])) == num_before:
        engine.now_s = wake_s


@pytest.mark.parametrize("mode", MODES)
def test_who_rested_sounds_as_one_that_did_not(mode: SpeakingMode) -> None:
    """Its voice, its seed, what its text said before, and the encoder are where they were."""
    rested, in_one_go = hollow_engine(), hollow_engine()
    for engine in (rested, in_one_go):
        utterance_id = engine.submit("u", mode=mode)
        engine.core.push_text(utterance_id, FIRST)
        engine.core.flush_text(utterance_id, "f")
        if engine is rested:
            until_idle(engine)
            assert rests_of(engine.heard[utterance_id]) == [len(FIRST)]
            assert engine.core.num_placed == 0
            other = engine.submit("other", mode=mode, seed=5)
            engine.core.push_text(other, "And somebody else. ")
            engine.core.end_text(other)
            until_idle(engine)
        engine.core.push_text(utterance_id, SECOND)
        engine.core.end_text(utterance_id)
        until_idle(engine)
        assert isinstance(engine.heard[utterance_id].end, Done)
    heard, wanted = (engine.heard[UtteranceId("u")] for engine in (rested, in_one_go))
    assert heard.pcm == wanted.pcm
    assert words_in_time(heard.events) == words_in_time(wanted.events)


@pytest.mark.parametrize("mode", [SpeakingMode.CLAUSE, SpeakingMode.INCREMENTAL])
def test_a_writer_who_has_paused_behind_a_sentence_leaves_its_place_before_the_listener_has_an_underrun(
    mode: SpeakingMode,
) -> None:
    engine = hollow_engine(STALLING)
    utterance_id = engine.submit("u", mode=mode)
    engine.core.push_text(utterance_id, FIRST)
    heard = engine.heard[utterance_id]
    until_idle(engine)
    left_ms = sum(len(event.packets) * 20 for event in heard.events if isinstance(event, AudioReady))
    assert left_ms > 1000 * (STALL_S + STALL_LEAD_S)
    assert not rests_of(heard), "more may come, and be missed"
    until_rest(engine, utterance_id)
    assert rests_of(heard) == [len(FIRST)]
    until_idle(engine)
    played_ms = sum(len(event.packets) * 20 for event in heard.events if isinstance(event, AudioReady))
    assert engine.now_s == pytest.approx(max(STALL_S, played_ms / 1000 - STALL_LEAD_S), abs=0.03)
    engine.core.push_text(utterance_id, SECOND)
    until_idle(engine)
    assert engine.core.num_placed == 1
    engine.core.end_text(utterance_id)
    until_idle(engine)
    assert isinstance(heard.end, Done)


def test_half_a_number_keeps_its_place_for_as_long_as_it_waits() -> None:
    engine = hollow_engine(STALLING)
    utterance_id = engine.submit("u")
    engine.core.push_text(utterance_id, "It is 3")
    engine.now_s = STALL_S
    assert until_idle(engine) == constants.HALF_WORD_S
    assert not rests_of(engine.heard[utterance_id])
    engine.core.flush_text(utterance_id, "f")
    until_idle(engine)
    assert rests_of(engine.heard[utterance_id]) == [len("It is 3")]


def test_what_was_flushed_without_a_word_rests_too_and_a_cancel_tells_all_of_its_text() -> None:
    engine = hollow_engine()
    utterance_id = engine.submit("u")
    for number, text in enumerate(("...", "", " ")):
        engine.core.push_text(utterance_id, text)
        engine.core.flush_text(utterance_id, str(number))
        until_idle(engine)
    assert rests_of(engine.heard[utterance_id]) == [3, 4]
    engine.core.cancel(utterance_id, None)
    end = engine.heard[utterance_id].end
    assert isinstance(end, Cancelled)
    assert end.spoken_text + end.remaining_text == "... "


def test_contexts_that_come_back_from_rest_hold_no_voice_against_others() -> None:
    """There is room for one voice, and always one of two contexts speaks with it."""
    stages = hollow().stages
    engine = HandDrivenEngine(CONFIG, replace(stages, voice_room=VoiceRoom(stages.voice_room.prompt_tokens[:1])))
    core = engine.core
    core.prepare_voice(hollow_voice("guest"), lambda ready: core.install_voice(cast(ReadyVoice, ready)))
    engine.run()
    contexts = [engine.submit(name) for name in ("a", "b")]
    told = dict.fromkeys(contexts, -1)
    guest, is_asked = engine.submit("c", voice="guest"), False
    while not engine.heard[guest].pcm:
        for context in contexts:
            if (num_rests := len(rests_of(engine.heard[context]))) > told[context]:
                assert num_rests < 10, "they speak in turn for ever"
                told[context] = num_rests
                core.push_text(context, FIRST)
                core.flush_text(context, str(num_rests))
                engine.now_s += 0.001
                engine.step()
        if told[contexts[1]] == 2 and not is_asked:
            is_asked = True
            core.push_text(guest, SECOND)
            core.end_text(guest)
        engine.now_s += 0.001
        assert engine.step()
    for context in contexts:
        core.end_text(context)
    engine.run()
    assert all(isinstance(heard.end, Done) for heard in engine.heard.values())


def heard_in_order(engine: HandDrivenEngine) -> list[UtteranceId]:
    """Utterances as their audio came, from now on, each once in a row."""
    order: list[UtteranceId] = []
    hear = engine._hear

    def noted(events: list[EngineEvent]) -> None:
        for event in events:
            if isinstance(event, AudioReady) and event.utterance_id not in order[-1:]:
                order.append(event.utterance_id)
        hear(events)

    engine.core._reception._sink = noted
    return order


def test_a_context_that_comes_back_waits_its_turn_behind_an_older_new_request_and_a_listener() -> None:
    """All of its audio has been played: nobody waits in the middle of it."""
    engine = hollow_engine(replace(CONFIG, max_active_clauses=1))
    order = heard_in_order(engine)
    core = engine.core
    resting, listener = (engine.submit(name) for name in ("resting", "listener"))
    core.push_text(resting, FIRST)
    core.flush_text(resting, "f")
    engine.run()
    engine.now_s = 60.0
    core.push_text(listener, FIRST)
    core.flush_text(listener, "f")
    engine.run()
    assert core.num_placed == 0
    deadline_s = core._roster.by_id[listener].deadline_s
    assert deadline_s is not None
    holder, new_request = (engine.submit(name) for name in ("holder", "new"))
    core.push_text(holder, SECOND)
    core.end_text(holder)
    engine.step()
    engine.now_s += 0.1
    core.push_text(new_request, SECOND)
    core.end_text(new_request)
    engine.step()
    engine.now_s += 0.1
    core.push_text(resting, SECOND)
    core.end_text(resting)
    engine.step()
    core.push_text(listener, SECOND)
    core.end_text(listener)
    order.clear()
    engine.run()
    assert engine.now_s < deadline_s, "it has never been without audio"
    assert order == [holder, listener, new_request, resting]


def test_text_of_a_context_that_comes_back_may_come_to_wait_for_room_as_a_new_requests() -> None:
    engine = hollow_engine()
    for name in ("a", "b"):
        utterance_id = engine.submit(name)
        engine.core.push_text(utterance_id, FIRST)
        engine.core.flush_text(utterance_id, "f")
        engine.run()
    num_welcome = engine.core.num_welcome
    engine.core.push_text(UtteranceId("a"), SECOND)
    assert engine.core.num_welcome == num_welcome - 1
    engine.core.push_text(engine.submit("c"), SECOND)
    assert engine.core.num_welcome == num_welcome - 2


def test_a_rest_makes_no_slow_writer() -> None:
    """Its words come as fast as before: it has paused as soon, and as many words are promised."""
    engine = hollow_engine(STALLING)
    utterance_id = engine.submit("u", mode=SpeakingMode.INCREMENTAL)
    utterance = engine.core._roster.by_id[utterance_id]

    def write() -> None:
        for word in ("The ", "train ", "leaves ", "at ", "nine. "):
            engine.core.push_text(utterance_id, word)
            engine.now_s += 0.05

    write()
    pace = utterance.pace
    promised = pace.letters_within(1.0, engine.now_s)
    until_rest(engine, utterance_id)
    engine.now_s += 60.0
    write()
    assert not pace.is_slow
    assert pace.pause_s < STALL_S
    assert pace.letters_within(1.0, engine.now_s) >= promised


def test_what_is_said_at_once_after_rests_makes_no_fast_writer() -> None:
    """As an agent that goes on after tools: the first blocks would have no words after them."""
    engine = hollow_engine(STALLING)
    utterance_id = engine.submit("u", mode=SpeakingMode.INCREMENTAL)
    utterance = engine.core._roster.by_id[utterance_id]
    promised = []
    for _ in range(4):
        engine.core.push_text(utterance_id, "I have found a train that would suit you, and ")
        for word in ("it ", "leaves ", "at ", "nine. "):
            engine.now_s += 0.3
            engine.core.push_text(utterance_id, word)
        promised.append(utterance.pace.letters_within(1.0, engine.now_s))
        until_rest(engine, utterance_id)
        engine.now_s += 60.0
    assert promised == pytest.approx(promised[:1] * 4, rel=0.25)
