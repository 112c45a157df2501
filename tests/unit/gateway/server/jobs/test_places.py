"""How many parts may run beside live streams, by what the engine tells of its places."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from voicegate.engine.interface import Engine, EngineStats
from voicegate.gateway.server.jobs.places import Places, places_of


def engine(room: int, most_utterances: int, **gauges: float) -> Engine:
    told: Any = SimpleNamespace(room=room, info=SimpleNamespace(max_utterances=most_utterances))
    told.stats = lambda: EngineStats(gauges=gauges)
    return cast(Engine, told)


def test_places_are_clauses_and_not_places_of_those_who_wait() -> None:
    told = engine(112, 1024, max_active_clauses=80, active_clauses=0, waiting_clauses=0)
    assert places_of(told) == Places(num_free=80, num_all=80, num_full=11)
    told = engine(25, 64, max_active_clauses=8, active_clauses=8, waiting_clauses=7)
    assert places_of(told) == Places(num_free=-7, num_all=8, num_full=1)


def test_an_engine_that_tells_no_clauses_has_a_place_for_each_utterance() -> None:
    assert places_of(engine(3, 4)) == Places(num_free=3, num_all=4, num_full=4)


def test_few_utterances_at_once_may_be_fewer_than_clauses() -> None:
    told = engine(2, 2, max_active_clauses=8, active_clauses=0, waiting_clauses=0)
    assert places_of(told) == Places(num_free=2, num_all=2, num_full=1)


@pytest.mark.parametrize(
    ("num_taken", "num_parts", "expected"),
    [
        (0, 0, 64),  # alone they fill an H200
        (78, 64, 64),
        (6, 0, 40),  # beside 20 live streams
        (56, 40, 40),
        (100, 4, 4),  # beside 300: a few go on
    ],
)
def test_parts_alone_fill_a_device_and_make_way_for_live_streams(num_taken: int, num_parts: int, expected: int) -> None:
    places = Places(448 - num_taken, 448, 64)
    assert places.num_for_parts(places.num_live(num_parts)) == expected


def test_one_part_goes_on_wherever_there_is_a_place() -> None:
    assert Places(3, 8, 1).num_for_parts(5.0) == 1
