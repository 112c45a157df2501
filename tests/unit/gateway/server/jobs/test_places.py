"""How many parts may run beside live streams, by what the engine tells of its places."""

import pytest

from voicegate.gateway.server.jobs.places import Places, places_of


def gauges(num_all: int, num_active: int, num_waiting: int = 0) -> dict[str, float]:
    return {"max_active_clauses": num_all, "active_clauses": num_active, "waiting_clauses": num_waiting}


def test_places_are_clauses_and_not_places_of_those_who_wait() -> None:
    assert places_of(112, 1024, gauges(80, 0)) == Places(num_free=80, num_all=80, num_full=11)
    assert places_of(25, 64, gauges(8, 8, 7)) == Places(num_free=-7, num_all=8, num_full=1)


def test_an_engine_that_tells_no_clauses_has_a_place_for_each_utterance() -> None:
    assert places_of(3, 4, {}) == Places(num_free=3, num_all=4, num_full=4)


def test_few_utterances_at_once_may_be_fewer_than_clauses() -> None:
    assert places_of(2, 2, gauges(8, 0)) == Places(num_free=2, num_all=2, num_full=1)


@pytest.mark.parametrize(
    ("num_taken", "num_parts", "num_on_their_way", "num_more", "num_short"),
    [
        (0, 0, 0, 64, 0),  # alone they fill an H200
        (78, 64, 0, 0, 0),
        (310, 20, 0, 26, 0),  # a quarter of the places is left to live streams
        (310, 20, 9, 17, 0),
        (392, 20, 0, 0, 0),
        (393, 20, 0, 0, 1),  # of which half must stay free
        (448, 20, 0, 0, 56),
    ],
)
def test_parts_leave_places_to_live_streams(
    num_taken: int, num_parts: int, num_on_their_way: int, num_more: int, num_short: int
) -> None:
    places = Places(448 - num_taken, 448, 64)
    assert places.num_more(num_parts, num_on_their_way) == num_more
    assert places.num_short == num_short


def test_one_part_goes_on_wherever_there_is_a_place() -> None:
    assert Places(3, 8, 1).num_more(0) == 1
    assert Places(1, 1, 1).num_more(0) == 1
