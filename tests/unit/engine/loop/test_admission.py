"""Who gets room in the models: the most urgent first, and a large clause that waits is not overtaken for ever."""

from collections import deque
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.golden import TINY_MODEL_DIR
from voicegate.engine.config import EngineConfig
from voicegate.engine.loop.admission import Admission
from voicegate.engine.loop.clause import Clause
from voicegate.engine.loop.outlook import Outlook
from voicegate.engine.loop.watchlist import WatchList

pytestmark = pytest.mark.unit

CONFIG = EngineConfig(TINY_MODEL_DIR, lead_ms=3000, max_waiting_utterances=2).resolved("cpu")


class Room:
    """Stands for the pipeline: clauses need as much room as they have text tokens."""

    def __init__(self, free: int) -> None:
        self.free = free
        self.num_releases = 0
        self.num_active = 0

    def can_start(self, clause: Clause) -> bool:
        return len(clause.text_ids) <= self.free

    def start(self, clause: Clause) -> None:
        self.free -= len(clause.text_ids)
        self.num_active += 1

    def release(self, amount: int) -> None:
        self.free += amount
        self.num_releases += 1
        self.num_active -= 1


def utterance(size: int, *, since_s: float, deadline_s: float | None = None) -> Any:
    clause = Clause(0, 0, "x", [1] * size, is_text_complete=True)
    urgency = since_s if deadline_s is None else deadline_s
    stamps = SimpleNamespace(first_text_s=since_s)
    request = SimpleNamespace(lead_ms=None)
    return SimpleNamespace(
        clauses=deque([clause]), urgency=urgency, deadline_s=deadline_s, stamps=stamps, request=request
    )


class Desk:
    """An Admission with its surroundings."""

    def __init__(self, free: int, config: EngineConfig = CONFIG) -> None:
        self.room: Any = Room(free)
        self.watched = WatchList()
        self.admission = Admission(config, self.room, Outlook(config, self.room), self.watched)
        self.utterances: dict[int, Any] = {}

    def arrive(self, key: int, arrival: Any) -> None:
        self.utterances[key] = arrival
        self.watched.touched.add(key)

    def admitted(self, now_s: float = 10.0) -> list[int]:
        keys = []
        for key, clause in self.admission.admit(self.utterances, now_s):
            self.room.start(clause)
            self.utterances[key].clauses.clear()
            keys.append(key)
        self.watched.touched.clear()
        return keys


def test_the_oldest_newcomer_comes_first_and_listeners_behind_newcomers() -> None:
    desk = Desk(free=3)
    desk.arrive(1, utterance(1, since_s=5.0))
    desk.arrive(2, utterance(1, since_s=4.0))
    desk.arrive(3, utterance(1, since_s=1.0, deadline_s=11.0))
    assert desk.admitted() == [2, 1, 3]


def test_who_finds_no_room_waits_until_some_is_given_back() -> None:
    desk = Desk(free=1)
    desk.arrive(1, utterance(2, since_s=1.0))
    assert desk.admitted() == []
    assert desk.admitted() == []
    desk.room.release(1)
    assert desk.admitted() == [1]


def test_a_small_newcomer_does_not_overtake_a_large_one_that_waits() -> None:
    desk = Desk(free=1)
    desk.arrive(1, utterance(5, since_s=1.0))
    assert desk.admitted() == []
    desk.arrive(2, utterance(1, since_s=2.0))
    assert desk.admitted() == [], "there is room for it, but not its turn"
    desk.room.release(3)
    assert desk.admitted() == []
    desk.room.release(2)
    assert desk.admitted() == [1, 2]


def crowded(num_active: int, num_waiting: int, config: EngineConfig = CONFIG) -> Desk:
    desk = Desk(num_active, config)
    for key in range(num_active + num_waiting):
        desk.arrive(key, utterance(1, since_s=key / 100))
    assert desk.admitted() == list(range(num_active))
    return desk


def test_many_who_wait_start_in_groups() -> None:
    desk = crowded(num_active=30, num_waiting=19)
    admitted = []
    for _ in range(10):
        desk.room.release(1)
        admitted.append(desk.admitted())
    assert admitted == [[], [], [30, 31, 32], [], [33, 34], [], [35, 36], [], [37, 38], [39]], (
        "a sixth of those who wait"
    )


def test_few_who_wait_start_one_by_one() -> None:
    for desk in (crowded(30, 11), crowded(8, 30)):
        first = desk.room.num_active
        desk.room.release(1)
        assert desk.admitted() == [first]


@given(num_active=st.integers(1, 60), num_waiting=st.integers(0, 100))
def test_all_who_wait_have_started_when_as_many_clauses_have_ended(num_active: int, num_waiting: int) -> None:
    desk = crowded(num_active, num_waiting)
    num_started = num_active
    while desk.room.num_active:
        desk.room.release(1)
        num_started += len(desk.admitted())
    assert num_started == num_active + num_waiting


def test_many_who_wait_make_it_full() -> None:
    desk = Desk(free=0)
    desk.arrive(1, utterance(1, since_s=1.0))
    desk.admitted()
    assert not desk.admission.is_full
    desk.arrive(2, utterance(1, since_s=2.0))
    desk.admitted()
    assert desk.admission.is_full
    desk.admission.forget(1)
    assert not desk.admission.is_full


def test_a_listener_with_enough_to_play_gets_an_alarm_instead() -> None:
    desk = Desk(free=9)
    desk.arrive(1, utterance(1, since_s=1.0, deadline_s=20.0))
    assert desk.admitted(now_s=10.0) == []
    assert desk.watched.next_alarm_s == 17.0
