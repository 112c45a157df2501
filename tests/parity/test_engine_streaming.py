"""The tiny model through the whole engine: however text arrives and whoever else speaks, the samples are the same."""

from dataclasses import replace
from functools import cache
from typing import cast

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.tiny_engine import CONFIG, FirstSequenceFails, HandDrivenEngine, Heard, tiny_runner, tiny_stages
from tests.support.word_times import words_in_time
from voicegate.engine.interface import (
    AtRest,
    AudioReady,
    Cancelled,
    Done,
    Failed,
    Flushed,
    ListenerReport,
    SpeakingMode,
)
from voicegate.engine.llm.backend import LlmBackend

TEXT = "Good morning, how are you today? Fine."


@cache
def alone(*, mode: SpeakingMode = SpeakingMode.CLAUSE, seed: int = 1, speed: float = 1.0) -> Heard:
    """TEXT, given whole to an engine of its own."""
    heard = HandDrivenEngine().speak("alone", [TEXT], mode=mode, seed=seed, speed=speed)
    assert isinstance(heard.end, Done)
    assert heard.end.audio_ms > 1000
    return heard


def samples(heard: Heard) -> npt.NDArray[np.float64]:
    return np.frombuffer(heard.pcm, "<i2").astype(np.float64)


def assert_same_speech(heard: npt.NDArray[np.float64], expected: npt.NDArray[np.float64]) -> None:
    """Batched matrix products round differently, and the vocoder's phase adds that up over time; other speech, or one
    token more or less, is nowhere near 1 % of the signal."""
    assert len(heard) == len(expected)
    assert np.sqrt(np.mean((heard - expected) ** 2)) < 0.01 * np.sqrt(np.mean(expected**2))


@settings(max_examples=3)
@given(cuts=st.lists(st.integers(1, len(TEXT) - 1), max_size=6, unique=True).map(sorted))
@pytest.mark.parametrize("mode", [SpeakingMode.CLAUSE, SpeakingMode.BISTREAM])
def test_any_split_of_the_text_gives_the_same_samples(mode: SpeakingMode, cuts: list[int]) -> None:
    pieces = [TEXT[a:b] for a, b in zip([0, *cuts], [*cuts, len(TEXT)], strict=True)]
    split = HandDrivenEngine().speak("split", pieces, mode=mode)
    assert split.pcm == alone(mode=mode).pcm


def test_lanes_side_by_side_say_what_one_processor_says() -> None:
    side_by_side = HandDrivenEngine(CONFIG, replace(tiny_stages(), is_concurrent=True))
    assert side_by_side.speak("u", [TEXT]).pcm == alone().pcm


def test_an_llm_launch_that_fails_beside_a_running_batch_ends_those_it_was_for(monkeypatch: pytest.MonkeyPatch) -> None:
    stages = replace(tiny_stages(), is_concurrent=True)
    engine = HandDrivenEngine(CONFIG, stages)
    broken, new_request = engine.submit("u"), engine.submit("w")
    engine.core.push_text(broken, TEXT)
    while "flow_steps" not in engine.core.counters:
        engine.step()
    engine.core.push_text(new_request, TEXT)  # the LLM does not make way for a first block where another lacks tokens
    with monkeypatch.context() as patched:
        patched.setattr(stages.llm, "launch", lambda _: 1 / 0)
        engine.step()
    assert isinstance(engine.heard[broken].end, Failed)
    assert isinstance(engine.heard[new_request].end, Failed)
    assert engine.speak("v", [TEXT]).pcm == alone().pcm


def test_speech_at_once_with_others_is_the_speech_alone() -> None:
    texts = {
        "a": ("woman", "The coffee is still hot."),
        "b": ("man", "It is a fine day for a walk."),
        "c": ("woman", "Yes."),
    }
    by_themselves = {
        name: samples(HandDrivenEngine().speak(name, [text], voice=voice, seed=seed))
        for seed, (name, (voice, text)) in enumerate(texts.items())
    }
    engine = HandDrivenEngine()
    ids = {}
    for seed, (name, (voice, text)) in enumerate(texts.items()):
        ids[name] = engine.submit(name, voice=voice, seed=seed)
        engine.core.push_text(ids[name], text)
        engine.core.end_text(ids[name])
        for _ in range(7):
            engine.step()
    engine.run()
    for name, expected in by_themselves.items():
        assert_same_speech(samples(engine.heard[ids[name]]), expected)


def test_cancel_frees_everything_at_once_and_changes_nobody_else() -> None:
    stages = tiny_stages()
    before = (stages.llm.num_free_slots, stages.flow.num_free_blocks)
    expected = samples(alone(seed=3))
    for steps in (1, 20, 51):
        engine = HandDrivenEngine()
        cancelled, other = engine.submit("cancelled"), engine.submit("other", seed=3)
        for utterance_id in (cancelled, other):
            engine.core.push_text(utterance_id, TEXT)
            engine.core.end_text(utterance_id)
        for _ in range(steps):
            engine.step()
        engine.core.cancel(cancelled, None)
        engine.step()
        end = engine.heard[cancelled].end
        assert isinstance(end, Cancelled)
        assert end.spoken_text + end.remaining_text == TEXT
        engine.run()
        assert engine.heard[cancelled].events[-1] is end
        assert_same_speech(samples(engine.heard[other]), expected)
    assert (stages.llm.num_free_slots, stages.flow.num_free_blocks) == before


def test_spoken_text_follows_what_was_played() -> None:
    engine = HandDrivenEngine()
    utterance_id = engine.submit("u")
    engine.core.push_text(utterance_id, TEXT)
    engine.run()
    audio_ms = sum(
        len(event.packets) * 20 for event in engine.heard[utterance_id].events if isinstance(event, AudioReady)
    )
    engine.core.cancel(utterance_id, audio_ms // 2)
    engine.step()
    end = engine.heard[utterance_id].end
    assert isinstance(end, Cancelled)
    assert 5 < len(end.spoken_text) < len(TEXT) - 5
    assert TEXT.startswith(end.spoken_text)


def test_a_failing_sequence_ends_its_utterance_and_no_other() -> None:
    llm = cast(LlmBackend, FirstSequenceFails(tiny_runner()))
    engine = HandDrivenEngine(stages=replace(tiny_stages(), llm=llm))
    first, second = engine.submit("first"), engine.submit("second", seed=3)
    for utterance_id in (first, second):
        engine.core.push_text(utterance_id, "Good morning.")
        engine.core.end_text(utterance_id)
    engine.run()
    assert engine.heard[first].events == [Failed(first, "made to fail")]
    assert isinstance(engine.heard[second].end, Done)


@pytest.mark.parametrize("stage", ["llm", "flow", "vocoder"])
def test_a_stage_that_raises_fails_its_utterances_and_the_engine_lives(
    monkeypatch: pytest.MonkeyPatch, stage: str
) -> None:
    method = {"llm": "launch", "flow": "begin", "vocoder": "run"}[stage]

    def broken(*_: object) -> None:
        raise RuntimeError("broken")

    engine = HandDrivenEngine()
    with monkeypatch.context() as patched:
        patched.setattr(getattr(tiny_stages(), stage), method, broken)
        heard = engine.speak("broken", ["Good morning."])
    assert isinstance(heard.end, Failed)
    assert "broken" not in heard.end.message
    assert isinstance(engine.speak("after", ["Good morning."]).end, Done)


@pytest.mark.parametrize("mode", [SpeakingMode.CLAUSE, SpeakingMode.BISTREAM])
def test_flush_is_answered_after_its_audio(mode: SpeakingMode) -> None:
    engine = HandDrivenEngine()
    utterance_id = engine.submit("u", mode=mode)
    engine.core.push_text(utterance_id, "Good morning")
    engine.run()
    engine.core.flush_text(utterance_id, "one")
    engine.core.flush_text(utterance_id, "two")
    engine.run()
    events = engine.heard[utterance_id].events
    flushes = [event for event in events if isinstance(event, Flushed)]
    assert [event.flush_id for event in flushes] == ["one", "two"]
    assert [event for event in events if not isinstance(event, AtRest)][-2:] == flushes
    delivered_ms = sum(len(event.packets) * 20 for event in events if isinstance(event, AudioReady))
    assert flushes[0].audio_ms == delivered_ms > 400
    engine.core.push_text(utterance_id, " and good night.")
    engine.core.end_text(utterance_id)
    engine.run()
    end = engine.heard[utterance_id].end
    assert isinstance(end, Done)
    assert end.audio_ms > delivered_ms + 400


@pytest.mark.parametrize("text", ["", "   \n ", "...!?", "🙂"])
@pytest.mark.parametrize("mode", [SpeakingMode.CLAUSE, SpeakingMode.BISTREAM])
def test_nothing_to_say_ends_in_done_without_audio(mode: SpeakingMode, text: str) -> None:
    heard = HandDrivenEngine().speak("u", [text], mode=mode)
    assert len(heard.events) == 1
    assert isinstance(heard.end, Done)
    assert (heard.end.audio_ms, heard.end.num_packets, heard.end.end_pts_48k) == (0, 0, 0)


@pytest.mark.parametrize("mode", [SpeakingMode.CLAUSE, SpeakingMode.BISTREAM])
def test_alignment_covers_the_words_in_order_and_comes_before_them(mode: SpeakingMode) -> None:
    heard = alone(mode=mode)
    assert isinstance(heard.end, Done)
    items = words_in_time(heard.events)
    assert [TEXT[item.char_start : item.char_end].strip(" ,.?") for item in items] == TEXT.replace(",", "").replace(
        "?", ""
    ).replace(".", "").split()
    assert items[-1].end_ms >= heard.end.audio_ms - 1000


def test_faster_speech_is_shorter() -> None:
    plain, fast = alone().end, alone(speed=1.5).end
    assert isinstance(plain, Done)
    assert isinstance(fast, Done)
    assert fast.audio_ms == pytest.approx(plain.audio_ms / 1.5, rel=0.02)


def test_a_listener_who_is_far_ahead_makes_the_engine_wait() -> None:
    engine = HandDrivenEngine(replace(CONFIG, lead_ms=1000))
    utterance_id = engine.submit("u")
    engine.core.push_text(utterance_id, TEXT)
    engine.core.end_text(utterance_id)
    engine.run()
    assert engine.heard[utterance_id].end is None
    decision = engine.core.step()
    assert decision.wake_at_s is not None
    assert decision.wake_at_s > engine.now_s
    while engine.heard[utterance_id].end is None:
        decision = engine.core.step()
        if decision.wake_at_s is not None:
            engine.now_s = decision.wake_at_s
        engine.step()
    assert isinstance(engine.heard[utterance_id].end, Done)


PAUSES = st.lists(
    st.tuples(
        st.integers(1, 60),
        st.builds(ListenerReport, st.none() | st.integers(0, 3000), st.booleans(), st.integers(0, 3)),
    ),
    max_size=8,
)


@settings(max_examples=2)
@given(pauses=PAUSES)
@pytest.mark.parametrize("mode", [SpeakingMode.CLAUSE, SpeakingMode.BISTREAM])
def test_whenever_a_listener_pauses_the_samples_are_the_same(
    mode: SpeakingMode, pauses: list[tuple[int, ListenerReport]]
) -> None:
    engine = HandDrivenEngine(replace(CONFIG, lead_ms=600))
    utterance_id = engine.submit("u", mode=mode)
    engine.core.push_text(utterance_id, TEXT)
    engine.core.end_text(utterance_id)
    for num_steps, report in [*pauses, (1, ListenerReport())]:
        for _ in range(num_steps):
            engine.step()
        engine.core.note_listener(utterance_id, report)
    while engine.heard[utterance_id].end is None:
        decision = engine.core.step()
        engine.now_s = max(engine.now_s, decision.wake_at_s or 0.0) + 0.001
    assert engine.heard[utterance_id].pcm == alone(mode=mode).pcm


def test_for_a_listener_who_has_paused_nothing_is_made_but_what_it_can_hold() -> None:
    engine = HandDrivenEngine(replace(CONFIG, lead_ms=1000))
    utterance_id = engine.submit("u")
    engine.core.note_listener(utterance_id, ListenerReport(is_playing=False))
    engine.core.push_text(utterance_id, TEXT)
    engine.core.end_text(utterance_id)
    engine.run()
    assert engine.core.step().wake_at_s is None, "time brings nothing: only a report does"
    engine.now_s += 3600.0
    engine.run()
    made_ms = len(engine.heard[utterance_id].pcm) / 48
    assert 1000 <= made_ms < 2100
    assert engine.heard[utterance_id].end is None
    engine.core.note_listener(utterance_id, ListenerReport(played_ms=round(made_ms)))
    engine.run()
    engine.now_s += 10.0
    engine.run()
    assert isinstance(engine.heard[utterance_id].end, Done)
