"""Voices that come and go over engine processes that come and go, too: who has which, and who waits for whom.

The processes are tasks of the test's own loop behind real sockets; one with a model is in tests/integration.
"""

import asyncio
import hashlib
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial

import pytest
from structlog.testing import capture_logs

from tests.contract.listener import Listener
from tests.support.patience import PATIENCE_S
from tests.support.polling import until
from tests.support.replicas import RoutedEngine, hasten, routed, running
from voicegate.engine.fake.engine import FakeEngine
from voicegate.engine.interface import (
    Done,
    EngineError,
    NewVoice,
    Overloaded,
    VoiceConflict,
    VoiceInfo,
    VoiceOverloaded,
    VoiceRefused,
)

RECORDING, OTHER = b"RIFF of one", b"RIFF of another"


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    hasten(monkeypatch)


class Keeping(FakeEngine):
    """With a directory of voices, room for so many, and what it refuses first; it waits for `may_make` with each."""

    def __init__(
        self,
        directory: dict[str, VoiceInfo] | None = None,
        *,
        num_places: int = 100,
        refusals: tuple[EngineError, ...] = (),
        makes_at_once: bool = True,
    ) -> None:
        super().__init__()
        self._directory = {} if directory is None else directory
        own = [voice for voice in self._voices if voice.name not in self._directory]
        self._voices = [*own, *self._directory.values()]
        self._num_places = num_places
        self._refusals = list(refusals)
        self.asked: list[str] = []  # to make
        self.may_make = asyncio.Event()
        if makes_at_once:
            self.may_make.set()

    def has(self, name: str) -> bool:
        return name in {voice.name for voice in self._voices}

    async def add_voice(self, voice: NewVoice) -> VoiceInfo:
        self.asked.append(voice.name)
        await self.may_make.wait()
        if self._refusals:
            raise self._refusals.pop(0)
        if len(self._voices) >= self._num_places:  # as VoiceShelf: one that is replaced lies beside the new one
            raise VoiceConflict("no room for another")
        plain = await super().add_voice(voice)
        if voice.is_clone:
            return plain
        made = VoiceInfo(voice.name, plain.description, digest=hashlib.sha256(voice.recording).hexdigest())
        self._voices[self._voices.index(plain)] = made
        self._directory[voice.name] = made
        return made

    async def remove_voice(self, name: str) -> None:
        await super().remove_voice(name)
        self._directory.pop(name, None)


def in_turn(*engines: FakeEngine) -> Callable[[], FakeEngine]:
    """Processes of one place, one after the other."""
    return partial(list[FakeEngine].pop, list(engines), 0)


@asynccontextmanager
async def coming_back(back: Keeping, other: Keeping) -> AsyncIterator[Listener]:
    """`back` has come for a lost process; it lacks the guest, whom `other` has."""
    async with running(in_turn(Keeping(), back), in_turn(other)) as listener:
        engine = routed(listener)
        await engine.add_voice(NewVoice("guest", RECORDING))
        await until(lambda: other.has("guest"))
        await replaced(engine)
        yield listener


async def replaced(engine: RoutedEngine, number: int = 0) -> None:
    """Another process serves in its place."""
    num_lost = engine.stats().counters["replicas_lost"]
    engine.host.kill(number)
    await until(lambda: engine.stats().counters["replicas_lost"] == num_lost + 1)
    await until(lambda: engine.stats().gauges["replica_ready"] == len(engine.stats().engines))


def able(engine: RoutedEngine, voice: str) -> int:
    """So many processes are asked for it."""
    return sum(voice in replica.voices for replica in engine._serving)


async def spoken(listener: Listener, name: str, voice: str) -> None:
    await until(lambda: able(routed(listener), voice) > 0)
    assert isinstance(await listener.until_end(listener.submit(name, voice=voice, text="One.", end=True)), Done)


# --- one that comes back ----------------------------------------------------------------------------------


async def test_a_process_that_comes_back_serves_while_it_makes_the_voices_that_it_lacks() -> None:
    back = Keeping(makes_at_once=False)
    async with running(in_turn(Keeping(), back)) as listener:
        engine = routed(listener)
        for name in ("guest", "gone"):
            await engine.add_voice(NewVoice(name, RECORDING))
        await replaced(engine)
        await until(lambda: back.asked == ["guest"])
        await spoken(listener, "u", "hum")
        with pytest.raises(VoiceOverloaded):
            listener.submit("early", voice="guest")
        async with asyncio.timeout(PATIENCE_S):
            await engine.remove_voice("gone")
        removing = asyncio.create_task(engine.remove_voice("drone"))
        await until(lambda: {voice.name for voice in engine.info.voices} == {"hum", "guest"})
        assert not removing.done(), "it may come back while the only process has not heard of it"
        back.may_make.set()
        await removing
        assert not back.has("drone")
        await spoken(listener, "v", "guest")
        assert back.asked == ["guest"], "the other was taken away before it was made"


async def test_what_it_lacks_is_spoken_by_those_that_have_it_and_made_without_holding_up_a_change() -> None:
    back, other = Keeping(makes_at_once=False), Keeping()
    async with coming_back(back, other) as listener:
        engine = routed(listener)
        for number in range(3):
            await spoken(listener, f"u{number}", "guest")
        assert not back.requests
        async with asyncio.timeout(PATIENCE_S):
            await engine.add_voice(NewVoice("late", RECORDING))
            await spoken(listener, "late", "late")
            await engine.remove_voice("drone")
        assert back.asked == ["guest"]
        back.may_make.set()
        await until(lambda: able(engine, "guest") == able(engine, "late") == 2)
        assert back.info.voices == other.info.voices == engine.info.voices


async def test_what_it_has_from_the_directory_unchanged_is_not_made_again() -> None:
    directory: dict[str, VoiceInfo] = {}
    first, back = Keeping(directory), Keeping(directory)
    async with running(in_turn(first, back)) as listener:
        engine = routed(listener)
        await engine.add_voice(NewVoice("guest", RECORDING))
        back._voices = [*back._voices, *directory.values()]  # as it will find them
        await replaced(engine)
        assert able(engine, "guest") == 1
        await spoken(listener, "u", "guest")
        await engine.add_voice(NewVoice("other", RECORDING))
        assert back.asked == ["other"]


async def test_what_was_changed_since_the_directory_was_read_is_made() -> None:
    stale = {"guest": VoiceInfo("guest", "", digest=hashlib.sha256(OTHER).hexdigest())}
    back = Keeping(stale, makes_at_once=False)
    async with running(in_turn(Keeping(), back)) as listener:
        engine = routed(listener)
        await engine.add_voice(NewVoice("guest", RECORDING))
        await replaced(engine)
        with pytest.raises(VoiceOverloaded):
            listener.submit("early", voice="guest")
        back.may_make.set()
        await until(lambda: stale["guest"].digest == hashlib.sha256(RECORDING).hexdigest())
        await spoken(listener, "u", "guest")


async def test_a_voice_that_was_taken_away_while_it_was_made_goes_again() -> None:
    back, other = Keeping(makes_at_once=False), Keeping()
    async with coming_back(back, other) as listener:
        engine = routed(listener)
        await until(lambda: back.asked == ["guest"])
        await engine.remove_voice("guest")
        back.may_make.set()
        await until(lambda: back.info.voices == other.info.voices == engine.info.voices)
        assert not back.has("guest")


async def test_a_voice_that_was_replaced_while_it_was_made_is_made_as_it_is() -> None:
    back, other = Keeping(makes_at_once=False), Keeping()
    async with coming_back(back, other) as listener:
        engine = routed(listener)
        await until(lambda: back.asked == ["guest"])
        await engine.add_voice(NewVoice("guest", OTHER, is_replacing=True))
        back.may_make.set()
        await until(lambda: back.info.voices == engine.info.voices)
        assert back.asked == ["guest", "guest"]


async def test_one_that_takes_long_holds_up_nobody_but_its_own_name() -> None:
    """On the only process, too."""
    slow = asyncio.Event()

    class Picky(Keeping):
        async def add_voice(self, voice: NewVoice) -> VoiceInfo:
            if voice.name == "slow":
                self.asked.append(voice.name)
                await slow.wait()
            return await super().add_voice(voice)

    only = Picky()
    async with running(in_turn(only)) as listener:
        engine = routed(listener)
        adding = asyncio.create_task(engine.add_voice(NewVoice("slow", RECORDING)))
        await until(lambda: only.asked == ["slow"])
        again = asyncio.create_task(engine.add_voice(NewVoice("slow", RECORDING)))
        async with asyncio.timeout(PATIENCE_S):
            await engine.add_voice(NewVoice("guest", RECORDING))
            await spoken(listener, "u", "guest")
            await engine.remove_voice("drone")
        assert not again.done()
        slow.set()
        await adding
        with pytest.raises(VoiceConflict, match="there is a voice 'slow' already"):
            await again


# --- clones -----------------------------------------------------------------------------------------------


async def test_a_clone_is_with_every_process_and_in_no_list() -> None:
    first, back, other = Keeping(), Keeping(), Keeping()
    async with running(in_turn(first, back), in_turn(other)) as listener:
        engine = routed(listener)
        before = engine.info.voices
        await engine.add_voice(NewVoice("clone-1", RECORDING, is_clone=True))
        assert (engine.info.voices, engine.info.clones) == (before, ("clone-1",))
        await until(lambda: able(engine, "clone-1") == 2)
        await replaced(engine)
        await until(lambda: back.info.clones == ("clone-1",))
        await spoken(listener, "u", "clone-1")
        await engine.remove_voice("clone-1")
        await until(lambda: not back.info.clones and not other.info.clones)
        assert (engine.info.voices, engine.info.clones) == (before, ())
        assert not engine._voices.table.gone, "clones come and go by the thousand"


async def test_a_clone_that_went_while_it_was_made_goes_again() -> None:
    slow, other = Keeping(makes_at_once=False), Keeping()
    async with running(in_turn(slow), in_turn(other)) as listener:
        engine = routed(listener)
        adding = asyncio.create_task(engine.add_voice(NewVoice("clone-1", RECORDING, is_clone=True)))
        await until(lambda: bool(slow.asked or other.asked))
        if slow.asked:  # whichever was asked first answers
            slow.may_make.set()
        await adding
        await engine.remove_voice("clone-1")
        slow.may_make.set()
        await until(lambda: not slow.info.clones and not other.info.clones)


# --- room -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("num_spare", [0, 1])
async def test_one_that_was_taken_away_and_added_again_survives_its_process(num_spare: int) -> None:
    """All room is taken: what changed needs it before what came, or its own old one's where no other is left."""
    num_places = 2 + num_spare
    first, back = Keeping(num_places=num_places), Keeping(num_places=num_places)
    async with running(in_turn(first, back)) as listener:
        engine = routed(listener)
        for number in range(num_spare):
            await engine.add_voice(NewVoice(f"guest{number}", RECORDING))
        await engine.remove_voice("drone")
        await engine.add_voice(NewVoice("drone", RECORDING, description="another"))
        with capture_logs() as logs:
            await replaced(engine)
            await until(lambda: all(able(engine, voice.name) for voice in engine.info.voices))
        assert "voice_not_everywhere" not in {entry["event"] for entry in logs}
        assert set(back.info.voices) == set(engine.info.voices)
        assert back.asked == (["drone", "guest0"] if num_spare else ["drone", "drone"])
        await spoken(listener, "u", "drone")


async def test_one_that_comes_waits_until_a_process_has_those_before_it() -> None:
    """Else it would take their room."""
    back = Keeping(num_places=3, makes_at_once=False)
    async with running(in_turn(Keeping(num_places=3), back)) as listener:
        engine = routed(listener)
        await engine.add_voice(NewVoice("guest", RECORDING))
        await replaced(engine)
        adding = asyncio.create_task(engine.add_voice(NewVoice("late", RECORDING)))
        await until(lambda: back.asked == ["guest"])
        back.may_make.set()
        with pytest.raises(VoiceConflict):
            await adding
        await spoken(listener, "u", "guest")


# --- refused ----------------------------------------------------------------------------------------------


async def test_one_that_had_no_memory_just_now_is_asked_again() -> None:
    busy = Overloaded("speech takes all memory", retry_after_ms=0)
    full = Keeping(refusals=(busy, EngineError("its maker has ended"), busy))
    async with running(in_turn(Keeping()), in_turn(full)) as listener:
        engine = routed(listener)
        with capture_logs() as logs:
            await engine.add_voice(NewVoice("guest", RECORDING))
            await until(lambda: able(engine, "guest") == 2)
            await until(lambda: logs[-1]["event"] == "voice_taken_after_all")  # it is told after it is able
        utterances = [listener.submit(f"u{number}", voice="guest", text="One, two.") for number in range(2)]
        await listener.until_heard(*utterances)
        assert full.num_live == 1
        told = [entry["reason"] for entry in logs if entry["event"] == "voice_not_everywhere"]
        assert told == ["speech takes all memory", "its maker has ended", "speech takes all memory"]


async def test_what_is_refused_for_good_is_not_asked_again_until_it_is_another() -> None:
    small = Keeping(refusals=(VoiceRefused("too long for this one"),))
    async with running(in_turn(Keeping()), in_turn(small)) as listener:
        engine = routed(listener)
        await engine.add_voice(NewVoice("guest", RECORDING))
        await engine.add_voice(NewVoice("other", RECORDING))
        await until(lambda: small.has("other"))
        assert small.asked == ["guest", "other"]
        await engine.add_voice(NewVoice("guest", OTHER, is_replacing=True))
        await until(lambda: small.has("guest"))


async def test_an_engine_that_is_asked_again_is_left_alone_for_as_long_as_it_says() -> None:
    full = Keeping(refusals=(Overloaded("full", retry_after_ms=3_600_000),))
    async with running(in_turn(Keeping()), in_turn(full)) as listener:
        engine = routed(listener)
        await engine.add_voice(NewVoice("guest", RECORDING))
        await engine.add_voice(NewVoice("other", RECORDING))
        await until(lambda: full.has("other"))
        assert full.asked == ["guest", "other"]
