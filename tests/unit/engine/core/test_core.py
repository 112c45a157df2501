"""The loop on hollow models: who is served when, on a clock of ours, and what becomes of too much at once."""

import math
from dataclasses import replace
from typing import Any
from unittest.mock import Mock, patch

import pytest

from tests.support.golden import TINY_MODEL_DIR
from tests.support.hollow_stages import hollow
from tests.support.tiny_engine import CONFIG, HandDrivenEngine
from voicegate.engine.config import EngineConfig
from voicegate.engine.core.clause import Clause, ClauseState
from voicegate.engine.core.growth import Needed
from voicegate.engine.core.policy import Ranked, urgency
from voicegate.engine.core.stages import ReadyVoice
from voicegate.engine.core.utterance import Utterance
from voicegate.engine.interface import Alignment, AudioReady, Done, SpeakingMode, UtteranceId
from voicegate.engine.llm.backend import SequenceOutput
from voicegate.engine.voices.pace import VoicePace

SENTENCE = "The train to the coast leaves at nine. "
LONG = "The train to the coast leaves at nine, and the other one a quarter later, from the platform behind the station"


class Listening:
    """An engine whose steps take 10 ms each, and what its listeners have to play."""

    def __init__(self, engine: HandDrivenEngine) -> None:
        self.engine = engine
        self.underrun_s: dict[UtteranceId, float] = {}
        self._plays_until_s: dict[UtteranceId, float] = {}
        self._num_heard: dict[UtteranceId, int] = {}
        self.order: list[UtteranceId] = []  # in which they were first heard

    def say(self, name: str, text: str) -> UtteranceId:
        utterance_id = self.engine.submit(name)
        self.engine.core.push_text(utterance_id, text)
        self.engine.core.end_text(utterance_id)
        return utterance_id

    def run(self, until_s: float) -> None:
        while self.engine.now_s < until_s:
            decision = self.engine.core.step()
            self.engine.now_s += 0.01
            if decision.is_idle and decision.wake_at_s is None:
                return
            self._listen()

    def _listen(self) -> None:
        now_s = self.engine.now_s
        for name, heard in self.engine.heard.items():
            new = heard.events[self._num_heard.get(name, 0) :]
            self._num_heard[name] = len(heard.events)
            for event in new:
                if isinstance(event, AudioReady):
                    until_s = self._plays_until_s.get(name)
                    if until_s is None:
                        self.order.append(name)
                        until_s = now_s
                    self.underrun_s[name] = max(self.underrun_s.get(name, 0.0), now_s - until_s)
                    self._plays_until_s[name] = max(until_s, now_s) + len(event.packets) * 0.02


def due_now(engine: HandDrivenEngine) -> dict[int, Ranked]:
    """Behind a look at all who have changed."""
    engine.core._roster.look(engine.now_s)
    return engine.core._roster.due


def test_no_listener_has_an_underrun_behind_new_requests() -> None:
    config = EngineConfig(TINY_MODEL_DIR, device="cpu", max_active_clauses=2, stall_ms=0).resolved("cpu")
    listening = Listening(HandDrivenEngine(config, hollow(num_slots=2).stages))
    listener = listening.say("listener", SENTENCE * 6)
    listening.run(until_s=0.6)
    assert listening.order == [listener]
    new_requests = [listening.say(f"new request {number}", SENTENCE) for number in range(12)]
    listening.run(until_s=60.0)
    assert all(isinstance(heard.end, Done) for heard in listening.engine.heard.values())
    assert listening.underrun_s[listener] == 0.0
    assert listening.order == [listener, *new_requests], "and they are heard in the order in which they came"


def begins_now(engine: HandDrivenEngine, utterance: Utterance) -> bool:
    clause, reads_s = engine.core._reprefills.next_reprefill(utterance, engine.now_s)
    return clause is not None and reads_s == engine.now_s


@pytest.mark.parametrize(("pace", "begins"), [(None, True), (VoicePace(2.0, 0.8), True), (VoicePace(2.0, 0.3), False)])
def test_a_tuned_voice_begins_when_its_own_pace_allows(pace: VoicePace | None, begins: bool) -> None:
    stages = hollow().stages
    voice = replace(stages.voices["woman"].voice, pace=pace)
    voices = {"woman": replace(stages.voices["woman"], voice=voice)}
    engine = HandDrivenEngine(CONFIG, replace(stages, voices=voices))
    utterance_id = engine.submit("u", mode=SpeakingMode.INCREMENTAL)
    engine.core.push_text(utterance_id, "The train to the coast leaves ")
    (utterance,) = engine.core._roster
    utterance.feed.read_all()
    assert begins_now(engine, utterance) is begins


@pytest.mark.parametrize("mode", [SpeakingMode.CLAUSE, SpeakingMode.INCREMENTAL, SpeakingMode.BISTREAM])
@pytest.mark.parametrize(("language", "spoken"), [(None, "bei zehn hoch sieben."), ("en", "bei ten hoch seven.")])
def test_where_nobody_names_a_language_it_is_that_of_the_voices_recording(
    mode: SpeakingMode, language: str | None, spoken: str
) -> None:
    stages = hollow().stages
    voice = replace(stages.voices["woman"].voice, transcript="Guten Tag, ich bin Ihre Stimme für heute.")
    voices = {"woman": replace(stages.voices["woman"], voice=voice)}
    model = replace(stages.model, languages=("en", "de"))
    engine = HandDrivenEngine(CONFIG, replace(stages, voices=voices, model=model))
    utterance_id = engine.submit("u", mode=mode, language=language)
    engine.core.push_text(utterance_id, "bei 10 hoch 7")
    engine.core.end_text(utterance_id)
    (utterance,) = engine.core._roster
    utterance.feed.read_all()
    assert tuple(utterance.feed.clauses[0].text_ids) == stages.tokenizer.encode(spoken)


LATE = ((0.1, True), (1.0, False))  # first blocks are quick, later ones would not follow in time
STRAINED = ((0.02, True), (0.4, True))
ONE_BLOCK, TWO_BLOCKS = 12 + 3, 12 + 25 + 3  # and what is looked ahead at


def told_of(block_times: tuple[tuple[float, bool], ...]) -> HandDrivenEngine:
    """An engine of which is known what blocks took."""
    engine = HandDrivenEngine(CONFIG, hollow().stages)
    for seconds, is_first in block_times:
        engine.core._reprefills.block_time.took(seconds, engine.now_s, is_first=is_first)
    return engine


@pytest.mark.parametrize(("block_times", "expected"), [((), ONE_BLOCK), (LATE, TWO_BLOCKS), (STRAINED, TWO_BLOCKS)])
def test_a_slow_engine_makes_two_blocks_of_the_first_reading_once_the_words_are_worth_them(
    block_times: tuple[tuple[float, bool], ...], expected: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = told_of(block_times)
    start, readings = engine.core._pipeline.start, []

    def spy(clause: Clause, voice: ReadyVoice, *, until: int | None, **options: Any) -> None:
        readings.append((until, clause.num_sayable_letters, clause.num_letters))
        start(clause, voice, until=until, **options)

    monkeypatch.setattr(engine.core._pipeline, "start", spy)
    utterance_id = engine.submit("u", mode=SpeakingMode.INCREMENTAL)
    for word in LONG.split()[:-1]:
        engine.core.push_text(utterance_id, f"{word} ")
        for _ in range(4):
            engine.step()
        engine.now_s += 0.001
    ((until, num_but_last, num_of_all),) = readings
    assert until == expected
    tokens_per_letter = engine.core._roster.by_id.get(utterance_id).tokens_per_letter
    assert until <= tokens_per_letter * max(num_but_last, 0.8 * num_of_all), "of no more than its words are worth"


@pytest.mark.parametrize(("words", "expected"), [(LONG[:30], ONE_BLOCK), (LONG, TWO_BLOCKS)])
def test_an_engine_that_is_strained_only_when_it_reads_makes_no_more_than_the_words_are_worth(
    words: str, expected: int
) -> None:
    engine = told_of(())
    utterance_id = engine.submit("u", mode=SpeakingMode.INCREMENTAL)
    engine.core.push_text(utterance_id, words)
    (utterance,) = engine.core._roster
    utterance.feed.read_all()
    readings = engine.core._reprefills
    clause, _ = readings.next_reprefill(utterance, engine.now_s)
    assert clause is not None
    assert not clause.is_text_complete
    for seconds, is_first in STRAINED:
        readings.block_time.took(seconds, engine.now_s, is_first=is_first)
    assert readings.first_block(utterance, clause, engine.now_s, are_many=False).until == expected


def test_no_sentence_is_begun_while_it_is_written_where_what_follows_two_blocks_would_come_too_late() -> None:
    for later_s, begins in ((1.0, True), (2.0, False)):
        engine = told_of(((0.1, True), (later_s, False)))
        utterance_id = engine.submit("u", mode=SpeakingMode.INCREMENTAL)
        engine.core.push_text(utterance_id, LONG)
        (utterance,) = engine.core._roster
        utterance.feed.read_all()
        assert begins_now(engine, utterance) is begins


def test_a_sentence_is_not_read_again_while_samples_of_its_last_block_are_on_their_way() -> None:
    """Its listener has more than is known; and what the block takes would be counted from the later reading."""
    engine = HandDrivenEngine(CONFIG, hollow().stages)
    utterance_id = engine.submit("u", mode=SpeakingMode.INCREMENTAL)
    engine.core.push_text(utterance_id, LONG[:40])
    engine.run()
    (utterance,) = engine.core._roster
    (clause,) = utterance.clauses
    assert clause.is_paused
    assert engine.heard[utterance_id].events, "its first block"
    engine.core.push_text(utterance_id, LONG[40:])
    utterance.feed.read_all()
    engine.now_s += 10.0  # its listener has have an underrun
    clause.awaits_samples = True
    assert engine.core._reprefills.next_reprefill(utterance, engine.now_s) == (None, math.inf)
    clause.awaits_samples = False
    assert engine.core._reprefills.next_reprefill(utterance, engine.now_s) == (clause, engine.now_s)


@pytest.mark.parametrize(("pause_s", "is_bridged"), [(0.3, True), (0.4, False)])
def test_a_pause_is_not_bridged_by_speech_that_runs_past_its_words(pause_s: float, is_bridged: bool) -> None:
    engine = HandDrivenEngine(CONFIG, hollow().stages)
    utterance_id = engine.submit("u", mode=SpeakingMode.INCREMENTAL, max_buffer_delay_ms=60_000)
    engine.core.push_text(utterance_id, LONG[:40])
    engine.run()
    (utterance,) = engine.core._roster
    assert utterance.deadline_s is not None
    utterance.pace.wrote(4, utterance.deadline_s + 1.0 - pause_s)
    with patch.object(Needed, "to_go_on", wraps=Needed.to_go_on) as asked:
        engine.core._reprefills.next_reprefill(utterance, utterance.deadline_s + 1.0)
    assert [call.kwargs["is_late"] for call in asked.call_args_list] == [is_bridged]


def test_a_sentence_that_is_being_written_waits_since_it_could_be_begun() -> None:
    """Not since its first word, which is its writer's time, nor since the engine's clock began."""
    engine = HandDrivenEngine(CONFIG, hollow().stages)
    engine.now_s = 1000.0
    utterance_id = engine.submit("u", mode=SpeakingMode.INCREMENTAL)
    (utterance,) = engine.core._roster
    begun_s: float | None = None
    for word in LONG.split()[:-1]:
        written_s = engine.now_s
        engine.core.push_text(utterance_id, f"{word} ")
        while engine.now_s < written_s + 0.1:
            engine.step()
            if begun_s is None and utterance.num_started_clauses:
                begun_s = written_s
            for _, view in due_now(engine).values():
                assert begun_s is not None
                assert begun_s <= view.waiting_since_s <= begun_s + 0.01
    assert begun_s is not None
    assert begun_s > 1000.0, "its first word alone did not begin it"
    engine.core.end_text(utterance_id)
    engine.run()
    end = engine.heard[utterance_id].end
    assert isinstance(end, Done)
    timing = end.timing
    moments_ms = (timing.queue_ms, timing.llm_first_token_ms, timing.first_chunk_ms, timing.first_packet_ms)
    assert None not in moments_ms
    assert (0, *moments_ms) == tuple(sorted((0, *moments_ms)))


def test_no_listener_has_an_underrun_behind_sentences_that_are_being_written() -> None:
    """One who is about to goes before a new request, also where the new request's sentence is not whole."""
    engine = HandDrivenEngine(CONFIG, hollow().stages)
    engine.now_s = 1000.0
    listener, new_request = engine.submit("listener"), engine.submit("new request", mode=SpeakingMode.INCREMENTAL)
    engine.core.push_text(listener, LONG)
    engine.core.end_text(listener)
    while not engine.heard[listener].pcm:
        engine.step()
    engine.core.push_text(new_request, "The train to the coast leaves at nine from platform ")
    engine.now_s = engine.core._roster.by_id.get(listener).deadline_s - 0.1
    while not engine.core._roster.by_id.get(new_request).num_started_clauses:
        engine.core.step()
    views = [view for _, view in due_now(engine).values()]
    first, second = sorted(views, key=lambda each: each.deadline_s is None)
    limits = engine.core._limits
    assert urgency(first, engine.now_s, limits)[0] < urgency(second, engine.now_s, limits)[0]


def test_a_sentence_is_not_read_again_before_its_first_block_is_heard(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = HandDrivenEngine(CONFIG, hollow().stages)
    utterance_id = engine.submit("u", mode=SpeakingMode.INCREMENTAL)
    read_again, were_heard = engine.core._pipeline.read_again, []

    def spy(*args: Any, **options: Any) -> None:
        were_heard.append(bool(engine.heard[utterance_id].pcm))
        read_again(*args, **options)

    monkeypatch.setattr(engine.core._pipeline, "read_again", spy)
    engine.core.push_text(utterance_id, "The train to the coast leaves at nine from platform four as it ")
    engine.run()
    assert engine.heard[utterance_id].pcm
    engine.core.push_text(utterance_id, "always does.")
    engine.core.end_text(utterance_id)
    engine.run()
    assert were_heard
    assert all(were_heard)


def test_only_a_new_requests_beginning_tells_how_long_a_block_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    """A later sentence is begun for its listener's sake, and waits behind whoever is more urgent."""
    engine = HandDrivenEngine(CONFIG, hollow().stages)
    start, begun = engine.core._speaking.start, []

    def spy(utterance: Utterance, clause: Clause, *, are_many: bool) -> None:
        is_new = utterance.deadline_s is None
        start(utterance, clause, are_many=are_many)
        begun.append((is_new, clause.prefill_since_s is not None))

    monkeypatch.setattr(engine.core._speaking, "start", spy)
    utterance_id = engine.submit("u", mode=SpeakingMode.INCREMENTAL)
    text = "The train to the coast leaves at nine. From platform four it always does and it always will. "
    for word in text.split():
        engine.core.push_text(utterance_id, f"{word} ")
        until_s = engine.now_s + 0.4
        while engine.now_s < until_s:
            engine.step()
    engine.core.end_text(utterance_id)
    engine.run()
    assert begun == [(True, True), (False, False)]


def test_a_sentence_is_not_read_again_while_a_block_of_it_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    """When that one is heard, more is known; and each reading takes a prompt's time for however few tokens."""
    engine = HandDrivenEngine(CONFIG, hollow().stages)
    pipeline = engine.core._pipeline
    utterance_id = engine.submit("u", mode=SpeakingMode.INCREMENTAL)
    read_again, num_reprefills = pipeline.read_again, 0

    def spy(clause: Clause, voice: ReadyVoice, *, until: int | None) -> None:
        nonlocal num_reprefills
        num_reprefills += 1
        assert clause.rendering is not None
        assert until is None or not (clause.rendering.flow.is_ready or clause.batch is not None)
        read_again(clause, voice, until=until)

    monkeypatch.setattr(pipeline, "read_again", spy)
    text = "The train to the coast leaves at nine from platform four as it always does on working days "
    for word in text.split():
        engine.core.push_text(utterance_id, f"{word} ")
        until_s = engine.now_s + 0.3
        while engine.now_s < until_s:
            engine.step()
    assert not engine.heard[utterance_id].end
    assert num_reprefills >= 2


@pytest.mark.parametrize("mode", [SpeakingMode.CLAUSE, SpeakingMode.BISTREAM, SpeakingMode.INCREMENTAL])
def test_an_llm_that_keeps_tokens_nobody_needs_changes_nothing(
    mode: SpeakingMode, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All decisions and all events, word times among them, are those of one that tells of every token."""
    heard: list[Any] = []
    num_told: list[int] = []
    for holds_back in (False, True):
        stages = hollow(num_slots=3, holds_back=holds_back).stages
        engine = HandDrivenEngine(replace(CONFIG, max_active_clauses=3), stages)
        told = Mock(side_effect=engine.core._speaking.take_output)
        monkeypatch.setattr(engine.core._speaking, "take_output", told)
        names = [engine.submit(str(number), mode=mode, seed=number) for number in range(5)]
        decisions = []
        for number, word in enumerate((SENTENCE + " " + SENTENCE).split()):
            for name in names[: number + 1]:
                engine.core.push_text(name, f"{word} ")
            decisions += [(engine.step(), engine.now_s) for _ in range(20)]
        engine.core.cancel(names[0], 100)
        for name in names[1:]:
            engine.core.end_text(name)
        engine.run()
        heard.append((decisions, {name: engine.heard[name].events for name in names}))
        num_told.append(told.call_count)
    assert heard[0] == heard[1]
    assert (num_told[1] < num_told[0] / 3) == (mode is not SpeakingMode.BISTREAM), "which is not kept back"


def test_what_comes_behind_the_decision_of_a_step_is_not_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """A GPU may be done between the two looks of one step: it is neither busy then nor anything launched."""
    engine = HandDrivenEngine(CONFIG, hollow().stages)
    pipeline, num_looks = engine.core._pipeline, 0
    poll = pipeline.llm.poll

    def late() -> list[tuple[Clause, SequenceOutput]]:
        """At the second look of every third step: by then all is launched that may be launched ahead."""
        nonlocal num_looks
        num_looks += 1
        return [] if num_looks % 6 else poll()

    monkeypatch.setattr(pipeline.llm, "poll", late)
    utterance_id = engine.submit("u")
    engine.core.push_text(utterance_id, SENTENCE)
    engine.core.end_text(utterance_id)
    engine.core.run_until_idle()
    assert isinstance(engine.heard[utterance_id].end, Done)


def test_words_behind_a_bistream_pass_that_a_limit_has_ended_are_said_in_another() -> None:
    models = hollow()
    engine = HandDrivenEngine(CONFIG, models.stages)
    utterance_id = engine.submit("u", mode=SpeakingMode.BISTREAM)
    engine.core.push_text(utterance_id, "The train to the coast leaves ")
    (utterance,) = engine.core._roster
    while not models.runner.sequences:
        engine.step()
    (sequence,) = models.runner.sequences.values()
    sequence.max_tokens = 10
    while not utterance.is_truncated:
        engine.step()
    assert utterance.clauses[0].state is ClauseState.RENDERING
    engine.core.push_text(utterance_id, "from here.")
    engine.core.end_text(utterance_id)
    engine.run()
    events = engine.heard[utterance_id].events
    assert [word.text for event in events if isinstance(event, Alignment) for word in event.items][-2:] == [
        "from",
        "here.",
    ]
    assert utterance.num_started_clauses == 2


def test_words_behind_a_growing_pass_that_a_limit_has_ended_are_said_in_another() -> None:
    models = hollow()
    engine = HandDrivenEngine(CONFIG, models.stages)
    utterance_id = engine.submit("u", mode=SpeakingMode.INCREMENTAL)
    engine.core.push_text(utterance_id, "The train to the coast leaves the station, when it ra")
    (utterance,) = engine.core._roster
    for _ in range(1000):
        engine.step()
        if models.runner.sequences:
            break
    (sequence,) = models.runner.sequences.values()
    sequence.max_tokens = sequence.until - 1
    for _ in range(5000):
        engine.step()
    assert utterance.is_truncated
    assert not utterance.clauses
    engine.core.push_text(utterance_id, "ins, from platform nine at noon. Then on.")
    engine.core.end_text(utterance_id)
    while len(utterance.clauses) < 2:
        engine.step()
    assert [clause.text for clause in utterance.clauses] == [" rains, from platform nine at noon. ", "Then on."]
    engine.run()
    heard = engine.heard[utterance_id]
    words = [word.text for event in heard.events if isinstance(event, Alignment) for word in event.items]
    assert " ".join(words) == (
        "The train to the coast leaves the station, when it rains, from platform nine at noon. Then on."
    )
    assert isinstance(heard.end, Done)
    assert heard.end.is_truncated
