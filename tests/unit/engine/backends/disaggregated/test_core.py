"""Several token2wavs behind one LLM, on hollow models: the same speech, and each with its own room and faults."""

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest
from structlog.testing import capture_logs

from tests.support.disaggregated import Driven, HollowToken2wavs, apart, hollow_token2wavs
from tests.support.hollow_stages import hollow, hollow_voice
from tests.support.self_scheduling import PLAIN, SelfSchedulingLlm
from tests.support.tiny_engine import CONFIG, PCM
from voicegate.engine.audio.outlet import Sink
from voicegate.engine.backends.disaggregated.core import DisaggregatedCore
from voicegate.engine.core.stages import ReadyVoice
from voicegate.engine.device.watcher import Waker
from voicegate.engine.interface import Done, EngineError, Failed, SpeakingMode, UtteranceId, UtteranceRequest
from voicegate.engine.llm.backend import LlmBackend, LlmDied, SequenceOutput
from voicegate.engine.load.build import engine_info
from voicegate.engine.thread.worker import LoadedEngine, ThreadedEngine

TEXTS = (
    "Good morning, and welcome back. The train to the coast leaves at nine.",
    "Mind the gap.",
    "It rains. It pours! Does it ever stop? Not today, they say, and not tomorrow either.",
    "One two three four five six seven eight nine ten eleven twelve thirteen.",
    "Please wait here.",
)


@pytest.mark.parametrize("mode", [SpeakingMode.CLAUSE, SpeakingMode.INCREMENTAL])
@pytest.mark.parametrize("number", [2, 3])
def test_speech_is_what_one_device_speaks_alone_and_together(mode: SpeakingMode, number: int) -> None:
    models = hollow_token2wavs(number)
    before = models.held
    together = Driven(models.all_stages)
    names = [together.say(f"u{place}", text, seed=place, mode=mode) for place, text in enumerate(TEXTS)]
    assert min(core.num_live for core in together.several.cores) >= 1, "all have some"
    together.run()
    assert set(together.ends()) == {"Done"}
    for place, (name, text) in enumerate(zip(names, TEXTS, strict=True)):
        alone = Driven([hollow().stages])
        alone.run()
        spoken = alone.say("alone", text, seed=place, mode=mode)
        alone.run()
        assert alone.heard[spoken].pcm == together.heard[name].pcm
        assert len(alone.heard[spoken].pcm) > 0
    assert models.held == before


@pytest.mark.parametrize("number", [1, 2])
def test_where_lanes_run_side_by_side_each_step_of_the_shared_llm_is_asked_for_alone(number: int) -> None:
    """A single text's are launched together where its LLM is its device's own."""
    models = hollow_token2wavs(number)
    driven = Driven(
        [replace(stages, is_concurrent=True, shares_device=False) for stages in models.all_stages], is_apart=True
    )
    spoken = driven.say("u", TEXTS[0])
    driven.run()
    assert driven.ends() == ["Done"]
    alone = Driven([hollow().stages])
    alone.say("u", TEXTS[0])
    alone.run()
    assert driven.heard[spoken].pcm == alone.heard[spoken].pcm


def test_what_all_need_of_the_llm_is_one_step() -> None:
    models = hollow_token2wavs()
    driven = Driven(models.all_stages)
    for place in range(4):
        driven.say(f"u{place}", TEXTS[3])
    driven.run()
    core = driven.several
    of_four = core.batch_sizes["llm"][2]  # up to four rows
    assert of_four > 50
    assert core.counters["llm_steps"] == sum(core.batch_sizes["llm"]) < of_four + 5
    assert core.counters["flow_steps"] == sum(each.counters["flow_steps"] for each in core.cores)
    assert sum(core.batch_sizes["flow"]) == core.counters["flow_steps"]
    assert [each.counters["flow_rows"] for each in core.cores] == [core.counters["flow_rows"] / 2] * 2


def test_new_requests_go_where_there_is_most_room() -> None:
    models = hollow_token2wavs(num_blocks=[20, 200])
    driven = Driven(models.all_stages)
    first, second = driven.several.cores
    for place in range(8):
        driven.say(f"u{place}", TEXTS[3])
        driven.step()
    assert 0 < first.num_live < second.num_live
    assert first.gauges["max_flow_blocks"] == 20
    assert driven.several.gauges["max_flow_blocks"] == 220
    assert driven.several.num_welcome == first.num_welcome + second.num_welcome
    assert driven.several.num_submitted == 8
    driven.run()
    assert set(driven.ends()) == {"Done"}


def test_who_finds_no_room_anywhere_waits_and_is_spoken() -> None:
    models = hollow_token2wavs(num_slots=2)
    driven = Driven(models.all_stages, replace(CONFIG, max_active_clauses=2, max_waiting_utterances=0))
    for place in range(9):
        driven.say(f"u{place}", TEXTS[3])
        driven.step()
    assert driven.several.num_welcome == 0
    assert [core.gauges["active_clauses"] for core in driven.several.cores] == [2, 2]
    driven.run()
    assert driven.ends() == ["Done"] * 9


def test_a_cancel_takes_its_own_and_nothing_else() -> None:
    models = hollow_token2wavs()
    before = models.held
    driven = Driven(models.all_stages)
    names = [driven.say(f"u{place}", TEXTS[3]) for place in range(4)]
    for _ in range(60):
        driven.step()
    driven.core.cancel(names[0], None)
    driven.core.cancel(names[0], None)
    driven.core.cancel(UtteranceId("unknown"), None)
    assert driven.ends() == ["Cancelled", "NoneType", "NoneType", "NoneType"]
    driven.core.fail(names[3], "made to fail")
    driven.run()
    assert driven.ends() == ["Cancelled", "Done", "Done", "Failed"]
    assert models.held == before


@pytest.mark.parametrize("stage", ["flow.begin", "vocoder.run"])
def test_a_fault_of_one_device_ends_its_own_utterances(stage: str, monkeypatch: pytest.MonkeyPatch) -> None:
    models = hollow_token2wavs()
    before = models.held
    driven = Driven(models.all_stages)
    for place in range(4):
        driven.say(f"u{place}", TEXTS[3])
    part, _, method = stage.partition(".")

    def broken(_: object) -> None:
        raise RuntimeError("made to fail")

    with monkeypatch.context() as patch, capture_logs() as logs:
        patch.setattr(getattr(models.parts[1], part), method, broken)
        driven.run()
    assert {line["event"] for line in logs} == {"shared_step_failed"}
    assert driven.ends() == ["Done", "Failed", "Done", "Failed"]
    assert models.held == before
    again = [driven.say(f"again{place}", TEXTS[1]) for place in range(2)]
    driven.run()
    assert all(isinstance(driven.heard[name].end, Done) for name in again)


def test_a_step_of_the_llm_that_fails_ends_who_is_in_it(monkeypatch: pytest.MonkeyPatch) -> None:
    models = hollow_token2wavs()
    before = models.held
    driven = Driven(models.all_stages)
    for place in range(3):
        driven.say(f"u{place}", TEXTS[3])
    for _ in range(10):
        driven.step()
    step = models.runner.launch

    def broken_once(sequence_ids: Sequence[int]) -> list[int]:
        monkeypatch.setattr(models.runner, "launch", step)
        raise RuntimeError("made to fail")

    monkeypatch.setattr(models.runner, "launch", broken_once)
    with capture_logs() as logs:
        driven.run()
    assert [line["event"] for line in logs].count("shared_step_failed") == 1
    assert driven.ends() == ["Failed"] * 3
    assert models.held == before
    name = driven.say("again", TEXTS[1])
    driven.run()
    assert isinstance(driven.heard[name].end, Done)


def test_an_llm_that_died_ends_the_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    models = hollow_token2wavs()
    driven = Driven(models.all_stages)
    driven.say("u0", TEXTS[0])

    def dead() -> list[SequenceOutput]:
        raise LlmDied("made to die")

    monkeypatch.setattr(models.all_stages[0].llm, "poll", dead)
    with pytest.raises(LlmDied):
        driven.step()
    driven.core.fail_all("it died")
    assert driven.ends() == ["Failed"]


# --- voices -------------------------------------------------------------------------------------------------------


def prepared(driven: Driven, name: str) -> ReadyVoice | EngineError:
    answers: list[ReadyVoice | EngineError] = []
    driven.core.prepare_voice(hollow_voice(name), answers.append)
    while not answers:
        driven.step()
    (answer,) = answers
    return answer


def test_a_new_voice_speaks_on_every_device_until_it_is_removed() -> None:
    models = hollow_token2wavs()
    before = models.held
    driven = Driven(models.all_stages)
    ready = prepared(driven, "new")
    assert isinstance(ready, ReadyVoice)
    driven.core.install_voice(ready)
    for place in range(2):
        driven.say(f"u{place}", TEXTS[1], voice="new")
    assert [core.num_live for core in driven.several.cores] == [1, 1]
    driven.core.remove_voice("new")
    driven.run()
    assert driven.ends() == ["Done", "Done"]
    assert models.held == before


def test_a_voice_that_nobody_waits_for_holds_nothing() -> None:
    models = hollow_token2wavs()
    before = models.held
    driven = Driven(models.all_stages)
    ready = prepared(driven, "new")
    assert isinstance(ready, ReadyVoice)
    assert models.held != before
    driven.core.discard_voice(ready)
    assert models.held == before


def test_a_voice_that_one_device_has_no_room_for_is_on_none() -> None:
    models = hollow_token2wavs(num_blocks=[200, 0])
    before = models.held
    answer = prepared(Driven(models.all_stages), "new")
    assert isinstance(answer, EngineError)
    assert "memory is full" in str(answer)
    assert models.held == before


def test_a_voice_that_is_given_up_while_one_device_has_it_already_is_on_none() -> None:
    models = hollow_token2wavs()
    before = models.held
    driven = Driven(models.all_stages)
    cores = driven.several.cores
    voice, answers = hollow_voice("new"), list[ReadyVoice | EngineError]()
    driven.core.prepare_voice(voice, answers.append)
    while not cores[0]._voices._prepared:
        cores[0].step()  # the other is slow
    driven.core.refuse_voices("nobody waits for it", voice)
    assert [str(answer) for answer in answers] == ["nobody waits for it"]
    assert models.held == before


# --- in the engine's thread ---------------------------------------------------------------------------------------


def threaded(models: HollowToken2wavs, llm: LlmBackend) -> ThreadedEngine:
    all_stages = [replace(stages, llm=llm) for stages in models.all_stages]

    def load(sink: Sink, waker: Waker) -> LoadedEngine:
        core = DisaggregatedCore(apart(CONFIG, len(all_stages)), all_stages, time.monotonic, sink, waker=waker)
        return LoadedEngine(core, engine_info(CONFIG, *all_stages), close=llm.close)

    return ThreadedEngine(load)


def stepped(models: HollowToken2wavs) -> LlmBackend:
    return models.all_stages[0].llm


def self_scheduling(models: HollowToken2wavs) -> LlmBackend:
    """In a thread of its own, as TensorRT-LLM has."""
    return SelfSchedulingLlm(models.runner, models.all_stages[0].model.llm, traits=PLAIN)


@pytest.mark.parametrize("llm_of", [stepped, self_scheduling])
def test_an_engines_thread_drives_it(llm_of: Callable[[HollowToken2wavs], LlmBackend]) -> None:
    models = hollow_token2wavs()
    before = models.held

    async def speak() -> list[object]:
        engine = threaded(models, llm_of(models))
        await engine.start()
        try:
            assert engine.info.max_utterances == 2 * CONFIG.max_utterances
            for place in range(6):
                name = UtteranceId(f"u{place}")
                engine.submit(UtteranceRequest(name, "woman", PCM, SpeakingMode.CLAUSE))
                engine.push_text(name, TEXTS[place % len(TEXTS)])
                engine.end_text(name)
            ends: list[object] = []
            while len(ends) < 6:
                event = await asyncio.wait_for(engine.next_event(), 60.0)
                ends += [event] if isinstance(event, Done | Failed) else []
            assert engine.stats().gauges["max_active_clauses"] == 2 * CONFIG.max_active_clauses
            return ends
        finally:
            await engine.close()

    assert all(isinstance(end, Done) for end in asyncio.run(speak()))
    assert models.held == before
