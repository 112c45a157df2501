"""Engine processes that are lost, hang, refuse, differ or come late, and what their front makes of it.

The processes are tasks of the test's own loop behind real sockets; real ones are in tests/integration.
"""

import asyncio
import itertools
import random
import threading
from dataclasses import replace
from functools import partial
from typing import ClassVar

import msgspec
import pytest
from structlog.testing import capture_logs

from tests.contract.listener import Listener
from tests.support.polling import until
from tests.support.replicas import KILLED, RoutedEngine, hasten, routed, running
from voicegate.engine import child_process
from voicegate.engine.audio.packets import pre_skip_48k
from voicegate.engine.dictionary import Dictionary
from voicegate.engine.fake.engine import FakeEngine, Fault, FaultKind, Script
from voicegate.engine.interface import (
    AtRest,
    AudioFormat,
    AudioReady,
    Cancelled,
    Done,
    EngineError,
    EngineInfo,
    EngineStats,
    EngineStopped,
    Failed,
    ListenerReport,
    NewVoice,
    Overloaded,
    UnknownVoice,
    Unsupported,
    VoiceInfo,
)
from voicegate.engine.process import front
from voicegate.engine.process.wire import Told

RECORDING = b"RIFF"
TALK = "One two three, four five six. "
STALLED = Script(faults=dict.fromkeys(range(100), Fault(FaultKind.STALL, after_ms=120)))
stalled = partial(FakeEngine, STALLED)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    hasten(monkeypatch)


async def until_served(engine: RoutedEngine, *, num_lost: int) -> None:
    """All places, after so many losses."""
    await until(
        lambda: (
            engine.stats().counters["replicas_lost"] == num_lost
            and engine.stats().gauges["replica_ready"] == len(engine.stats().engines)
        )
    )


# --- at rest ----------------------------------------------------------------------------------------------


async def test_a_process_speaks_whom_it_has_a_place_for_and_no_others() -> None:
    async with running(FakeEngine) as listener:
        engine = routed(listener)
        utterance = listener.submit("u", text="hello")
        engine.flush_text(utterance, "f")
        await listener.until(utterance, AtRest)
        assert engine.stats().gauges["replica_utterances"] == 0
        engine.push_text(utterance, " there ")
        assert engine.stats().gauges["replica_utterances"] == 1
        placed = engine._live[utterance]
        crossed = msgspec.json.encode(AtRest(utterance, len("hello")))
        placed.replica._take(Told.AT_REST, placed.number, crossed)
        assert engine.stats().gauges["replica_utterances"] == 1, "text has crossed it"
        engine.end_text(utterance)
        assert isinstance(await listener.until_end(utterance), Done)
        assert engine.stats().gauges["replica_utterances"] == 0


async def test_a_process_has_no_room_for_a_new_request_where_one_at_rest_has_come_back() -> None:
    """At once, not when the process says so: else the new request would wait there, and not in line for any process."""
    async with running(partial(FakeEngine, Script(max_utterances=1))) as listener:
        engine = routed(listener)
        utterance = listener.submit("u", text="hello")
        engine.flush_text(utterance, "f")
        await listener.until(utterance, AtRest)
        await until(lambda: engine.room == 1)
        engine.readmit(utterance)
        assert engine.room == 0
        with pytest.raises(Overloaded):
            listener.submit("new request")
        engine.cancel(utterance)
        await listener.until_end(utterance)


async def test_one_that_has_ended_does_not_rest() -> None:
    """Its process may tell of rest in the moment in which all are given up."""
    async with running(FakeEngine) as listener:
        engine = routed(listener)
        utterance = listener.submit("u", text="hello", end=True)
        await listener.until_end(utterance)
        engine._publish(AtRest(utterance, 5))
        assert engine._events.empty()


# --- lost -------------------------------------------------------------------------------------------------


async def test_libopus_is_loaded_before_anybody_is_let_in(monkeypatch: pytest.MonkeyPatch) -> None:
    """And not in the event loop: a program is run for it."""
    loaded_in: list[threading.Thread] = []

    def load(audio: AudioFormat) -> int:
        loaded_in.append(threading.current_thread())
        return pre_skip_48k(audio)

    monkeypatch.setattr(front, "pre_skip_48k", load)
    async with running(FakeEngine):
        (thread,) = loaded_in
    assert thread is not threading.current_thread()


async def test_a_lost_process_fails_its_own_utterance_and_is_replaced() -> None:
    async with running(stalled, stalled) as listener:
        engine = routed(listener)
        first, second = listener.submit("first", text=TALK), listener.submit("second", text=TALK)
        await listener.until_heard(first, second)
        assert [engine.host.fake(number).num_live for number in (0, 1)] == [1, 1]
        with capture_logs() as logs:
            engine.host.kill(0)
            failed = await listener.until_end(first)
            await until_served(engine, num_lost=1)
        assert isinstance(failed, Failed)
        assert "engine process" in failed.message
        assert listener.end_of(second) is None
        (told,) = [entry for entry in logs if entry["event"] == "engine_process_lost"]
        assert (told["replica"], told["exit_status"], told["num_utterances"]) == ("place:0", KILLED, 1)
        engine.cancel(first)
        engine.push_text(first, "x")
        third = listener.submit("third", text=TALK)
        await listener.until(third, AudioReady)
        assert engine.host.fake(0).num_live == 1, "the new one, which has less to do"
        engine.cancel(second)
        assert isinstance(await listener.until_end(second), Cancelled)
        assert engine.stats().counters["replica_utterances_lost"] == 1


async def test_all_are_lost_and_nobody_is_let_in_until_there_are_others() -> None:
    async with running(stalled, stalled) as listener:
        engine = routed(listener)
        utterances = [listener.submit(f"u{number}", text=TALK) for number in range(4)]
        info = engine.info
        for number in (0, 1):
            engine.host.kill(number)
        ends = [await listener.until_end(utterance) for utterance in utterances]
        assert {type(end) for end in ends} == {Failed}
        assert engine.unready_reason == "no engine process is running; they are being replaced"
        assert engine.room == 0
        with pytest.raises(Overloaded, match="being replaced") as caught:
            listener.submit("late")
        assert caught.value.retry_after_ms > 0
        with pytest.raises(Overloaded):
            await engine.add_voice(NewVoice("guest", RECORDING))
        assert engine.pulse is None
        await until_served(engine, num_lost=2)
        assert engine.unready_reason is None
        assert engine.info == info
        await listener.until(listener.submit("again", text=TALK), AudioReady)


async def test_a_process_that_dies_at_every_start_takes_nobody_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    delays_s = itertools.chain([0.0], itertools.repeat(3600.0))
    monkeypatch.setattr(child_process.Backoff, "delay_s", lambda _self, _served_s: next(delays_s))
    engines = iter([FakeEngine(), Dying()])
    async with running(lambda: next(engines), FakeEngine) as listener:
        engine = routed(listener)
        engine.host.kill(0)
        await until(lambda: engine.stats().counters["replicas_lost"] == 2)
        for number in range(5):
            assert isinstance(await listener.until_end(listener.submit(f"u{number}", text=TALK, end=True)), Done)
        assert engine.unready_reason is None
    assert len(engine.host.engines["place:0"]) == 2, "the third would have been started in an hour"


async def test_what_was_counted_goes_on_counting() -> None:
    async with running(Counting, FakeEngine) as listener:
        engine = routed(listener)
        await until(lambda: engine.stats().counters.get("llm_steps") == 5)
        engine.host.kill(0)
        await until_served(engine, num_lost=1)
        await until(lambda: engine.stats().counters["llm_steps"] == 10)
        stats = engine.stats()
        assert stats.engines["place:0"].counters["llm_steps"] == 10
        assert (stats.gauges["free_llm_slots"], stats.batch_sizes) == (3, {"llm": [2, 4, 6]})


async def test_a_process_tells_of_its_own_devices() -> None:
    async with running(Apart) as listener:
        engine = routed(listener)
        await until(lambda: "cuda:1" in engine.stats().engines)
        stats = engine.stats()
        assert stats.engines["cuda:1"] == Apart.TOKEN2WAV
        assert stats.engines["place:0"].gauges["replica_ready"] == 1
        assert stats.hangs == {"cuda:0": False, "cuda:1": True}
        engine.host.kill(0)
        await until(lambda: "cuda:1" not in engine.stats().engines and not engine.stats().hangs)


# --- hangs ------------------------------------------------------------------------------------------------


async def test_a_process_that_hangs_is_killed_and_replaced_and_the_other_goes_on() -> None:
    hangs = Script(faults={0: Fault(FaultKind.HANG, after_ms=120)})
    engines = iter([FakeEngine(hangs), FakeEngine()])
    async with running(lambda: next(engines), FakeEngine, patience_s=0.4) as listener:
        engine = routed(listener)
        hung, other = listener.submit("hung", text=TALK), listener.submit("other", text=TALK)
        await listener.until(hung, AudioReady)
        assert engine.pulse is not None
        with capture_logs() as logs:
            assert isinstance(await listener.until_end(hung), Failed)
            await until_served(engine, num_lost=1)
        (told,) = [entry for entry in logs if entry["event"] == "engine_process_hangs"]
        assert told["reason"] == "it gets nothing done"
        engine.end_text(other)
        assert isinstance(await listener.until_end(other), Done)


async def test_while_a_hang_is_looked_for_the_whole_does_not_hang() -> None:
    hangs = Script(faults={0: Fault(FaultKind.HANG)})
    async with running(partial(FakeEngine, hangs), patience_s=3600.0) as listener:
        engine = routed(listener)
        listener.submit("hung", text=TALK)
        await engine.host.fake(0).until(lambda: engine.host.fake(0).pulse == 0)
        before = engine.pulse
        await until(lambda: engine.pulse != before)


# --- starts -----------------------------------------------------------------------------------------------


class Refusing(FakeEngine):
    async def start(self) -> None:
        raise EngineError("no such model; choose another")


class Dying(FakeEngine):
    async def start(self) -> None:
        raise RuntimeError("CUDA error: unspecified launch failure")


class Counting(FakeEngine):
    def stats(self) -> EngineStats:
        return EngineStats({"llm_steps": 5.0}, {"free_llm_slots": 3}, {"llm": [1, 2, 3]})


class Apart(FakeEngine):
    """As a disaggregated engine tells of its devices."""

    TOKEN2WAV = EngineStats({"flow_steps": 2.0}, {"replica_ready": 0, "replica_utterances": 1, "replica_room": 0})

    def stats(self) -> EngineStats:
        hangs = {"cuda:0": False, "cuda:1": True}
        return EngineStats({"flow_steps": 2.0}, engines={"cuda:1": self.TOKEN2WAV}, hangs=hangs)


class Renamed(FakeEngine):
    @property
    def info(self) -> EngineInfo:
        return replace(super().info, model="another")


class OtherMeasurements(FakeEngine):
    """Measurements of that model by another process: its own, and so is the voice that came first."""

    @property
    def info(self) -> EngineInfo:
        return replace(super().info, vocoder="another", flow="another", default_voice="another")


@pytest.mark.parametrize("makes", [(Refusing, FakeEngine), (FakeEngine, Refusing), (FakeEngine, FakeEngine, Refusing)])
async def test_what_does_not_fit_stops_the_start_with_its_remedy(makes: tuple[type[FakeEngine], ...]) -> None:
    engine = RoutedEngine(*makes)
    with pytest.raises(EngineError, match="no such model; choose another"):
        await engine.start()
    with pytest.raises(EngineStopped):
        engine.submit(Listener(engine, timeout_s=1.0).engine)  # type: ignore[arg-type]
    assert all(process.wait(0.0) is not None for process in engine.host.processes.values())


async def test_a_place_whose_process_dies_at_the_start_is_left_out() -> None:
    engines = iter([Dying(), FakeEngine()])
    with capture_logs() as logs:
        async with running(lambda: next(engines), FakeEngine) as listener:
            assert isinstance(await listener.until_end(listener.submit("u", text=TALK, end=True)), Done)
            await until_served(routed(listener), num_lost=1)
    assert [entry["replica"] for entry in logs if entry["event"] == "engine_process_lost"] == ["place:0"]


async def test_a_start_of_which_nothing_comes_says_so() -> None:
    engine = RoutedEngine(Dying, Dying)
    with pytest.raises(EngineError, match="no engine process has started"):
        await engine.start()


async def test_a_process_that_became_another_is_not_let_in() -> None:
    """Its files were exchanged under a server that runs."""
    engines = iter([FakeEngine(), Renamed(), FakeEngine()])
    with capture_logs() as logs:
        async with running(lambda: next(engines), FakeEngine) as listener:
            engine = routed(listener)
            engine.host.kill(0)
            await until_served(engine, num_lost=2)
    (told,) = [entry for entry in logs if entry["event"] == "engine_process_differs"]
    assert told["what"] == "model is 'another', and was 'fake'"


async def test_processes_may_have_measured_otherwise_and_found_other_voices() -> None:
    engines = iter([FakeEngine(), OtherMeasurements()])
    with capture_logs() as logs:
        async with running(lambda: next(engines)) as listener:
            engine = routed(listener)
            engine.host.kill(0)
            await until_served(engine, num_lost=1)
    assert "engine_process_differs" not in {entry["event"] for entry in logs}


async def test_the_end_while_it_starts_leaves_nothing_behind() -> None:
    started = asyncio.Event()

    class Loading(FakeEngine):
        async def start(self) -> None:
            started.set()
            await asyncio.get_running_loop().create_future()

    engine = RoutedEngine(Loading, FakeEngine)
    starting = asyncio.create_task(engine.start())
    await started.wait()
    starting.cancel()
    await asyncio.wait({starting})
    await engine.close()
    assert [process.wait(0.0) for process in engine.host.processes.values()] == [KILLED]


# --- voices -----------------------------------------------------------------------------------------------


async def test_a_long_recording_comes_whole_beside_speech_and_is_dropped_where_it_is_given_up() -> None:
    class Keeping(FakeEngine):
        recordings: ClassVar[list[bytes]] = []

        async def add_voice(self, voice: NewVoice) -> VoiceInfo:
            self.recordings.append(voice.recording)
            return await super().add_voice(voice)

    recording = RECORDING + random.Random(0).randbytes(5_000_000)
    async with running(Keeping) as listener:
        adding = asyncio.create_task(listener.engine.add_voice(NewVoice("guest", recording)))
        await asyncio.sleep(0)
        assert isinstance(await listener.until_end(listener.submit("u", text=TALK, end=True)), Done)
        await adding
        given_up = asyncio.create_task(listener.engine.add_voice(NewVoice("other", recording)))
        await asyncio.sleep(0)
        given_up.cancel()
        await asyncio.wait({given_up})
        await listener.engine.add_voice(NewVoice("last", RECORDING))
        assert Keeping.recordings == [recording, RECORDING]


async def test_a_process_that_is_lost_while_it_makes_a_voice_leaves_it_to_the_others() -> None:
    asked = asyncio.Event()

    class Slow(FakeEngine):
        async def add_voice(self, voice: NewVoice) -> VoiceInfo:
            asked.set()
            await asyncio.get_running_loop().create_future()
            raise AssertionError

    engines = iter([Slow(), FakeEngine()])
    async with running(lambda: next(engines), FakeEngine) as listener:
        engine = routed(listener)
        adding = asyncio.create_task(engine.add_voice(NewVoice("guest", RECORDING)))
        await asked.wait()
        engine.host.kill(0)
        assert (await adding).name == "guest"
        await until_served(engine, num_lost=1)
        await until(lambda: engine.host.fake(0).info.voices == engine.host.fake(1).info.voices == engine.info.voices)


async def test_an_addition_that_was_given_up_can_be_made_again() -> None:
    has_begun, may_end = asyncio.Event(), asyncio.Event()

    class Slow(FakeEngine):
        async def add_voice(self, voice: NewVoice) -> VoiceInfo:
            has_begun.set()
            await may_end.wait()
            return await super().add_voice(voice)

    async with running(Slow) as listener:
        engine = routed(listener)
        adding = asyncio.create_task(engine.add_voice(NewVoice("guest", RECORDING)))
        await has_begun.wait()
        adding.cancel()
        await asyncio.wait({adding})
        with pytest.raises(UnknownVoice):
            listener.submit("u", voice="guest")
        may_end.set()
        await engine.add_voice(NewVoice("guest", RECORDING, description="again"))
        assert [voice.description for voice in engine.info.voices if voice.name == "guest"] == ["again"]


async def test_a_fault_of_ours_in_a_voice_is_told_to_whoever_asked() -> None:
    class Broken(FakeEngine):
        async def remove_voice(self, name: str) -> None:
            raise KeyError(name)

        async def add_voice(self, voice: NewVoice) -> VoiceInfo:
            raise ZeroDivisionError

    with capture_logs() as logs:
        async with running(Broken) as listener:
            with pytest.raises(EngineError, match="ZeroDivisionError"):
                await listener.engine.add_voice(NewVoice("guest", RECORDING))
            await listener.engine.remove_voice("drone")
            assert isinstance(await listener.until_end(listener.submit("u", text=TALK, end=True)), Done)
    assert "voice_not_removed" in [entry["event"] for entry in logs]


# --- across ------------------------------------------------------------------------------------------------


async def test_a_dictionary_is_sent_once_and_forgotten_with_its_last_user() -> None:
    async with running(FakeEngine) as listener:
        engine = routed(listener)
        shared = Dictionary({"SQL": "sequel", "new york": "the big apple"})
        for number in range(3):
            end = await listener.until_end(
                listener.submit(f"u{number}", text=TALK, end=True, dictionaries=(Dictionary({"a": "b"}), shared))
            )
            assert isinstance(end, Done)
        taken = [request.dictionaries[1] for request in engine.host.fake(0).requests]
        assert taken[0] is taken[1] is taken[2]
        assert taken[0].entries == shared.entries == {"SQL": "sequel", "new york": "the big apple"}
        assert len({id(request.dictionaries[0]) for request in engine.host.fake(0).requests}) == 3


async def test_reports_of_listeners_arrive() -> None:
    async with running(stalled) as listener:
        utterance = listener.submit("u", text=TALK)
        report = ListenerReport(played_ms=20, is_playing=False, num_underruns=2)
        listener.engine.note_listener(utterance, report)
        fake = routed(listener).host.fake(0)
        await fake.until(lambda: bool(fake.reports))
        assert fake.reports == [(utterance, report)]


async def test_what_a_process_refuses_after_all_fails_alone() -> None:
    script = Script(refusals={0: Unsupported("not this one")})
    async with running(partial(FakeEngine, script)) as listener:
        failed = await listener.until_end(listener.submit("u", text=TALK, end=True))
        assert failed == Failed(failed.utterance_id, "not this one")
        assert isinstance(await listener.until_end(listener.submit("v", text=TALK, end=True)), Done)


async def test_an_utterance_has_its_id_alone() -> None:
    async with running(stalled, stalled) as listener:
        listener.submit("u")
        with pytest.raises(EngineError, match="already running"):
            listener.submit("u")


async def test_a_burst_is_shared_out_and_what_nobody_has_room_for_is_refused() -> None:
    small = partial(FakeEngine, replace(STALLED, max_utterances=5))
    async with running(small, small) as listener:
        for number in range(10):
            listener.submit(f"u{number}", text=TALK)
        with pytest.raises(Overloaded, match="no engine process has room"):
            listener.submit("one too many")
        engine = routed(listener)
        await until(lambda: [engine.host.fake(number).num_live for number in (0, 1)] == [5, 5])


async def test_what_cannot_be_read_costs_the_process_that_sent_it() -> None:
    async with running(stalled, stalled) as listener:
        engine = routed(listener)
        utterance = listener.submit("u", text=TALK)
        await listener.until(utterance, AudioReady)
        with capture_logs() as logs:
            engine._serving[0]._channel.data_received(b"\xff" * 9)
            assert isinstance(await listener.until_end(utterance), Failed)
            await until_served(engine, num_lost=1)
    assert "channel_broken" in [entry["event"] for entry in logs]
