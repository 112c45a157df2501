"""The engine's thread and the loop: starts and voices that are given up, bursts that are refused, portions."""

import asyncio
import ctypes
import threading
import time
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.support.hollow_stages import Hollow, hollow, hollow_voice
from tests.support.lanes import StuckLane, on_lane
from tests.support.patience import PATIENCE_S
from tests.support.polling import until
from tests.support.tiny_engine import CONFIG, PCM
from voicegate.engine.audio.outlet import Sink
from voicegate.engine.core.core import EngineCore
from voicegate.engine.core.policy import Decision
from voicegate.engine.device.watcher import Waker
from voicegate.engine.flow.prompt_rendering import BlockPromptRendering
from voicegate.engine.interface import (
    AtRest,
    Cancelled,
    Done,
    EngineError,
    EngineEvent,
    EngineInfo,
    EngineStopped,
    Failed,
    NewVoice,
    Overloaded,
    UtteranceId,
    UtteranceRequest,
    VoiceRefused,
)
from voicegate.engine.llm.runner import MAX_STEPS_OF_ONE
from voicegate.engine.load.build import engine_info
from voicegate.engine.thread.worker import LoadedEngine, ThreadedEngine
from voicegate.engine.voices.keeper import VoiceKeeper
from voicegate.engine.voices.voice import Voice


@pytest.mark.parametrize("is_failing", [False, True])
def test_a_start_that_nobody_waits_for_any_more_ends_quietly(is_failing: bool) -> None:
    begun, released = threading.Event(), threading.Event()
    ends: list[str] = []

    def load(_sink: Sink, _waker: Waker) -> LoadedEngine:
        begun.set()
        assert released.wait(PATIENCE_S)
        if is_failing:
            raise EngineError("no such model")
        core = SimpleNamespace(fail_all=lambda _: ends.append("utterances failed"), num_welcome=0)
        return LoadedEngine(
            cast(EngineCore, core), cast(EngineInfo, SimpleNamespace()), close=lambda: ends.append("closed")
        )

    async def give_up() -> list[dict[str, Any]]:
        complaints: list[dict[str, Any]] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context))
        engine = ThreadedEngine(load)
        start = asyncio.create_task(engine.start())
        await asyncio.to_thread(begun.wait, PATIENCE_S)
        start.cancel()
        with pytest.raises(asyncio.CancelledError):
            await start
        released.set()
        await engine.close()
        await asyncio.sleep(0)
        return complaints

    assert asyncio.run(give_up()) == []
    assert ends == ([] if is_failing else ["utterances failed", "closed"])


# --- bursts and portions ------------------------------------------------------------------------------------------


SOUND = b"of somebody"


class HeldMaker:
    """Makes voices at once, unless it is held: then not before `go`, or until it is closed."""

    def __init__(self) -> None:
        self.making: list[str] = []  # now
        self.go = asyncio.Event()
        self.go.set()
        self._is_closed = False

    async def make(self, order: NewVoice) -> Voice:
        self.making.append(order.name)
        try:
            await self.go.wait()
        finally:
            self.making.remove(order.name)
        if self._is_closed:
            raise EngineError("the process has ended")
        if not order.recording:
            raise VoiceRefused("there is no sound")
        return hollow_voice(order.name)

    def close(self) -> None:
        self._is_closed = True
        self.go.set()


class HeldEngine:
    """An engine on hollow models whose thread does nothing before `go`, and a maker of voices that may be held."""

    def __init__(self, **config: Any) -> None:
        self.has_begun = threading.Event()
        self.models: Hollow = hollow()
        self.num_steps = 0
        self._go = threading.Event()
        self._config = replace(CONFIG, **config)
        self.is_asked = asyncio.Event()  # for a voice
        self.maker = HeldMaker()
        self.voices_dir: Path | None = None
        self._loop = asyncio.get_running_loop()
        self.engine = ThreadedEngine(self._load)

    def go(self) -> None:
        self._go.set()

    def has_stepped_beyond(self, num_steps: int) -> bool:
        return self.num_steps > num_steps

    def _load(self, sink: Sink, waker: Waker) -> LoadedEngine:
        core = EngineCore(self._config, self.models.stages, time.monotonic, sink, waker=waker)
        step = core.step

        def held_step() -> Decision:
            self.has_begun.set()
            assert self._go.wait(PATIENCE_S)
            self.num_steps += 1
            return step()

        prepare = core.prepare_voice

        def told(*args: Any) -> None:
            self._loop.call_soon_threadsafe(self.is_asked.set)
            prepare(*args)

        core.step, core.prepare_voice = held_step, told  # type: ignore[method-assign]
        return LoadedEngine(
            core, engine_info(self._config, self.models.stages), VoiceKeeper(self.maker, self.voices_dir)
        )

    async def submit(self, name: str, text: str = "") -> UtteranceId:
        utterance_id = UtteranceId(name)
        self.engine.submit(UtteranceRequest(utterance_id, "woman", PCM))
        self.engine.push_text(utterance_id, text)
        return utterance_id

    async def ends(self, number: int) -> dict[UtteranceId, EngineEvent]:
        ends: dict[UtteranceId, EngineEvent] = {}
        while len(ends) < number:
            event = await asyncio.wait_for(self.engine.next_event(), PATIENCE_S)
            if isinstance(event, Done | Cancelled | Failed):
                assert event.utterance_id not in ends
                ends[event.utterance_id] = event
        return ends


async def test_a_burst_is_refused_from_the_first_that_finds_no_place() -> None:
    held = HeldEngine(max_active_clauses=8, max_waiting_utterances=5, max_utterances=64)
    await held.engine.start()
    await held.submit("0", "Good morning.")
    await asyncio.to_thread(held.has_begun.wait, PATIENCE_S)  # the others wait before it
    for number in range(1, 8 + 5):
        await held.submit(str(number), "Good morning.")
    with pytest.raises(Overloaded, match="no room"):
        await held.submit("one too many")
    held.engine.cancel(UtteranceId("3"))
    await held.submit("in its place", "Good morning.")
    held.go()
    for number in range(8 + 5):
        held.engine.end_text(UtteranceId(str(number)))
    held.engine.end_text(UtteranceId("in its place"))
    ends = await held.ends(8 + 5 + 1)
    assert isinstance(ends.pop(UtteranceId("3")), Cancelled)
    assert all(isinstance(end, Done) for end in ends.values())
    await held.submit("later")
    await held.engine.close()


async def test_a_word_of_rest_that_text_has_crossed_frees_no_place() -> None:
    held = HeldEngine(max_utterances=1)
    await held.engine.start()
    utterance_id = await held.submit("u", "Good morning.")
    held.engine.push_text(utterance_id, " And more.")
    held.engine._publish([AtRest(utterance_id, len("Good morning."))])
    with pytest.raises(Overloaded, match="in use"):
        await held.submit("one too many")
    held.go()
    held.engine.end_text(utterance_id)
    event = await held.engine.next_event()
    assert not isinstance(event, AtRest), "nobody hears of it"
    while not isinstance(event, Done):
        event = await held.engine.next_event()
    await held.engine.close()


async def test_whom_the_engines_thread_has_not_heard_of_ends_too_when_it_is_closed() -> None:
    held = HeldEngine()
    await held.engine.start()
    await held.submit("known", "Good morning.")
    held.engine.push_text(UtteranceId("known"), "x")
    closing = asyncio.create_task(held.engine.close())
    await asyncio.sleep(0)
    held.go()
    (end,) = (await held.ends(1)).values()
    assert isinstance(end, Failed)
    await closing
    with pytest.raises(EngineStopped):
        await held.engine.next_event()


def test_commands_are_applied_for_a_moment_then_speech_has_its_turn() -> None:
    now_s = 0.0

    def slow(_: EngineCore) -> None:
        nonlocal now_s
        now_s += 0.0004

    engine = ThreadedEngine(lambda *_: cast(LoadedEngine, None), clock=lambda: now_s)
    for number in range(10):
        engine._inbox.add(UtteranceId(str(number)), slow)
    portions = []
    while engine._inbox._envelopes:
        before_s = now_s
        assert engine._take_commands(cast(EngineCore, None), 0.0)
        portions.append(round((now_s - before_s) / 0.0004))
    assert portions == [3, 3, 3, 1]


# --- what hangs -----------------------------------------------------------------------------------------------------


async def test_a_device_that_hangs_shows_whatever_clients_send() -> None:
    held, lane = HeldEngine(), StuckLane()
    llm = on_lane(held.models.runner, lane)
    held.models = replace(held.models, stages=replace(held.models.stages, llm=llm))
    held.go()
    await held.engine.start()
    assert held.engine.pulse is None
    stuck = await held.submit("stuck", "Good morning, and welcome.")
    held.engine.end_text(stuck)
    # `takes_step` looks through what the engine's thread appends to; of a counter one reads what it is.
    await until(lambda: held.engine._inbox.is_empty and llm.counters["llm_steps"] >= MAX_STEPS_OF_ONE)
    pulses = set()
    for n in range(200):
        num_steps = held.num_steps
        await held.submit(f"silent {n}")
        held.engine.cancel(UtteranceId(f"silent {n}"))
        held.engine._inbox.wake()
        await until(partial(held.has_stepped_beyond, num_steps))
        pulses.add(held.engine.pulse)
    assert None not in pulses
    assert len(pulses) <= 2  # what was launched as it began may have come late
    lane.go_on()
    held.engine._inbox.wake()
    assert isinstance((await held.ends(201))[stuck], Done)
    await until(lambda: held.engine.pulse is None)
    await held.engine.close()


# --- a thread that dies -------------------------------------------------------------------------------------------


class _Killed(BaseException):
    """As no `except Exception` catches it."""


async def test_a_thread_that_is_killed_is_heard_of() -> None:
    held = HeldEngine()
    await held.engine.start()
    await held.submit("known", "Good morning.")
    await asyncio.to_thread(held.has_begun.wait, PATIENCE_S)
    thread = held.engine._thread
    assert thread is not None
    assert thread.ident is not None
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread.ident), ctypes.py_object(_Killed))
    held.go()
    (end,) = (await held.ends(1)).values()
    assert end == Failed(UtteranceId("known"), "the engine died; see the log")
    with pytest.raises(EngineStopped, match="died"):
        await asyncio.wait_for(held.engine.next_event(), PATIENCE_S)
    assert held.engine.unready_reason is not None
    await held.engine.close()


async def test_what_goes_wrong_in_its_end_does_not_hide_it(monkeypatch: pytest.MonkeyPatch) -> None:
    complaints: list[Any] = []
    monkeypatch.setattr(threading, "excepthook", lambda args: complaints.append(args.exc_value))
    held, ends = HeldEngine(), []

    def load(sink: Sink, waker: Waker) -> LoadedEngine:
        def fall_over(*_: str) -> Any:
            raise RuntimeError("not even that")

        loaded = held._load(sink, waker)
        loaded.core.step = loaded.core.fail_all = fall_over  # type: ignore[method-assign]
        return replace(loaded, close=lambda: ends.append("closed"))

    held.engine = ThreadedEngine(load)
    await held.engine.start()
    await held.submit("u")
    assert isinstance((await held.ends(1))[UtteranceId("u")], Failed)
    await held.engine.close()
    assert ends == ["closed"]
    assert [str(complaint) for complaint in complaints] == ["not even that"]


# --- voices that nobody waits for any more ------------------------------------------------------------------------


@pytest.mark.parametrize("moment", ["before it is prepared", "when it is", "when it was just told"])
@pytest.mark.parametrize("replaces", [False, True])
async def test_a_voice_whose_adding_is_given_up_leaves_nothing(moment: str, replaces: bool) -> None:
    held = HeldEngine()
    engine = held.engine
    await engine.start()
    free, voices = held.models.held, engine.info.voices
    name = "woman" if replaces else "guest"
    adding = asyncio.create_task(engine.add_voice(NewVoice(name, SOUND, is_replacing=replaces)))
    await held.is_asked.wait()
    arrived = engine._arrived

    def give_up_when_told(*args: Any) -> None:
        if moment == "when it was just told":
            arrived(*args)
            adding.cancel()
        else:
            adding.cancel()
            arrived(*args)

    if moment == "before it is prepared":
        adding.cancel()
        held.go()
    else:
        engine._arrived = give_up_when_told  # type: ignore[method-assign]
        held.go()
    with pytest.raises(asyncio.CancelledError):
        await adding
    engine._arrived = arrived  # type: ignore[method-assign]
    assert engine.info.voices == voices
    await engine.add_voice(NewVoice("another", SOUND))
    await engine.remove_voice("another")
    utterance = await held.submit("u", "Good morning.")
    engine.end_text(utterance)
    assert isinstance((await held.ends(1))[utterance], Done)
    await engine.close()
    assert held.models.held == free


# --- voices that are being made -----------------------------------------------------------------------------------


async def test_others_speak_and_are_begun_while_a_voice_is_made() -> None:
    held = HeldEngine()
    engine = held.engine
    await engine.start()
    held.go()
    held.maker.go.clear()
    first = await held.submit("first", "Good morning.")
    adding = [asyncio.create_task(engine.add_voice(NewVoice(name, SOUND))) for name in ("one", "two")]
    await until(lambda: bool(held.maker.making))
    engine.end_text(first)
    second = await held.submit("second", "Good morning to all of you.")
    engine.end_text(second)
    ends = await held.ends(2)
    assert all(isinstance(ends[name], Done) for name in (first, second))
    await until(lambda: engine.pulse is None)  # nothing that could be taken for a hang
    assert held.maker.making == ["one", "two"], "one that takes long holds up no other"
    held.maker.go.set()
    await asyncio.gather(*adding)
    assert sorted(voice.name for voice in engine.info.voices) == ["one", "two", "woman"]
    await engine.close()


async def test_a_voice_that_could_not_be_written_is_there_and_its_sender_is_told(tmp_path: Path) -> None:
    held = HeldEngine()
    held.voices_dir = tmp_path / "gone"
    await held.engine.start()
    held.go()
    added = await held.engine.add_voice(NewVoice("guest", SOUND))
    assert added.remark == "the voice could not be written (No such file or directory), and is gone after a restart"
    assert [(voice.name, voice.remark) for voice in held.engine.info.voices] == [("woman", ""), ("guest", "")]
    assert (await held.engine.add_voice(NewVoice("clone", SOUND, is_clone=True))).remark == "", "it is never written"
    await held.engine.close()


async def test_what_makes_no_voice_is_told_to_its_sender_and_the_next_is_made() -> None:
    held = HeldEngine()
    await held.engine.start()
    held.go()
    with pytest.raises(VoiceRefused, match="no sound"):
        await held.engine.add_voice(NewVoice("guest", b""))
    await held.engine.add_voice(NewVoice("guest", SOUND))
    await held.engine.close()


async def test_a_voice_that_is_given_up_while_it_is_made_lets_the_next_in() -> None:
    held = HeldEngine()
    engine = held.engine
    await engine.start()
    free = held.models.held
    held.go()
    held.maker.go.clear()
    adding = asyncio.create_task(engine.add_voice(NewVoice("guest", SOUND)))
    await until(lambda: bool(held.maker.making))
    adding.cancel()
    with pytest.raises(asyncio.CancelledError):
        await adding
    held.maker.go.set()
    await engine.add_voice(NewVoice("next", SOUND))
    await engine.remove_voice("next")
    assert [voice.name for voice in engine.info.voices] == ["woman"]
    utterance = await held.submit("u", "Good morning.")  # behind what was asked for before
    engine.end_text(utterance)
    assert isinstance((await held.ends(1))[utterance], Done)
    await engine.close()
    assert held.models.held == free


async def test_an_engine_that_is_closed_while_a_voice_is_made_gives_that_up() -> None:
    held = HeldEngine()
    await held.engine.start()
    held.go()
    held.maker.go.clear()
    adding = asyncio.create_task(held.engine.add_voice(NewVoice("guest", SOUND)))
    await until(lambda: bool(held.maker.making))
    await held.engine.close()
    with pytest.raises(EngineStopped, match="closed"):
        await adding


# --- voices whose prompt is being rendered ------------------------------------------------------------------------


class HeldPrompt:
    """The engine's thread waits before one of a prompt's Euler steps, until `go`."""

    def __init__(self, patched: pytest.MonkeyPatch, *, at_step: int) -> None:
        self.is_there = threading.Event()
        self._go = threading.Event()
        self.num_steps = 0
        self._at_step = at_step
        self._advance = BlockPromptRendering.advance
        patched.setattr(BlockPromptRendering, "advance", lambda rendering: self._held(rendering))

    def go(self) -> None:
        self._go.set()

    def _held(self, rendering: BlockPromptRendering) -> bool:
        self.num_steps += 1
        if self.num_steps == self._at_step:
            self.is_there.set()
            assert self._go.wait(PATIENCE_S)
        return self._advance(rendering)


async def test_one_that_is_given_up_in_the_middle_leaves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    held = HeldEngine()
    engine = held.engine
    await engine.start()
    free, voices = held.models.held, engine.info.voices
    held.go()
    prompt = HeldPrompt(monkeypatch, at_step=4)
    adding = asyncio.create_task(engine.add_voice(NewVoice("guest", SOUND)))
    await asyncio.to_thread(prompt.is_there.wait, PATIENCE_S)
    adding.cancel()
    with pytest.raises(asyncio.CancelledError):
        await adding
    prompt.go()
    utterance = await held.submit("u", "Good morning.")
    engine.end_text(utterance)
    assert isinstance((await held.ends(1))[utterance], Done)
    assert engine.info.voices == voices
    await engine.close()
    assert held.models.held == free
    assert prompt.num_steps == 4


async def test_an_engine_that_is_closed_in_the_middle_says_so_to_who_adds_a_voice(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    held = HeldEngine()
    await held.engine.start()
    held.go()
    prompt = HeldPrompt(monkeypatch, at_step=4)
    adding = asyncio.create_task(held.engine.add_voice(NewVoice("guest", SOUND)))
    await asyncio.to_thread(prompt.is_there.wait, PATIENCE_S)
    closing = asyncio.create_task(held.engine.close())
    await asyncio.sleep(0)  # it has asked
    prompt.go()
    with pytest.raises(EngineStopped):
        await adding
    await closing
    assert prompt.num_steps == 4


async def test_every_step_of_a_prompt_is_progress(monkeypatch: pytest.MonkeyPatch) -> None:
    """A watchdog sees an engine that gets on, however long a whole prompt takes."""
    held = HeldEngine()
    await held.engine.start()
    held.go()
    pulses: list[int | None] = []
    advance = BlockPromptRendering.advance

    def noted(rendering: BlockPromptRendering) -> bool:
        pulses.append(held.engine.pulse)
        return advance(rendering)

    monkeypatch.setattr(BlockPromptRendering, "advance", noted)
    await held.engine.add_voice(NewVoice("guest", SOUND))
    told = pulses[1:]  # of the first nothing is fetched yet
    assert len(told) == len(set(told)) > 1
    assert None not in pulses
    await held.engine.close()
