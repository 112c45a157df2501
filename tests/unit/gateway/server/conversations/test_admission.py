"""The way into the engine: its order, its waits, and that everybody is answered exactly once."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from tests.support.patience import PATIENCE_S
from tests.support.polling import until
from voicegate.engine.fake.engine import FakeEngine, Script
from voicegate.engine.interface import (
    EngineError,
    EngineStopped,
    Overloaded,
    UnknownVoice,
    UtteranceId,
    UtteranceRequest,
    VoiceOverloaded,
)
from voicegate.gateway.server.conversations.admission import Admission
from voicegate.gateway.session.waiting import WaitingLimits


class Desk:
    """An engine with room for one, and what those who asked for it were answered."""

    def __init__(self, engine: FakeEngine, limits: WaitingLimits) -> None:
        self.engine = engine
        self.admission = Admission(engine, limits)
        self.answers: dict[str, list[EngineError | None]] = {}
        self._has_answered = asyncio.Event()

    def ask(self, name: str, voice: str = "hum", *, is_return: bool = False) -> None:
        self.answers[name] = []

        def answer(error: EngineError | None) -> None:
            self.answers[name].append(error)
            self._has_answered.set()

        self.admission.submit(UtteranceRequest(UtteranceId(name), voice), answer, is_return=is_return)

    def end(self, name: str) -> None:
        self.engine.cancel(UtteranceId(name))
        self.admission.note_end()

    async def until_answered(self, name: str) -> EngineError | None:
        async with asyncio.timeout(PATIENCE_S):
            while not self.answers[name]:
                self._has_answered.clear()
                await self._has_answered.wait()
        (error,) = self.answers[name]
        return error


@pytest.fixture
async def engine() -> AsyncIterator[FakeEngine]:
    engine = FakeEngine(Script(max_utterances=1))
    await engine.start()
    yield engine
    await engine.close()


async def test_where_there_is_room_the_answer_comes_at_once(engine: FakeEngine) -> None:
    desk = Desk(engine, WaitingLimits())
    desk.ask("a")
    assert desk.answers["a"] == [None]
    desk.ask("b", voice="nobody")  # nothing that a wait would help
    assert isinstance(desk.answers["b"][0], UnknownVoice)


async def test_those_who_wait_are_let_in_in_order(engine: FakeEngine) -> None:
    desk = Desk(engine, WaitingLimits(wait_s=60.0))
    for name in "abc":
        desk.ask(name)
    assert (desk.answers["b"], desk.answers["c"], desk.admission.num_waiting) == ([], [], 2)
    desk.end("a")
    assert (desk.answers["b"], desk.answers["c"]) == ([None], [])
    desk.end("b")
    assert desk.answers["c"] == [None]
    assert desk.admission.num_waiting == 0


async def test_nobody_gets_past_those_who_wait(engine: FakeEngine) -> None:
    desk = Desk(engine, WaitingLimits(wait_s=60.0))
    desk.ask("a")
    desk.ask("b")
    engine.cancel(UtteranceId("a"))  # there is room, and nobody was told yet
    desk.ask("c")
    assert desk.answers["c"] == []
    assert await desk.until_answered("b") is None  # by asking again
    assert desk.answers["c"] == []


async def test_who_waited_for_long_enough_is_turned_away(engine: FakeEngine) -> None:
    desk = Desk(engine, WaitingLimits(wait_s=0.02))
    desk.ask("a")
    desk.ask("b")
    error = await desk.until_answered("b")
    assert isinstance(error, Overloaded)
    assert "no room within 0.02 s" in str(error)
    desk.end("a")
    desk.ask("c")
    assert desk.answers["c"] == [None]


async def test_a_line_that_is_full_turns_away_at_once(engine: FakeEngine) -> None:
    desk = Desk(engine, WaitingLimits(num_waiting=1, wait_s=60.0))
    for name in "abc":
        desk.ask(name)
    (error,) = desk.answers["c"]
    assert isinstance(error, Overloaded)
    assert "1 others wait" in str(error)


async def test_where_nobody_waits_the_engines_word_counts(engine: FakeEngine) -> None:
    desk = Desk(engine, WaitingLimits(num_waiting=0))
    desk.ask("a")
    desk.ask("b")
    (error,) = desk.answers["b"]
    assert isinstance(error, Overloaded)
    assert "1 utterances run already" in str(error)
    assert desk.admission.max_waiting == 0


async def test_who_withdraws_is_not_answered(engine: FakeEngine) -> None:
    desk = Desk(engine, WaitingLimits(wait_s=60.0))
    for name in "abc":
        desk.ask(name)
    desk.admission.withdraw(UtteranceId("b"))
    desk.end("a")
    assert (desk.answers["b"], desk.answers["c"]) == ([], [None])
    assert engine.num_live == 1


async def test_an_engine_that_stops_answers_all(engine: FakeEngine) -> None:
    desk = Desk(engine, WaitingLimits(wait_s=60.0))
    for name in "abc":
        desk.ask(name)
    await engine.close()
    assert isinstance(await desk.until_answered("b"), EngineStopped)
    assert isinstance(await desk.until_answered("c"), EngineStopped)


class ShortOfDrones(FakeEngine):
    """Room for all, but for one voice none."""

    is_short = True

    def submit(self, request: UtteranceRequest) -> None:
        if request.voice == "drone" and self.is_short:
            raise VoiceOverloaded("no engine process that has the voice drone has room")
        super().submit(request)


async def test_who_waits_for_a_voice_without_room_holds_up_nobody_else() -> None:
    engine = ShortOfDrones()
    await engine.start()
    desk = Desk(engine, WaitingLimits(num_waiting=3, wait_s=60.0))
    for name in ("a", "b"):
        desk.ask(name, "drone")
    desk.ask("c", "hum")
    assert (desk.answers["a"], desk.answers["b"], desk.answers["c"]) == ([], [], [None])
    desk.ask("d", "drone")
    desk.ask("e", "hum")
    assert (desk.answers["d"], desk.answers["e"]) == ([], [None]), "a full line of others is none of theirs"
    desk.ask("f", "drone")
    assert isinstance(desk.answers["f"][0], Overloaded)
    engine.is_short = False
    desk.admission.note_end()
    assert [desk.answers[name] for name in "abd"] == [[None]] * 3
    await engine.close()


# --- those who come back from rest ----------------------------------------------------------------------------


class PickyEngine(FakeEngine):
    """Takes nobody of a kind while that is full."""

    def __init__(self) -> None:
        super().__init__()
        self.takes_new = self.takes_returns = True

    def submit(self, request: UtteranceRequest) -> None:
        if not self.takes_new:
            raise Overloaded("no room in the models")
        super().submit(request)

    def readmit(self, utterance_id: UtteranceId) -> None:
        if not self.takes_returns:
            raise Overloaded("no place")


@pytest.fixture
async def picky() -> AsyncIterator[PickyEngine]:
    engine = PickyEngine()
    await engine.start()
    yield engine
    await engine.close()


async def test_who_comes_back_does_not_wait_behind_new_requests(picky: PickyEngine) -> None:
    desk = Desk(picky, WaitingLimits(wait_s=60.0))
    picky.takes_new = False
    desk.ask("new")
    desk.ask("back", is_return=True)
    assert (desk.answers["new"], desk.answers["back"]) == ([], [None])
    picky.takes_returns = False
    desk.ask("late", is_return=True)
    assert desk.answers["late"] == []
    picky.takes_returns = True
    desk.admission.note_end()
    assert (desk.answers["new"], desk.answers["late"]) == ([], [None])
    picky.takes_new = True
    assert await desk.until_answered("new") is None


async def test_new_requests_do_not_wait_behind_who_comes_back(picky: PickyEngine) -> None:
    desk = Desk(picky, WaitingLimits(wait_s=60.0))
    picky.takes_returns = False
    desk.ask("back", is_return=True)
    desk.ask("new")
    assert (desk.answers["back"], desk.answers["new"]) == ([], [None])
    desk.admission.withdraw(UtteranceId("back"))
    assert desk.admission.num_waiting == 0


async def test_where_all_wait_in_vain_that_is_known_until_somebody_gets_room(engine: FakeEngine) -> None:
    desk = Desk(engine, WaitingLimits(wait_s=0.02))
    desk.ask("a")
    desk.ask("b")
    assert isinstance(await desk.until_answered("b"), Overloaded)
    await until(lambda: desk.admission.is_in_vain)
    desk.end("a")
    assert not desk.admission.is_in_vain
