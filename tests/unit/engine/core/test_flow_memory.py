"""The flow's memory on hollow models: who makes way for whom, and goes on where its listener is."""

import sys
from dataclasses import replace
from typing import Any

import pytest
from structlog.testing import capture_logs

from tests.support.hollow_stages import hollow
from tests.support.tiny_engine import CONFIG, HandDrivenEngine, Heard
from tests.support.word_times import words_in_time
from voicegate.bench.standins.llm import HollowRunner
from voicegate.engine.core.clause import ClauseState
from voicegate.engine.core.policy import Decision
from voicegate.engine.interface import Done, Failed, SpeakingMode, UtteranceId
from voicegate.engine.llm.backend import SequenceOutput

SENTENCE = "The train to the coast leaves at nine. "
SIXTEEN = "one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen"
LONG = "The train to the coast leaves at nine, and the other one a quarter later, from the platform behind it."


def words(heard: Heard) -> list[tuple[str, int]]:
    return [(item.text, item.char_start) for item in words_in_time(heard.events)]


def tight(num_blocks: int, *, texts: dict[str, str], mode: SpeakingMode, speed: float = 1.0) -> HandDrivenEngine:
    """All at once, with so many blocks for all, though nobody is expected to need more than one."""
    models = hollow(num_blocks=num_blocks)
    free = models.held
    engine = HandDrivenEngine(replace(CONFIG, expected_tokens_per_text_token=0), models.stages)
    for seed, (name, text) in enumerate(texts.items()):
        utterance_id = engine.submit(name, mode=mode, seed=seed, speed=speed)
        engine.core.push_text(utterance_id, text)
        engine.core.end_text(utterance_id)
    engine.run()
    assert models.held == free
    return engine


@pytest.mark.parametrize("speed", [1.0, 1.25])
@pytest.mark.parametrize("mode", [SpeakingMode.CLAUSE, SpeakingMode.BISTREAM])
def test_who_makes_way_for_others_goes_on_where_its_listener_is(mode: SpeakingMode, speed: float) -> None:
    texts = {"a": LONG, "b": SENTENCE * 3, "c": LONG, "d": LONG}
    with capture_logs() as logs:
        crowded = tight(5, texts=texts, mode=mode, speed=speed)
    assert sum(entry["event"] == "clause_set_aside" for entry in logs) >= 2
    roomy = tight(200, texts=texts, mode=mode, speed=speed)
    for name, heard in crowded.heard.items():
        assert isinstance(heard.end, Done), name
        assert heard.pcm == roomy.heard[name].pcm, "not a sample lost or said twice"
        assert words(heard) == words(roomy.heard[name])


def test_what_can_never_fit_fails_alone_and_says_why() -> None:
    engine = tight(3, texts={"long": LONG, "short": "Yes.", "medium": SENTENCE}, mode=SpeakingMode.CLAUSE)
    end = engine.heard[UtteranceId("long")].end
    assert isinstance(end, Failed)
    assert "more memory than the server has" in end.message
    assert all(isinstance(engine.heard[UtteranceId(name)].end, Done) for name in ("short", "medium"))


def test_a_clause_that_is_expected_to_need_more_than_there_is_may_try_when_it_is_alone() -> None:
    models = hollow(num_blocks=4)
    engine = HandDrivenEngine(replace(CONFIG, expected_tokens_per_text_token=1000), models.stages)
    assert isinstance(engine.speak("u", [SENTENCE]).end, Done)


@pytest.mark.parametrize("is_cancelled", [False, True])
def test_a_stream_of_text_that_was_set_aside_takes_more_of_it(is_cancelled: bool) -> None:
    models = hollow(num_blocks=3)
    free = models.held
    engine = HandDrivenEngine(replace(CONFIG, expected_tokens_per_text_token=0), models.stages)
    streamed = engine.submit("streamed", mode=SpeakingMode.BISTREAM)
    engine.core.push_text(streamed, "The train to the coast leaves at nine ")
    engine.run()
    with capture_logs() as logs:
        assert isinstance(engine.speak("other", [LONG[:58]], mode=SpeakingMode.BISTREAM).end, Done)
    assert [entry["utterance"] for entry in logs if entry["event"] == "clause_set_aside"] == [streamed]
    if is_cancelled:
        engine.core.cancel(streamed, None)
    else:
        engine.core.push_text(streamed, "sharp.")
        engine.core.end_text(streamed)
    engine.run()
    assert models.held == free
    if not is_cancelled:
        alone = HandDrivenEngine(stages=hollow().stages)
        text = ["The train to the coast leaves at nine sharp."]
        assert engine.heard[streamed].pcm == alone.speak("streamed", text, mode=SpeakingMode.BISTREAM).pcm


def test_who_makes_way_does_not_wait_for_what_its_own_next_clause_holds() -> None:
    """Which is begun behind it, and takes more than was expected: both are, and there is no room for both."""
    models = hollow(num_slots=4, num_blocks=12, tokens_per_text_token=8)
    free = models.held
    config = replace(CONFIG, expected_tokens_per_text_token=4, max_clause_tokens=25 * (12 - 1), max_active_clauses=4)
    engine = HandDrivenEngine(config, models.stages)
    utterance_id = engine.submit("u")
    engine.core.push_text(utterance_id, f"{SIXTEEN}. {SIXTEEN}. ")
    engine.core.end_text(utterance_id)
    (utterance,) = engine.core._roster
    while len(utterance.clauses) < 2 or utterance.clauses[1].rendering is None:
        assert engine.step()
    while utterance.clauses[0].state is not ClauseState.RENDERING:
        assert engine.step()
    engine.set_aside(utterance)
    new_request = engine.submit("v")
    engine.core.push_text(new_request, "Yes.")
    engine.core.end_text(new_request)
    engine.run()
    assert isinstance(engine.heard[utterance_id].end, Done)
    assert isinstance(engine.heard[new_request].end, Done)
    assert models.held == free


def test_room_is_made_as_often_as_it_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Many that hold a little make way at once."""
    engine = HandDrivenEngine(CONFIG, hollow(num_blocks=5).stages)
    decisions = iter([Decision(lacks_room=True)] * (2 * sys.getrecursionlimit()))
    made: list[float] = []
    monkeypatch.setattr("voicegate.engine.core.core.decide", lambda *_: next(decisions, Decision()))
    monkeypatch.setattr(engine.core._room, "make", made.append)
    assert engine.core.step().is_idle
    assert len(made) == 2 * sys.getrecursionlimit()


def test_who_is_heard_does_not_wait_for_an_llm_that_makes_no_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """All memory is taken and nobody's block fits: one makes way at once, whatever passes are under way."""
    config = replace(CONFIG, lead_ms=3_600_000, expected_tokens_per_text_token=1, max_active_clauses=4)
    engine = HandDrivenEngine(config, hollow(num_slots=4, num_blocks=9).stages)
    core = engine.core
    make_room, made = core._room.make, []

    def noted(now_s: float) -> None:
        made.append(now_s)
        make_room(now_s)

    monkeypatch.setattr(core._room, "make", noted)
    for number in range(4):
        utterance_id = engine.submit(f"u{number}", seed=number)
        core.push_text(utterance_id, f"{LONG}, and the harbour behind the old town, where they all go. ")
        core.end_text(utterance_id)
    while core.num_live:
        has_blocks = any(view.block_frames for _, view in core._roster.due.values())
        is_blocked = has_blocks and not core._pipeline.intake.num_blocks
        num_before, decision = len(made), core.step()
        engine.now_s += 0.001
        if is_blocked and not decision.has_flow_step and decision.llm:
            assert len(made) > num_before or core._pipeline.token2wav.is_busy
    assert made


def test_a_clause_that_is_set_aside_and_has_nothing_to_say_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    mute: set[int] = set()
    step = HollowRunner.advance

    def may_be_mute(self: Any, sequence_id: Any, *args: Any) -> SequenceOutput:
        if sequence_id not in mute:
            return step(self, sequence_id, *args)
        self.abort(sequence_id)
        return SequenceOutput(sequence_id, (), is_final=True)

    monkeypatch.setattr(HollowRunner, "advance", may_be_mute)
    models = hollow(num_slots=4, num_blocks=200)
    free, engine = models.held, HandDrivenEngine(CONFIG, models.stages)
    core, utterance_id = engine.core, engine.submit("u")
    core.push_text(utterance_id, f"{SIXTEEN}. {SIXTEEN}. ")
    core.end_text(utterance_id)
    (utterance,) = core._roster
    while len(utterance.clauses) < 2 or (llm_pass := utterance.clauses[1].llm_pass) is None:
        assert engine.step()
    mute.add(llm_pass.sequence_id)
    engine.set_aside(utterance)
    with monkeypatch.context() as others_need_it:
        others_need_it.setattr(core._pipeline, "can_start", lambda _: False)
        while utterance.clauses[1].llm_pass is not None:
            engine.step()
    engine.run()
    assert isinstance(engine.heard[utterance_id].end, Done)
    assert models.held == free


def test_nothing_is_reserved_where_nobody_speaks() -> None:
    engine = HandDrivenEngine(CONFIG, hollow().stages)
    assert engine.core.gauges["reserved_flow_blocks"] == 0
    utterance_id = engine.submit("u")
    engine.core.push_text(utterance_id, f"{SIXTEEN}. ")
    engine.step()
    assert engine.core.gauges["reserved_flow_blocks"] > 0
    engine.core.end_text(utterance_id)
    engine.run()
    assert engine.core.gauges["reserved_flow_blocks"] == 0
