"""The engine over an LLM that schedules itself: late outputs, aborts, its death, and who wakes whom.

The LLM has no thread here but where a test says so: the test lets it advance when it likes.
"""

import asyncio
import random
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, cast

import numpy as np
import pytest

from tests.contract.listener import Listener
from tests.support.other_family import OtherFlow, other_stages
from tests.support.patience import PATIENCE_S
from tests.support.self_scheduling import PLAIN, SelfSchedulingLlm
from tests.support.tiny_engine import CONFIG, HandDrivenEngine, tiny_engine, tiny_runner, tiny_stages
from tests.support.word_times import words_in_time
from voicegate.engine.device.lanes import Mark
from voicegate.engine.interface import Cancelled, Done, EngineStopped, Failed, SpeakingMode, UtteranceId
from voicegate.engine.llm.backend import LlmBackend, LlmDied, SequenceOutput, SequenceRequest
from voicegate.engine.llm.runner import LlmRunner

CLAUSE = "Good morning, and welcome back to the show."
TEXT = "Good morning, and welcome back. The train to the coast leaves at nine."
NUM_SLOTS = tiny_stages().llm.num_free_slots


def llm_of(runner: LlmRunner, **options: object) -> SelfSchedulingLlm:
    return SelfSchedulingLlm(runner, tiny_stages().model.llm, **options)  # type: ignore[arg-type]


@pytest.fixture
def llm() -> Iterator[SelfSchedulingLlm]:
    made = llm_of(tiny_runner(), has_thread=False)
    yield made
    made.close()
    assert tiny_runner().num_free_slots == NUM_SLOTS


@pytest.fixture
def engine(llm: SelfSchedulingLlm) -> HandDrivenEngine:
    return HandDrivenEngine(stages=replace(tiny_stages(), llm=llm))


def begin(engine: HandDrivenEngine, name: str, text: str = TEXT) -> UtteranceId:
    """Its text is there and its first pass has begun."""
    utterance_id = engine.submit(name)
    engine.core.push_text(utterance_id, text)
    engine.core.end_text(utterance_id)
    engine.core.step()
    return utterance_id


def run(engine: HandDrivenEngine, llm: SelfSchedulingLlm) -> None:
    """Until both have nothing left to do."""
    for _ in range(100_000):
        did_work = not engine.core.step().is_idle
        if not did_work:
            if not engine.core.is_busy:
                return
            llm.advance()
    raise AssertionError("the engine is still busy")


@pytest.mark.parametrize(("seed", "stream_interval"), [pytest.param(1, 1, marks=pytest.mark.soak), (2, 7)])
def test_speech_is_the_same_whenever_its_tokens_come(
    engine: HandDrivenEngine, llm: SelfSchedulingLlm, seed: int, stream_interval: int
) -> None:
    expected = HandDrivenEngine().speak("u", [TEXT])
    rng = random.Random(seed)
    llm.stream_interval = stream_interval
    subject = begin(engine, "u")
    while engine.heard[subject].end is None:
        if rng.random() < 0.5:
            llm.advance()
        if rng.random() < 0.5:
            engine.core.step()
    assert isinstance(engine.heard[subject].end, Done)
    spoken, wanted = (np.frombuffer(heard.pcm, "<i2").astype(int) for heard in (engine.heard[subject], expected))
    assert len(spoken) == len(wanted)
    assert abs(spoken - wanted).max() <= 8  # batches of other sizes round otherwise
    assert [word.text for word in words_in_time(engine.heard[subject].events)] == TEXT.split()


# --- aborts -----------------------------------------------------------------------------------------------


def test_what_comes_of_a_cancelled_utterance_is_heard_by_nobody(
    engine: HandDrivenEngine, llm: SelfSchedulingLlm
) -> None:
    cancelled, other = begin(engine, "cancelled"), begin(engine, "other", "It rains.")
    for _ in range(3):
        llm.advance()  # these outputs are on their way
    engine.core.cancel(cancelled, None)
    assert llm.num_free_slots == NUM_SLOTS - 1, "its slot is free before the LLM knows of it"
    run(engine, llm)
    assert isinstance(engine.heard[cancelled].end, Cancelled)
    assert not engine.heard[cancelled].pcm
    assert isinstance(engine.heard[other].end, Done)
    assert llm.num_free_slots == NUM_SLOTS


def test_a_new_request_takes_the_slot_of_one_that_the_llm_still_speaks(
    engine: HandDrivenEngine, llm: SelfSchedulingLlm
) -> None:
    first = [begin(engine, f"u{n}", "One.") for n in range(NUM_SLOTS)]
    llm.advance()
    assert llm.num_free_slots == 0
    engine.core.cancel(first[0], None)
    new_request = begin(engine, "new request", "Two.")
    assert llm.num_free_slots == 0, "it has begun, as far as the engine is concerned"
    run(engine, llm)
    assert [type(engine.heard[each].end) for each in (*first, new_request)] == [Cancelled] + [Done] * NUM_SLOTS


def test_a_cancel_whose_last_output_is_on_its_way(engine: HandDrivenEngine, llm: SelfSchedulingLlm) -> None:
    subject = begin(engine, "u", "One.")
    for _ in range(1_000):
        llm.advance()
        if tiny_runner().num_free_slots == NUM_SLOTS:
            break
    assert tiny_runner().num_free_slots == NUM_SLOTS, "or an earlier test has left a sequence behind"
    engine.core.cancel(subject, None)
    run(engine, llm)
    assert isinstance(engine.heard[subject].end, Cancelled)
    assert llm.num_free_slots == tiny_runner().num_free_slots == NUM_SLOTS


# --- one at a time ----------------------------------------------------------------------------------------


class FirstSequenceBabbles:
    """A runner whose first sequence is given tokens that no flow has."""

    def __init__(self, runner: LlmRunner) -> None:
        self._runner = runner
        self._first: int | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._runner, name)

    def add(self, request: SequenceRequest) -> None:
        self._first = request.sequence_id if self._first is None else self._first
        self._runner.add(request)

    def step(self, sequence_ids: Sequence[int]) -> list[SequenceOutput]:
        outputs = self._runner.step(sequence_ids)
        return [
            replace(each, tokens=(10**6,) * len(each.tokens)) if each.sequence_id == self._first else each
            for each in outputs
        ]


def test_tokens_that_no_flow_has_end_their_utterance_alone() -> None:
    """Also where more of the sequence is on its way in the same poll."""
    llm = llm_of(cast(LlmRunner, FirstSequenceBabbles(tiny_runner())), has_thread=False)
    engine = HandDrivenEngine(stages=replace(tiny_stages(), llm=llm))
    failing, other = begin(engine, "failing", "One two three."), begin(engine, "other", "It rains.")
    for _ in range(12):
        llm.advance()
    run(engine, llm)
    assert isinstance(engine.heard[failing].end, Failed)
    assert isinstance(engine.heard[other].end, Done)
    assert llm.num_free_slots == tiny_runner().num_free_slots == NUM_SLOTS


def test_a_text_that_grows_is_read_again_when_its_reading_has_paused(
    engine: HandDrivenEngine, llm: SelfSchedulingLlm
) -> None:
    subject = engine.submit("u", mode=SpeakingMode.INCREMENTAL)
    for letter in TEXT:
        engine.core.push_text(subject, letter)
        run(engine, llm)
    assert engine.heard[subject].pcm, "it is heard before its text has ended"
    engine.core.end_text(subject)
    run(engine, llm)
    end = engine.heard[subject].end
    assert isinstance(end, Done)
    assert not end.is_truncated


# --- back-pressure ----------------------------------------------------------------------------------------


def test_it_runs_ahead_by_a_clause_at_most(llm: SelfSchedulingLlm) -> None:
    """A listener with enough lead holds the flow back, and so the next clause; the running one is finished."""
    engine = HandDrivenEngine(replace(CONFIG, lead_ms=200, llm_ahead_tokens=10), replace(tiny_stages(), llm=llm))
    subject = begin(engine, "u")
    while llm.is_busy:
        llm.advance()
        engine.core.step()
    num_rounds = llm.num_rounds
    assert engine.heard[subject].pcm
    assert engine.heard[subject].end is None
    for _ in range(20):
        engine.core.step()
        llm.advance()
    assert llm.num_rounds == num_rounds, "the next clause has not begun"
    for _ in range(100):  # the listener hears it, the flow catches up, its turn comes
        engine.core.step()
        engine.now_s += 1.0
    assert llm.is_busy


def test_where_the_flows_memory_is_full_nobody_waits_for_what_the_llm_still_makes() -> None:
    """Two hold all of it and need more; the LLM is at work on a third, which gives nothing back."""
    plenty = other_stages()
    HandDrivenEngine(stages=plenty).speak("u", [CLAUSE])
    assert isinstance(plenty.flow, OtherFlow)
    num_blocks = max(plenty.flow.num_speech_blocks(len(stream.tokens)) for stream in plenty.flow.opened)
    stages = other_stages(num_blocks=400 - plenty.flow.num_free_blocks + num_blocks + 2)
    assert isinstance(stages.llm, LlmRunner)
    llm = SelfSchedulingLlm(stages.llm, stages.model.llm, has_thread=False)
    engine = HandDrivenEngine(replace(CONFIG, expected_tokens_per_text_token=1), replace(stages, llm=llm))
    holding = [begin(engine, name, CLAUSE) for name in ("a", "b")]
    while llm.is_at_work:
        llm.advance()
    begin(engine, "c", "Yes.")
    assert llm.is_at_work
    while not engine.core.step().is_idle:
        pass
    assert any(engine.heard[each].end is not None for each in holding)


# --- death ------------------------------------------------------------------------------------------------


def test_a_dead_llm_ends_the_engine_and_tells_everybody_why() -> None:
    llms: list[SelfSchedulingLlm] = []

    def make(runner: LlmRunner) -> LlmBackend:
        llms.append(llm_of(runner, traits=PLAIN))
        return llms[0]

    async def speak() -> None:
        engine = tiny_engine(llm_of=make)
        await engine.start()
        listener = Listener(engine, timeout_s=PATIENCE_S)
        (llm,) = llms
        with llm.held():
            utterances = [listener.submit(name, text=TEXT) for name in ("a", "b")]
            llm.dies_of = RuntimeError("the executor has lost its device")
        for utterance in utterances:
            end = await listener.until_end(utterance)
            assert isinstance(end, Failed)
            assert end.message == "the speech LLM died: the executor has lost its device"
        with pytest.raises(EngineStopped, match="lost its device"):
            await engine.next_event()
        with pytest.raises(EngineStopped, match="lost its device"):
            listener.submit("c")
        await engine.close()

    asyncio.run(speak())
    assert tiny_runner().num_free_slots == NUM_SLOTS


def test_releasing_what_a_dead_llm_held_raises_nothing(engine: HandDrivenEngine, llm: SelfSchedulingLlm) -> None:
    subject = begin(engine, "u")
    llm.dies_of = RuntimeError("gone")
    llm.advance()
    with pytest.raises(LlmDied, match="gone"):
        engine.core.step()
    engine.core.fail_all("the engine stops")
    end = engine.heard[subject].end
    assert isinstance(end, Failed)
    assert end.message == "the engine stops"


# --- waking -----------------------------------------------------------------------------------------------


class Bell:
    def __init__(self) -> None:
        self.num_rings = 0

    def wake(self) -> None:
        self.num_rings += 1

    def watch(self, mark: Mark) -> None:
        pass


def test_nobody_polls_an_llm_that_is_at_work(engine: HandDrivenEngine, llm: SelfSchedulingLlm) -> None:
    bell = Bell()
    llm.set_waker(bell)
    begin(engine, "u")
    decision = engine.core.step()
    assert decision.is_idle
    assert decision.wake_at_s is None, "the engine sleeps until it is woken"
    assert engine.core.is_busy
    for _ in range(3):
        llm.advance()
    assert bell.num_rings == 1, "once for all that has not been fetched"
    engine.core.step()
    llm.advance()
    assert bell.num_rings == 2


def test_a_sleeping_engine_is_woken_by_the_llms_own_thread() -> None:
    llms: list[SelfSchedulingLlm] = []

    def make(runner: LlmRunner) -> LlmBackend:
        llms.append(llm_of(runner))
        return llms[0]

    async def speak() -> None:
        engine = tiny_engine(llm_of=make)
        await engine.start()
        listener = Listener(engine, timeout_s=PATIENCE_S)
        with llms[0].held():
            utterance = listener.submit("u", text="It rains.", end=True)
            await listener.until_quiet()  # the engine's thread has done what it could, and sleeps
            assert not listener.packets(utterance)
        done = await listener.until_end(utterance)
        assert isinstance(done, Done)
        assert done.audio_ms > 0
        await engine.close()

    asyncio.run(speak())


# --- what it cannot do ------------------------------------------------------------------------------------


def test_a_model_that_would_rather_interleave_speaks_by_clause_where_the_llm_cannot() -> None:
    llm = llm_of(tiny_runner(), has_thread=False, traits=PLAIN)
    stages = tiny_stages()
    model = replace(stages.model, default_mode="bistream")
    engine = HandDrivenEngine(stages=replace(stages, llm=llm, model=model))
    utterance_id = engine.submit("u", mode=SpeakingMode.AUTO)
    engine.core.push_text(utterance_id, "It rains.")
    engine.core.end_text(utterance_id)
    run(engine, llm)
    assert isinstance(engine.heard[utterance_id].end, Done)
    llm.close()
