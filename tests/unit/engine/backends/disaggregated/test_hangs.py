"""A device that hangs while others work: noticed as soon as a single one, and no more is lost than what it spoke."""

import asyncio
from dataclasses import replace

import pytest
from structlog.testing import capture_logs

from tests.support.disaggregated import Driven, on_lanes, threaded
from tests.support.hollow_stages import hollow_voice
from tests.support.polling import until
from tests.support.tiny_engine import CONFIG, PCM
from voicegate.engine.core.stages import ReadyVoice
from voicegate.engine.interface import Done, EngineError, Failed, Overloaded, UtteranceId, UtteranceRequest
from voicegate.engine.thread.worker import ThreadedEngine

TEXT = "One two three four five six seven eight nine ten eleven twelve thirteen."
LIMIT_S = 1.0
HASTY = replace(CONFIG, device_patience_s=LIMIT_S)
# Real time passes by itself: a busy machine that does not get to a device for a while is no device that hangs.
REAL_LIMIT_S = 5.0
NAMES = ("cpu.2", "cpu.3")  # of two token2wavs


def step_for(driven: Driven, seconds: float) -> None:
    until_s = driven.now_s + seconds
    while driven.now_s < until_s:
        driven.step()


@pytest.mark.parametrize("number", [0, 1])
def test_it_is_noticed_while_the_others_work(number: int) -> None:
    made = on_lanes()
    before = made.models.held
    driven = Driven(made.all_stages, HASTY)
    core = driven.several
    hanging, working = core.cores[number], core.cores[1 - number]
    made.lanes[number].hang()
    lost: set[UtteranceId] = set()
    with capture_logs() as logs:
        while not logs:
            if working.num_live < 2:
                name = driven.say(f"u{len(driven.heard)}", TEXT)
                lost |= {name} if core._owners[name] is hanging else set()
            assert driven.now_s < LIMIT_S + 0.3
            driven.step()
    assert driven.now_s > LIMIT_S - 0.3
    assert logs == [
        {"event": "device_hangs", "device": NAMES[number], "limit_s": LIMIT_S, "log_level": "error"},
    ]
    assert len(driven.heard) > len(lost) + 4
    made.lanes[1 - number].go_on()
    driven.run()
    for name, heard in driven.heard.items():
        assert isinstance(heard.end, Failed if name in lost else Done)
        assert not isinstance(heard.end, Failed) or "hangs" in heard.end.message
    assert made.models.held == before
    stats = core.stats(core.counters)
    assert stats.hangs == {"cpu": False, **{each: each == NAMES[number] for each in NAMES}}
    own = stats.engines[NAMES[number]]
    assert (own.gauges["replica_ready"], own.gauges["replica_room"]) == (0, 0)
    assert (own.counters["replicas_lost"], own.counters["replica_utterances_lost"]) == (1, len(lost))
    assert stats.engines[NAMES[1 - number]].gauges["replica_ready"] == 1


def test_nobody_is_sent_there_until_it_goes_on() -> None:
    made = on_lanes()
    driven = Driven(made.all_stages, HASTY)
    core = driven.several
    made.lanes[0].hang()
    for place in range(2):
        driven.say(f"u{place}", TEXT)
    step_for(driven, LIMIT_S)
    assert sorted(driven.ends()) == ["Done", "Failed"]
    assert core.num_welcome == core.cores[1].num_welcome
    for place in range(3):
        assert core._owners[driven.say(f"elsewhere{place}", TEXT)] is core.cores[1]
    driven.run()
    with capture_logs() as logs:
        made.lanes[0].go_on()
        step_for(driven, 1.0)
    assert [(line["event"], line["device"]) for line in logs] == [("device_goes_on", NAMES[0])]
    names = [driven.say(f"again{place}", TEXT) for place in range(2)]
    assert {core._owners[name] for name in names} == set(core.cores)
    driven.run()
    assert driven.ends().count("Failed") == 1
    assert driven.ends().count("Done") == len(driven.heard) - 1


def test_where_the_llm_hangs_all_do_however_much_the_others_have_to_render() -> None:
    made = on_lanes()
    driven = Driven(made.all_stages, HASTY)
    core = driven.several
    for lane in made.lanes:
        lane.hang()
    names = [driven.say(f"u{place}", TEXT) for place in range(4)]
    step_for(driven, 0.03)
    made.llm_lane.hang()
    driven.step()
    for lane in made.lanes:  # with what the LLM has made meanwhile
        lane.go_on()
    num_fetched, num_rendered = core.num_fetched, core.counters["flow_steps"]
    with capture_logs() as logs:
        until_s = driven.now_s + LIMIT_S + 0.3
        while driven.now_s < until_s:
            driven.step()
            assert core.is_busy
            assert core.num_fetched == num_fetched, "the pulse of the whole"
    assert core.stats(core.counters).whereabouts == "cpu"
    assert core.counters["flow_steps"] > num_rendered
    assert [(line["event"], line["device"]) for line in logs] == [("device_hangs", "cpu")]
    assert core.stats(core.counters).hangs == {"cpu": True, **dict.fromkeys(NAMES, False)}
    assert driven.ends() == ["NoneType"] * 4, "whoever looks after the engine ends them"
    core.cancel(names[0], None)
    made.llm_lane.go_on()
    driven.run()
    assert driven.ends() == ["Cancelled", "Done", "Done", "Done"]
    assert not core.is_busy
    assert core.stats(core.counters).whereabouts == ""


@pytest.mark.parametrize("number", [1, 2])
def test_where_all_hang_nobody_is_let_in(number: int) -> None:
    made = on_lanes(number)
    driven = Driven(made.all_stages, HASTY, is_apart=True)
    core = driven.several
    assert core.unready_reason is None
    for lane in made.lanes:
        lane.hang()
    for place in range(number):
        driven.say(f"u{place}", TEXT)
    step_for(driven, LIMIT_S + 0.5)
    assert driven.ends() == ["Failed"] * number
    assert core.unready_reason is not None
    assert "cpu.2" in core.unready_reason
    assert core.num_welcome == 0
    assert core.is_busy, "the whole hangs, and is to be said to"
    driven.say("late", TEXT)
    assert driven.ends() == ["Failed"] * (number + 1)
    assert core._owners == {}
    for lane in made.lanes:
        lane.go_on()
    step_for(driven, 1.0)
    assert core.unready_reason is None
    assert not core.is_busy
    name = driven.say("again", TEXT)
    driven.run()
    assert isinstance(driven.heard[name].end, Done)


def test_a_time_in_which_this_thread_did_not_run_is_nobodys_hang() -> None:
    made = on_lanes()
    driven = Driven(made.all_stages, HASTY)
    made.lanes[0].hang()
    driven.say("u0", TEXT)
    step_for(driven, 0.2)
    driven.now_s += 100.0
    with capture_logs() as logs:
        driven.step()
        made.lanes[0].go_on()
        driven.run()
    assert logs == []
    assert driven.ends() == ["Done"]


def test_the_thread_comes_back_to_look() -> None:
    made = on_lanes()
    driven = Driven(made.all_stages, HASTY)
    made.lanes[0].hang()
    driven.say("u0", "No.")
    driven.run()
    num_looks = 0
    while not driven.core.stats(driven.core.counters).hangs[NAMES[0]]:
        wake_at_s = driven.core.step().wake_at_s
        assert wake_at_s is not None
        assert wake_at_s > driven.now_s
        driven.now_s, num_looks = wake_at_s, num_looks + 1
    assert num_looks <= 6
    assert driven.ends() == ["Failed"]
    made.lanes[0].go_on()
    driven.now_s -= 0.1
    wake_at_s = driven.core.step().wake_at_s  # a mark was reached
    assert wake_at_s is not None
    driven.now_s = wake_at_s
    assert driven.core.step().wake_at_s is None
    assert not driven.core.stats(driven.core.counters).hangs[NAMES[0]]


# --- voices -------------------------------------------------------------------------------------------------------


def test_no_voice_is_taken_up_while_a_device_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    made = on_lanes()
    before = made.models.held
    driven = Driven(made.all_stages, HASTY)
    core = driven.several
    answers: list[ReadyVoice | EngineError] = []
    made.lanes[1].hang()
    for place in range(2):
        driven.say(f"u{place}", TEXT, voice="woman")
    step_for(driven, 0.1)
    with monkeypatch.context() as patch:  # all of its batches are under way, as a GPU's are that hangs
        patch.setattr(made.models.parts[1].flow._solver, "max_batches", 0)
        core.prepare_voice(hollow_voice("early"), answers.append)
        step_for(driven, LIMIT_S)
    core.prepare_voice(hollow_voice("late"), answers.append)
    driven.run()
    assert [isinstance(answer, EngineError) and "cpu.3 hangs" in str(answer) for answer in answers] == [True, True]
    assert made.models.held == before
    core.remove_voice("woman")
    made.lanes[1].go_on()
    step_for(driven, 1.0)
    core.prepare_voice(hollow_voice("new"), answers.append)
    driven.run()
    ready = answers[-1]
    assert isinstance(ready, ReadyVoice)
    core.install_voice(ready)
    name = driven.say("again", TEXT, voice="new")
    driven.run()
    assert isinstance(driven.heard[name].end, Done)


# --- in the engine's thread ---------------------------------------------------------------------------------------


async def end_of(engine: ThreadedEngine, name: UtteranceId) -> Done | Failed:
    while True:
        event = await asyncio.wait_for(engine.next_event(), 60.0)
        if isinstance(event, Done | Failed) and event.utterance_id == name:
            return event


def speak(engine: ThreadedEngine, name: str) -> UtteranceId:
    utterance_id = UtteranceId(name)
    engine.submit(UtteranceRequest(utterance_id, "woman", PCM))
    engine.push_text(utterance_id, TEXT)
    engine.end_text(utterance_id)
    return utterance_id


async def test_an_engine_goes_on_without_it_and_can_be_closed() -> None:
    made = on_lanes()
    before = made.models.held
    engine = threaded(made, patience_s=REAL_LIMIT_S)
    await engine.start()
    try:
        made.lanes[0].hang()
        assert isinstance(await end_of(engine, speak(engine, "lost")), Failed)
        assert engine.unready_reason is None
        assert engine.room > 0
        assert engine.stats().hangs["cpu.2"]
        assert isinstance(await end_of(engine, speak(engine, "next")), Done)
        await until(lambda: engine.pulse is None)
    finally:
        await asyncio.wait_for(engine.close(), 30.0)
        made.lanes[0].go_on()
    assert made.models.held == before


async def test_one_that_is_refused_hears_why() -> None:
    made = on_lanes(1)
    engine = threaded(made, patience_s=REAL_LIMIT_S)
    await engine.start()
    try:
        made.lanes[0].hang()
        assert isinstance(await end_of(engine, speak(engine, "lost")), Failed)
        await until(lambda: engine.unready_reason is not None)
        with pytest.raises(Overloaded, match=r"all devices that could speak hang: cpu\.2"):
            speak(engine, "next")
        assert engine.room == 0
        assert engine.pulse is not None, "the whole hangs"
        made.lanes[0].go_on()
        await until(lambda: engine.room > 0)
        assert isinstance(await end_of(engine, speak(engine, "again")), Done)
    finally:
        made.lanes[0].go_on()
        await engine.close()
