"""Room in the models goes to the most urgent first, and a large clause that waits is not overtaken for ever."""

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.golden import TINY_MODEL_DIR
from tests.unit.engine.core.rostered import Looked, StubModels, stub_utterance, with_a_block
from voicegate.engine.config import EngineConfig
from voicegate.engine.core.clause import Clause, ClauseState
from voicegate.engine.core.policy import Limits
from voicegate.engine.core.room import Room
from voicegate.engine.core.roster import Roster
from voicegate.engine.core.stages import ReadyVoice
from voicegate.engine.flow.chunking import BatchSize

CONFIG = EngineConfig(TINY_MODEL_DIR, lead_ms=3000, max_waiting_utterances=2).resolved("cpu")
LIMITS = Limits(BatchSize(4, 200), room_guard_s=1.0)


class Models(StubModels):
    """Clauses need as much room as they have text tokens."""

    def __init__(self, free: int) -> None:
        self.free = free
        self.num_releases = 0
        self.active: list[Clause] = []

    def can_start(self, clause: Clause) -> bool:
        return len(clause.text_ids) <= self.free

    def release(self, amount: int) -> None:
        self.free += amount
        self.num_releases += 1
        self.active = self.active[:-1]


class Desk(Looked):
    """A Room with its surroundings."""

    def __init__(self, free: int) -> None:
        super().__init__(CONFIG, LIMITS, Models(free))
        self.brought_back: list[ReadyVoice] = []
        self.started: list[Any] = []
        arrivals: Any = SimpleNamespace(bring_back=self.brought_back.append)
        speaking: Any = SimpleNamespace(start=self._start)
        voices: Any = SimpleNamespace(is_any_leaving=False, is_leaving=lambda _: voices.is_any_leaving)
        self.voices = voices
        fail: Any = None
        self.room = Room(CONFIG, self.models, self.roster, speaking, arrivals, voices, self.guarding, fail)

    def _start(self, utterance: Any, clause: Clause, *, are_many: bool) -> None:
        self.started.append(utterance)
        self.models.free -= len(clause.text_ids)
        self.models.active.append(clause)
        clause.state = ClauseState.RENDERING
        clause.rendering = with_a_block()

    def arrive(self, size: int, *, since_s: float, deadline_s: float | None = None) -> Any:
        arrival = stub_utterance(since_s=since_s, deadline_s=deadline_s)
        arrival.clauses.append(Clause(arrival.key, 0, "x", [1] * size, is_text_complete=True))
        self.roster.add(arrival)
        return arrival

    def admitted(self, now_s: float = 10.0) -> list[Any]:
        self.started.clear()
        self.roster.look(now_s)
        self.room.give_out(now_s)
        return list(self.started)


def test_new_requests_come_in_their_order_and_listeners_who_have_time_behind_them() -> None:
    desk = Desk(free=3)
    listener = desk.arrive(1, since_s=1.0, deadline_s=11.5)
    second, first = desk.arrive(1, since_s=5.0), desk.arrive(1, since_s=4.0)
    assert desk.admitted() == [first, second, listener]


def test_a_listener_about_to_have_an_underrun_goes_before_new_requests_however_long_these_have_waited() -> None:
    desk = Desk(free=1)
    new_request = desk.arrive(1, since_s=1.0)
    dry, listener = desk.arrive(1, since_s=0.0, deadline_s=9.0), desk.arrive(1, since_s=0.0, deadline_s=10.9)
    admitted = []
    for _ in range(3):
        admitted += desk.admitted()
        desk.models.release(1)
    assert admitted == [dry, listener, new_request]


def test_who_finds_no_room_waits_until_some_is_given_back() -> None:
    desk = Desk(free=1)
    arrival = desk.arrive(2, since_s=1.0)
    assert desk.admitted() == []
    assert desk.admitted() == []
    desk.models.release(1)
    assert desk.admitted() == [arrival]


def test_a_small_new_request_does_not_overtake_a_large_one_that_waits() -> None:
    desk = Desk(free=1)
    large = desk.arrive(5, since_s=1.0)
    assert desk.admitted() == []
    small = desk.arrive(1, since_s=2.0)
    assert desk.admitted() == [], "there is room for it, but not its turn"
    desk.models.release(3)
    assert desk.admitted() == []
    desk.models.release(2)
    assert desk.admitted() == [large, small]


def crowded(num_active: int, num_waiting: int) -> tuple[Desk, list[Any]]:
    desk = Desk(num_active)
    arrivals = [desk.arrive(1, since_s=number / 100) for number in range(num_active + num_waiting)]
    assert desk.admitted() == arrivals[:num_active]
    return desk, arrivals[num_active:]


def test_those_who_wait_start_one_by_one_as_clauses_end() -> None:
    desk, waiting = crowded(num_active=30, num_waiting=19)
    for each in waiting[:3]:
        assert desk.admitted() == []
        desk.models.release(1)
        assert desk.admitted() == [each]


@given(num_active=st.integers(1, 60), num_waiting=st.integers(0, 100))
def test_all_who_wait_have_started_when_as_many_clauses_have_ended(num_active: int, num_waiting: int) -> None:
    desk, _ = crowded(num_active, num_waiting)
    num_started = num_active
    while desk.models.active:
        desk.models.release(1)
        num_started += len(desk.admitted())
    assert num_started == num_active + num_waiting


def test_so_many_are_welcome_as_find_room_or_a_place_to_wait() -> None:
    desk = Desk(free=CONFIG.max_active_clauses)
    assert desk.room.num_welcome == CONFIG.max_active_clauses + 2
    for _ in range(CONFIG.max_active_clauses):
        desk.arrive(1, since_s=1.0)
    desk.admitted()
    assert desk.room.num_welcome == 2
    first = desk.arrive(1, since_s=2.0)
    desk.admitted()
    assert desk.room.num_welcome == 1
    unread = stub_utterance(since_s=3.0)
    unread.feed.wants_reading = True
    desk.roster.add(unread)
    desk.admitted()
    assert desk.room.num_welcome == 0, "it may come to wait"
    desk.roster.remove(first)
    assert desk.room.num_welcome == 1


def test_a_listener_with_enough_to_play_gets_an_alarm_instead() -> None:
    desk = Desk(free=9)
    arrival = desk.arrive(1, since_s=1.0, deadline_s=20.0)
    assert desk.admitted(now_s=10.0) == []
    assert desk.next_alarm_s(10.0) == 17.0
    assert desk.admitted(now_s=17.0) == [arrival]


def test_who_waits_for_a_voice_is_in_nobodys_way() -> None:
    desk = Desk(free=2)
    voiceless = desk.arrive(1, since_s=1.0)
    voiceless.voice.flow_prompt.rendered = None
    other = desk.arrive(1, since_s=2.0)
    assert desk.admitted() == [other]
    assert desk.brought_back == [voiceless.voice]
    assert not desk.roster.is_room_short
    voiceless.voice.flow_prompt.rendered = "some blocks"
    assert desk.admitted() == [voiceless]


def test_who_comes_after_one_that_waits_for_a_voices_room_does_not_begin_with_that() -> None:
    desk = Desk(free=3)
    first, voiceless, later = (desk.arrive(1, since_s=since_s) for since_s in (1.0, 2.0, 3.0))
    voiceless.voice.flow_prompt.rendered = None
    desk.voices.is_any_leaving = True
    assert desk.admitted() == [first]
    assert desk.room.voices_in_use == [first.voice, voiceless.voice]
    voiceless.voice.flow_prompt.rendered = "some blocks"
    assert desk.admitted() == [voiceless, later]


def test_who_speaks_is_told_by_one_look_at_each_however_many_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    desk = Desk(free=3)
    arrivals = [desk.arrive(1, since_s=float(number)) for number in range(30)]
    arrivals[0].voice.flow_prompt.rendered = None
    desk.voices.is_any_leaving = True
    rounds, whole = [], Roster.__iter__

    def counted(roster: Roster) -> Iterator[Any]:
        rounds.append(1)
        return whole(roster)

    monkeypatch.setattr(Roster, "__iter__", counted)
    assert desk.room.voices_in_use == [arrivals[0].voice]
    assert len(rounds) == 2


def test_who_waits_for_a_voice_has_no_new_request_refused() -> None:
    desk = Desk(free=CONFIG.max_active_clauses)
    for _ in range(2):  # so many may wait for room
        desk.arrive(1, since_s=1.0).voice.flow_prompt.rendered = None
    assert desk.admitted() == []
    assert desk.room.num_welcome == CONFIG.max_active_clauses
    desk.arrive(1, since_s=2.0)
    assert len(desk.admitted()) == 1
    assert desk.room.num_welcome == CONFIG.max_active_clauses - 1


def test_where_the_one_who_waited_for_room_has_gone_others_wait_for_no_end() -> None:
    desk = Desk(free=2)
    active = desk.arrive(1, since_s=1.0)
    assert desk.admitted() == [active]
    large, small = desk.arrive(2, since_s=2.0), desk.arrive(1, since_s=3.0)
    assert desk.admitted() == []
    desk.roster.remove(large)
    assert desk.admitted() == [small]
